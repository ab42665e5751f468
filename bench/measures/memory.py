"""Proportional set size of an idle pool with 4 children, to Celery's tree with 4 processes."""

from __future__ import annotations

from pathlib import Path

import psutil
from support import Row, application, commands, fresh, peer_env, pool, running, settle, valkey


def pss(process: psutil.Process) -> float:
    """MiB that a process has for itself, and its share of what it shares."""
    for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel does not say")


def run(runs: int) -> list[Row]:
    """Tree to tree, and the guardian alone."""
    ours, guardian, celery = [], [], []
    with valkey(fresh("memory-valkey")) as url:
        for _ in range(runs):
            with pool(application(fresh("memory-ours"), workers=4)) as process:
                processes = settle(process, 5)
                ours.append(sum(pss(one) for one in processes))
                guardian.append(pss(processes[1]))  # the supervisor's only child
            folder = fresh("memory-celery")
            with running(commands("celery", 4, url), folder, env=peer_env(folder, url)) as process:
                celery.append(sum(pss(one) for one in settle(process, 4)))
    return [
        Row("PSS, supervisor, guardian, 4 idle children", "MiB", ours, celery, "Celery, 4 processes", at_most=0.6),
        Row("PSS, guardian alone", "MiB", guardian, at_most=12),
    ]
