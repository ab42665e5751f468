"""Handlers of the fault machine; copied into each application. They write to ``ledger`` what no crash can unwrite."""

from __future__ import annotations

import fcntl
import os
import time

from platform_worker import JobContext, task


def note(event: str, context: JobContext) -> None:
    """One appended line; the current directory is the root."""
    fd = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, f"{event} {context.id} {context.attempt} {os.getpid()}\n".encode())
    finally:
        os.close(fd)


@task("work")
def work(context: JobContext, seconds: float, how: str) -> int:
    """Naps or computes. Holds a lock meanwhile, so that a second execution of the same job beside it is noticed."""
    os.makedirs("running", exist_ok=True)
    lock = os.open(f"running/{context.id}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note("overlap", context)
    try:
        note("start", context)
        deadline = time.monotonic() + seconds
        if how == "nap":
            time.sleep(seconds)
        while time.monotonic() < deadline:
            pass
        note("finish", context)
    finally:
        os.close(lock)
    return context.attempt
