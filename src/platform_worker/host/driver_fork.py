"""The ``fork`` driver: forks, and at once executes the child's program in a fresh interpreter."""

from __future__ import annotations

import errno
import os
import signal

from platform_worker.errors import WorkerForkError
from platform_worker.host import prctl
from platform_worker.host.fence_key import fence_key
from platform_worker.host.lifeline_ends import child_environment, lifeline_pair
from platform_worker.ports_processes import Launched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from platform_worker.host.streams import LineStream
    from platform_worker.ports_processes import Group

#: Blocked across exec: the child unblocks them when its handlers are there, so neither is lost nor ends it by signal.
HELD_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
#: What Python ignores, and an executed program would go on ignoring.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
#: The exit code of a process that could not become the child's program; the reason goes over the report pipe.
_NOT_EXECUTED = 127


class ForkDriver:
    """Starts ``command`` in ``root`` with the lifeline as descriptor 0, stderr as 1 and 2, and ``members`` open."""

    def __init__(self, command: Sequence[str], root: str, members: int, group: Group | None) -> None:
        self._command = list(command)
        self._root = root
        self._fence = fence_key(root)
        self._members = members
        self._group = group
        prctl.load()

    def start(self, mark: str) -> Launched:
        """Returns as soon as there is a process; whether its program runs is told by the report."""
        environment = child_environment(mark, self._fence)
        report, report_end, lifeline, theirs = _channels()
        parent = os.getpid()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
            if pid == 0:
                self._become(parent, theirs, report_end, environment)
        except OSError as error:
            lifeline.close()
            os.close(report)
            raise WorkerForkError("worker-fork-failed") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(theirs)
            os.close(report_end)
        return Launched(pid, lifeline, report)

    def terminate(self, pid: int) -> None:
        """The child is not reaped yet, so its number is still its own."""
        _signal(pid, signal.SIGTERM)

    def kill(self, pid: int) -> None:
        """Group first; and the child itself, which may not lead its group yet."""
        _signal(-pid, signal.SIGKILL)
        _signal(pid, signal.SIGKILL)

    def _become(self, parent: int, lifeline: int, report: int, environment: dict[str, str]) -> None:
        """Between fork and exec; never returns. Every descriptor not named here closes on exec."""
        try:
            os.setsid()
            prctl.set_parent_death_signal(signal.SIGKILL)
            if os.getppid() != parent:  # it died before the signal was armed
                os._exit(_NOT_EXECUTED)
            if self._group is not None:
                self._group.join(0)
            signal.set_wakeup_fd(-1)
            os.dup2(lifeline, 0)
            os.dup2(2, 1)
            os.set_inheritable(self._members, True)
            os.chdir(self._root)
            for signum in _IGNORED_BY_PYTHON:
                signal.signal(signum, signal.SIG_DFL)
            # The guardian's own handlers are functions, so exec resets those signals to their defaults.
            signal.pthread_sigmask(signal.SIG_SETMASK, HELD_SIGNALS)
            os.execvpe(self._command[0], self._command, environment)
        except OSError as error:
            os.write(report, b"%d" % (error.errno or errno.ENOEXEC))
        finally:
            os._exit(_NOT_EXECUTED)


def _channels() -> tuple[int, int, LineStream, int]:
    """The report pipe and the lifeline, all closing on exec."""
    try:
        report, report_end = os.pipe()
        try:
            lifeline, theirs = lifeline_pair()
        except OSError:
            os.close(report)
            os.close(report_end)
            raise
    except OSError as error:
        raise WorkerForkError("worker-fork-failed") from error
    os.set_blocking(report, False)
    return report, report_end, lifeline, theirs


def _signal(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return  # gone, or a group of nothing but the dead
