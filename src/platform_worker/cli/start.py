"""``worker start``: runs the pool in the foreground."""

from __future__ import annotations

import sys

from platform_worker.errors import EXIT_OK, WorkerAlreadyRunningError, WorkerUsageError
from platform_worker.wiring import run_start

_HELP = """usage: worker start [--root DIR] [--json] [--build] [--until-empty | --once]

Runs the pool in the foreground until it is told to stop (`worker stop`, SIGTERM, SIGINT). Prints one summary line once
every child is ready. Logs go to stderr.

  --build        build first, unless a pool is running; without a selected generation it builds in any case
  --until-empty  end when nothing claimable is left
  --once         end after at most one job, with one child

example: worker --root /srv/app start --build
"""
_OPTIONS = ("--build", "--until-empty", "--once")


def run(root: str, args: list[str], json_output: bool) -> int:
    """The exit code, or a ``WorkerError``."""
    if "--help" in args or "-h" in args:
        sys.stdout.write(_HELP)
        return EXIT_OK
    for word in args:
        if word not in _OPTIONS:
            hints = [
                "start takes --build, --until-empty and --once only",
                "workers, timeouts and the like are set in worker.toml, under [worker]",
            ]
            raise WorkerUsageError("worker-usage-invalid", hints=hints)
    if "--until-empty" in args and "--once" in args:
        raise WorkerUsageError("worker-usage-invalid", hints=["--until-empty and --once exclude each other"])
    try:
        return run_start(
            root,
            build="--build" in args,
            until_empty="--until-empty" in args,
            once="--once" in args,
            json_output=json_output,
        )
    except WorkerAlreadyRunningError as error:
        hint = "a pool runs on this root, or the last of one is ending; `worker status` asks, `worker stop` ends it"
        raise WorkerAlreadyRunningError(error.reason, hints=[hint]) from error
