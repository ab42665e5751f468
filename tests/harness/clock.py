"""A wall clock that jumps for the processes of a pool, and for nobody else: the machine's own is left alone.

It is shifted by ``PW_OFFSET`` seconds as soon as the file ``PW_SWITCH`` is there. As a library that is loaded before
all others it reaches every process, SQLite and the guardian too; as a ``sitecustomize`` the Python code of supervisor
and children.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

#: Whether such a library can be made here.
COMPILER = shutil.which("cc")
_PYTHON = """
import os, time
offset, switch = int(os.environ["PW_OFFSET"]), os.environ["PW_SWITCH"]
real, real_ns, get, get_ns, exists = time.time, time.time_ns, time.clock_gettime, time.clock_gettime_ns, os.path.exists
shift = lambda clock=time.CLOCK_REALTIME: offset if clock == time.CLOCK_REALTIME and exists(switch) else 0
time.time = lambda: real() + shift()
time.time_ns = lambda: real_ns() + shift() * 10**9
time.clock_gettime = lambda clock: get(clock) + shift(clock)
time.clock_gettime_ns = lambda clock: get_ns(clock) + shift(clock) * 10**9
"""
_LIBRARY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long shift(void)
{
    const char *file = getenv("PW_SWITCH"), *by = getenv("PW_OFFSET");
    return file && by && access(file, F_OK) == 0 ? atoll(by) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += shift();
    return failed;
}

struct instant { long seconds, microseconds; };

int gettimeofday(struct instant *at, void *zone)
{
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    at->seconds = now.tv_sec;
    at->microseconds = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """A clock that jumps ``seconds`` when ``jump`` is called; ``environ`` is for the processes that go by it."""

    def __init__(self, folder: Path, seconds: int, *, library: bool) -> None:
        folder.mkdir(exist_ok=True)
        self._switch = folder / "switch"
        self.environ = {"PW_OFFSET": str(seconds), "PW_SWITCH": str(self._switch)}
        if library:
            assert COMPILER is not None
            source, built = folder / "clock.c", folder / "clock.so"
            source.write_text(_LIBRARY)
            subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-w", "-o", built, source, "-ldl"], check=True)
            self.environ["LD_PRELOAD"] = str(built)
        else:
            (folder / "sitecustomize.py").write_text(_PYTHON)
            self.environ["PYTHONPATH"] = str(folder)

    def jump(self) -> None:
        """Now."""
        self._switch.touch()

    def reads(self, python: str) -> int:
        """The wall clock, in seconds, as a process that goes by it sees it."""
        code = "import time; print(int(time.time()))"
        done = subprocess.run(
            [python, "-c", code], env={**os.environ, **self.environ}, stdout=subprocess.PIPE, check=True
        )
        return int(done.stdout)
