"""Stops of children that will not end, that have not begun, that log, and that have forked."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from harness import Application, alive, eventually, scaled
from harness.faults import assert_stopped_clean, identities, left, stop_clean, under_way

Make = Callable[..., Application]

SHORT = {"workers": 1, "stop_timeout_ms": 500, "force_kill_timeout_ms": 500}
#: The whole ladder, and what a busy machine may add, in seconds.
IN_TIME = 1.5 + 2.5
#: How a child is kept from ending once its task is done, and the task that does it.
CLINGING = ["thread", "atexit", "deaf", "stopped"]


@pytest.mark.parametrize("how", CLINGING)
def test_a_child_that_will_not_end_is_killed_at_its_deadline(application: Make, how: str) -> None:
    """A thread, an exit hook, deafness, SIGSTOP: ``status`` answers, the stop succeeds, nobody is left."""
    app = application(worker=SHORT)
    pool = app.start()
    job = app.enqueue("stay", how=how)[0] if how != "stopped" else app.enqueue("nap")[0]
    under_way(app, job)
    if how != "deaf":
        eventually(lambda: app.job(job).status == "completed")
    if how == "stopped":
        os.kill(pool.children()[0], signal.SIGSTOP)
    people = identities(pool.census())
    began = time.monotonic()
    pool.signal()
    eventually((app.root / "var" / "tmp" / "worker.stop").exists)
    assert "stopping" == pool.status()["status"]
    assert 0 == pool.wait(IN_TIME), pool.log()
    assert 0.4 <= time.monotonic() - began
    assert_stopped_clean(app, pool, people)
    assert ["killed-at-deadline"] == [event["cause"] for event in pool.events("worker.child.exit")]


@pytest.mark.parametrize("how", ["thread", "atexit"])
def test_a_recycled_child_that_will_not_end_gives_its_slot_up(application: Make, how: str) -> None:
    """It has said that it is done: it is killed by the force-kill budgets, its replacement takes over, jobs go on."""
    app = application(worker={**SHORT, "max_requests": 1})
    pool = app.start()
    app.enqueue("stay", how=how)
    following = app.enqueue("nap", 2)
    eventually(lambda: app.statuses() == {"completed": 3}, 15, "jobs go on")
    app.ledger.assert_once([*following, *(id for _, id, *_ in app.ledger.lines()[:1])])
    assert 1 <= sum(event["cause"] == "killed-at-deadline" for event in pool.events("worker.child.exit"))
    eventually(lambda: 1 == pool.ready(), 10)
    stop_clean(app, pool)


BOOTS_FOR_EVER = """
import os, sys, time
if os.environ.get("PLATFORM_WORKER_CHILD"):
    {handlers}
    open("booting", "a").close()
    {body}
"""
BODIES = {
    "sleeps": ("pass", "time.sleep(600)"),
    "spins": ("pass", "while True: pass"),
    "in C": ("import ctypes", "ctypes.PyDLL(None).sleep(600)"),
}


@pytest.mark.parametrize("body", BODIES)
def test_a_stop_while_a_boot_never_ends_is_in_time(application: Make, body: str) -> None:
    """Nothing is spawned after the signal, it ends within the budgets with 0, and nobody is left."""
    handlers, loop = BODIES[body]
    app = application(tasks=BOOTS_FOR_EVER.format(handlers=handlers, body=loop), worker={**SHORT, "workers": 2}).build()
    pool = app.pool()
    pool.start(wait=False)
    eventually((app.root / "booting").exists)
    eventually(lambda: 2 == len(pool.children()))
    people = identities(pool.census())
    pool.signal()
    assert 0 == pool.wait(IN_TIME), pool.log()
    assert_stopped_clean(app, pool, people)
    assert [] == pool.events("worker.child.ready")


def test_a_child_told_to_stop_before_it_has_handlers_ends_by_itself(application: Make) -> None:
    """SIGTERM in the instant it is there: it is not lost, it ends nothing by signal, and nobody has to kill."""
    app = application(worker={"workers": 1, "stop_timeout_ms": 20_000}).build()
    pool = app.start()
    for _ in range(scaled(5)):
        old = eventually(lambda: pool.children().get(0), 10)
        os.kill(old, signal.SIGTERM)
        new = eventually(lambda old=old: next((pid for pid in pool.children().values() if pid != old), None), 10)
        os.kill(new, signal.SIGTERM)
        eventually(lambda new=new: not alive(new), 10, "it ends by itself")
        eventually(lambda: 1 == pool.ready(), 20)
    causes = {event["cause"] for event in pool.events("worker.child.exit")}
    assert {"done"} == causes, pool.log()
    stop_clean(app, pool)


def test_signals_among_log_lines_break_nothing(application: Make) -> None:
    """Handlers that log as fast as they can while signals arrive: no reentrant call, and the right exit code."""
    app = application(worker={"workers": 2}, app={"log_exceptions": True})
    for _ in range(scaled(1)):
        pool = app.start()
        jobs = app.enqueue("chatter", 2, lines=20_000)
        for job in jobs[:1]:
            under_way(app, job)
        for _ in range(25):
            for pid in [pool.supervisor, pool.guardian() or 0, *pool.children().values()]:
                hit(pid, signal.SIGHUP)
            deadline = time.monotonic() + random.uniform(0.0, 0.01)
            eventually(lambda deadline=deadline: time.monotonic() >= deadline)
        pool.signal()
        for _ in range(25):
            for pid in pool.children().values():
                hit(pid, signal.SIGTERM)
        assert 0 == pool.wait(20), pool.log()[-2000:]
        log = pool.log()
        assert "reentrant" not in log
        assert "Traceback" not in log
        app.assert_clean()
    assert 0 == app.statuses().get("failed", 0) + app.statuses().get("processing", 0)


def hit(pid: int, number: int) -> None:
    """A signal to who may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def test_what_a_task_forks_has_none_of_our_handlers(application: Make) -> None:
    """A fork that gets SIGTERM dies of it: it starts no drain, settles nothing, and signals nobody."""
    app = application(worker={"workers": 1})
    pool = app.start()
    job = app.enqueue("fork")[0]
    eventually(lambda: app.job(job).status == "completed")
    forked = app.job(job).result
    children = pool.children()
    assert alive(forked)

    os.kill(forked, signal.SIGTERM)
    eventually(lambda: not alive(forked))
    pooled = app.enqueue("multiply", numbers=[1, 2, 3])[0]
    eventually(lambda: app.job(pooled).status == "completed", 20)
    assert [1, 4, 9] == app.job(pooled).result
    busy = app.enqueue("gate")[0]
    under_way(app, busy)
    assert children == pool.children()
    assert 1 == pool.ready()
    (app.root / "gate").touch()
    eventually(lambda: app.job(busy).status == "completed")
    app.ledger.assert_once([job, pooled, busy])
    stop_clean(app, pool)
    assert [] == left(identities([forked]))
