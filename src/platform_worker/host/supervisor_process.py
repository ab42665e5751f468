"""The supervisor's own process: signals, standard descriptors, and its one child, the guardian."""

from __future__ import annotations

import os
import select
import signal
import time

from platform_worker.host import procfs
from platform_worker.pool.states import StopMode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

#: A second signal within this time of the first is the same stop: service managers and terminals deliver it twice.
_SAME_STOP = 0.5
#: How long one process is waited for that must end now, in seconds.
_PATIENCE = 1.0
#: Between two looks at a cgroup that was told to end.
_LOOK_AGAIN = 0.002


def keep_standard_descriptors() -> None:
    """No socket of ours may get the number 0, 1 or 2: what is closed there is opened on nothing."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
            os.set_inheritable(fd, True)


class SignalStops:
    """What signals have asked for. The handlers only note the time; the wake-up of the waiter does the rest."""

    def __init__(self) -> None:
        self._noted: list[StopMode] = []
        #: Called by the handler itself, for what has to end before the loop runs.
        self.at_once: Callable[[], None] | None = None
        self._first: float | None = None
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(signum, self._note)
        for signum in (signal.SIGHUP, signal.SIGCHLD):
            signal.signal(signum, _nothing)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def end(self) -> None:
        """The process is about to end with its own exit code, which no signal may take from it.

        An interpreter that ends gives the signals it handles their default back; those it ignores stay ignored.
        """
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)

    @property
    def pending(self) -> bool:
        """Whether a stop was asked for that nobody has taken yet."""
        return bool(self._noted)

    def take(self) -> list[StopMode]:
        """The stops since the last call."""
        noted, self._noted = self._noted, []
        return noted

    def _note(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002  the interpreter's
        now = time.monotonic()
        if signum == signal.SIGQUIT:
            self._noted.append(StopMode.KILLING)
        elif self._first is None:
            self._first = now
            self._noted.append(StopMode.GRACEFUL)
        elif now - self._first >= _SAME_STOP:
            self._noted.append(StopMode.HURRIED)
        if self.at_once is not None:
            self.at_once()


def _nothing(signum: int, frame: FrameType | None) -> None:
    """To be woken up is the point."""


class GuardianHandle:
    """Implements ``Guardian``: the only child that we know; whatever else becomes ours is reaped and forgotten.

    ``clear`` ends what the cgroup of a generation without a guardian holds, and says whether nobody is left.
    """

    def __init__(self, pid: int, clear: Callable[[int], bool]) -> None:
        self._pid = pid
        self._clear = clear
        self._reaped = False

    def ended(self) -> bool:
        return self._reaped

    def reap_strangers(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._reaped = True
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._reaped = True

    def kill(self) -> None:
        if not self._reaped:
            try:
                os.kill(self._pid, signal.SIGKILL)  # not reaped, so the number is still its own
            except ProcessLookupError:
                return

    def finish(self, generation: int | None) -> None:
        """Waits until the guardian is gone, then ends what its death has made ours of that worker generation."""
        if not self._wait(self._pid, _PATIENCE):
            self.kill()
            self._wait(self._pid, _PATIENCE)
        self.reap_strangers()
        if generation is None:
            return
        while left := self._orphans(generation):
            for pid in left:
                os.kill(pid, signal.SIGKILL)  # our own child, not reaped yet: the number is still its own
            gone = [self._wait(pid, _PATIENCE) for pid in left]
            if not all(gone):
                return  # not even SIGKILL ends it: the kernel's matter, and its members lock keeps the fence
        until = time.monotonic() + _PATIENCE
        while not self._clear(generation) and time.monotonic() < until:
            select.select([], [], [], _LOOK_AGAIN)
        self.reap_strangers()

    def _orphans(self, generation: int) -> list[int]:
        """Only what carries the generation's mark: who started us may have left us children of its own."""
        marks = [(pid, procfs.mark(pid)) for pid in procfs.children()]
        return [pid for pid, mark in marks if mark is not None and mark.startswith(f"{generation}.")]

    def _wait(self, pid: int, seconds: float) -> bool:
        """Reaps ``pid``; false where it has not ended in time."""
        if pid == self._pid and self._reaped:
            return True  # its number may be another process's by now
        try:
            handle = os.pidfd_open(pid)
        except OSError:  # reaped already
            return True
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            if not poll.poll(seconds * 1000):
                return False
        finally:
            os.close(handle)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass
        if pid == self._pid:
            self._reaped = True
        return True
