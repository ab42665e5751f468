"""The ``spawn`` driver: starts the child's program through ``subprocess``, and runs no code of ours before it.

What only Unix has is here because the promises stand on it: the lifeline is an inherited socket, ``worker.members``
an inherited descriptor, the child leads a session, and the signals that stop it are blocked across its start. The
parent-death signal would need code between fork and exec, so the child arms it itself, see ``child/__main__``.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess

from platform_worker.errors import WorkerForkError, WorkerStartError
from platform_worker.host.fence_key import fence_key
from platform_worker.host.lifeline_ends import child_environment, lifeline_pair
from platform_worker.ports_processes import Launched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from platform_worker.ports_processes import Group

#: As with the fork driver: blocked across exec, until the child has its handlers.
_HELD_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})


class SpawnDriver:
    """Starts ``command`` in ``root`` with the lifeline as descriptor 0, stderr as 1 and 2, and ``members`` open."""

    def __init__(self, command: Sequence[str], root: str, members: int, group: Group | None) -> None:
        self._command = list(command)
        self._root = root
        self._fence = fence_key(root)
        self._members = members
        self._group = group

    def start(self, mark: str) -> Launched:
        """Returns when the program runs; ``subprocess`` itself waits for that."""
        try:
            lifeline, theirs = lifeline_pair()
        except OSError as error:
            raise WorkerForkError("worker-fork-failed") from error
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_SIGNALS)
        try:
            process = subprocess.Popen(
                self._command,
                stdin=theirs,
                stdout=2,
                cwd=self._root,
                env=child_environment(mark, self._fence),
                pass_fds=[self._members],
                start_new_session=True,
            )
        except OSError as error:
            lifeline.close()
            if error.errno in (errno.EAGAIN, errno.ENOMEM):
                raise WorkerForkError("worker-fork-failed") from error
            raise WorkerStartError("worker-child-start-failed") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(theirs)
        if self._group is not None:
            self._group.join(process.pid)  # it waits for its boot line, so it has started nothing of the application's
        process.returncode = 0  # the guardian reaps all its children itself; this object must not try to
        return Launched(process.pid, lifeline, None)

    def terminate(self, pid: int) -> None:
        """The child is not reaped yet, so its number is still its own."""
        _signal(pid, signal.SIGTERM)

    def kill(self, pid: int) -> None:
        """The group too: see ``start_new_session``."""
        _signal(-pid, signal.SIGKILL)
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return  # gone, or a group of nothing but the dead
