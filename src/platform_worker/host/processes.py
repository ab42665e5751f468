"""The guardian's children and the orphans that came to it.

All of them are this process's children and it alone reaps them, so none of their numbers can be given to another
process before ``reap``: a signal sent earlier reaches whom it is meant for.
"""

from __future__ import annotations

import errno
import os
import signal

from platform_worker.host import procfs
from platform_worker.ports_processes import Stranger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_ZOMBIE = ("Z", "X")


class KernelFamily:
    """The ``Family`` of the calling process."""

    def ended(self) -> int | None:
        """Looks without reaping: the group of a process that is not reaped can still be signalled safely."""
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        return None if found is None else found.si_pid

    def reap(self, pid: int) -> tuple[int | None, int | None]:
        """Does not block: the process has ended."""
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return (code, None) if code >= 0 else (None, -code)

    def report(self, fd: int) -> str | None:
        """The errno that exec failed with came through, or the pipe closed on exec. Closes ``fd``."""
        try:
            text = os.read(fd, 16)
        except BlockingIOError:
            text = b""
        finally:
            os.close(fd)
        if not text:
            return None
        refused = int(text) in (errno.EAGAIN, errno.ENOMEM)
        return "worker-fork-failed" if refused else "worker-child-start-failed"

    def strangers(self, known: Sequence[int]) -> list[Stranger]:
        """Zombies are left out: they are reaped like every other child."""
        found = []
        for pid in procfs.children():
            if pid in known:
                continue
            seen = procfs.stat(pid)
            if seen is not None and seen.state not in _ZOMBIE:
                found.append(Stranger(pid, procfs.mark(pid), seen.session))
        return found

    def kill(self, pid: int) -> bool:
        """SIGKILL to one process; its own children come to us next. A program that runs as someone else is not ours."""
        try:
            os.kill(pid, signal.SIGKILL)
        except PermissionError:
            return False
        except ProcessLookupError:
            return True
        return True
