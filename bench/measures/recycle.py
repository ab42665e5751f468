"""Jobs of 10 ms with `max_requests = 100`, to the same without recycling."""

from __future__ import annotations

from support import Row, application, enqueue, fresh, pool, times

from measures.throughput import rate

JOBS = 1000


def once(max_requests: int) -> float:
    """Jobs a second."""
    folder = application(fresh("recycle"), workers=2, max_requests=max_requests)
    with times(folder) as fifo:
        enqueue(folder, [("stamp", {"label": "first"}), *[("nap", {})] * JOBS, ("stamp", {"label": "last"})])
        with pool(folder, {"BENCH_TIMES": str(fifo.path)}):
            return rate(fifo, JOBS)


def run(runs: int) -> list[Row]:
    """One row."""
    ours, without = [], []
    for _ in range(runs):
        ours.append(once(100))
        without.append(once(1_000_000))
    return [Row("10 ms jobs, max_requests = 100", "jobs/s", ours, without, "without recycling", at_least=0.95)]
