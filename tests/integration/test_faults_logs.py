"""The log's reader and the telemetry's back end: neither is needed for the work."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import Application, Pool, eventually
from harness.control import LOCATOR, took
from harness.faults import assert_stopped_clean, identities
from harness.processes import descriptors, read
from harness.telemetry import telemetry

Make = Callable[..., Application]


@contextmanager
def piped(pool: Pool, *arguments: str, stdout: int | None = None, **popen: Any) -> Iterator[int]:
    """A pool that is started with a pipe as stderr; its reading end, closed afterwards."""
    reading, writing = os.pipe()
    line = [*pool.launch, "--root", str(pool.root), "start", *arguments]
    pool._process = subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if stdout is None else stdout,
        stderr=writing,
        env=pool.environ,
        **popen,
    )
    os.close(writing)
    try:
        yield reading
    finally:
        try:
            os.close(reading)
        except OSError:  # the test did so
            pass


def fill(reading: int) -> None:
    """Leaves no room in the pipe, which nobody reads."""
    writing = os.open(f"/proc/self/fd/{reading}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        for size in (4096, 1):
            while True:
                try:
                    os.write(writing, b"x" * size)
                except BlockingIOError:
                    break
    finally:
        os.close(writing)


def running(app: Application, pool: Pool, workers: int = 1) -> None:
    """Waits until every child is ready, where the summary cannot be read."""

    def ready() -> bool:
        done = app.run("health")
        assert pool.started(), done.stderr
        return done.returncode == 0

    eventually((app.root / LOCATOR).exists, 20)
    eventually(ready, 20)
    assert workers == pool.ready()


def ticks(pids: list[int]) -> int:
    """Processor time that they have used so far, in clock ticks."""
    lines = [read(f"/proc/{pid}/stat") for pid in pids]
    return sum(sum(map(int, line[line.rindex(b")") + 2 :].split()[11:13])) for line in lines if line)


def assert_idle(pool: Pool, seconds: float = 1.0) -> None:
    """Nobody spins: less than a fifth of a processor for all of the pool, over a while."""
    pids = pool.census()
    used, began = ticks(pids), time.monotonic()
    eventually(lambda: took(began) >= seconds, seconds + 1)
    assert ticks(pids) - used < 0.2 * os.sysconf("SC_CLK_TCK") * took(began)


def assert_standard_descriptors(pool: Pool) -> None:
    """No socket, pipe of ours or lock has the number 0, 1 or 2, in any process, once its children have begun."""
    eventually(lambda: standard_descriptors_are_free(pool), 5)


def standard_descriptors_are_free(pool: Pool) -> bool:
    for pid in pool.census():
        opened = descriptors(pid)
        for number in (0, 1, 2):
            assert not opened.get(number, "/dev/null").startswith(("socket:", "anon_inode:", "pipe:")), (pid, opened)
            assert "/var/tmp/worker." not in opened.get(number, ""), (pid, opened)
    return True


def work(app: Application, task: str = "chatter", jobs: int = 5) -> None:
    """Jobs, of those that print unless said, are done."""
    before = app.statuses().get("completed", 0)
    app.enqueue(task, jobs)
    eventually(lambda: before + jobs == app.statuses().get("completed"), 20)


def end(app: Application, pool: Pool) -> None:
    """Stops in order, with 0."""
    people = identities(pool.census())
    assert 0 == app.run("stop").returncode
    assert 0 == pool.wait(5)
    assert_stopped_clean(app, pool, people)


def test_a_reader_of_the_log_that_goes_away_takes_nothing_with_it(application: Make) -> None:
    """Children are killed, replaced, stopped, and work on: supervision goes on, and nobody spins."""
    app = application(worker={"workers": 1, "restart_intensity": 100}).build()
    pool = app.pool()
    with piped(pool) as reading:
        running(app, pool)
        os.close(reading)
        work(app, "nap")
        for _ in range(3):
            child = eventually(pool.children)[0]
            os.kill(child, signal.SIGKILL)
            eventually(lambda gone=child: pool.children().get(0, gone) != gone and pool.ready() == 1)
        work(app, "nap")
        assert_idle(pool)
        end(app, pool)


def test_a_reader_of_the_log_that_stalls_costs_lines_not_time(application: Make) -> None:
    """With the pipe full, children are replaced and stopped as ever; only a task's own printing waits."""
    app = application(worker={"workers": 1, "restart_intensity": 100}).build()
    pool = app.pool()
    with piped(pool) as reading:
        fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 4096)
        running(app, pool)
        fill(reading)
        for _ in range(3):
            child = eventually(pool.children)[0]
            os.kill(child, signal.SIGKILL)
            eventually(lambda gone=child: pool.children().get(0, gone) != gone and pool.ready() == 1)
        jobs = app.enqueue("nap", 5)
        eventually(lambda: {"completed": 5} == app.statuses())
        app.ledger.assert_once(jobs)
        assert_idle(pool)
        end(app, pool)


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_descriptors_that_are_closed_at_the_start_are_no_matter(application: Make, closed: tuple[int, ...]) -> None:
    """The pool works and stops, and none of its own descriptors gets such a number."""
    app = application(worker={"workers": 2}).build()
    pool = app.pool()
    script = 'exec "$0" "$@" ' + " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    pool.launch = ["sh", "-c", script, *pool.launch]
    pool.start(wait=False)
    running(app, pool, 2)
    assert_standard_descriptors(pool)
    work(app)
    child = pool.children()[0]
    os.kill(child, signal.SIGTERM)
    eventually(lambda: pool.children().get(0, child) != child and pool.ready() == 2)
    assert_standard_descriptors(pool)
    end(app, pool)


def test_a_standard_output_that_is_full_or_has_no_reader_stops_no_start(application: Make) -> None:
    """The summary line is lost; the pool runs."""
    app = application(worker={"workers": 1}).build()
    full = os.open("/dev/full", os.O_WRONLY)
    reading, writing = os.pipe()
    os.close(reading)
    for stdout in (full, writing):
        pool = app.pool()
        with piped(pool, "--json", stdout=stdout):
            running(app, pool)
            work(app)
            end(app, pool)
        os.close(stdout)


# Telemetry


def test_a_back_end_of_telemetry_that_never_answers_slows_no_work(application: Make, tmp_path: Path) -> None:
    """Jobs are done, status is answered, a child is replaced; the stop waits for a flush at most."""
    app = application(worker={"workers": 1}).build()
    pool = app.pool(**telemetry(tmp_path / "site", hang=True))
    pool.start()
    began = time.monotonic()
    jobs = app.enqueue("nap", 300)
    eventually(lambda: {"completed": 300} == app.statuses(), 30)
    assert took(began) < 15
    app.ledger.assert_once(jobs)
    assert 1 == pool.ready()
    child = pool.children()[0]
    os.kill(child, signal.SIGTERM)
    eventually(lambda: pool.children().get(0, child) != child and pool.ready() == 1, 20)
    people = identities(pool.census())
    began = time.monotonic()
    pool.signal()
    assert 0 == pool.wait(20)
    assert took(began) < 10, "a flush of the child, then one of the supervisor"
    assert_stopped_clean(app, pool, people)
