"""No-op jobs on PostgreSQL, 2 worker processes with one job at a time: ours and the peers'."""

from __future__ import annotations

import statistics

from support import Row, commands, fresh, peer_enqueue, peer_env, postgres, running, times

from measures import throughput_postgres
from measures.throughput import rate

JOBS = 3000
PEERS = {"procrastinate": "procrastinate, concurrency 1", "pgqueuer": "PgQueuer, batches of 1"}


def once(peer: str) -> float:
    """Jobs a second."""
    folder = fresh(f"peers-postgres-{peer}")
    with postgres(folder) as url, times(folder) as fifo:
        env = peer_env(folder, url, BENCH_TIMES=str(fifo.path), PGDSN=url)
        peer_enqueue(f"app_{peer}", env, "noop", str(JOBS))
        with running(commands(peer, 2, url), folder, env=env):
            return rate(fifo, JOBS)


def run(runs: int) -> list[Row]:
    """A row for each; the target is about the better one."""
    ours: list[float] = []
    theirs: dict[str, list[float]] = {peer: [] for peer in PEERS}
    for _ in range(runs):
        ours.append(throughput_postgres.ours_once())
        for peer, found in theirs.items():
            found.append(once(peer))
    best = max(theirs, key=lambda peer: statistics.median(theirs[peer]))
    title = "no-op jobs, PostgreSQL, 2 workers, to the better peer"
    rows = [Row(title, "jobs/s", ours, theirs[best], PEERS[best], at_least=2)]
    return [*rows, *(Row("the same", "jobs/s", ours, found, PEERS[peer]) for peer, found in theirs.items())]
