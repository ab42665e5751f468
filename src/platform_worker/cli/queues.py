"""``worker queues``: every queue with its counts; pauses and resumes one."""

from __future__ import annotations

from platform_worker import Queue
from platform_worker.cli.job_arguments import parser, say, say_json, table

_HEADS = ("NAME", "PAUSED", "QUEUED", "PROCESSING", "RETRY_WAIT", "COMPLETED", "FAILED", "CANCELLED", "OLDEST_S")
_COUNTS = ("queued", "processing", "retry_wait", "completed", "failed", "cancelled", "oldest_queued_seconds")


def run(root: str, args: list[str], json_output: bool) -> int:
    """Runs the command; 0, or a ``WorkerError``."""
    own = parser(
        "queues",
        "Lists the queues with their jobs by status. A paused queue takes jobs in and gives none out.",
        "worker queues\n  worker queues pause default\n  worker queues resume default",
    )
    own.add_argument("action", nargs="?", choices=("pause", "resume"))
    own.add_argument("name", nargs="?", metavar="NAME")
    options = own.parse_args(args)
    if (options.action is None) != (options.name is None):
        own.error("pause and resume take the NAME of a queue")
    with Queue.open(root) as queue:
        if options.action is not None:
            (queue.pause if options.action == "pause" else queue.resume)(options.name)
            if json_output:
                say_json({"count": 1, "status": "ok"})
            else:
                say(f"{options.action}d: {options.name}")
            return 0
        found = queue.counts()
    if json_output:
        records = [
            {"name": name, "paused": counts.paused, **{key: getattr(counts, key) for key in _COUNTS}}
            for name, counts in found.items()
        ]
        say_json({"queues": records, "status": "ok"})
        return 0
    table(
        _HEADS,
        (
            (name, "yes" if counts.paused else "no", *(getattr(counts, key) for key in _COUNTS))
            for name, counts in found.items()
        ),
    )
    return 0
