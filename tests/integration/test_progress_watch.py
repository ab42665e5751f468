"""A pool whose children do not get at their tasks is unhealthy, and one whose children are only busy is not."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from harness import Application, Pool, eventually
from harness.servers import RedisServer

Make = Callable[..., Application]

#: The limit of the stores, what a pulse may be late, and some patience.
NOTICED = 10 + 5 + 15


def reason(pool: Pool) -> tuple[int, object, object]:
    """What a probe is told: exit code, reason, ready slots."""
    code, told = pool.health()
    return code, told["reason"], told["ready_worker_count"]


def sleeps(pid: int, thread: int) -> int:
    """How often a thread has gone to sleep by itself."""
    status = Path(f"/proc/{pid}/task/{thread}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_a_pool_that_cannot_write_to_its_queue_is_unhealthy_until_it_can(application: Make) -> None:
    """A stranger holds the database's lock when a job becomes due; nobody exits over it, and the job is done."""
    app = application(worker={"workers": 1})
    pool = app.start()
    with app.queue() as queue:
        job = queue.enqueue("nap", {}, run_at=datetime.now(UTC) + timedelta(seconds=1))
    stranger = sqlite3.connect(app.root / "var/queue.sqlite3", timeout=20, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    assert (0, "healthy", 1) == reason(pool)
    eventually(lambda: reason(pool) == (1, "worker-pool-stalled", 1), NOTICED)
    assert [("warning", 0, "no-contact")] == [
        (event["level"], event["slot"], event["cause"]) for event in pool.events("worker.child.stalled")
    ]
    stranger.execute("ROLLBACK")
    stranger.close()
    eventually(lambda: reason(pool) == (0, "healthy", 1))
    eventually(lambda: app.job(job).status == "completed")
    assert [] == pool.events("worker.child.exit")
    pool.stop()
    app.assert_clean()


def test_a_pool_whose_server_is_gone_is_unhealthy_until_it_is_back(
    application: Make, redis_server: RedisServer
) -> None:
    app = application(app={"modules": ["redis"]}, redis={"url": redis_server.url}, worker={"workers": 2})
    pool = app.start()
    redis_server.kill()
    eventually(lambda: reason(pool) == (1, "worker-pool-stalled", 2), NOTICED)
    redis_server.start()
    eventually(lambda: reason(pool) == (0, "healthy", 2))
    assert 1 <= len(pool.events("worker.child.stalled")) <= 2
    pool.stop()
    app.assert_clean()


def test_a_child_that_is_frozen_without_a_task_is_noticed(application: Make) -> None:
    """It says nothing any more, and nothing else would tell: it lives, and its lifeline is open."""
    app = application(worker={"workers": 2})
    pool = app.start()
    slot, pid = next(iter(pool.children().items()))
    # Only one that has said that nothing is in hand can be missed: its watcher wakes to say so, and for nothing else.
    (watcher,) = {int(name) for name in os.listdir(f"/proc/{pid}/task")} - {pid}
    before = sleeps(pid, watcher)
    eventually(lambda: sleeps(pid, watcher) >= before + 2)
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: reason(pool) == (1, "worker-pool-stalled", 2), NOTICED)
    assert [(slot, "silent")] == [(event["slot"], event["cause"]) for event in pool.events("worker.child.stalled")]
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: reason(pool) == (0, "healthy", 2))
    pool.stop()
    app.assert_clean()


def test_a_task_that_holds_the_interpreter_longer_than_the_limit_is_no_stall(application: Make) -> None:
    """It begins right after the child has said that nothing is in hand, and nothing can be said meanwhile."""
    app = application(worker={"workers": 1})
    pool = app.start()
    (job,) = app.enqueue("seize", seconds=NOTICED - 10)
    eventually(lambda: app.ledger.count("start", job) == 1)

    def done() -> bool:
        assert (0, "healthy", 1) == reason(pool), pool.log()
        return app.job(job).status == "completed"

    eventually(done, 2 * NOTICED)
    assert [] == pool.events("worker.child.stalled")
    pool.stop()
    app.assert_clean()
