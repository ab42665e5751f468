"""`worker health --json` against a live pool, whole process, to an interpreter that does nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support import BIN, PYTHON, Row, application, fresh, now, pool

#: A single process start is a few milliseconds; so each run is the mean of some.
REPEATS = 20


def spent(command: list[str | Path]) -> float:
    """Seconds for one start to end."""
    began = now()
    for _ in range(REPEATS):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
    return (now() - began) / REPEATS


def run(runs: int) -> list[Row]:
    """One row."""
    folder = application(fresh("health"), workers=2)
    ours, bare = [], []
    with pool(folder):
        for _ in range(runs):
            ours.append(1000 * spent([BIN / "worker", "--root", folder, "health", "--json"]))
            bare.append(1000 * spent([PYTHON, "-c", "pass"]))
    return [Row("worker health, whole process", "ms", ours, bare, "python -c pass", at_most=2.5)]
