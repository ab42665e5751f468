"""From the call of `Queue.enqueue` to the start of the handler, on an idle pool."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from support import Row, application, fresh, now, pool, times

JOBS = 40


def figures(folder: Path, runs: int) -> tuple[list[float], list[float]]:
    """Of each run the median of its jobs, and their 99th percentile, in milliseconds."""
    from platform_worker import Queue

    medians, tails = [], []
    with times(folder) as fifo, pool(folder, {"BENCH_TIMES": str(fifo.path)}), Queue.open(root=folder) as queue:
        for _ in range(runs):
            waits = []
            for _ in range(JOBS):
                time.sleep(0.02)  # the pool has gone back to waiting
                began = now()
                queue.enqueue("stamp", {"label": "x"})
                waits.append(1000 * (fifo.next()[1] - began))
            medians.append(statistics.median(waits))
            tails.append(statistics.quantiles(waits, n=100)[98])
    return medians, tails


def run(runs: int) -> list[Row]:
    """One row; the figure of a run is the median of its jobs."""
    medians, _ = figures(application(fresh("latency"), workers=2), runs)
    return [Row("enqueue to start of the handler", "ms", medians, at_most=5)]
