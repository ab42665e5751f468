"""What the handlers really did, written by them, one appended line an event, so that no crash can unwrite it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path


class Ledger:
    """The lines ``EVENT JOB ATTEMPT PID``; events are ``start``, ``finish``, ``interrupted``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[tuple[str, str, int, int]]:
        """Everything so far, in order."""
        if not self.path.exists():
            return []
        rows = [line.split() for line in self.path.read_text().splitlines()]
        return [(event, job, int(attempt), int(pid)) for event, job, attempt, pid in rows]

    def count(self, event: str, job: str | None = None) -> int:
        """How often that happened, to one job or to any."""
        return sum(1 for what, who, *_ in self.lines() if what == event and job in (None, who))

    def pids(self, event: str = "start") -> list[int]:
        """Who did it, in order."""
        return [pid for what, _, _, pid in self.lines() if what == event]

    def assert_once(self, jobs: list[str]) -> None:
        """Each of ``jobs`` was finished exactly once, and no other was."""
        finished = Counter(job for event, job, *_ in self.lines() if event == "finish")
        assert dict.fromkeys(jobs, 1) == dict(finished)


def note(event: str, job: str, attempt: int) -> None:
    """Called by handlers, whose current directory is the root."""
    fd = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, f"{event} {job} {attempt} {os.getpid()}\n".encode())
    finally:
        os.close(fd)
