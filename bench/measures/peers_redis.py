"""No-op jobs on Redis, 2 worker processes with one job at a time, acknowledged after the work: ours and the peers'."""

from __future__ import annotations

import statistics

from support import Row, commands, fresh, peer_enqueue, peer_env, running, times, valkey

from measures import throughput_redis
from measures.throughput import rate

#: By peer and configuration: the variables that make it, and how many jobs (a slow one need not be waited for as long).
HOLD_ONE = {
    "Celery, late ack, prefetch 1": ("celery", {}, 4000),
    "Dramatiq, prefetch 1": ("dramatiq", {"dramatiq_queue_prefetch": "1"}, 10_000),
    "RQ": ("rq", {}, 500),
    "SAQ, concurrency 1": ("saq", {}, 10_000),
    "taskiq, streams, prefetch 1": ("taskiq", {}, 10_000),
}
HOLD_MANY = {"Dramatiq, prefetch 100": ("dramatiq", {"dramatiq_queue_prefetch": "100"}, 10_000)}


def once(peer: str, variables: dict[str, str], jobs: int) -> float:
    """Jobs a second."""
    folder = fresh(f"peers-redis-{peer}")
    with valkey(folder) as url, times(folder) as fifo:
        env = peer_env(folder, url, BENCH_TIMES=str(fifo.path), **variables)
        peer_enqueue(f"app_{peer}", env, "noop", str(jobs))
        with running(commands(peer, 2, url), folder, env=env):
            return rate(fifo, jobs)


def run(runs: int) -> list[Row]:
    """A row for each; the target is about the best of each kind."""
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in (*HOLD_ONE, *HOLD_MANY)}
    for _ in range(runs):
        ours.append(throughput_redis.ours_once())
        for name, (peer, variables, jobs) in (HOLD_ONE | HOLD_MANY).items():
            theirs[name].append(once(peer, variables, jobs))
    rows = []
    for kind, least in ((HOLD_ONE, 2.0), (HOLD_ONE | HOLD_MANY, 1.0)):
        best = max(kind, key=lambda name: statistics.median(theirs[name]))
        what = "holding one job" if kind is HOLD_ONE else "in any configuration"
        title = f"no-op jobs, Redis, 2 workers, to the best peer {what}"
        rows.append(Row(title, "jobs/s", ours, theirs[best], best, at_least=least))
    return [*rows, *(Row("the same", "jobs/s", ours, found, name) for name, found in theirs.items())]
