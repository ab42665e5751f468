"""``worker jobs``: lists jobs, shows one, and what an operator does to them."""

from __future__ import annotations

import difflib
import json

from platform_worker import Queue, WorkerUsageError
from platform_worker.cli.job_arguments import Parser, duration, each, parser, say, say_json, table, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_FINISHED = ("completed", "failed", "cancelled")
_STATUSES = ("queued", "retry_wait", "processing", *_FINISHED)
_HEADS = ("ID", "STATUS", "QUEUE", "TASK", "ATTEMPT", "ENQUEUED", "ERROR")


def run(root: str, args: list[str], json_output: bool) -> int:
    """Runs the command; 0, or a ``WorkerError``."""
    if not args or args[0].startswith("-"):
        return _list(root, args, json_output)
    if args[0] not in _ACTIONS:
        raise _no_such(args[0])
    return _ACTIONS[args[0]](root, args[1:], json_output)


def _no_such(word: str) -> WorkerUsageError:
    near = difflib.get_close_matches(word, _ACTIONS, 1)
    rule = f"did you mean {near[0]}?" if near else f"known are {', '.join(_ACTIONS)}"
    return WorkerUsageError(
        "worker-usage-invalid",
        hints=[f"jobs has no such action; {rule}", "`worker jobs` alone lists jobs, `worker jobs show ID` shows one"],
    )


def _list(root: str, args: list[str], json_output: bool) -> int:
    own = parser(
        "jobs",
        "Lists jobs, newest first. Also: worker jobs show | retry | cancel | purge | recover (each with --help).",
        "worker jobs --status failed --limit 20\n  worker jobs show 0190b3c4-…",
    )
    own.add_argument("--status", choices=_STATUSES)
    own.add_argument("--queue", metavar="NAME")
    own.add_argument("--task", metavar="NAME")
    own.add_argument("--limit", type=whole, default=100, metavar="N")
    own.add_argument("--after", metavar="ID", help="the last id seen")
    options = own.parse_args(args)
    with Queue.open(root) as queue:
        jobs = queue.jobs(
            status=options.status, queue=options.queue, task=options.task, limit=options.limit, after=options.after
        )
    if json_output:
        say_json({"jobs": [job.to_json() for job in jobs], "status": "ok"})
        return 0
    table(_HEADS, (_cells(job.to_json()) for job in jobs))
    return 0


def _cells(job: dict[str, Any]) -> tuple[object, ...]:
    tried = f"{job['attempt']}/{job['max_attempts']}"
    reason = None if job["error"] is None else job["error"]["reason"]
    return (job["id"], job["status"], job["queue"], job["task"], tried, job["enqueued_at"], reason)


def _show(root: str, args: list[str], json_output: bool) -> int:
    own = parser("jobs show", "Prints one job whole, with its data, result and error.", "worker jobs show 0190b3c4-…")
    own.add_argument("id", metavar="ID")
    options = own.parse_args(args)
    with Queue.open(root) as queue:
        record = queue.get(options.id).to_json()
    if json_output:
        say_json({"job": record, "status": "ok"})
    else:
        say(json.dumps(record, indent=2, ensure_ascii=False))
    return 0


def _retry(root: str, args: list[str], json_output: bool) -> int:
    own = parser(
        "jobs retry",
        "Puts failed or cancelled jobs back on their queue, as new.",
        "worker jobs retry --failed --queue default",
    )
    own.add_argument("ids", nargs="*", metavar="ID")
    own.add_argument("--failed", action="store_true", help="all failed jobs")
    own.add_argument("--queue", metavar="NAME", help="with --failed: of this queue")
    options = own.parse_args(args)
    if bool(options.ids) == options.failed or (options.queue is not None and not options.failed):
        own.error("give IDs or --failed; --queue goes with --failed")
    with Queue.open(root) as queue:
        ids = queue.ids(status="failed", queue=options.queue) if options.failed else options.ids
        count = each(ids, queue.retry)
    return _counted("retried", count, json_output)


def _cancel(root: str, args: list[str], json_output: bool) -> int:
    own = parser(
        "jobs cancel", "Cancels waiting jobs; asks running ones to stop.", "worker jobs cancel 0190b3c4-… 0190b3c5-…"
    )
    own.add_argument("ids", nargs="+", metavar="ID")
    options = own.parse_args(args)
    asked = 0
    with Queue.open(root) as queue:

        def cancel(id: str) -> None:
            nonlocal asked
            queue.cancel(id)
            # A running one decides itself: its handler sees the request, or completes.
            asked += queue.get(id).status != "cancelled"

        count = each(options.ids, cancel)
    if json_output or not asked:
        return _counted("cancelled", count, json_output)
    if count > asked:
        _counted("cancelled", count - asked, json_output)
    return _counted("asked to stop", asked, json_output)


def _purge(root: str, args: list[str], json_output: bool) -> int:
    own = parser(
        "jobs purge", "Removes jobs that finished long ago.", "worker jobs purge --older-than 7d --status completed"
    )
    own.add_argument("--older-than", type=duration, required=True, metavar="DURATION", help="500ms, 30s, 5m, 2h, 7d")
    own.add_argument("--status", choices=_FINISHED)
    options = own.parse_args(args)
    with Queue.open(root) as queue:
        count = queue.purge(older_than=options.older_than, status=options.status)
    return _counted("removed", count, json_output)


def _recover(root: str, args: list[str], json_output: bool) -> int:
    own: Parser = parser(
        "jobs recover",
        "Gives out again the jobs whose worker's lease has ended; never a live one.",
        "worker jobs recover",
    )
    own.parse_args(args)
    with Queue.open(root) as queue:
        count = queue.recover()
    return _counted("recovered", count, json_output)


def _counted(word: str, count: int, json_output: bool) -> int:
    if json_output:
        say_json({"count": count, "status": "ok"})
    else:
        say(f"{word}: {count}")
    return 0


_ACTIONS: dict[str, Callable[[str, list[str], bool], int]] = {
    "show": _show,
    "retry": _retry,
    "cancel": _cancel,
    "purge": _purge,
    "recover": _recover,
}
