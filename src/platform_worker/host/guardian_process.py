"""Starting the guardian, from the supervisor's side."""

from __future__ import annotations

import _socket
import fcntl
import os
import signal
import sys

from platform_worker.value import Value

#: The guardian's numbers for what it inherits.
_OWNERSHIP, _MEMBERS = 3, 4
#: No standard stream and none of the guardian's numbers: a source number must not be a target of another.
_ABOVE = 10
#: A signal to the whole group may come before the guardian has its handlers, and would end it: blocked across exec.
_HELD_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
_PROGRAM = (
    "import sys; sys.path.insert(0, {path}); "
    "from platform_worker.wiring_guardian import run_guardian; run_guardian({ownership}, {members})"
)


class GuardianProcess(Value):
    """A started guardian. ``channel``: our end of the ownership channel; ``credential``: what its ``hello`` must carry.

    ``handle`` is a pidfd, readable when it has ended (-1 where there are none). It is the caller's child, and the
    caller reaps it: ``os.waitpid(pid, 0)``.
    """

    pid: int
    handle: int
    channel: int
    credential: str


def start_guardian(members: int, *, python: str | None = None, program: str | None = None) -> GuardianProcess:
    """Starts the guardian with the open members file; raises ``WorkerLifecycleError`` where the machine refuses.

    ``members`` stays the caller's. ``program`` replaces the guardian's own text, with ``{path}``, ``{ownership}`` and
    ``{members}`` in it. The channel's descriptor is non-blocking and closes on exec.
    """
    credential = os.urandom(32).hex()
    streams = {1: 2} if _is_open(2) else {}  # before anything of ours can get that number
    path = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    text = (program or _PROGRAM).format(path=ascii(path), ownership=_OWNERSHIP, members=_MEMBERS)
    opened: list[int] = []

    def high(fd: int) -> int:
        opened.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE))
        return opened[-1]

    try:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        with_close = [ours.detach(), theirs.detach(), *os.pipe()]
        opened += with_close
        channel, theirs_fd, stdin, credential_end = [high(fd) for fd in with_close]
        os.write(credential_end, credential.encode() + b"\n")
        members_fd = high(members)
        pid = _spawn(python or sys.executable, text, {0: stdin, _OWNERSHIP: theirs_fd, _MEMBERS: members_fd, **streams})
    except OSError as error:
        from platform_worker.errors import WorkerLifecycleError

        _close(opened)
        raise WorkerLifecycleError("worker-process-guardian-failed") from error
    opened.remove(channel)
    _close(opened)
    os.set_blocking(channel, False)
    return GuardianProcess(pid, _handle(pid), channel, credential)


def _spawn(python: str, text: str, descriptors: dict[int, int]) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in descriptors.items()]
    argv = [python, "-I", "-S", "-c", text]
    return os.posix_spawn(python, argv, os.environ, file_actions=actions, setsigmask=_HELD_SIGNALS)


def _handle(pid: int) -> int:
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
