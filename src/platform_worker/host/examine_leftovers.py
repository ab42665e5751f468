"""Processes of worker generations that are over, found by what they inherited, and ended by what identifies them.

A process is one of ours if its environment has the root's ``PLATFORM_WORKER_FENCE`` and a ``PLATFORM_WORKER_CHILD``. It
is left over if that generation is not live: any where nobody holds ``worker.lock``, else one of a smaller number than
the holder's. Processes are listed before the lock is looked at: who was there when nobody held it has no guardian.
"""

from __future__ import annotations

import os
import select
import signal

from platform_worker.host import procfs
from platform_worker.host.fence import lock_holder
from platform_worker.host.fence_key import fence_key
from platform_worker.value import Value

_ROUNDS = 3
_PATIENCE_MS = 2000


class Leftover(Value):
    """``start``: clock ticks since boot; with the pid, an identity. ``ours``: we run below it, and spare it."""

    pid: int
    start: int
    generation: int
    ours: bool


def leftovers(root: str) -> list[Leftover]:
    """Who should not be there."""
    key = fence_key(root)
    me = _ancestry()
    found = [one for pid in procfs.everybody() if (one := _look(pid, key, me)) is not None]
    held, number = lock_holder(root)
    if held:
        found = [one for one in found if number is not None and one.generation < number]
    return [one for one in found if _is_there(one)]


def end(root: str) -> int:
    """Ends them, and what they start meanwhile, but not ourselves; how many."""
    ended: set[tuple[int, int]] = set()
    for _ in range(_ROUNDS):
        victims = [one for one in leftovers(root) if not one.ours]
        if not victims:
            break
        ended.update((one.pid, one.start) for one in victims if _kill(one))
    return len(ended)


def started_at(start: int) -> str:
    """RFC 3339, UTC, of ``Leftover.start``."""
    import datetime

    booted = next(int(line.split()[1]) for line in procfs.machine().splitlines() if line.startswith(b"btime "))
    seconds = booted + start / os.sysconf("SC_CLK_TCK")
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _look(pid: int, key: str, me: set[int]) -> Leftover | None:
    marks = procfs.marks(pid)
    if marks.get("PLATFORM_WORKER_FENCE") != key:
        return None
    number = marks.get("PLATFORM_WORKER_CHILD", "").partition(".")[0]
    seen = procfs.stat(pid)
    if not number.isdigit() or seen is None or seen.state in ("Z", "X"):
        return None
    return Leftover(pid, seen.start, int(number), pid in me)


def _ancestry() -> set[int]:
    pids, pid = set(), os.getpid()
    while pid > 1 and pid not in pids:
        pids.add(pid)
        seen = procfs.stat(pid)
        pid = seen.parent if seen is not None else 0
    return pids


def _is_there(one: Leftover) -> bool:
    seen = procfs.stat(one.pid)
    return seen is not None and seen.start == one.start and seen.state not in ("Z", "X")


def _kill(one: Leftover) -> bool:
    """Through a pidfd that is compared after it was opened: it cannot come to mean another process."""
    if not hasattr(os, "pidfd_open"):
        return _kill_without(one)
    try:
        handle = os.pidfd_open(one.pid)
    except ProcessLookupError:
        return False
    except OSError:
        return _kill_without(one)
    try:
        if not _is_there(one):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(_PATIENCE_MS))
    except OSError:  # it runs as somebody else
        return False
    finally:
        os.close(handle)


def _kill_without(one: Leftover) -> bool:
    if not _is_there(one):
        return False
    try:
        os.kill(one.pid, signal.SIGKILL)
    except OSError:
        return False
    return True
