"""From the call of `Queue.enqueue` to the start of the handler, on an idle pool on PostgreSQL."""

from __future__ import annotations

from support import Row, application, fresh, postgres

from measures.latency import figures


def run(runs: int) -> list[Row]:
    """Two rows: the median, and the 99th percentile."""
    folder = fresh("latency-postgres")
    with postgres(folder) as url:
        application(folder, workers=2, store="postgres", table={"url": url})
        medians, tails = figures(folder, runs)
    name = "enqueue to start of the handler, PostgreSQL"
    return [Row(name, "ms", medians, at_most=5), Row(f"{name}, 99th percentile", "ms", tails, at_most=30)]
