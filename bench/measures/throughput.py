"""No-op jobs on SQLite, 2 workers: ours, Huey's SqliteHuey, and a bare loop of claim and settle in SQL."""

from __future__ import annotations

import contextlib
import os
import sys

from support import (
    PEERS,
    PYTHON,
    Row,
    Times,
    application,
    commands,
    enqueue,
    fresh,
    peer_enqueue,
    peer_env,
    pool,
    running,
    times,
)

JOBS = int(os.environ.get("BENCH_JOBS", "10000"))
HUEY_JOBS = JOBS // 5


def rate(fifo: Times, jobs: int) -> float:
    """Jobs a second between the handlers of the first and of the last job."""
    stamps = dict(fifo.next() for _ in range(2))
    return jobs / (stamps["last"] - stamps["first"])


def ours_once() -> float:
    """With this package; no child is replaced meanwhile, since neither Huey nor the bare loop replaces one."""
    folder = application(fresh("throughput-ours"), workers=2, max_requests=2 * JOBS)
    with times(folder) as fifo:
        jobs = [("stamp", {"label": "first"}), *[("noop", {})] * JOBS, ("stamp", {"label": "last"})]
        enqueue(folder, jobs)
        with pool(folder, {"BENCH_TIMES": str(fifo.path)}):
            return rate(fifo, JOBS)


def huey_once() -> float:
    """With Huey."""
    folder = fresh("throughput-huey")
    with times(folder) as fifo:
        env = peer_env(folder, BENCH_TIMES=str(fifo.path))
        peer_enqueue("app_huey", env, "noop", str(HUEY_JOBS))
        with running(commands("huey", 2), folder, env=env):
            return rate(fifo, HUEY_JOBS)


def bare_once(shape: str) -> float:
    """With nothing but SQL."""
    sys.path.insert(0, str(PEERS))
    import bare_sql

    folder = fresh(f"throughput-bare-{shape}")
    with times(folder) as fifo, contextlib.ExitStack() as stack:
        bare_sql.create(folder / "bare.db", JOBS)
        for _ in range(2):
            command = [PYTHON, PEERS / "bare_sql.py", folder / "bare.db", shape]
            stack.enter_context(running(command, folder, env={"BENCH_TIMES": str(fifo.path)}))
        return rate(fifo, JOBS)


def run(runs: int) -> list[Row]:
    """Three rows."""
    ours, huey, one, two = [], [], [], []
    for _ in range(runs):
        ours.append(ours_once())
        huey.append(huey_once())
        one.append(bare_once("ONE"))
        two.append(bare_once("TWO"))
    name = "no-op jobs, SQLite, 2 children"
    return [
        Row(name, "jobs/s", ours, huey, "Huey", at_least=3),
        Row(name, "jobs/s", ours, one, "bare SQL, a transaction a job", at_least=0.5),
        Row(name, "jobs/s", ours, two, "bare SQL, a transaction each for claim and settle"),
    ]
