"""``worker start --until-empty`` and ``--once``: pools that end by themselves, and what their exit says."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

from harness import Application, Pool, eventually
from harness.faults import identities, left, under_way

Make = Callable[..., Application]


def run_batch(app: Application, *arguments: str, code: int = 0, seconds: float = 30.0) -> Pool:
    """Runs a pool that ends by itself; nobody and nothing is left."""
    pool = app.build().pool()
    pool.start(*arguments, wait=False)
    end(app, pool, code, seconds)
    return pool


def end(app: Application, pool: Pool, code: int = 0, seconds: float = 30.0) -> None:
    """The pool ends by itself with that code; nobody and nothing is left."""
    assert code == pool.wait(seconds), pool.log()
    app.assert_clean()
    assert [] == app.leftovers()


def lines(pool: Pool) -> list[dict[str, object]]:
    """What ``worker start --json`` printed."""
    return [json.loads(line) for line in pool.out.read_text().splitlines()]


def test_until_empty_works_everything_off_and_ends(application: Make) -> None:
    """Each job is done once, by both children; one summary line, exit code 0."""
    app = application()
    jobs = app.build().enqueue("nap", 40, seconds=0.02)
    pool = run_batch(app, "--until-empty")

    app.ledger.assert_once(jobs)
    assert {"completed": 40} == app.statuses()
    assert 2 == len(set(app.ledger.pids()))
    (summary,) = lines(pool)
    assert ("running", 2) == (summary["status"], summary["worker_count"])
    assert [("done", "info")] * 2 == [(e["cause"], e["level"]) for e in pool.events("worker.child.exit")]
    assert [] == pool.events("worker.child.restart") + pool.events("worker.child.recycle")


@pytest.mark.parametrize("option", ["--until-empty", "--once"])
def test_where_nothing_is_there_it_ends_at_once(application: Make, option: str) -> None:
    """The summary is printed all the same, and the exit code is 0, run after run."""
    app = application()
    for _ in range(2):
        pool = run_batch(app, option, seconds=10)
        (summary,) = lines(pool)
        assert ("running", 1 if option == "--once" else 2) == (summary["status"], summary["worker_count"])


def test_once_does_one_job_with_one_child(application: Make) -> None:
    """However many are waiting: the first in order; the next start takes the next."""
    app = application(worker={"workers": 4})
    jobs = app.build().enqueue("nap", 3)
    for number in (1, 2, 3):
        pool = run_batch(app, "--once")
        app.ledger.assert_once(jobs[:number])
        assert (number, 0) == (app.statuses()["completed"], app.statuses().get("processing", 0))
        assert 1 == len(pool.events("worker.child.ready"))
        assert 1 == lines(pool)[0]["worker_count"]


@pytest.mark.parametrize(("option", "ran"), [("--until-empty", 3), ("--once", 1)])
def test_jobs_that_fail_or_wait_for_their_retry_do_not_hold_a_batch_up(
    application: Make, option: str, ran: int
) -> None:
    """A failed job is the job's affair: exit code 0; one that is not due yet is not claimable, and stays."""
    app = application(queue={"backoff_ms": 600000, "max_attempts": 2})
    app.build()
    with app.queue() as queue:
        failing = queue.enqueue("die", {"how": "raise"})
        rejecting = queue.enqueue("die", {"how": "reject"})
        done = queue.enqueue("nap", {})
        later = queue.enqueue("nap", {}, delay=600)
    pool = run_batch(app, option)

    assert ran == app.ledger.count("start")
    assert "retry_wait" == app.job(failing).status
    assert 1 == app.job(failing).attempt
    assert "queued" == app.job(later).status
    if option == "--until-empty":
        assert ("failed", "completed") == (app.job(rejecting).status, app.job(done).status)
    assert 1 == len(lines(pool))


def test_until_empty_takes_what_comes_meanwhile_and_retries_that_fall_due(application: Make) -> None:
    """It ends when nothing is claimable, not when what it began with is done."""
    app = application(worker={"workers": 1}, queue={"backoff_ms": 1, "max_attempts": 3})
    app.build()
    first = app.enqueue("gate")[0]
    pool = app.pool()
    pool.start("--until-empty")
    under_way(app, first)
    with app.queue() as queue:
        retried = queue.enqueue("die", {"how": "raise", "until": 2}, priority=1)
    others = app.enqueue("nap", 5, seconds=0.05)
    (app.root / "gate").touch()
    end(app, pool)

    assert {"completed": 7} == app.statuses()
    assert 3 == app.ledger.count("start", retried)
    assert [1] * 5 == [app.ledger.count("finish", job) for job in others]


def test_until_empty_goes_on_over_recycles(application: Make) -> None:
    """Limits of two tasks a child: each job is done once all the same."""
    app = application(worker={"max_requests": 2})
    jobs = app.build().enqueue("nap", 9, seconds=0.01)
    pool = run_batch(app, "--until-empty")
    app.ledger.assert_once(jobs)
    assert len(pool.events("worker.child.recycle")) >= 3
    assert {"done"} == {event["cause"] for event in pool.events("worker.child.exit")}


def test_a_child_that_dies_in_until_empty_is_replaced_and_its_job_done_before_the_end(application: Make) -> None:
    """Whoever else has found nothing meanwhile does not matter."""
    app = application(queue={"lease_ms": 300000})
    job = app.build().enqueue("gate")[0]
    pool = app.pool()
    pool.start("--until-empty")
    busy = under_way(app, job)
    eventually(lambda: 1 == len(pool.events("worker.child.exit")), 10, "the idle one has ended")
    os.kill(busy, signal.SIGKILL)
    eventually(lambda: 2 == app.ledger.count("start", job), 10, "it runs again")
    (app.root / "gate").touch()
    end(app, pool)
    assert {"completed": 1} == app.statuses()
    assert 1 == len(pool.events("worker.child.restart"))


def test_a_poison_job_does_not_keep_a_batch_from_its_end(application: Make) -> None:
    """It kills its worker as often as it may, then it is failed; the others are done; exit code 0."""
    app = application(worker={"restart_intensity": 10}, queue={"max_attempts": 2, "backoff_ms": 1})
    app.build()
    poison = app.enqueue("die", how="segv")[0]
    jobs = app.enqueue("nap", 10, seconds=0.02)
    run_batch(app, "--until-empty")
    app.ledger.assert_once(jobs)
    assert app.job(poison).status in ("failed", "retry_wait")
    run_batch(app, "--until-empty")
    assert ("failed", "worker-lost") == (app.job(poison).status, app.job(poison).error["reason"])
    assert 2 == app.ledger.count("start", poison)


def test_a_batch_whose_children_keep_dying_fails_with_a_second_line(application: Make) -> None:
    """The summary, then the failure; exit code 1; the next start does what is left."""
    app = application(worker={"workers": 1, "restart_intensity": 0}, queue={"max_attempts": 2, "backoff_ms": 1})
    app.build()
    poison = app.enqueue("die", how="_exit3", until=1)[0]
    pool = run_batch(app, "--until-empty", code=1)
    summary, failure = lines(pool)
    assert "running" == summary["status"]
    expected = {
        "code": "PLATFORM_WORKER_LIFECYCLE_FAILED",
        "reason": "worker-child-exited",
        "status": "error",
    }
    assert expected == failure
    assert "PLATFORM_WORKER_LIFECYCLE_FAILED: worker-child-exited" in pool.log().splitlines()

    run_batch(app, "--until-empty")
    assert "completed" == app.job(poison).status
    assert 2 == app.ledger.count("start", poison)


def test_once_whose_child_dies_in_its_job_takes_no_other_and_says_so(application: Make) -> None:
    """At most one job is at most one, also where it killed its worker; the next start recovers it at once."""
    app = application(queue={"max_attempts": 1, "lease_ms": 300000})
    app.build()
    poison, other = app.enqueue("die", how="kill")[0], app.enqueue("nap")[0]
    pool = run_batch(app, "--once", code=1)
    assert "worker-child-exited" == lines(pool)[1]["reason"]
    assert [poison] == [job for event, job, *_ in app.ledger.lines() if event == "start"]

    run_batch(app, "--once")
    assert ("failed", "worker-lost") == (app.job(poison).status, app.job(poison).error["reason"])
    assert "completed" == app.job(other).status


def test_a_batch_that_is_stopped_gives_back_what_it_has_and_ends_0(application: Make) -> None:
    """A stop is a stop: the job in hand is finished or released, the rest stays queued for the next run."""
    app = application(worker={"stop_timeout_ms": 300})
    jobs = app.build().enqueue("nap", 4, seconds=60)
    pool = app.pool()
    pool.start("--until-empty")
    for job in jobs[:2]:
        under_way(app, job)
    people = identities(pool.census())
    pool.signal(signal.SIGTERM)
    end(app, pool)
    assert [] == left(people)
    assert {"queued": 4} == app.statuses()
    assert [0] * 4 == [app.job(job).attempt for job in jobs]


def test_a_job_may_take_longer_than_any_budget_of_the_pool(application: Make) -> None:
    """Nobody hurries the only job of a batch."""
    app = application(worker={"stop_timeout_ms": 200, "force_kill_timeout_ms": 200, "start_timeout_ms": 5000})
    job = app.build().enqueue("nap", seconds=2)[0]
    run_batch(app, "--once")
    app.ledger.assert_once([job])
    assert "completed" == app.job(job).status
