"""Handlers for tests; copied into each application as its ``tasks.py``. They write what they do into ``ledger``."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

from platform_worker import JobContext, Reject, Retry, task


def note(event: str, context: JobContext) -> None:
    """One appended line; the current directory is the root."""
    fd = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, f"{event} {context.id} {context.attempt} {os.getpid()}\n".encode())
    finally:
        os.close(fd)


@task("nap")
def nap(context: JobContext, seconds: float = 0.0) -> int:
    """Sleeps ``seconds``; an interruption is noted."""
    note("start", context)
    try:
        time.sleep(seconds)
    except BaseException:
        note("interrupted", context)
        raise
    note("finish", context)
    return os.getpid()


@task("gate")
def gate(context: JobContext, name: str = "gate", seconds: float = 60.0) -> None:
    """Waits until the file ``name`` is there, ``seconds`` at most."""
    note("start", context)
    deadline = time.monotonic() + seconds
    while not os.path.exists(name) and time.monotonic() < deadline:
        time.sleep(0.005)
    note("finish", context)


@task("spin")
def spin(context: JobContext, seconds: float) -> None:
    """Busy in Python."""
    note("start", context)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pass
    note("finish", context)


@task("hold")
def hold(context: JobContext, seconds: int) -> None:
    """Busy in C with the GIL held: nothing of Python runs meanwhile, no signal handler either."""
    note("start", context)
    libc = ctypes.PyDLL(None)
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        libc.usleep(int(min(left, 0.9) * 1_000_000))
    note("finish", context)


@task("seize")
def seize(context: JobContext, seconds: int) -> None:
    """One call into C that returns after ``seconds``, whatever signal arrives, with the GIL held all the time."""
    note("start", context)
    libc = ctypes.PyDLL(None)
    everything = (ctypes.c_ulong * 16)(*([0xFFFFFFFFFFFFFFFF] * 16))
    libc.pthread_sigmask(signal.SIG_BLOCK, ctypes.byref(everything), None)
    libc.sleep(seconds)
    note("finish", context)


@task("die")
def die(context: JobContext, how: str, until: int = 1_000_000) -> str:
    """Ends the process in the way ``how`` at its first ``until`` attempts."""
    note("start", context)
    if context.attempt <= until:
        end(how)
    note("finish", context)
    return how


def end(how: str) -> None:
    """One of the many ways to leave."""
    if how == "segv":
        ctypes.string_at(0)
    elif how == "_exit0":
        os._exit(0)
    elif how == "_exit3":
        os._exit(3)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "sys.exit":
        sys.exit(0)
    elif how == "interrupt":
        raise KeyboardInterrupt
    elif how == "raise":
        raise ValueError("raised on purpose")
    elif how == "retry":
        raise Retry(after=0.05)
    elif how == "reject":
        raise Reject("refused on purpose")


@task("shell")
def shell(context: JobContext, script: str, wait: bool = True) -> int | None:
    """Runs a script of ``sh``, and waits for it where told to."""
    note("start", context)
    process = subprocess.Popen(["sh", "-c", script], close_fds=False)
    if wait:
        process.wait()
    note("finish", context)
    return process.returncode


@task("fork")
def fork(context: JobContext, seconds: float = 60.0) -> int:
    """Forks a process that sleeps in Python for ``seconds``, and goes on; the result is its pid."""
    note("start", context)
    pid = os.fork()
    if not pid:
        time.sleep(seconds)
        os._exit(0)
    note("finish", context)
    return pid


@task("cling")
def cling(context: JobContext) -> None:
    """Leaves a thread that is not a daemon and never ends, so that the interpreter cannot."""
    note("start", context)
    threading.Thread(target=threading.Event().wait, daemon=False).start()
    note("finish", context)


@task("deaf")
def deaf(context: JobContext, seconds: float = 600.0) -> None:
    """Ignores SIGTERM and every exception that interrupts it."""
    note("start", context)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            time.sleep(1)
        except BaseException:
            continue
    note("finish", context)


@task("chatter")
def chatter(context: JobContext, lines: int = 100, size: int = 100) -> None:
    """Prints."""
    note("start", context)
    for number in range(lines):
        print(number, "x" * size, flush=True)
    note("finish", context)


@task("threads")
def threads(context: JobContext, count: int = 8) -> None:
    """Starts threads, some of which start a process, and lets them end."""
    note("start", context)

    def run(number: int) -> None:
        if number % 4 == 0:
            subprocess.run(["true"], check=True)

    started = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    note("finish", context)


@task("once", max_attempts=1)
def once(context: JobContext, script: str) -> int | None:
    """Runs a script of ``sh`` to its end, at most once however its worker ends."""
    note("start", context)
    code = subprocess.run(["sh", "-c", script], check=False).returncode
    note("finish", context)
    return code


@task("swallow")
def swallow(context: JobContext, payload: str) -> int:
    """Takes a large payload."""
    note("start", context)
    note("finish", context)
    return len(payload)


@task("stay")
def stay(context: JobContext, how: str) -> None:
    """Keeps its process from ending, in the way ``how``."""
    import atexit

    if how == "thread":
        cling(context)
    elif how == "deaf":
        deaf(context)
    else:
        note("start", context)
        atexit.register(threading.Event().wait)
        note("finish", context)


@task("multiply")
def multiply(context: JobContext, numbers: list[int]) -> list[int]:
    """Squares them in a pool of processes that are forked, and ended by SIGTERM."""
    import multiprocessing
    import operator

    note("start", context)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.starmap(operator.mul, [(number, number) for number in numbers])
    note("finish", context)
    return found
