"""``worker init``: writes a ``worker.toml`` and a ``tasks.py`` to begin with; overwrites nothing."""

from __future__ import annotations

from platform_worker import wiring_build
from platform_worker.cli.job_arguments import parser, say, say_json
from platform_worker.errors import EXIT_OK

_NEXT = """\
next:
  worker start                                    # in this terminal: build and run the pool; Ctrl-C stops it
  worker enqueue hello --data '{"name": "Ada"}'   # in another one: one job; prints its id
  worker jobs                                     # what became of it"""


def run(root: str, args: list[str], json_output: bool) -> int:
    """Writes the two files; 0, or a ``WorkerError`` where one of them is there already."""
    own = parser(
        "init",
        "Writes a commented worker.toml and a tasks.py with one small handler into the root. Overwrites nothing.",
        "worker --root my-app init",
    )
    own.parse_args(args)
    files = wiring_build.initialize(root)
    if json_output:
        say_json({"files": files, "status": "ok"})
        return EXIT_OK
    for name in files:
        say(f"wrote {name}")
    say(_NEXT)
    return EXIT_OK
