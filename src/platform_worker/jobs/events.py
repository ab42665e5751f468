"""Log events of jobs, through one settable sink.

A source has no logger of its own: its process (a child) sets the sink to the log of the process. Until then an event
is one JSON line on stderr. Data, results and errors of jobs are never fields.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Sink = Callable[[str, str, dict[str, Any]], None]


def _to_stderr(level: str, event: str, fields: dict[str, Any]) -> None:
    import json
    import os
    import time

    record = {**fields, "event": event, "level": level, "timestamp": time.time()}
    try:
        os.write(2, (json.dumps(record, sort_keys=True) + "\n").encode())
    except OSError:
        # Whoever read stderr is gone. A job is not failed for that.
        return


_sink: Sink = _to_stderr


def set_sink(sink: Sink | None) -> None:
    """``sink(level, event, fields)`` takes every event from now on; ``None`` goes back to stderr."""
    global _sink  # noqa: PLW0603  one process, one log
    _sink = sink if sink is not None else _to_stderr


def emit(level: str, event: str, /, **fields: Any) -> None:
    """Writes one event; ``level`` is debug, info, warning or error."""
    _sink(level, event, fields)


_stacks_fd = 2


def set_stacks(fd: int) -> None:
    """Where the stacks of a process that is ended at a job's hard deadline are written; stderr until then."""
    global _stacks_fd  # noqa: PLW0603  one process, one such end
    _stacks_fd = fd


def stacks() -> int:
    """What ``set_stacks`` said."""
    return _stacks_fd
