"""The deadline of a job: ``JobTimeout`` in the handler, and a second later the end of the process.

The end is ``faulthandler``'s: its watchdog is a thread of C that needs no interpreter lock, so it also ends, after
writing every thread's stack, a handler that sits in C code. In a child the stacks go over the lifeline, which also
tells the supervisor why the child ends. Whoever recovers the claim sees that its deadline had passed.
"""

from __future__ import annotations

import faulthandler
import signal

from platform_worker.jobs import events
from platform_worker.jobs.errors import JobTimeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_GRACE_S = 1.0


class Deadline:
    """A context manager for the main thread. Nothing else in the process may use SIGALRM meanwhile."""

    def __init__(self, timeout_ms: int, job_id: str) -> None:
        self._seconds = timeout_ms / 1000
        self._job_id = job_id
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._ring)
        try:
            faulthandler.dump_traceback_later(self._seconds + _GRACE_S, exit=True, file=events.stacks())
        except (OSError, ValueError, RuntimeError):
            # Nowhere to write to: the soft deadline is left.
            faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, self._before)

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        raise JobTimeout(f"the job's timeout of {self._seconds:g} s has passed")
