"""From the start of the command to the first job done: 2 children, one trivial job that waits."""

from __future__ import annotations

from support import (
    BIN,
    Row,
    application,
    commands,
    enqueue,
    fresh,
    now,
    peer_enqueue,
    peer_env,
    running,
    times,
    valkey,
)


def ours_once() -> float:
    """Seconds with this package."""
    folder = application(fresh("start-ours"), workers=2)
    with times(folder) as fifo:
        enqueue(folder, [("stamp", {"label": "first"})])
        began = now()
        with running([BIN / "worker", "--root", folder, "start"], folder, env={"BENCH_TIMES": str(fifo.path)}):
            return fifo.next()[1] - began


def peer_once(peer: str, url: str = "") -> float:
    """Seconds with a peer."""
    folder = fresh(f"start-{peer}")
    with times(folder) as fifo:
        env = peer_env(folder, url, BENCH_TIMES=str(fifo.path))
        peer_enqueue(f"app_{peer}", env, "stamp", "first")
        began = now()
        with running(commands(peer, 2, url), folder, env=env):
            return fifo.next()[1] - began


def run(runs: int) -> list[Row]:
    """A row for each peer."""
    ours, huey, celery = [], [], []
    with valkey(fresh("start-valkey")) as url:
        for _ in range(runs):
            ours.append(1000 * ours_once())
            huey.append(1000 * peer_once("huey"))
            celery.append(1000 * peer_once("celery", url))
    return [
        Row("start to the first job done", "ms", ours, huey, "Huey", at_most=1.5),
        Row("start to the first job done", "ms", ours, celery, "Celery", at_most=0.25),
    ]
