"""From the call of `Queue.enqueue` to the start of the handler, on an idle pool."""

from __future__ import annotations

import statistics
import time

from support import Row, application, fresh, now, pool, times

JOBS = 40


def run(runs: int) -> list[Row]:
    """One row; the figure of a run is the median of its jobs."""
    from platform_worker import Queue

    folder = application(fresh("latency"), workers=2)
    figures = []
    with times(folder) as fifo, pool(folder, {"BENCH_TIMES": str(fifo.path)}), Queue.open(root=folder) as queue:
        for _ in range(runs):
            waits = []
            for _ in range(JOBS):
                time.sleep(0.02)  # the pool has gone back to waiting
                began = now()
                queue.enqueue("stamp", {"label": "x"})
                waits.append(1000 * (fifo.next()[1] - began))
            figures.append(statistics.median(waits))
    return [Row("enqueue to start of the handler", "ms", figures, at_most=5)]
