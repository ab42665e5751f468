"""What a service manager is told of a pool, and when. Pure; ``now`` is monotonic seconds.

The messages are those of ``sd_notify(3)``, one datagram each, lines joined by newlines::

    STATUS=Starting: 1 of 4 workers ready
    EXTEND_TIMEOUT_USEC=15000000

Only what it does not know yet is said. A message that could not be handed over now is due again, in its newest form.
"""

from __future__ import annotations

from platform_worker.pool.states import PoolStatus
from platform_worker.value import Value

#: A start or stop asks for so much time at once, in seconds, and again at half of it, as long as its own budgets last:
#: one that hangs is found out by the manager soon.
_STRIDE = 10.0
#: Beyond the budgets: files, fence, the last of telemetry.
_SLACK = 5.0
#: After a message that could not be handed over, in seconds.
_RETRY = 0.1
#: Between two signs of life, at least, in seconds: a watchdog below any sense must not make us spin.
_SHORTEST = 0.01


class Outlook(Value):
    """What is visible of a pool. ``until``: when its own budgets end the start or stop under way at the latest."""

    status: PoolStatus
    ready: int
    workers: int
    #: Whether every slot has been ready once.
    announced: bool
    failure: str | None
    until: float | None

    @property
    def sentence(self) -> str:
        """For the eyes of an operator; nothing in it is secret."""
        if self.status is PoolStatus.STOPPING:
            return "Stopping" if self.failure is None else f"Stopping: {self.failure}"
        return f"{self.status.value.capitalize()}: {self.ready} of {self.workers} workers ready"


class Notices:
    """``due`` says what to send now; then ``told`` or ``missed``, and ``due`` again until it is ``None``."""

    def __init__(self, pid: int, watchdog: float | None) -> None:
        """``pid``: the supervisor's. ``watchdog``: within how many seconds a sign of life is expected, if at all."""
        self._pid = pid
        self._interval = None if watchdog is None else max(watchdog / 2, _SHORTEST)
        self._sentence = ""
        self._ready = False
        self._stopping = False
        self._extend_at = 0.0
        self._alive_at = 0.0
        self._retry_at: float | None = None
        self._offered: list[str] = []

    def next_deadline(self, seen: Outlook) -> float | None:
        """When ``due`` may have something by time alone."""
        if self._retry_at is not None:
            return self._retry_at
        due = [self._alive_at] if self._interval is not None else []
        if seen.until is not None and self._extend_at < seen.until:
            due.append(self._extend_at)
        return min(due, default=None)

    def due(self, seen: Outlook, now: float) -> str | None:
        """One message, or ``None``."""
        if self._retry_at is not None and now < self._retry_at:
            return None
        self._offered = self._lines(seen, now)
        return "\n".join(self._offered) or None

    def _lines(self, seen: Outlook, now: float) -> list[str]:
        stopping = seen.status is PoolStatus.STOPPING
        if seen.announced and not self._ready:
            # By itself where the stop came in the same moment: of two such words in a message only the last counts.
            ready = ["READY=1"] if self._pid == 1 else ["READY=1", f"MAINPID={self._pid}"]
            return ready if stopping else [*ready, f"STATUS={seen.sentence}"]
        lines = []
        if stopping and not self._stopping:
            lines.append("STOPPING=1")
        if seen.sentence != self._sentence:
            lines.append(f"STATUS={seen.sentence}")
        if seen.until is not None and now < seen.until and (now >= self._extend_at or "STOPPING=1" in lines):
            seconds = min(_STRIDE, seen.until - now) + _SLACK
            lines.append(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")
        if self._interval is not None and now >= self._alive_at:
            lines.append("WATCHDOG=1")
        return lines

    def told(self, now: float) -> None:
        """What ``due`` gave was handed over, or never will be."""
        self._retry_at = None
        for line in self._offered:
            word, _, value = line.partition("=")
            if word == "READY":
                self._ready = True
            elif word == "STOPPING":
                self._stopping = True
            elif word == "STATUS":
                self._sentence = value
            elif word == "EXTEND_TIMEOUT_USEC":
                self._extend_at = now + _STRIDE / 2
            elif word == "WATCHDOG" and self._interval is not None:
                self._alive_at = now + self._interval

    def missed(self, now: float) -> None:
        """What ``due`` gave could not be handed over now."""
        self._retry_at = now + _RETRY
