"""Signals to each process of a pool, as the contract has them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from harness import Application, eventually
from harness.control import took
from harness.faults import assert_stopped_clean, identities, under_way

Make = Callable[..., Application]
#: Two signals closer than this are one stop.
SAME = 0.5


def test_sigquit_goes_straight_to_killing(application: Make) -> None:
    """A busy pool with long budgets ends at once, with 0, and its job is recovered by the next start."""
    app = application(worker={"workers": 1, "stop_timeout_ms": 60000, "force_kill_timeout_ms": 30000})
    pool = app.start()
    (job,) = app.enqueue("nap", seconds=60)
    under_way(app, job)
    people = identities(pool.census())
    began = time.monotonic()
    pool.signal(signal.SIGQUIT)
    assert 0 == pool.wait(15), pool.log()
    assert took(began) < 10
    assert_stopped_clean(app, pool, people)
    assert 0 == app.ledger.count("interrupted")


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_skips_what_is_left_of_the_cooperative_phase(application: Make, second: int) -> None:
    """Half a second or more after the first; the task in hand is interrupted and given back."""
    app = application(worker={"workers": 1, "stop_timeout_ms": 60000})
    pool = app.start()
    (job,) = app.enqueue("nap", seconds=60)
    under_way(app, job)
    people = identities(pool.census())
    pool.signal(signal.SIGTERM)
    first = time.monotonic()
    eventually(lambda: took(first) > SAME + 0.2)
    pool.signal(second)
    assert 0 == pool.wait(15), pool.log()
    assert_stopped_clean(app, pool, people)
    assert 1 == app.ledger.count("interrupted", job)
    assert ("queued", 0, 1) == (app.job(job).status, app.job(job).attempt, app.job(job).interruptions)


def test_two_signals_at_once_are_one_stop(application: Make) -> None:
    """Service managers and terminals deliver one stop twice: the task in hand is finished."""
    app = application(worker={"workers": 1, "stop_timeout_ms": 60000})
    pool = app.start()
    (job,) = app.enqueue("gate")
    under_way(app, job)
    pool.signal(signal.SIGTERM)
    first = time.monotonic()
    for _ in range(5):
        pool.signal(signal.SIGINT)
        pool.signal(signal.SIGTERM)
    sent = took(first)
    eventually(lambda: took(first) > SAME + 0.5)
    assert sent > SAME or 0 == app.ledger.count("interrupted"), "the signals were sent within the half second"
    assert pool.started()
    (app.root / "gate").touch()
    assert 0 == pool.wait(), pool.log()
    app.ledger.assert_once([job])


def test_sighup_is_ignored_by_everybody(application: Make) -> None:
    """Supervisor, guardian and children go on as they were, busy or idle."""
    app = application(worker={"workers": 2})
    pool = app.start()
    (job,) = app.enqueue("gate")
    under_way(app, job)
    people = identities(pool.census())
    for pid, _ in people * 3:
        os.kill(pid, signal.SIGHUP)
    (app.root / "gate").touch()
    eventually(lambda: "completed" == app.job(job).status)
    assert people == identities(pool.census())
    assert 2 == pool.ready()
    assert [] == pool.events("worker.child.exit")
    pool.stop()


def test_signals_to_the_guardian_alone_are_ignored(application: Make) -> None:
    """The supervisor decides; a stop of the whole group reaches the guardian as well."""
    app = application(worker={"workers": 1})
    pool = app.start()
    people = identities(pool.census())
    guardian = pool.guardian()
    assert guardian is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        os.kill(guardian, number)
    (job,) = app.enqueue("nap")
    eventually(lambda: "completed" == app.job(job).status)
    assert people == identities(pool.census())
    pool.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("busy", [True, False])
def test_a_child_told_to_end_from_outside_finishes_and_is_refilled_as_in_a_recycle(
    application: Make, number: int, busy: bool
) -> None:
    """Its task is settled, it says done, no restart is counted, and its slot has another child."""
    app = application(worker={"workers": 1, "restart_intensity": 0})
    pool = app.start()
    (job,) = app.enqueue("gate") if busy else [""]
    if busy:
        under_way(app, job)
    child = pool.children()[0]
    os.kill(child, number)
    if busy:
        eventually(lambda: child in pool.children().values())
        assert 0 == app.ledger.count("interrupted")
        (app.root / "gate").touch()
    eventually(lambda: pool.events("worker.child.exit"))
    eventually(lambda: 1 == pool.ready() and child not in pool.children().values())
    (exit,) = pool.events("worker.child.exit")
    assert ("done", "info") == (exit["cause"], exit["level"]), exit
    assert [] == pool.events("worker.child.restart")
    if busy:
        app.ledger.assert_once([job])
        assert "completed" == app.job(job).status
    pool.stop()
    app.assert_clean()
