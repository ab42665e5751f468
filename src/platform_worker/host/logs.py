"""The log of a process, onto a descriptor that never holds us up.

Where the application has configured structlog, its processors take our events. Else they are JSON lines, or structlog's
coloured lines where stderr is a terminal. A process in which nobody has imported structlog does not for a line of JSON:
that takes a tenth of a second of processor, and a child often writes its first line when it is told to end at once. The
line is the same to the letter. Lines go to the descriptor with one ``write`` each, not through ``sys.stderr``: a
buffered stream that a signal handler or a second thread enters again raises "reentrant call". A reader that stalls or
goes away costs lines, never time: supervision goes on.
"""

from __future__ import annotations

import json
import os
import select
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from platform_worker.ports import Level

#: One write of this size is taken whole by a pipe that polls writable (PIPE_BUF).
_CHUNK = 4096
#: A field is for a number or a word; whatever is longer is cut.
_FIELD_MAX = 512
#: A traceback's bound: the end of it, where the cause stands, is kept.
_TRACEBACK_MAX = 16384


class StderrLog:
    """Implements ``Log`` on a descriptor."""

    def __init__(self, fd: int, **bound: object) -> None:
        self._fd = _own_description(fd)
        self._bound = bound
        self._logger: Callable[..., None] | None = None
        #: The last line was cut off: the next one begins with the newline it lacks.
        self._torn = False
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)

    def warm(self) -> None:
        """Imports what the first line will need, at a moment when that holds nobody up."""
        try:
            if self._logger is None:
                self._logger = _make_logger(self.write)
        except Exception:  # noqa: BLE001  the edge to the application's log configuration: tried again at the first line
            return

    def event(self, level: Level, event: str, /, **fields: object) -> None:
        try:
            if self._logger is None:
                self._logger = _make_logger(self.write)
            self._logger(level, event, {**self._bound, **{key: _bounded(value) for key, value in fields.items()}})
        except Exception:  # noqa: BLE001  the edge to the application's log configuration: what is logged goes on without
            return

    def failure(self, level: Level, event: str, error: BaseException, /, **fields: object) -> None:
        try:
            text = _format_traceback(error)
        except Exception:  # noqa: BLE001  an exception whose own text cannot be made
            text = type(error).__name__
        self.event(level, event, **fields, exception=_Traceback(text))

    def quote(self, level: Level, event: str, text: str, /, **fields: object) -> None:
        self.event(level, event, **fields, exception=_Traceback(text[:_TRACEBACK_MAX]))

    def emit(self, level: Level, event: str, fields: dict[str, Any]) -> None:
        """The same as ``event``, in the form that sources hand their events over in."""
        self.event(level, event, **fields)

    def write(self, text: str) -> None:
        """One line; what does not fit now is dropped."""
        data = (b"\n" if self._torn else b"") + text.encode("utf-8", "backslashreplace") + b"\n"
        whole = len(data)
        try:
            while data and self._writable():
                data = data[os.write(self._fd, data[:_CHUNK]) :]
        except OSError:  # full after all, or nobody reads any more
            pass
        self._torn = 0 < len(data) < whole or (self._torn and len(data) == whole)

    def _writable(self) -> bool:
        return any(events & select.POLLOUT for _, events in self._poll.poll(0))


class _Traceback(str):
    """Text that keeps its length."""

    __slots__ = ()


def _bounded(value: object) -> object:
    if isinstance(value, _Traceback):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_bounded(item) for item in value[:16]]
    text = str(value)
    return text if len(text) <= _FIELD_MAX else text[:_FIELD_MAX] + "…"


def _format_traceback(error: BaseException) -> str:
    import traceback

    text = "".join(traceback.format_exception(error)).rstrip("\n")
    return text if len(text) <= _TRACEBACK_MAX else "…" + text[-_TRACEBACK_MAX:]


def _make_logger(write: Callable[[str], None]) -> Callable[[str, str, dict[str, object]], None]:
    """Chosen once, at the first line: by then the application's modules have configured what they want."""
    terminal = _is_terminal()
    if "structlog" not in sys.modules and not terminal:
        return lambda level, event, fields: write(_json_line(level, event, fields))
    import structlog

    if structlog.is_configured():
        theirs = structlog.get_logger("platform_worker")
        return lambda level, event, fields: getattr(theirs, level)(event, **fields)
    render: Callable[..., Any] = structlog.processors.JSONRenderer(sort_keys=True, ensure_ascii=False)
    if terminal:
        render = structlog.dev.ConsoleRenderer()
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)

    def log(level: str, event: str, fields: dict[str, object]) -> None:
        record = stamp(None, level, {**fields, "event": event, "level": level})
        write(str(render(None, level, record)))

    return log


def _json_line(level: str, event: str, fields: dict[str, object]) -> str:
    """What structlog's ``TimeStamper(fmt="iso", utc=True)`` and ``JSONRenderer`` make of it."""
    nanoseconds = time.time_ns()
    second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(nanoseconds // 10**9))
    timestamp = f"{second}.{nanoseconds // 1000 % 10**6:06d}Z"
    record = {**fields, "event": event, "level": level, "timestamp": timestamp}
    return json.dumps(record, sort_keys=True, ensure_ascii=False)


def _is_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except (OSError, ValueError):  # closed by the application
        return False


def _own_description(fd: int) -> int:
    """Where stderr is a pipe: another open file of it that does not block, without making it so for its other users.

    A file keeps the shared position, a socket cannot be opened again; both are asked before each write instead.
    """
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        pass
    return fd
