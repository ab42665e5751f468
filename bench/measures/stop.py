"""Stopping 4 idle children: our `worker stop`, whole process; the peers from SIGTERM to the last process gone."""

from __future__ import annotations

import statistics
import subprocess

from support import (
    BIN,
    PATIENCE,
    Row,
    application,
    commands,
    fresh,
    now,
    peer_env,
    pool,
    running,
    settle,
    terminate,
    tree,
    valkey,
    wait_gone,
)

PEERS = ("huey", "celery", "dramatiq", "rq")


def ours_once() -> float:
    """Seconds from the request to its return; by then everything but the supervisor itself must be gone."""
    folder = application(fresh("stop-ours"), workers=4)
    with pool(folder) as process:
        processes = settle(process, 5)
        began = now()
        subprocess.run([BIN / "worker", "--root", folder, "stop"], check=True, stdout=subprocess.DEVNULL)
        ended = now()
        wait_gone(processes)
        return ended - began


def peer_once(peer: str, url: str) -> float:
    """Seconds from SIGTERM to gone; one that has not gone by then counts ``PATIENCE``."""
    folder = fresh(f"stop-{peer}")
    with running(commands(peer, 4, url), folder, env=peer_env(folder, url)) as process:
        settle(process, 4)
        try:
            return terminate(process, tree(process.pid))
        except TimeoutError:
            return PATIENCE


def run(runs: int) -> list[Row]:
    """Ours alone, and a row for each peer; the target is to the best of them."""
    ours: list[float] = []
    peers: dict[str, list[float]] = {peer: [] for peer in PEERS}
    with valkey(fresh("stop-valkey")) as url:
        for _ in range(runs):
            ours.append(1000 * ours_once())
            for peer in PEERS:
                peers[peer].append(1000 * peer_once(peer, url))
    best = min(PEERS, key=lambda peer: statistics.median(peers[peer]))
    rows = [Row("worker stop, 4 idle children", "ms", ours, at_most=100)]
    for peer in PEERS:
        rows.append(Row("the same", "ms", ours, peers[peer], peer.capitalize(), at_most=0.1 if peer == best else None))
    return rows
