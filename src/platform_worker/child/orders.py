"""What a child has been told: by its guardian over the lifeline, and by signals. No I/O of its own.

The watcher thread writes here, the main thread reads. While the child boots, a stop ends the process at once: there is
nothing to settle yet, and an import that never ends must not hold up a stop.
"""

from __future__ import annotations

from _queue import SimpleQueue
from _thread import allocate_lock

from platform_worker.protocol.lifeline import DONE, GO, GO_ON, STOP, TERMINATE, parse_down

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.child.progress import Progress
    from platform_worker.ports import Self, Wake
    from platform_worker.tasks.interrupt import Guard


class Orders:
    """The orders of one child, from its first moment to its last."""

    def __init__(self, process: Self, wake: Wake, guard: Guard) -> None:
        self._process = process
        self._wake = wake
        self._guard = guard
        self._words: SimpleQueue[str] = SimpleQueue()
        self._first: SimpleQueue[bytes] = SimpleQueue()
        self._heard = False
        self._booting = True
        self._phase = allocate_lock()
        self._stopping = False

    def first_line(self) -> bytes:
        """What the guardian said first; blocks until it has."""
        return self._first.get()

    def line(self, line: bytes) -> None:
        """One line of the guardian's: the boot line, then words."""
        if self._heard:
            self.hear(parse_down(line))
        else:
            self._heard = True
            self._first.put(line)

    def booted(self) -> None:
        """There is a source now: from here on a stop is a matter for the main thread."""
        with self._phase:
            self._booting = False

    def stop_requested(self) -> bool:
        """No further task is to be taken."""
        return self._stopping

    def wait(self) -> str:
        """The next of ``go``, ``go on`` and ``stop``; blocks until there is one."""
        return STOP if self._stopping else self._words.get()

    def hear(self, word: str) -> None:
        """One word of the guardian's."""
        if word in (GO, GO_ON):
            self._words.put(word)
            return
        if word == TERMINATE:
            self._guard.terminating = True
        self.stop()
        if word == TERMINATE:
            self._process.interrupt()

    def stop(self) -> None:
        """The cooperative stop; a signal from outside means the same."""
        with self._phase:
            if self._booting:
                self._process.say(DONE)
                self._process.leave()
        self._stopping = True
        self._wake.set()
        self._words.put(STOP)

    def signalled(self) -> None:
        """The cooperative stop from within a signal handler: takes no lock, waits for nothing, may interrupt itself."""
        if not self._booting:
            self._stopping = True
            self._wake.set()
            self._words.put(STOP)

    def lost(self) -> None:
        """The guardian is gone. Nobody would reap this child, and a new generation waits for it to end."""
        self._process.die()


class TaskContext:
    """The ``SourceContext`` of a child: cancellation is a stop, or the end of the child's limit of tasks."""

    def __init__(
        self, orders: Orders, progress: Progress, wake: Wake, worker_index: int, worker_count: int, wait_ms: int
    ) -> None:
        self.worker_index = worker_index
        self.worker_count = worker_count
        self.max_blocking_wait_ms = wait_ms
        self.contact = progress.contact
        self._orders = orders
        self._wake = wake
        self._limit_reached = False

    def cancellation_requested(self) -> bool:
        return self._limit_reached or self._orders.stop_requested()

    def fileno(self) -> int:
        return self._wake.fileno()

    def reach_limit(self) -> None:
        """The last task is in hand."""
        self._limit_reached = True
        self._wake.set()

    def renew_limit(self) -> None:
        """Another round of tasks; a stop that came meanwhile stands."""
        self._limit_reached = False
        self._wake.clear()
        if self._orders.stop_requested():
            self._wake.set()
