"""The queue's file under others' locks, on a full or failing disk, read-only or damaged: nothing lost, nobody exits."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Application, Pool, eventually, scaled
from harness.faults import stop_clean, under_way

Make = Callable[..., Application]


class Hog:
    """A stranger with a transaction of its own on the file, again and again, for up to ``seconds`` each time."""

    def __init__(self, database: Path, seconds: float) -> None:
        self._database, self._seconds = database, seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.held = 0

    def _run(self) -> None:
        connection = sqlite3.connect(self._database, timeout=60, isolation_level=None)
        while not self._end.is_set():
            connection.execute("BEGIN IMMEDIATE")
            self.held += 1
            self._end.wait(random.uniform(0.5, 1) * self._seconds)
            connection.execute("ROLLBACK")
            self._end.wait(random.uniform(0, 1) * self._seconds)
        connection.close()

    def __enter__(self) -> Hog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def nothing_happened(pools: list[Pool]) -> None:
    """Every child is there that was there at the beginning."""
    for pool in pools:
        names = ("worker.child.exit", "worker.child.restart", "worker.child.rejected", "worker.task.lease_lost")
        assert [] == [event for name in names for event in pool.events(name)], pool.log()


def test_two_pools_and_a_stranger_that_holds_the_lock_do_every_job_once(application: Make) -> None:
    """The stranger's transactions take as long as a second (four at the full count); no child exits over it."""
    first = application("first")
    shared = {"sqlite": {"path": str(first.root / "shared.sqlite3")}, "worker": {"max_requests": 1_000_000}}
    first.configure(**shared)
    apps = [first.build(), application("second", **shared).build()]
    jobs = first.enqueue("nap", scaled(600) // 2)
    with Hog(first.root / "shared.sqlite3", min(4.0, scaled(1))) as hog:
        pools = [app.start() for app in apps]
        jobs += first.enqueue("nap", scaled(600) - len(jobs))
        eventually(lambda: {"completed": len(jobs)} == first.statuses(), scaled(120))
        # A quick machine has done all before the stranger comes a second time; nobody may mind that either.
        eventually(lambda: hog.held > 1, 20)
        nothing_happened(pools)

    finished = Counter(job for app in apps for event, job, *_ in app.ledger.lines() if event == "finish")
    assert dict.fromkeys(jobs, 1) == dict(finished)
    assert all(app.ledger.count("finish") for app in apps)
    for app, pool in zip(apps, pools, strict=True):
        stop_clean(app, pool)


def test_a_pool_stops_in_time_while_a_stranger_holds_the_lock(application: Make) -> None:
    """Killed in the end, it has said whose settlement could not be written; that job is taken up by the next start."""
    app = application(worker={"stop_timeout_ms": 1000, "force_kill_timeout_ms": 500})
    pool = app.start()
    job = app.enqueue("gate")[0]
    under_way(app, job)
    connection = sqlite3.connect(app.root / "var" / "queue.sqlite3", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    (app.root / "gate").touch()
    eventually(lambda: app.ledger.count("finish", job))
    stop_clean(app, pool)
    waiting = [e for e in pool.events("worker.queue.unavailable") if e["cause"] == "settlement-waits"]
    assert [job] == [event["job_id"] for event in waiting], pool.log()
    connection.execute("ROLLBACK")
    connection.close()

    pool = app.start()
    eventually(lambda: "completed" == app.job(job).status)
    stop_clean(app, pool)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting needs privileges: " + mounted.stderr.decode().strip())
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leaves not a byte free."""
    with open(folder / "filler", "ab", buffering=0) as file, contextlib.suppress(OSError):
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)


def test_a_full_disk_holds_the_work_up_and_nothing_more(application: Make, disk: Path) -> None:
    """Who enqueues is told why; who works waits, says so once, and settles what was done as soon as there is room."""
    app = application(sqlite={"path": str(disk / "queue.sqlite3")})
    pool = app.start()
    jobs = app.enqueue("gate", 2)
    for job in jobs:
        under_way(app, job)
    fill(disk)
    refused = None
    for _ in range(100):
        done = app.run("enqueue", "nap", "--data", "{}")
        if done.returncode:
            refused = done
            break
        jobs.append(done.stdout.strip())
    assert refused is not None
    lines = ["PLATFORM_WORKER_QUEUE_FAILED: worker-queue-unavailable", "hint: sqlite.path: the disk is full"]
    assert (1, lines) == (refused.returncode, refused.stderr.splitlines())

    (app.root / "gate").touch()
    said = eventually(lambda: pool.events("worker.queue.unavailable"), 20, "a child says that it waits")
    assert "sqlite.path: the disk is full" in {event["cause"] for event in said}
    assert (0, 2) == (pool.health()[0], pool.ready())
    (disk / "filler").unlink()
    eventually(lambda: {"completed": len(jobs)} == app.statuses(), 20, "everything is settled")
    jobs += app.enqueue("nap", 20)
    eventually(lambda: {"completed": len(jobs)} == app.statuses(), 20)
    app.ledger.assert_once(jobs)
    nothing_happened([pool])
    stop_clean(app, pool)


def test_a_disk_that_fails_for_the_children_holds_the_work_up_and_nothing_more(application: Make) -> None:
    """Every write of theirs past the present end of the log is refused for a while."""
    app = application()
    pool = app.start()
    jobs = app.enqueue("gate", 2)
    for job in jobs:
        under_way(app, job)
    log = app.root / "var" / "queue.sqlite3-wal"
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pool.children().values()}
    for pid, (_, hard) in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (log.stat().st_size, hard))
    (app.root / "gate").touch()
    eventually(lambda: pool.events("worker.queue.unavailable"), 20, "a child says that it waits")
    assert (0, 2) == (pool.health()[0], pool.ready())
    for pid, limits in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    eventually(lambda: {"completed": 2} == app.statuses(), 20, "everything is settled")
    app.ledger.assert_once(jobs)
    nothing_happened([pool])
    stop_clean(app, pool)


def ruin_text(path: Path) -> None:
    path.write_text("this is not a database, and long enough to be read as one's first page" * 100)


def ruin_folder(path: Path) -> None:
    path.mkdir()


def ruin_parent(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("")


@pytest.mark.parametrize(
    ("ruin", "hint"),
    [
        (ruin_text, "sqlite.path: the file is not an SQLite database"),
        (ruin_folder, "sqlite.path: the file and its folder must be readable and writable"),
        (ruin_parent, "sqlite.path: the file and its folder must be readable and writable"),
    ],
)
def test_a_file_that_cannot_be_used_ends_the_start_with_its_rule(
    application: Make, ruin: Callable[[Path], None], hint: str
) -> None:
    """And enqueueing, with the same rule; nothing is left of either."""
    app = application(sqlite={"path": "store/queue.sqlite3"})
    path = app.root / "store" / "queue.sqlite3"
    path.parent.mkdir()
    ruin(path)
    refused_start(app, hint)


def test_a_file_system_that_is_read_only_ends_the_start_with_its_rule(application: Make, disk: Path) -> None:
    """And enqueueing, with the same rule; once it can be written, both work."""
    app = application(sqlite={"path": str(disk / "queue.sqlite3")})
    app.build().enqueue("nap")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    refused_start(app, "sqlite.path: the file and its folder must be readable and writable")
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    pool = app.start()
    eventually(lambda: {"completed": 1} == app.statuses())
    stop_clean(app, pool)


def test_a_disk_that_is_full_at_the_start_ends_it_with_its_rule(application: Make, disk: Path) -> None:
    """Where there is no room for the file itself."""
    app = application(sqlite={"path": str(disk / "queue.sqlite3")})
    fill(disk)
    refused_start(app, "sqlite.path: the disk is full")


@contextlib.contextmanager
def locked(app: Application) -> Iterator[None]:
    """Something else holds the write lock meanwhile."""
    connection = sqlite3.connect(app.root / "var" / "queue.sqlite3", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


def test_a_lock_that_is_not_let_go_ends_a_start_that_needs_it_with_its_rule(application: Make) -> None:
    """In time; it is needed to recover what the pool before has left. Without that, the start waits for no lock."""
    app = application(worker={"workers": 1, "start_timeout_ms": 3000})
    pool = app.start()
    job = app.enqueue("gate")[0]
    under_way(app, job)
    for pid in pool.census():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    pool.wait()
    (app.root / "gate").touch()
    with locked(app):
        pool = app.pool()
        pool.start(wait=False)
        assert 1 == pool.wait(), pool.log()
    assert "PLATFORM_WORKER_START_FAILED: worker-readiness-timeout" in pool.log().splitlines()
    causes = {event["cause"] for event in pool.events("worker.queue.unavailable")}
    assert {"sqlite.path: another process holds the write lock"} == causes
    app.assert_clean()

    stop_clean(app, app.start())
    other = app.enqueue("nap")[0]
    with locked(app):
        pool = app.start()
        eventually(lambda: pool.events("worker.queue.unavailable"), 20, "the child says that it waits")
        assert 0 == app.ledger.count("start", other)
    eventually(lambda: {"completed": 2} == app.statuses())
    eventually(lambda: pool.events("worker.queue.available"))
    stop_clean(app, pool)


def refused_start(app: Application, hint: str) -> None:
    """``worker start`` and ``worker enqueue`` fail and name the rule."""
    pool = app.build().pool()
    pool.start(wait=False)
    assert 1 == pool.wait(), pool.log()
    assert "PLATFORM_WORKER_START_FAILED: worker-task-source-not-ready" in pool.log().splitlines()
    assert hint in {told for event in pool.events("worker.child.rejected") for told in event["hints"]}
    app.assert_clean()
    assert [] == app.leftovers()
    done = app.run("enqueue", "nap")
    lines = ["PLATFORM_WORKER_QUEUE_FAILED: worker-queue-unavailable", f"hint: {hint}"]
    assert (1, lines) == (done.returncode, done.stderr.splitlines())
