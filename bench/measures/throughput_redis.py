"""No-op jobs on Redis, 2 workers: ours, and a bare loop of claim and settle in scripts."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from support import PEERS, PYTHON, Row, application, enqueue, fresh, peer_env, pool, running, times, valkey

from measures.throughput import rate

JOBS = int(os.environ.get("BENCH_JOBS", "20000"))


def ours_once(backlog: int = 0) -> float:
    """With this package; recycled as by default. ``backlog`` jobs wait behind those that are measured."""
    folder = fresh("throughput-redis-ours")
    with valkey(folder) as url, times(folder) as fifo:
        application(folder, workers=2, store="redis", table={"url": url})
        enqueue(folder, [("stamp", {"label": "first"}), *[("noop", {})] * JOBS, ("stamp", {"label": "last"})])
        enqueue(folder, [("noop", {})] * backlog)
        with pool(folder, {"BENCH_TIMES": str(fifo.path)}):
            return rate(fifo, JOBS)


def bare_once(shape: str) -> float:
    """With nothing but scripts."""
    sys.path.insert(0, str(PEERS))
    import bare_redis

    folder = fresh(f"throughput-redis-bare-{shape}")
    with valkey(folder) as url, times(folder) as fifo, contextlib.ExitStack() as stack:
        bare_redis.create(url, JOBS)
        env = peer_env(folder, url, BENCH_TIMES=str(fifo.path))
        for _ in range(2):
            stack.enter_context(running([PYTHON, Path(PEERS) / "bare_redis.py", shape], folder, env=env))
        return rate(fifo, JOBS)


def run(runs: int) -> list[Row]:
    """Two rows."""
    ours, one, two = [], [], []
    for _ in range(runs):
        ours.append(ours_once())
        one.append(bare_once("ONE"))
        two.append(bare_once("TWO"))
    name = "no-op jobs, Redis, 2 children"
    return [
        Row(name, "jobs/s", ours, two, "bare loop, a script call each for claim and settle", at_least=0.6),
        Row(name, "jobs/s", ours, one, "bare loop, one script call a job"),
    ]
