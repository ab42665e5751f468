"""The supervisor's own process: signals, standard descriptors, and its one child, the guardian."""

from __future__ import annotations

import os
import signal
import time

from platform_worker.host import procfs
from platform_worker.pool.states import StopMode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

#: A second signal within this time of the first is the same stop: service managers and terminals deliver it twice.
_SAME_STOP = 0.5
#: How long orphans of a dead guardian are waited for, in seconds.
_ORPHANS = 1.0


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
        self._first: float | None = None
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(signum, self._note)
        for signum in (signal.SIGHUP, signal.SIGCHLD):
            signal.signal(signum, _nothing)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

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


def _nothing(signum: int, frame: FrameType | None) -> None:
    """To be woken up is the point."""


class GuardianHandle:
    """Implements ``Guardian``: the only child that we know; whatever else becomes ours is reaped and forgotten."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
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

    def kill_orphans(self) -> None:
        """Until nobody is left whose parent we are. The guardian ends by itself when its channel is closed."""
        until = time.monotonic() + _ORPHANS
        while not self._no_child() and time.monotonic() < until:
            for pid in procfs.children():
                if pid != self._pid or self._reaped:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except (ProcessLookupError, PermissionError):
                        continue
            signal.sigtimedwait([signal.SIGCHLD], 0.005)

    def _no_child(self) -> bool:
        self.reap_strangers()
        try:
            return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and self._childless()
        except ChildProcessError:
            return True

    def _childless(self) -> bool:
        return not procfs.children()
