"""Claims of jobs: kept while somebody works, given up when nobody does, never both."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Application, Pool, eventually
from harness.faults import assert_stopped_clean, identities, stop_clean, under_way

Make = Callable[..., Application]


def kill_everybody(app: Application, pool: Pool) -> None:
    """SIGKILL to each process of the pool; some are gone before their turn comes, with those they belong to."""
    for pid in pool.census():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    pool.wait()
    app.assert_clean()


def renewed(database: Path, job: str, leases: float, lease_ms: int) -> None:
    """Waits until the end of a job's lease has moved by so many leases, as its owner works on."""

    def end() -> int:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            row = connection.execute("SELECT lease_until FROM platform_worker_jobs WHERE id=?", (job,)).fetchone()
        connection.close()
        return row[0] or 0

    begin = end()
    assert begin
    eventually(lambda: end() >= begin + leases * lease_ms, 10 * leases * lease_ms / 1000, "the lease is renewed")


@pytest.fixture
def two(application: Make) -> Callable[..., tuple[Application, Application, Path]]:
    """Makes two applications of one child each, on the same queue, whose file is the third."""

    def make(**settings: dict[str, object]) -> tuple[Application, Application, Path]:
        first = application("first")
        database = first.root / "shared.sqlite3"
        tables = {"worker": {"workers": 1}, "sqlite": {"path": str(database)}}
        for name, table in settings.items():
            tables.setdefault(name, {}).update(table)
        first.configure(**tables)
        return first.build(), application("second", **tables).build(), database

    return make


def test_a_job_longer_than_its_lease_keeps_it_also_during_a_drain(
    two: Callable[..., tuple[Application, Application, Path]],
) -> None:
    """Another pool, hungry all the time, never gets it; it is run once and settled by the one who began it."""
    first, second, database = two(queue={"lease_ms": 2000}, worker={"stop_timeout_ms": 60000})
    owner, hungry = first.start(), second.start()
    eventually(lambda: {1} == {owner.ready(), hungry.ready()})
    os.kill(hungry.children()[0], signal.SIGSTOP)
    job = first.enqueue("gate")[0]
    pid = under_way(first, job)
    os.kill(hungry.children()[0], signal.SIGCONT)

    renewed(database, job, 1.5, 2000)
    people = identities(owner.census())
    owner.signal(signal.SIGTERM)
    eventually(lambda: "stopping" == owner.status()["status"])
    renewed(database, job, 1.5, 2000)
    assert "processing" == first.job(job).status

    (first.root / "gate").touch()
    assert 0 == owner.wait()
    assert_stopped_clean(first, owner, people)
    assert ("completed", 1) == (first.job(job).status, first.job(job).attempt)
    assert [("start", job, 1, pid), ("finish", job, 1, pid)] == first.ledger.lines()
    assert [] == second.ledger.lines()
    stop_clean(second, hungry)


@pytest.mark.parametrize("taker", ["the pool's other child", "another pool"])
def test_an_owner_that_was_frozen_past_its_lease_is_refused_and_goes_on(
    two: Callable[..., tuple[Application, Application, Path]], taker: str
) -> None:
    """Its late settlement changes nothing, is logged as a lost lease, and it takes new jobs."""
    same = taker == "the pool's other child"
    first, second, _ = two(queue={"lease_ms": 1500}, worker={"workers": 2 if same else 1})
    pool = first.start()
    job = first.enqueue("gate", name=str(first.root / "late"))[0]
    frozen = under_way(first, job)
    os.kill(frozen, signal.SIGSTOP)
    other = second.start() if not same else None
    where = first if same else second
    eventually(lambda: 2 == where.job(job).attempt, 20, "somebody else has claimed it")
    pid = eventually(lambda: next((p for e, j, a, p in where.ledger.lines() if (e, j, a) == ("start", job, 2)), 0))
    assert pid != frozen

    (first.root / "late").touch()
    eventually(lambda: "completed" == first.job(job).status)
    before = first.job(job)
    os.kill(frozen, signal.SIGCONT)
    lost = eventually(lambda: pool.events("worker.task.lease_lost"), 20, "the loss is logged")
    assert [(job, "warning")] == [(event["job_id"], event["level"]) for event in lost]
    eventually(lambda: first.ledger.count("finish", job) == (2 if same else 1), 20, "its handler has ended")
    assert before == first.job(job)

    if other is not None:
        stop_clean(second, other)
    more = first.enqueue("nap", 20, seconds=0.02)
    eventually(lambda: all("completed" == first.job(one).status for one in more), 20)
    assert frozen in pool.children().values()
    assert frozen in {p for e, j, _, p in first.ledger.lines() if e == "finish" and j in more}
    assert 1 == len(pool.events("worker.task.lease_lost"))
    assert [] == pool.events("worker.child.exit")
    stop_clean(first, pool)


@pytest.mark.parametrize("limit", [1000, 2])
def test_short_jobs_never_wait_behind_a_long_one(application: Make, limit: int) -> None:
    """Nothing is claimed by a child that is busy, not even at its limit."""
    app = application(worker={"max_requests": limit})
    pool = app.start()
    before, long = app.enqueue("nap")[0], app.enqueue("gate")[0]
    after = app.enqueue("nap", 12, seconds=0.01)
    under_way(app, long)
    eventually(lambda: {"completed": 13, "processing": 1} == app.statuses(), 30, "all but the long one are done")
    assert "completed" == app.job(before).status
    assert 0 == app.ledger.count("finish", long)
    (app.root / "gate").touch()
    eventually(lambda: {"completed": 14} == app.statuses())
    app.ledger.assert_once([before, long, *after])
    stop_clean(app, pool)


def test_what_a_pool_had_claimed_when_it_was_killed_whole_is_recovered_at_its_next_start(application: Make) -> None:
    """By its name, at once, not at the end of leases of five minutes."""
    app = application(worker={"workers": 3}, queue={"lease_ms": 300000})
    pool = app.start()
    jobs = app.enqueue("gate", 3)
    for job in jobs:
        under_way(app, job)
    kill_everybody(app, pool)
    assert {"processing": 3} == app.statuses()

    pool = app.start()
    eventually(lambda: [2, 2, 2] == [app.ledger.count("start", job) for job in jobs], 2, "all three run again")
    (app.root / "gate").touch()
    eventually(lambda: {"completed": 3} == app.statuses())
    assert [2, 2, 2] == [app.job(job).attempt for job in jobs]
    stop_clean(app, pool)


def test_where_the_dead_pools_name_is_lost_its_claims_end_with_their_leases(application: Make) -> None:
    """Nobody can say that they are dead; so not before, and not much later."""
    lease_ms = 4000
    app = application(worker={"workers": 1}, queue={"lease_ms": lease_ms})
    pool = app.start()
    job = app.enqueue("gate")[0]
    begun = time.monotonic()
    under_way(app, job)
    kill_everybody(app, pool)
    shutil.rmtree(app.root / "var" / "tmp")

    pool = app.start()
    eventually(lambda: 2 == app.ledger.count("start", job), 20, "it runs again")
    waited = time.monotonic() - begun
    assert waited >= lease_ms / 1000
    (app.root / "gate").touch()
    eventually(lambda: "completed" == app.job(job).status)
    assert 2 == app.job(job).attempt
    stop_clean(app, pool)


def test_no_recovery_ever_moves_a_claim_that_is_alive(
    two: Callable[..., tuple[Application, Application, Path]],
) -> None:
    """Neither the command, nor other children that boot, nor another pool that starts, nor the sweep each second."""
    first, second, database = two(queue={"lease_ms": 2000}, worker={"workers": 2, "restart_intensity": 100})
    pool = first.start()
    job = first.enqueue("gate")[0]
    busy = under_way(first, job)
    other = second.start()
    for _ in range(3):
        idle = next(pid for pid in pool.children().values() if pid != busy)
        os.kill(idle, signal.SIGKILL)
        assert (0, {"count": 0, "status": "ok"}) == first.json("jobs", "recover")
        eventually(lambda idle=idle: idle not in pool.children().values() and 2 == pool.ready(), 10)
        with second.queue() as queue:
            assert 0 == queue.recover()
    renewed(database, job, 1.5, 2000)
    assert busy in pool.children().values()

    (first.root / "gate").touch()
    eventually(lambda: "completed" == first.job(job).status)
    assert 1 == first.job(job).attempt
    first.ledger.assert_once([job])
    assert [] == second.ledger.lines()
    stop_clean(second, other)
    stop_clean(first, pool)


def test_a_job_that_restarts_of_the_pool_interrupt_has_failed_at_nothing(application: Make) -> None:
    """Five deploys in its way, two attempts: interruptions are counted apart, and it is done at its first attempt."""
    app = application(worker={"workers": 1, "stop_timeout_ms": 50}, queue={"max_attempts": 2})
    app.build()
    job = app.enqueue("gate")[0]
    for number in range(1, 6):
        pool = app.start()
        eventually(lambda number=number: number == app.ledger.count("start", job), 10, "it is begun again")
        stop_clean(app, pool)
        seen = app.job(job)
        assert ("queued", 0, number) == (seen.status, seen.attempt, seen.interruptions)
        assert 1 == len(pool.events("worker.task.released"))

    (app.root / "gate").touch()
    pool = app.start()
    eventually(lambda: "completed" == app.job(job).status)
    seen = app.job(job)
    assert (1, 5, None) == (seen.attempt, seen.interruptions, seen.error)
    stop_clean(app, pool)
