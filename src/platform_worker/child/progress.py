"""What a child says of itself while it works: how long its source has had no contact, how old the task in hand is.

Said by the watcher's thread, so that a source which hangs is heard of as well, and only for a source that promises
contact. A handler may hold the interpreter's lock for as long as it likes, and nothing can be said meanwhile: so the
first task after a pulse that said "none in hand" says so itself, at once.
"""

from __future__ import annotations

from _thread import allocate_lock
from time import monotonic

from platform_worker.protocol.lifeline import format_pulse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from platform_worker.ports import Self

#: Between two pulses, in seconds. With the one that a task's start may add, no more than one a second.
PERIOD = 2.0


class Progress:
    """The main thread notes what it does, which costs next to nothing; ``tick`` says it, when that is due."""

    def __init__(self, process: Self, clock: Callable[[], float] = monotonic) -> None:
        self._process = process
        self._clock = clock
        self._saying = allocate_lock()
        self._limit_ms: int | None = None
        self._next = 0.0
        #: Whether the source has the floor; if not, it owes no contact.
        self._asking = False
        self._contact = 0.0
        self._task_since: float | None = None
        self._said_idle = True

    def watch(self, limit_ms: int) -> None:
        """From now on the source owes contact every ``limit_ms``."""
        self._limit_ms = limit_ms
        self._process.nudge()

    def close(self) -> None:
        """No pulse follows: what comes next is the last word."""
        with self._saying:
            self._limit_ms = None

    def contact(self) -> None:
        """The source's back end has answered."""
        self._contact = self._clock()

    def ask(self) -> None:
        """The source has the floor."""
        self._contact = self._clock()
        self._asking = True

    def rest(self) -> None:
        """The source is not asked for anything."""
        self._asking = False

    def begin_task(self) -> None:
        """A handler is entered."""
        self._task_since = self._clock()
        if self._said_idle and self._limit_ms is not None:
            with self._saying:
                self._say()

    def end_task(self) -> None:
        """It has returned; what follows is the source's again."""
        self._contact = self._clock()
        self._task_since = None

    def tick(self) -> float | None:
        """Says what is due; in how many seconds the next is, or ``None`` where nothing is promised."""
        with self._saying:
            if self._limit_ms is None:
                return None
            left = self._next - self._clock()
            if left > 0:
                return left
            self._say()
            return PERIOD

    def _say(self) -> None:
        if self._limit_ms is None:
            return
        now = self._clock()
        self._next = now + PERIOD
        # Before the look, not after it: a task that begins in between must see it, and speak for itself.
        self._said_idle = True
        since, silent = self._task_since, 0.0
        if since is not None:
            self._said_idle = False
        elif self._asking:
            silent = max(0.0, now - self._contact)
        age = None if since is None else int((now - since) * 1000)
        self._process.mention(format_pulse(self._limit_ms, int(silent * 1000), age))
