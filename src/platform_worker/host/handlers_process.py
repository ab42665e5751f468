"""Imports the handlers in a process of its own, for the build. See ``building/handlers_child.py``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from platform_worker.errors import WorkerBuildError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO, Any

#: -P: the current directory is the application's root, and only app.path says what of it can be imported.
_CODE = """\
import os, signal, sys
from platform_worker.host import prctl
if prctl.load():
    prctl.set_parent_death_signal(signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
from platform_worker.building.handlers_child import main
main(int(sys.argv[2]), sys.argv[3])
"""
_ANSWER_MAX_BYTES = 16 * 1024 * 1024


def import_handlers(
    root: str, path: Sequence[str], handlers: Sequence[str], *, log_exceptions: bool
) -> dict[str, dict[str, Any]]:
    """The tasks that the modules register, by name, as ``container.json`` has them.

    Takes as long as the import takes; whatever ends it early (Ctrl-C too) kills the process and its group. Raises
    ``WorkerBuildError("worker-handlers-unimportable")``; the application's traceback is on stderr by then.
    """
    if not handlers:
        return {}
    request = json.dumps({"handlers": list(handlers), "log_exceptions": log_exceptions, "path": list(path)})
    with _answer_file() as answer:
        # What the application prints goes where ours goes: stderr. It reads nothing, and is no part of our terminal's
        # foreground, so that a Ctrl-C is ours to handle.
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CODE, str(os.getpid()), str(answer.fileno()), request],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=_stderr(),
            pass_fds=(answer.fileno(),),
            process_group=0,
        )
        try:
            # Not reaped yet, its number is still its own: the whole group can be killed without hitting a stranger.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        finally:
            _kill_group(process.pid)
            process.wait()
        answer.seek(0)
        data = answer.read(_ANSWER_MAX_BYTES + 1)
    return _tasks(data)


def _answer_file() -> IO[bytes]:
    """In memory where the system can: a container with a read-only root may have no folder for temporary files."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("platform-worker-handlers"), "w+b")
    import tempfile

    return tempfile.TemporaryFile()


def _tasks(data: bytes) -> dict[str, dict[str, Any]]:
    try:
        value = json.loads(data) if len(data) <= _ANSWER_MAX_BYTES else None
    except ValueError:
        value = None
    if isinstance(value, dict) and isinstance(value.get("tasks"), dict):
        tasks: dict[str, dict[str, Any]] = value["tasks"]
        return tasks
    hint = "app.handlers: the process that imports them ended without an answer"
    if isinstance(value, dict) and isinstance(value.get("error"), str):
        hint = value["error"]
    raise WorkerBuildError("worker-handlers-unimportable", hints=[hint])


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _stderr() -> int:
    """Our stderr, or nothing where it was closed before we started."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2
