"""No-op jobs on PostgreSQL, 2 workers: ours, and a bare loop of claim and settle in SQL."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from support import PEERS, PYTHON, Row, application, enqueue, fresh, peer_env, pool, postgres, running, times

from measures.throughput import rate

JOBS = int(os.environ.get("BENCH_JOBS", "10000"))


def ours_once(backlog: int = 0) -> float:
    """With this package; recycled as by default. ``backlog`` jobs wait behind those that are measured."""
    folder = fresh("throughput-postgres-ours")
    with postgres(folder) as url, times(folder) as fifo:
        application(folder, workers=2, store="postgres", table={"url": url})
        enqueue(folder, [("stamp", {"label": "first"}), *[("noop", {})] * JOBS, ("stamp", {"label": "last"})])
        enqueue(folder, [("noop", {})] * backlog)
        with pool(folder, {"BENCH_TIMES": str(fifo.path)}):
            return rate(fifo, JOBS)


def bare_once(shape: str) -> float:
    """With nothing but SQL."""
    sys.path.insert(0, str(PEERS))
    import bare_postgres

    folder = fresh(f"throughput-postgres-bare-{shape}")
    with postgres(folder) as url, times(folder) as fifo, contextlib.ExitStack() as stack:
        bare_postgres.create(url, JOBS)
        env = peer_env(folder, url, BENCH_TIMES=str(fifo.path))
        for _ in range(2):
            stack.enter_context(running([PYTHON, Path(PEERS) / "bare_postgres.py", shape], folder, env=env))
        return rate(fifo, JOBS)


def run(runs: int) -> list[Row]:
    """Two rows."""
    ours, one, two = [], [], []
    for _ in range(runs):
        ours.append(ours_once())
        one.append(bare_once("ONE"))
        two.append(bare_once("TWO"))
    name = "no-op jobs, PostgreSQL, 2 children"
    return [
        Row(name, "jobs/s", ours, one, "bare loop, one statement a job", at_least=0.6),
        Row(name, "jobs/s", ours, two, "bare loop, a statement each for claim and settle"),
    ]
