"""Who lives: found in /proc by what only the processes themselves can say, never by a bare pid from a file."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from typing import TypeVar

#: The variable that marks every process of one pool.
MARK = "PLATFORM_WORKER_CENSUS"

T = TypeVar("T")


def eventually(assertion: Callable[[], T], seconds: float = 10.0, what: str = "") -> T:
    """Calls ``assertion`` until it neither raises ``AssertionError`` nor returns something false; returns that."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            value = assertion()
            failure = None
        except AssertionError as error:
            value, failure = None, error
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {seconds} s: {what or assertion}") from failure
        select.select([], [], [], 0.003)


class Stat:
    """One line of ``/proc/PID/stat``."""

    def __init__(self, pid: int, line: bytes) -> None:
        fields = line[line.rindex(b")") + 2 :].split()
        self.pid = pid
        self.state = fields[0].decode()
        self.parent, self.group, self.session = (int(field) for field in fields[1:4])
        #: Of the process, in clock ticks since boot: with the pid, an identity.
        self.started = int(fields[19])

    @property
    def lives(self) -> bool:
        """False for a zombie: it runs no more, whoever has not reaped it yet."""
        return self.state not in ("Z", "X")


def stat(pid: int) -> Stat | None:
    """``None`` where there is no such process."""
    line = read(f"/proc/{pid}/stat")
    return Stat(pid, line) if line else None


def alive(pid: int) -> bool:
    """True unless it is gone or a zombie."""
    seen = stat(pid)
    return seen is not None and seen.lives


def environment(pid: int) -> dict[str, str]:
    """What the process was executed with; empty where it is gone."""
    pairs = (item.partition(b"=") for item in (read(f"/proc/{pid}/environ") or b"").split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def command(pid: int) -> str:
    """Its command line."""
    return os.fsdecode((read(f"/proc/{pid}/cmdline") or b"").replace(b"\0", b" "))


def census(marker: str) -> list[int]:
    """The pids of every living process with that mark in its environment."""
    needle = f"{MARK}={marker}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and needle in (read(f"/proc/{entry}/environ") or b"").split(b"\0") and alive(int(entry)):
            found.append(int(entry))
    return found


def descriptors(pid: int) -> dict[int, str]:
    """What each descriptor of a process is."""
    found = {}
    try:
        entries = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return {}
    for entry in entries:
        try:
            found[int(entry)] = os.readlink(f"/proc/{pid}/fd/{entry}")
        except OSError:
            continue
    return found


def read(path: str) -> bytes | None:
    """A file of /proc whole, ``None`` where its process is gone."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def children_of(pid: int) -> list[int]:
    """Who has it as a parent, zombies included."""
    seen = (stat(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return [one.pid for one in seen if one is not None and one.parent == pid]


def memory(pid: int) -> int:
    """Resident bytes that are the process's own."""
    fields = (read(f"/proc/{pid}/statm") or b"0 0 0").split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGESIZE")
