"""The guardian's composition root: standard library only, no site-packages, as few modules as can be."""

from __future__ import annotations

import json
import os
import time

from platform_worker.guardian.loop import GuardianLoop, Machine
from platform_worker.host import cgroup, prctl
from platform_worker.host.locks import FlockFence
from platform_worker.host.processes import KernelFamily
from platform_worker.host.streams import LineStream
from platform_worker.host.waiter import PollWaiter, defer_signals
from platform_worker.protocol.ownership import MAX_LINE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from platform_worker.ports_processes import Driver, Group
    from platform_worker.protocol.ownership import Claim

#: What the child's program is unless the claim says otherwise.
CHILD_PROGRAM = ("@python", "-P", "-c", "from platform_worker.wiring import run_child; run_child()")
#: A supervisor that has not read this much is treated as dead; back pressure keeps it far from here.
_MAX_UNREAD = 16 * 1024 * 1024
_CREDENTIAL_LINE = 65


class _MonotonicClock:
    def now(self) -> float:
        return time.monotonic()


def run_guardian(ownership_fd: int, members_fd: int) -> NoReturn:
    """The guardian process, from its first instruction to its exit."""
    defer_signals()
    _close_inherited({0, 1, 2, ownership_fd, members_fd})
    os.set_inheritable(ownership_fd, False)
    os.set_inheritable(members_fd, False)
    credential = _read_credential()

    def driver(claim: Claim, group: Group | None) -> Driver:
        command = [claim.python if word == "@python" else word for word in claim.command or CHILD_PROGRAM]
        prctl.become_subreaper()
        if claim.driver == "spawn":
            from platform_worker.host.driver_spawn import SpawnDriver

            return SpawnDriver(command, claim.root, members_fd, group)
        from platform_worker.host.driver_fork import ForkDriver

        return ForkDriver(command, claim.root, members_fd, group)

    def boot_line(boot: object) -> bytes:
        fields = {**boot, "members_fd": members_fd} if isinstance(boot, dict) else {}
        return b"boot " + json.dumps(fields, separators=(",", ":")).encode() + b"\n"

    machine = Machine(
        channel=LineStream(ownership_fd, MAX_LINE, _MAX_UNREAD),
        waiter=PollWaiter(),
        family=KernelFamily(),
        clock=_MonotonicClock(),
        fence=lambda root: FlockFence(root, members_fd, lambda: cgroup.clear_all(root)),
        group=cgroup.create,
        driver=driver,
        boot_line=boot_line,
    )
    GuardianLoop(machine).run(credential)
    # Nothing is left to clean up, and interpreter finalisation would only keep the supervisor waiting.
    os._exit(0)


def _read_credential() -> str:
    """One line on the standard input, which becomes ``/dev/null``; a guardian without it was not started by us."""
    line = b""
    while len(line) < _CREDENTIAL_LINE:
        data = os.read(0, _CREDENTIAL_LINE - len(line))
        if not data:
            os._exit(2)
        line += data
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    return line.decode("ascii", "replace").rstrip("\n")


def _close_inherited(keep: set[int]) -> None:
    """Descriptors that whoever started us left open: no child may get them."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    try:
        opened = [int(entry) for entry in os.listdir("/dev/fd")]
    except OSError:
        opened = list(range(256))
    for fd in opened:
        if fd not in keep:
            try:
                os.close(fd)
            except OSError:
                continue  # the one that listed them
