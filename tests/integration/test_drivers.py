"""A whole pool over each driver: the same life, the same surroundings for an application."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Application, alive, eventually

#: Reports the surroundings that a handler finds.
SURROUNDINGS = """
import json, os, signal, sys
from pathlib import Path
from platform_worker import task

@task("look")
def look():
    import colorsys  # the application's own: its folder comes first once it is imported
    return {
        "path": [entry for entry in sys.path if entry != os.getcwd()],
        "own": colorsys.__file__.startswith(os.getcwd()),
        "cwd": os.getcwd(),
        "leads": os.getpid() == os.getsid(0) == os.getpgrp(),
        "ignored": sorted(int(s) for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_IGN),
        "blocked": sorted(int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "descriptors": sorted(
            os.readlink(f"/proc/self/fd/{fd}").rpartition(".")[2]
            for fd in os.listdir("/proc/self/fd") if int(fd) < 3
        ),
        "environment": sorted(key for key in os.environ if key not in ("LINES", "COLUMNS")),
    }
"""


@pytest.fixture(params=["fork", "spawn"])
def driver(request: pytest.FixtureRequest) -> str:
    return request.param


def test_jobs_recycles_and_a_stop(application: Callable[..., Application], driver: str) -> None:
    """Every job once, children replaced on the way, nobody left, and the driver is what was asked for."""
    app = application(worker={"workers": 2, "max_requests": 5, "driver": driver})
    pool = app.start()
    assert driver == pool.status()["driver"]
    jobs = app.enqueue("nap", 30)
    eventually(lambda: {"completed": 30} == app.statuses(), 30)
    app.ledger.assert_once(jobs)
    assert len(set(app.ledger.pids())) >= 6
    pool.stop()
    app.assert_clean()
    assert [] == app.leftovers()


def test_auto_is_fork_where_there_is_one(application: Callable[..., Application]) -> None:
    app = application(worker={"workers": 1, "driver": "auto"})
    pool = app.start()
    state = json.loads((app.root / "var/tmp/worker.state.json").read_text())
    assert ("auto", "fork") == (state["driver_requested"], state["driver"])
    pool.stop()


def look(app: Application) -> dict[str, Any]:
    """What a handler finds around it."""
    (app.root / "colorsys.py").write_text("")
    (app.root / "json.py").write_text("raise RuntimeError('not the standard library')")
    pool = app.start()
    with app.queue() as queue:
        found = queue.result(queue.enqueue("look"), timeout=20)
    pool.stop()
    return found


def test_an_application_finds_the_same_over_both(application: Callable[..., Application]) -> None:
    """Import path, signals, descriptors, session, environment; a module of the root shadows nothing of the boot's."""
    app = application(tasks=SURROUNDINGS, worker={"workers": 1, "driver": "fork"})
    over_fork = look(app)
    app.configure(worker={"workers": 1, "driver": "spawn"})
    assert over_fork == look(app)
    assert over_fork["own"]
    assert over_fork["leads"]
    assert [] == over_fork["blocked"]


def test_a_program_of_ones_own(application: Callable[..., Application]) -> None:
    """``[worker.spawn] command`` is what runs, with the pool's interpreter for ``@python``."""
    program = ["@python", "-W", "ignore", "-m", "platform_worker.child"]
    app = application(worker={"workers": 1, "driver": "spawn"}, **{"worker.spawn": {"command": program}})
    pool = app.start()
    (pid,) = pool.children().values()
    assert b"\0-W\0ignore\0-m\0platform_worker.child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    app.enqueue("nap")
    eventually(lambda: {"completed": 1} == app.statuses())
    pool.stop()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (["/nowhere/python", "-m", "platform_worker.child"], "worker-child-start-failed"),
        (["@python", "-c", "raise SystemExit(3)"], "worker-child-exited"),
        (["@python", "-c", "print('hello')"], "worker-child-exited"),
    ],
)
def test_a_program_that_is_no_child(application: Callable[..., Application], program: list[str], reason: str) -> None:
    """The start ends with its reason, nobody lives, nothing is left."""
    app = application(worker={"workers": 1, "driver": "spawn"}, **{"worker.spawn": {"command": program}})
    app.build()
    pool = app.pool()
    pool.start(wait=False)
    assert 1 == pool.wait(20)
    assert f": {reason}\n" in pool.log()
    app.assert_clean()
    assert [] == app.leftovers()


def test_a_guardian_that_is_killed_takes_its_children_with_it(
    application: Callable[..., Application], driver: str
) -> None:
    """Idle, and busy in Python: all are gone within two seconds, and the pool ends with its reason."""
    app = application(worker={"workers": 3, "driver": driver})
    pool = app.start()
    app.enqueue("spin", seconds=600)
    eventually(lambda: 1 == app.ledger.count("start"))
    guardian, children = pool.guardian(), pool.children().values()
    assert guardian is not None
    os.kill(guardian, signal.SIGKILL)
    eventually(lambda: not any(map(alive, children)), 2)
    assert 1 == pool.wait(10)
    assert "worker-process-guardian-failed" in pool.log()
    app.assert_clean()
    assert [] == app.leftovers()
