"""The fence's locks on disk, for the guardian. Readers use ``host/fence.py``.

``worker.lock`` is locked on a descriptor of the guardian's own. ``worker.members`` is locked on the open file that the
supervisor opened and the children inherit: flock belongs to the open file, so it is free only when the last process
that has it is gone.
"""

from __future__ import annotations

import fcntl
import os

from platform_worker.host.fence import LOCK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class FlockFence:
    """The ``Fence`` of ``root``; ``members`` is the inherited descriptor, which stays open until ``release``.

    ``clear_older`` ends what other means than the locks know of older generations, and says whether nobody is left.
    """

    def __init__(self, root: str, members: int, clear_older: Callable[[], bool]) -> None:
        self._path = os.path.join(root, LOCK)
        self._members = members
        self._clear_older = clear_older
        self._lock = -1
        self._alone = False
        self._cleared = False

    def try_lock(self) -> bool:
        """Opens (and at the very first start creates) the file, and locks it."""
        if self._lock < 0:
            self._lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        return _try(self._lock, fcntl.LOCK_EX)

    def try_members(self) -> bool:
        """Takes the members exclusively, which proves that nobody is left, then shares them.

        To convert a flock is to let go and take again, and in between a probe may slip in; then it has to be taken
        again. No other guardian can: this one holds ``worker.lock``. So what an older one left behind may be ended.
        """
        self._cleared = self._cleared or self._clear_older()
        if not self._cleared:
            return False
        self._alone = self._alone or _try(self._members, fcntl.LOCK_EX)
        return self._alone and _try(self._members, fcntl.LOCK_SH)

    def next_generation(self) -> int:
        """The number in the file plus one; flushed to disk before anyone hears of it.

        An empty file has never held one. A number that cannot be read must not make the next one smaller than one that
        was used, so counting goes on from the time in seconds, which is beyond any count of starts.
        """
        text = os.pread(self._lock, 64, 0)
        number = _number(text)
        if number is None:
            import time

            number = int(time.time())
            os.ftruncate(self._lock, 0)
        line = b"%d\n" % (number + 1)
        if os.pwrite(self._lock, line, 0) != len(line):
            raise OSError("short write")
        os.fsync(self._lock)
        return number + 1

    def release(self) -> None:
        """By closing only: the members lock stays with whoever else has the open file, the supervisor for one."""
        for fd in (self._members, self._lock):
            if fd >= 0:
                os.close(fd)
        self._members = self._lock = -1

    def abandon(self) -> None:
        """After a failed claim: nothing was started, so the members lock is let go for the supervisor too."""
        if self._alone:
            fcntl.flock(self._members, fcntl.LOCK_UN)
        self.release()


def _try(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _number(text: bytes) -> int | None:
    if text == b"":
        return 0
    digits = text[:-1]
    if text.endswith(b"\n") and digits.isdigit() and len(digits) <= 15:
        return int(digits)
    return None
