"""The wall clock jumps under a pool: nobody is killed for it, no lease is lost, every grace has its real length."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Application, eventually
from harness.application import WORKER
from harness.clock import COMPILER, Clock
from harness.control import took
from harness.faults import assert_stopped_clean, identities, under_way

Make = Callable[..., Application]
HOUR, TEN_YEARS = 3600, 315_360_000
LEASE_MS = 1500
STOP_MS = 1200

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler, to shift the clock of every process")


@pytest.mark.parametrize(
    ("seconds", "library"),
    [
        pytest.param(HOUR, True, marks=needs_compiler),
        pytest.param(-HOUR, True, marks=needs_compiler),
        pytest.param(TEN_YEARS, True, marks=needs_compiler),
        pytest.param(-TEN_YEARS, True, marks=needs_compiler),
        (-HOUR, False),
    ],
)
def test_a_jump_of_the_wall_clock_moves_nothing(application: Make, tmp_path: Path, seconds: int, library: bool) -> None:
    """A job under way is renewed past its lease and runs once; new jobs are done; the drain takes its real time."""
    app = application(
        worker={"workers": 2, "stop_timeout_ms": STOP_MS, "restart_intensity": 0}, queue={"lease_ms": LEASE_MS}
    ).build()
    clock = Clock(tmp_path / "clock", seconds, library=library)
    pool = app.pool(**clock.environ)
    pool.start()
    (long,) = app.enqueue("nap", seconds=60)
    under_way(app, long)
    people = identities(pool.census())

    clock.jump()
    assert abs(clock.reads(sys.executable) - time.time() - seconds) < 60, "the clock is really shifted"
    jumped = time.monotonic()
    line = [WORKER, "--root", str(app.root), "enqueue", "nap"]
    done = subprocess.run(line, env={**os.environ, **clock.environ}, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    eventually(lambda: 1 == app.ledger.count("finish", done.stdout.strip()))
    eventually(lambda: took(jumped) > 2 * LEASE_MS / 1000)
    assert 1 == app.ledger.count("start", long)
    assert ("processing", 1) == (app.job(long).status, app.job(long).attempt)
    assert people == identities(pool.census())
    assert 2 == pool.ready()
    assert (0, "healthy") == (pool.health()[0], pool.health()[1]["reason"])
    assert [] == pool.events("worker.child.exit") + pool.events("worker.task.lease_lost")

    began = time.monotonic()
    pool.signal()
    assert 0 == pool.wait(), pool.log()
    assert STOP_MS / 1000 - 0.1 < took(began) < STOP_MS / 1000 + 3
    assert_stopped_clean(app, pool, people)
    assert 1 == app.ledger.count("interrupted", long)
    assert ("queued", 0) == (app.job(long).status, app.job(long).attempt)


@needs_compiler
@pytest.mark.parametrize("seconds", [TEN_YEARS, -TEN_YEARS])
def test_a_job_claimed_before_a_jump_is_recovered_after_it(application: Make, tmp_path: Path, seconds: int) -> None:
    """The pool dies with a job in hand; the next one, ten years on or back, has it at once and once."""
    app = application(worker={"workers": 1}, queue={"lease_ms": 300_000}).build()
    clock = Clock(tmp_path / "clock", seconds, library=True)
    first = app.pool(**clock.environ)
    first.start()
    (job,) = app.enqueue("gate")
    under_way(app, job)
    guardian = first.guardian()
    assert guardian is not None
    os.kill(guardian, signal.SIGKILL)
    first.kill()
    first.assert_gone()
    clock.jump()
    (app.root / "gate").touch()
    second = app.pool(**clock.environ)
    second.start()
    eventually(lambda: "completed" == app.job(job).status, 10)
    assert (2, 1) == (app.ledger.count("start", job), app.ledger.count("finish", job))
    second.stop()
