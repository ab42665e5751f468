"""Plays the supervisor for a real guardian, and looks at what is left of it."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

from platform_worker.host import procfs
from platform_worker.host.fence import open_members
from platform_worker.host.guardian_process import start_guardian
from platform_worker.protocol.ownership import Claim, Hello, Said, Start, Started, decode_event, encode

CHILD = str(Path(__file__).parent / "children" / "lifeline_child.py")
BOOT = {"slot": 0}


def eventually(assertion, seconds=10.0):
    """Calls ``assertion`` until it returns something true, and returns that; fails at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = assertion()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {assertion}"
        select.select([], [], [], 0.002)


def marked(mark):
    """The pids of every living process with ``CENSUS=mark`` in its environment."""
    found = []
    needle = f"CENSUS={mark}".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and alive(int(entry)):
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if needle in environment:
                found.append(int(entry))
    return found


def alive(pid):
    """True unless it is gone or a zombie."""
    seen = procfs.stat(pid)
    return seen is not None and seen.state not in ("Z", "X")


def descriptors(pid):
    """What each descriptor of a process is."""
    found = {}
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(entry)] = os.readlink(f"/proc/{pid}/fd/{entry}")
        except OSError:
            continue
    return found


class Owner:
    """One guardian of ``root`` and our end of its channel."""

    def __init__(self, root, program=None):
        self.root = str(root)
        self.members = open_members(self.root)
        self.guardian = start_guardian(self.members, program=program)
        self.channel = self.guardian.channel
        self.heard = []
        self._partial = b""

    def claim(self, how="idle", driver="fork", command=None, stop=10000, force=1000, lock_wait=1200, start=10000):
        """Says claim; returns the answer."""
        assert self.until(Hello).credential == self.guardian.credential
        command = command or ("@python", "-S", CHILD, how)
        self.say(Claim(self.root, sys.executable, command, driver, lock_wait, start, stop, force))
        return self.until(object)

    def say(self, *messages):
        """Sends them in one write."""
        data = b"".join(map(encode, messages))
        while data:
            select.select([], [self.channel], [])
            data = data[os.write(self.channel, data) :]

    def start(self, slot=0, incarnation=1):
        """Starts a child and waits until it has booted; returns its pid."""
        before = set(self.children())
        self.say(Start(slot, incarnation, BOOT))
        self.until(Started)
        self.until(Said)
        return next(pid for pid in self.children() if pid not in before)

    def children(self):
        """The pids of the guardian's children."""
        text = Path(f"/proc/{self.guardian.pid}/task/{self.guardian.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def until(self, kind, seconds=10.0):
        """The next message of ``kind``, or ``None`` at the end of the channel; the others are kept in ``heard``."""
        deadline = time.monotonic() + seconds
        while True:
            while b"\n" in self._partial:
                line, self._partial = self._partial.split(b"\n", 1)
                self.heard.append(decode_event(line))
                if isinstance(self.heard[-1], kind):
                    return self.heard[-1]
            ready, _, _ = select.select([self.channel], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no {kind.__name__} within {seconds} s, but {self.heard}"
            data = os.read(self.channel, 65536)
            if not data:
                return None
            self._partial += data

    def die(self):
        """What the guardian sees of a supervisor that was killed."""
        for fd in (self.channel, self.members):
            os.close(fd)
        self.channel = self.members = -1

    def wait(self, seconds=10.0):
        """The guardian's exit code, negative for a signal."""
        ready, _, _ = select.select([self.guardian.handle], [], [], seconds)
        assert ready, "the guardian does not end"
        code = os.waitstatus_to_exitcode(os.waitpid(self.guardian.pid, 0)[1])
        self.guardian = self.guardian.replace(pid=-1)
        return code

    def close(self):
        """Ends everything, whatever the state."""
        if self.guardian.pid > 0:
            os.kill(self.guardian.pid, signal.SIGKILL)
            os.waitpid(self.guardian.pid, 0)
        for fd in (self.channel, self.members, self.guardian.handle):
            if fd >= 0:
                os.close(fd)
