"""What ``/proc`` says about processes. Without it (not Linux) nothing is known, and nothing is claimed."""

from __future__ import annotations

import os

from platform_worker.value import Value

_OURS = b"PLATFORM_WORKER_"
_MARK = b"PLATFORM_WORKER_CHILD="


class Stat(Value):
    """The fields of ``/proc/PID/stat`` that are used. ``start``: clock ticks since boot; with the pid, an identity."""

    state: str
    parent: int
    session: int
    start: int


def stat(pid: int) -> Stat | None:
    """``None`` when there is no such process."""
    text = read_whole(f"/proc/{pid}/stat")
    if not text:
        return None
    # The name stands in brackets and may contain anything, brackets included; what follows the last one is fixed.
    fields = text[text.rindex(b")") + 2 :].split()
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def marks(pid: int) -> dict[str, str]:
    """All ``PLATFORM_WORKER_*`` of the process's environment; empty where it may not be read."""
    entries = (read_whole(f"/proc/{pid}/environ") or b"").split(b"\0")
    pairs = [entry.decode(errors="replace").partition("=") for entry in entries if entry.startswith(_OURS)]
    return {name: value for name, _, value in pairs}


def everybody() -> list[int]:
    """The pid of every process that can be seen."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()] if os.path.isdir("/proc") else []


def machine() -> bytes:
    """``/proc/stat``, with the time of the boot."""
    return read_whole("/proc/stat") or b""


def mark(pid: int) -> str | None:
    """The process's ``PLATFORM_WORKER_CHILD``; ``None`` where it has none, or it may not be read."""
    for entry in (read_whole(f"/proc/{pid}/environ") or b"").split(b"\0"):
        if entry.startswith(_MARK):
            return entry[len(_MARK) :].decode(errors="replace")
    return None


def children() -> list[int]:
    """The pids of this thread's children, zombies included."""
    listed = read_whole("/proc/thread-self/children")
    if listed is not None:
        return [int(pid) for pid in listed.split()]
    me = os.getpid()  # a kernel without that file: look at everybody
    found = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if entry.isdigit():
            seen = stat(int(entry))
            if seen is not None and seen.parent == me:
                found.append(int(entry))
    return found


def read_whole(path: str) -> bytes | None:
    """A file of the kernel's, which has no size to go by; ``None`` where it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:  # it ended while it was read
        return None
    finally:
        os.close(fd)
