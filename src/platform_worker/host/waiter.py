"""The one wait: descriptors, ended processes, time. And what signals mean to a process that has no say in stopping."""

from __future__ import annotations

import os
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

#: A signal to the whole group is one stop, and the supervisor's business.
_NOT_MEANT_FOR_US = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


class PollWaiter:
    """A ``Waiter`` on ``poll``; an ended child process wakes it up."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._masks: dict[int, int] = {}
        self._wakeup, write_end = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        self._poll.register(self._wakeup, select.POLLIN)

    def watch(self, fd: int, read: bool, write: bool) -> None:
        """Waits for ``fd`` from now on; with neither, no more."""
        mask = (select.POLLIN if read else 0) | (select.POLLOUT if write else 0)
        if self._masks.get(fd, 0) == mask:
            return
        if mask:
            self._masks[fd] = mask
            self._poll.register(fd, mask)
        else:
            del self._masks[fd]
            self._poll.unregister(fd)

    def wait(self, seconds: float | None) -> list[tuple[int, bool, bool]]:
        """Rounds up to whole milliseconds: to wake up too early would be to spin until the deadline."""
        timeout = None if seconds is None else max(0, -int(-seconds * 1000 // 1))
        ready = []
        for fd, seen in self._poll.poll(timeout):
            if fd == self._wakeup:
                self._drain()
            else:
                ended = seen & (select.POLLHUP | select.POLLERR | select.POLLNVAL)
                ready.append((fd, bool(seen & select.POLLIN or ended), bool(seen & select.POLLOUT or ended)))
        return ready

    def _drain(self) -> None:
        try:
            while os.read(self._wakeup, 4096):
                pass
        except BlockingIOError:
            pass


def defer_signals() -> None:
    """Handlers that do nothing: ignored here, yet reset to the default in whatever is executed from here."""
    for signum in (*_NOT_MEANT_FOR_US, signal.SIGCHLD):
        signal.signal(signum, _nothing)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _nothing(signum: int, frame: FrameType | None) -> None:
    """To have a handler is the point: see ``defer_signals``."""
