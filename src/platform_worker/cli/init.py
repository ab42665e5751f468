"""``worker init``: writes a ``worker.toml`` and a ``tasks.py`` to begin with; overwrites nothing."""

from __future__ import annotations

import os
import shlex

from platform_worker import wiring_build
from platform_worker.cli.job_arguments import parser, say, say_json
from platform_worker.errors import EXIT_OK

#: What to do next, each with its reason; for a root elsewhere, with its ``--root``.
_NEXT = (
    ("build", "record the settings and the names of the tasks"),
    ("start", "in this terminal: run the pool; Ctrl-C stops it"),
    ("enqueue {job}", "in another one: one job; prints its id"),
    ("jobs", "what became of it"),
)
_HELLO = """hello --data '{"name": "Ada"}'"""


def run(root: str, args: list[str], json_output: bool) -> int:
    """Writes what is missing of the two files; 0, or a ``WorkerError`` where both are there already."""
    own = parser(
        "init",
        "Writes a commented worker.toml and a tasks.py with one small handler into the root. Overwrites nothing: where "
        "one of them is there, only the other is written.",
        "worker --root my-app init",
    )
    own.parse_args(args)
    files = wiring_build.initialize(root)
    if json_output:
        say_json({"files": files, "status": "ok"})
        return EXIT_OK
    for name in files:
        say(f"wrote {name}")
    say("next:")
    job = _HELLO if "tasks.py" in files else "NAME --data '{…}'"
    commands = [(f"{_worker(root)} {command.format(job=job)}", why) for command, why in _NEXT]
    width = max(len(command) for command, _ in commands)
    for command, why in commands:
        say(f"  {command:<{width}}   # {why}")
    return EXIT_OK


def _worker(root: str) -> str:
    """The command, so that it finds this root from here."""
    here = os.path.abspath(os.environ.get("WORKER_ROOT") or os.getcwd())
    return "worker" if root == here else f"worker --root {shlex.quote(os.path.relpath(root))}"
