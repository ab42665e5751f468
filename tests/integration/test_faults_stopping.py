"""A stop while there is work: settled or given back, run by nobody twice, ended by no signal."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest

from harness import Application, Pool, eventually, scaled
from harness.faults import assert_stopped_clean, identities, stop_clean, under_way
from harness.ledger import Ledger
from harness.processes import stat
from platform_worker import NewJob

Make = Callable[..., Application]


def pause(seconds: float) -> None:
    """Until a moment of chance; nothing is waited for."""
    deadline = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= deadline, seconds + 1)


def terminate(pid: int) -> None:
    """SIGTERM to a child, which may have ended by itself."""
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return


def stopped(app: Application, pool: Pool, seconds: float = 20.0) -> None:
    """After the signal: exit 0, nothing left, and no child ended by a signal or by our hand."""
    people = identities(pool.census())
    assert 0 == pool.wait(seconds), pool.log()
    assert_stopped_clean(app, pool, people)
    causes = Counter(event["cause"] for event in pool.events("worker.child.exit"))
    assert not set(causes) - {"done"}, pool.log()


def assert_consistent(ledger: Ledger, finished_once: bool = True) -> None:
    """Nobody's handler ran while another's did, and what was finished was finished once."""
    running: dict[str, int] = {}
    finished: Counter[str] = Counter()
    for event, job, _, pid in ledger.lines():
        if event == "start":
            assert job not in running, "two at once"
            running[job] = pid
        else:
            assert pid == running.pop(job)
            finished[job] += event == "finish"
    assert not finished_once or set(finished.values()) <= {1}


def test_stops_at_any_moment_lose_and_double_no_job(application: Make) -> None:
    """Two children are stopped at random among jobs of a millisecond: each job is settled once or given back."""
    app = application(worker={"workers": 2}).build()
    added: set[str] = set()
    with app.queue() as queue:
        for _ in range(scaled(5)):
            if not added or queue.counts()["default"].queued < 1000:
                added.update(queue.enqueue_many(NewJob("nap", {"seconds": 0.001}) for _ in range(1000)))
            pool = app.start()
            for _ in range(4):  # of one child, which is refilled
                pause(random.uniform(0.0, 0.15))
                terminate(random.choice(list(eventually(pool.children).values())))
            pause(random.uniform(0.0, 0.15))
            pool.signal(random.choice([signal.SIGTERM, signal.SIGINT]))
            stopped(app, pool)
            counts = queue.counts()["default"]
            assert 0 == counts.processing + counts.failed + counts.cancelled + counts.retry_wait, counts
            assert len(added) == counts.queued + counts.completed
            assert app.ledger.count("finish") == counts.completed, "no settlement without its handler"
    assert_consistent(app.ledger)
    assert app.ledger.count("finish") > 0
    assert {"completed", "queued"} >= {app.job(id).status for id in random.sample(sorted(added), 50)}


def test_a_job_that_was_claimed_and_not_started_is_given_back(application: Make) -> None:
    """Its handler never ran, its attempt is its own again, and another worker has it within a second."""
    app = application(worker={"workers": 1})
    pool = app.start()
    first, ahead = app.enqueue("gate"), app.enqueue("nap", 5)
    under_way(app, first[0])
    # The settlement of the first claims the next in the same transaction, and hangs until the stop has been heard.
    with closing(sqlite3.connect(app.root / "var" / "queue.sqlite3", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        (app.root / "gate").touch()
        eventually(lambda: app.ledger.count("finish"))
        pause(0.1)
        pool.signal()
        eventually((app.root / "var" / "tmp" / "worker.stop").exists)
        pause(0.1)
        writer.execute("ROLLBACK")
    stopped(app, pool)

    assert "completed" == app.job(first[0]).status
    assert [("queued", 0)] * 5 == [(app.job(id).status, app.job(id).attempt) for id in ahead]
    assert 1 == app.ledger.count("start")
    after = app.start()
    eventually(lambda: {"completed": 6} == app.statuses(), 5)
    app.ledger.assert_once([*first, *ahead])
    stop_clean(app, after)


def test_a_job_finished_during_the_drain_is_settled(application: Make) -> None:
    """Before the exit, with its result; it is not run again, and those that wait are left alone."""
    app = application(worker={"workers": 2})
    pool = app.start()
    jobs = app.enqueue("nap", 2, seconds=1.0)
    for job in jobs:
        under_way(app, job)
    waiting = app.enqueue("nap", 3)
    pool.signal()
    stopped(app, pool)

    assert ["completed"] * 2 == [app.job(job).status for job in jobs]
    assert set(app.ledger.pids()) == {app.job(job).result for job in jobs}
    assert ["queued"] * 3 == [app.job(job).status for job in waiting]
    after = app.start()
    eventually(lambda: {"completed": 5} == app.statuses())
    app.ledger.assert_once([*jobs, *waiting])
    stop_clean(app, after)


SHORT = {"workers": 1, "stop_timeout_ms": 300, "force_kill_timeout_ms": 700}


def test_a_task_longer_than_the_drain_is_interrupted_and_given_back(application: Make) -> None:
    """At once, not at the end of its lease: no attempt is spent, and the next pool has it within two seconds."""
    app = application(worker=SHORT, queue={"lease_ms": 300_000, "max_attempts": 1})
    pool = app.start()
    job = app.enqueue("nap", seconds=60)[0]
    under_way(app, job)
    people = identities(pool.census())
    pool.signal()
    assert 0 == pool.wait(5), pool.log()
    assert_stopped_clean(app, pool, people)

    assert 1 == app.ledger.count("interrupted", job)
    found = app.job(job)
    assert ("queued", 0, 1) == (found.status, found.attempt, found.interruptions)
    after = app.start()
    eventually(lambda: 2 == app.ledger.count("start", job), 2.0, "the next pool has it")
    stop_clean(app, after)


@pytest.mark.parametrize("task", ["seize", "deaf"])
def test_a_task_that_cannot_be_interrupted_is_killed_on_time_and_recovered(application: Make, task: str) -> None:
    """Its slot's next incarnation has it at its boot, whatever its lease says; its attempt is spent."""
    app = application(worker=SHORT, queue={"lease_ms": 300_000, "max_attempts": 2})
    pool = app.start()
    job = app.enqueue(task, seconds=60)[0]
    under_way(app, job)
    people = identities(pool.census())
    pool.signal()
    began = time.monotonic()
    assert 0 == pool.wait(6), pool.log()
    assert 1.0 <= time.monotonic() - began
    assert_stopped_clean(app, pool, people)
    assert ["killed-at-deadline"] == [event["cause"] for event in pool.events("worker.child.exit")]

    after = app.start()
    eventually(lambda: 2 == app.ledger.count("start", job), 2.0, "recovered")
    assert 2 == app.job(job).attempt
    stop_clean(app, after)


GROUP_STOPS = [(signal.SIGTERM, "group"), (signal.SIGINT, "group"), (signal.SIGTERM, "all"), (signal.SIGINT, "all")]


@pytest.mark.parametrize(("number", "to"), GROUP_STOPS)
def test_a_signal_to_everybody_is_one_stop(application: Make, number: int, to: str) -> None:
    """To the process group as from a terminal, or to each process as from a cgroup: busy children finish and settle."""
    app = application(worker={"workers": 2})
    pool = app.pool()
    app.build()
    pool.start(start_new_session=True)
    jobs = app.enqueue("nap", 2, seconds=1.0)
    for job in jobs:
        under_way(app, job)
    app.enqueue("nap", 3)
    if to == "group":
        pool.signal_group(number)
    else:
        for pid in random.sample(pool.census(), 4):
            os.kill(pid, number)
    stopped(app, pool)

    assert ["completed"] * 2 == [app.job(job).status for job in jobs]
    assert {"completed": 2, "queued": 3} == app.statuses()
    assert_consistent(app.ledger)


def test_ctrl_c_at_a_terminal_is_one_stop(application: Make) -> None:
    """The terminal sends it to its whole foreground group."""
    app = application(worker={"workers": 2}).build()
    pool = app.pool()
    ours, theirs = os.openpty()
    try:
        pool.start(start_new_session=True, preexec_fn=lambda: take_terminal(theirs))
        assert stat(pool.supervisor).session == pool.supervisor
        jobs = app.enqueue("nap", 2, seconds=1.0)
        for job in jobs:
            under_way(app, job)
        os.write(ours, b"\x03")
        stopped(app, pool)
    finally:
        os.close(ours)
        os.close(theirs)
    assert {"completed": 2} == app.statuses()


def take_terminal(fd: int) -> None:
    """Makes it the controlling terminal of the calling session leader."""
    import fcntl
    import termios

    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)


def test_a_child_that_ends_during_the_drain_is_not_replaced(application: Make) -> None:
    """Killed, or at the end of its limit: nobody is started once a stop is asked for."""
    app = application(worker={"workers": 3, "max_requests": 2})
    pool = app.start()
    jobs = [*app.enqueue("gate", name="a"), *app.enqueue("gate", name="a"), *app.enqueue("gate", name="b")]
    for job in jobs:
        under_way(app, job)
    children = pool.children()
    mark = {pid for _, _, _, pid in app.ledger.lines()}
    assert mark == set(children.values())
    pool.signal()
    eventually((app.root / "var" / "tmp" / "worker.stop").exists)
    victim = children[0]
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: pool.events("worker.child.exit"), 5)
    for name in ("a", "b"):
        (app.root / name).touch()
        eventually(lambda name=name: app.ledger.count("finish") >= 1)

    assert set(children.values()) >= set(pool.children().values())
    people = identities(pool.census())
    assert 0 == pool.wait(10), pool.log()
    assert_stopped_clean(app, pool, people)
    causes = sorted(event["cause"] for event in pool.events("worker.child.exit"))
    assert ["done", "done", "killed"] == causes
    assert 3 == len(pool.events("worker.child.ready"))
    assert "processing" == next(app.job(id).status for _, id, _, pid in app.ledger.lines() if pid == victim)
