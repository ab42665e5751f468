"""From the call of `Queue.enqueue` to the start of the handler, on an idle pool on Redis."""

from __future__ import annotations

from support import Row, application, fresh, valkey

from measures.latency import figures


def run(runs: int) -> list[Row]:
    """Two rows: the median, and the 99th percentile."""
    folder = fresh("latency-redis")
    with valkey(folder) as url:
        application(folder, workers=2, store="redis", table={"url": url})
        medians, tails = figures(folder, runs)
    name = "enqueue to start of the handler, Redis"
    return [Row(name, "ms", medians, at_most=3), Row(f"{name}, 99th percentile", "ms", tails, at_most=20)]
