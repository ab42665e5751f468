"""Pools as the first process of a container: in a pid namespace, with as little around them as a container may have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.application import Application
from harness.pool import Pool

#: The pool is process 1 there.
PID_1 = ("unshare", "--fork", "--pid", "--mount-proc", "--kill-child=KILL")
#: The package that has a tool, where it is not part of every system.
_PACKAGES = {"bwrap": "bubblewrap", "unshare": "util-linux", "nsenter": "util-linux"}


def need(*line: str) -> None:
    """Skips the test where this command line cannot run ``true`` here, and says what is missing."""
    if shutil.which(line[0]) is None:
        pytest.skip(f"{line[0]} is not installed: apt-get install {_PACKAGES[line[0]]}")
    tried = subprocess.run([*line, shutil.which("true") or "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"{line[0]} may not do this here (run as root): {tried.stderr.decode().strip()}")


def launch(app: Application, line: list[str], seconds: float = 30.0, **environ: str) -> Pool:
    """A pool behind another command line, ready; its pids are those of this side."""
    pool = app.pool(**environ)
    worker = str(Path(sys.executable).with_name("worker"))
    line = [*line, worker, "--root", str(app.root), "start", "--json"]
    with open(pool.out, "wb") as out, open(pool.err, "wb") as err:
        pool._process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=pool.environ)
    pool.summary(seconds)
    return pool


def supervisor_in(pool: Pool) -> int:
    """The process of ``worker start`` itself, under whoever we started."""
    children = Path(f"/proc/{pool.supervisor}/task/{pool.supervisor}/children").read_text().split()
    assert 1 == len(children)
    return int(children[0])


def zombies(parent: int) -> list[int]:
    """The children of ``parent`` that have ended and are not reaped."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split() if entry.isdigit() else []
        except OSError:
            continue
        if fields and fields[0] == "Z" and int(fields[1]) == parent:
            found.append(int(entry))
    return found
