"""The queue on SQLite with real files and real processes: life cycle, leases, recovery, doorbell, contention."""

from __future__ import annotations

import datetime
import json
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, os.path.dirname(__file__))
import sqlite_worker
from sqlite_worker import CONFIG, QUEUE, Context, setup

from platform_worker.errors import WorkerQueueError, WorkerStartError, WorkerUsageError
from platform_worker.jobs import events
from platform_worker.jobs.errors import JobCancelled, JobFailed
from platform_worker.jobs.job import NewJob
from platform_worker.jobs.queue import Queue
from platform_worker.sources.sqlite import bell, factory
from platform_worker.tasks.contract import SourceExhausted
from platform_worker.tasks.errors import InvalidData, UnknownTask

DEADLINE = 20.0
TASKS = {name: {} for name in vars(sqlite_worker.Handlers) if not name.startswith("_")}


def eventually(check: Callable[[], bool], seconds: float = DEADLINE) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "not in time"
        threading.Event().wait(0.01)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture
def queue(root: str) -> Iterator[Queue]:
    with open_queue(root) as opened:
        yield opened


def open_queue(root: str) -> Queue:
    return Queue(factory.client(CONFIG, QUEUE, root), QUEUE, TASKS)


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context()
    yield made
    made.close()


@pytest.fixture
def source(root: str, context: Context) -> Iterator[Any]:
    made = factory(setup(root))
    made.assert_ready(context)
    yield made
    made.close()


@pytest.fixture
def log() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    seen: list[tuple[str, dict[str, Any]]] = []
    events.set_sink(lambda level, event, fields: seen.append((event, fields)))
    yield seen
    events.set_sink(None)


@pytest.fixture
def worker(root: str) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(slot: int = 0, incarnation: int = 0, **changes: Any) -> subprocess.Popen[bytes]:
        arguments = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
        command = [sys.executable, sqlite_worker.__file__, root, str(slot), str(incarnation), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert b"ready\n" == process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def ledger(root: str) -> list[list[str]]:
    return [line.split() for line in (Path(root) / "ledger").read_text().splitlines()]


def perform(source: Any, context: Context) -> None:
    task = source.receive(context)
    try:
        result = task.execute()
    except Exception as error:
        task.fail(error)
    else:
        task.complete(result)


def test_a_job_runs_and_its_result_is_kept(queue: Queue, source: Any, context: Context) -> None:
    id = queue.enqueue("echo", {"a": "é"})
    perform(source, context)
    job = queue.get(id)
    assert ("completed", {"a": "é"}, None, 1) == (job.status, job.result, job.error, job.attempt)
    assert {"a": "é"} == queue.result(id, timeout=0)
    keys = """id task queue priority status attempt max_attempts interruptions cancel_requested enqueued_at run_at
        started_at finished_at data result error progress unique"""
    assert set(keys.split()) == set(job.to_json())


def test_the_file_is_its_owners_alone(queue: Queue, root: str) -> None:
    assert 0o600 == stat.S_IMODE(os.stat(f"{root}/var/queue.sqlite3").st_mode)


def test_order_is_queue_then_priority_then_time_then_enqueueing(queue: Queue, source: Any, context: Context) -> None:
    ids = [
        queue.enqueue("echo", priority=5),
        queue.enqueue("echo", priority=1),
        queue.enqueue("echo", queue="urgent", priority=9),
        queue.enqueue("echo", priority=5),
        queue.enqueue("echo", queue="elsewhere"),
    ]
    seen = []
    for _ in range(4):
        task = source.receive(context)
        seen.append(task.id)
        task.complete(None)
    assert [ids[2], ids[1], ids[0], ids[3]] == seen
    assert "queued" == queue.get(ids[4]).status


def test_a_failing_job_is_retried_and_then_a_dead_letter(queue: Queue, source: Any, context: Context) -> None:
    id = queue.enqueue("fail", max_attempts=2, backoff_ms=5)
    perform(source, context)
    assert ("retry_wait", 1) == (queue.get(id).status, queue.get(id).attempt)
    perform(source, context)
    job = queue.get(id)
    assert ("failed", {"message": "it broke", "reason": "exception", "type": "ValueError"}) == (job.status, job.error)
    with pytest.raises(JobFailed) as failed:
        queue.result(id, timeout=0)
    assert job.error == failed.value.error
    queue.retry(id)
    assert ("queued", 0, None, None) == (
        queue.get(id).status, queue.get(id).attempt, queue.get(id).error, queue.get(id).finished_at,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(UnknownTask("x"), "task-unknown"), (InvalidData("x"), "data-invalid")],
    ids=["unknown", "invalid"],
)
def test_a_job_that_fits_no_handler_fails_at_once(
    queue: Queue, source: Any, context: Context, failure: Exception, reason: str
) -> None:
    id = queue.enqueue("echo")
    source.receive(context).fail(failure)
    job = queue.get(id)
    assert job.error is not None
    assert ("failed", reason) == (job.status, job.error["reason"])


@pytest.mark.parametrize(
    ("result", "reason"),
    [(object(), "result-invalid"), (float("nan"), "result-invalid"), ("\ud800", "result-invalid"),
     ("x" * 500, "result-too-large")],
    ids=["object", "nan", "surrogate", "large"],
)  # fmt: skip
def test_a_result_off_the_rules_fails_the_job_and_the_worker_lives(
    queue: Queue, source: Any, context: Context, result: object, reason: str
) -> None:
    id = queue.enqueue("echo")
    source.receive(context).complete(result)
    error = queue.get(id).error
    assert error is not None
    assert reason == error["reason"]
    other = queue.enqueue("echo")
    perform(source, context)
    assert "completed" == queue.get(other).status


def test_reject_and_retry_steer_the_job(queue: Queue, source: Any, context: Context) -> None:
    rejected = queue.enqueue("reject")
    perform(source, context)
    assert "failed" == queue.get(rejected).status
    again = queue.enqueue("again", backoff_ms=3_600_000)
    perform(source, context)
    perform(source, context)
    assert 2 == queue.result(again, timeout=0)


def test_release_gives_the_attempt_back(queue: Queue, source: Any, context: Context) -> None:
    id = queue.enqueue("echo")
    source.receive(context).release()
    job = queue.get(id)
    assert ("queued", 0, 1) == (job.status, job.attempt, job.interruptions)


def test_a_job_claimed_ahead_is_given_back_on_a_stop(queue: Queue, source: Any, context: Context) -> None:
    """It never ran, so nothing of it is spent."""
    first, second = queue.enqueue("echo"), queue.enqueue("echo")
    task = source.receive(context)
    task.complete(None)
    assert "processing" == queue.get(second).status
    context.cancel()
    assert source.receive(context) is None
    assert ("completed", "queued", 0) == (queue.get(first).status, queue.get(second).status, queue.get(second).attempt)


def test_nothing_is_claimed_ahead_once_a_stop_is_asked_for(queue: Queue, source: Any, context: Context) -> None:
    queue.enqueue("echo")
    second = queue.enqueue("echo")
    task = source.receive(context)
    context.cancel()
    task.complete(None)
    job = queue.get(second)
    assert ("queued", 0) == (job.status, job.interruptions)


def test_close_gives_back_what_was_claimed_ahead(queue: Queue, root: str, context: Context) -> None:
    source = factory(setup(root))
    source.assert_ready(context)
    queue.enqueue("echo")
    second = queue.enqueue("echo")
    source.receive(context).complete(None)
    source.close()
    assert "queued" == queue.get(second).status


def test_a_stop_ends_the_wait_at_once(source: Any, context: Context) -> None:
    timer = threading.Timer(0.1, context.cancel)
    timer.start()
    began = time.monotonic()
    assert source.receive(context) is None
    assert time.monotonic() - began < 0.5
    timer.join()


def test_until_empty_ends_when_nothing_is_claimable(queue: Queue, root: str, context: Context) -> None:
    queue.enqueue("echo")
    queue.enqueue("echo", delay=3600)
    source = factory(setup(root, until_empty=True))
    source.assert_ready(context)
    perform(source, context)
    with pytest.raises(SourceExhausted):
        source.receive(context)
    source.close()


def test_an_old_claim_changes_nothing_and_is_logged(
    queue: Queue, root: str, source: Any, context: Context, log: list[tuple[str, dict[str, Any]]]
) -> None:
    id = queue.enqueue("echo")
    stale = source.receive(context)
    follower = factory(setup(root, incarnation=1))
    follower.assert_ready(context)
    task = follower.receive(context)
    stale.complete("stale")
    assert [("worker.task.lease_lost", {"job_id": id})] == log
    assert "processing" == queue.get(id).status
    task.complete("fresh")
    assert "fresh" == queue.result(id, timeout=0)
    follower.close()


def test_a_handler_whose_claim_is_lost_is_told_to_stop(queue: Queue, root: str, source: Any, context: Context) -> None:
    """Its heartbeat raises as for a cancelled job, for another worker may be at it; the job itself is not cancelled."""
    id = queue.enqueue("beat")
    frozen = source.receive(context)
    follower = factory(setup(root, incarnation=1))
    follower.assert_ready(context)
    with pytest.raises(JobCancelled):
        frozen.execute()
    assert "queued" == queue.get(id).status
    follower.close()


def test_a_follower_recovers_only_claims_of_the_gone(queue: Queue, root: str, context: Context) -> None:
    """Older incarnations of the slot, older generations of the pool; not a neighbour, not another pool."""
    claims = {}
    sources = []
    for name, slot, generation in (("own", 0, 2), ("neighbour", 1, 2), ("older", 7, 1)):
        claims[name] = queue.enqueue("echo")
        sources.append(factory(setup(root, slot=slot, generation=generation)))
        sources[-1].receive(context)
    follower = factory(setup(root, slot=0, incarnation=1, generation=2))
    follower.assert_ready(context)
    assert {"own": "queued", "neighbour": "processing", "older": "queued"} == {
        name: queue.get(id).status for name, id in claims.items()
    }
    for each in (*sources, follower):
        each.close()


def test_a_lease_is_renewed_while_the_handler_computes(
    queue: Queue, root: str, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """A Python loop five times as long as the lease: it runs once, though another worker looks for ended leases."""
    id = queue.enqueue("spin", {"seconds": 2.5})
    worker(0, lease_ms=600)
    eventually(lambda: queue.get(id).status == "processing")
    worker(1, lease_ms=600)
    assert "spun" == queue.result(id, timeout=DEADLINE)
    assert [["start", id, "1"]] == ledger(root)


def test_an_ended_lease_is_found_by_any_worker(
    queue: Queue, root: str, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The holder is frozen; another takes the job; the holder wakes, changes nothing, and goes on with new work."""
    id = queue.enqueue("sleep", {"seconds": 0.3})
    frozen = worker(0, lease_ms=500)
    eventually(lambda: queue.get(id).status == "processing")
    frozen.send_signal(signal.SIGSTOP)
    other = worker(1, lease_ms=500)
    assert "slept" == queue.result(id, timeout=DEADLINE)
    assert 2 == queue.get(id).attempt
    other.kill()
    frozen.send_signal(signal.SIGCONT)
    assert {} == queue.result(queue.enqueue("echo"), timeout=DEADLINE)
    assert 2 == queue.get(id).attempt


def test_a_job_that_kills_its_worker_runs_out_of_attempts(
    queue: Queue, root: str, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    id = queue.enqueue("die", max_attempts=3)
    good = queue.enqueue("echo")
    for incarnation in range(4):
        process = worker(0, incarnation)
        eventually(lambda p=process: p.poll() is not None or queue.get(id).status == "failed")
    error = queue.get(id).error
    assert error is not None
    assert "worker-lost" == error["reason"]
    assert 3 == sum(line[1] == id for line in ledger(root))
    assert {} == queue.result(good, timeout=DEADLINE)


def somebody_waits(root: str) -> bool:
    folder = bell.folder(f"{root}/var/queue.sqlite3")
    return os.path.isdir(folder) and any(name.startswith("w-") for name in os.listdir(folder))


def test_an_enqueue_wakes_a_waiting_worker_within_milliseconds(
    queue: Queue, root: str, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    worker(0)
    delays = []
    for _ in range(15):
        eventually(lambda: somebody_waits(root))
        began = time.monotonic_ns()
        delays.append(queue.result(queue.enqueue("stamp"), timeout=DEADLINE) - began)
    assert sorted(delays)[7] < 50_000_000, delays


def test_bells_of_the_dead_are_taken_down(
    queue: Queue, root: str, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    folder = bell.folder(f"{root}/var/queue.sqlite3")
    dead = worker(0)
    eventually(lambda: somebody_waits(root))
    dead.kill()
    dead.wait()
    queue.enqueue("echo")
    assert [] == os.listdir(folder)


def test_a_job_starts_at_its_time_and_never_before(
    queue: Queue, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    worker(0)
    job = queue.get(queue.enqueue("echo", delay=0.3))
    queue.result(job.id, timeout=DEADLINE)
    started = queue.get(job.id).started_at
    assert started is not None
    assert datetime.timedelta(0) <= started - job.run_at < datetime.timedelta(seconds=1)


def test_enqueue_in_a_callers_transaction(queue: Queue, root: str, source: Any, context: Context) -> None:
    connection = sqlite3.connect(f"{root}/var/queue.sqlite3")
    connection.row_factory = sqlite3.Row
    with connection:
        id = queue.enqueue("echo", connection=connection)
        with pytest.raises(WorkerQueueError, match="worker-job-unknown"):
            queue.get(id)
    assert "queued" == queue.get(id).status
    gone = queue.enqueue("echo", connection=connection)
    connection.rollback()
    connection.close()
    with pytest.raises(WorkerQueueError, match="worker-job-unknown"):
        queue.get(gone)
    other = sqlite3.connect(":memory:")
    with pytest.raises(WorkerUsageError, match="worker-job-invalid"):
        queue.enqueue("echo", connection=other)
    other.execute("ATTACH ? AS jobs", (f"{root}/var/queue.sqlite3",))
    assert "queued" == queue.get(_committed(queue, other)).status
    other.close()


def _committed(queue: Queue, connection: sqlite3.Connection) -> str:
    id = queue.enqueue("echo", {"x": "y" * 3000}, connection=connection)
    connection.commit()
    return id


def test_unique_returns_the_unfinished_job(queue: Queue, source: Any, context: Context) -> None:
    id = queue.enqueue("echo", unique="k")
    assert id == queue.enqueue("echo", unique="k")
    assert [id, id] == queue.enqueue_many([NewJob("echo", unique="k"), NewJob("echo", unique="k")])
    queue.cancel(id)
    other = queue.enqueue("echo", unique="k")
    assert id != other
    with pytest.raises(WorkerQueueError, match="worker-job-state"):
        queue.retry(id)
    perform(source, context)
    queue.retry(id)


def test_a_paused_queue_gives_nothing_out_and_resuming_wakes(
    queue: Queue, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    queue.pause("default")
    worker(0)
    id = queue.enqueue("echo")
    with pytest.raises(TimeoutError):
        queue.result(id, timeout=0.3)
    assert (True, 1) == (queue.counts()["default"].paused, queue.counts()["default"].queued)
    queue.resume("default")
    assert {} == queue.result(id, timeout=DEADLINE)


def test_a_running_job_sees_its_cancel(queue: Queue, worker: Callable[..., subprocess.Popen[bytes]]) -> None:
    worker(0)
    id = queue.enqueue("beat")
    eventually(lambda: queue.get(id).progress == {"at": 1})
    queue.cancel(id)
    with pytest.raises(JobCancelled):
        queue.result(id, timeout=DEADLINE)


def test_the_work_directory_is_gone_when_the_job_ends(queue: Queue, source: Any, context: Context) -> None:
    id = queue.enqueue("work")
    perform(source, context)
    assert not os.path.exists(queue.result(id, timeout=0))


@pytest.mark.parametrize("kind", ["sleep", "spin"])
def test_a_timeout_is_raised_in_the_handler(queue: Queue, source: Any, context: Context, kind: str) -> None:
    id = queue.enqueue(kind, {"seconds": 5}, timeout_ms=50, max_attempts=1)
    perform(source, context)
    error = queue.get(id).error
    assert error is not None
    assert ("timeout", "JobTimeout") == (error["reason"], error["type"])


def test_a_handler_that_ignores_its_timeout_is_ended_with_its_process(
    queue: Queue, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The stacks are in the log, and whoever recovers the job sees why it ended."""
    id = queue.enqueue("stubborn", timeout_ms=100, max_attempts=1)
    process = worker(0)
    assert 1 == process.wait(DEADLINE)
    worker(0, 1)
    with pytest.raises(JobFailed) as failed:
        queue.result(id, timeout=DEADLINE)
    assert failed.value.error is not None
    assert "timeout" == failed.value.error["reason"]


def test_large_data_comes_back_whole_and_too_large_is_refused(queue: Queue, source: Any, context: Context) -> None:
    id = queue.enqueue("sleep", {"seconds": 0, "x": "é" * 2000}, allow_unknown=True)
    assert "é" * 2000 == queue.get(id).data["x"]
    source.receive(context).release()
    with pytest.raises(WorkerUsageError) as refused:
        queue.enqueue("echo", {"x": "y" * 20000})
    assert "data_max_bytes" in refused.value.hints[0]


def test_purge_and_listing(queue: Queue, source: Any, context: Context) -> None:
    ids = [queue.enqueue("echo") for _ in range(5)]
    for _ in range(3):
        perform(source, context)
    source.receive(context).release()
    assert ids[::-1] == [job.id for job in queue.jobs()]
    assert [ids[1], ids[0]] == [job.id for job in queue.jobs(status="completed", after=ids[2])]
    assert 0 == queue.purge(older_than=datetime.timedelta(hours=1))
    assert 3 == queue.purge(older_than=datetime.timedelta(0))
    assert 2 == len(queue.jobs())


def test_a_store_that_cannot_be_used_says_why(root: str, context: Context) -> None:
    os.makedirs(f"{root}/var/queue.sqlite3")
    with pytest.raises(WorkerStartError, match="worker-task-source-not-ready") as refused:
        factory(setup(root)).assert_ready(context)
    assert "sqlite.path" in refused.value.hints[0]
    with pytest.raises(WorkerQueueError, match="worker-queue-unavailable"):
        raise_public(root)


def raise_public(root: str) -> None:
    from platform_worker.jobs.queue import _reachable

    with _reachable():
        factory.client(CONFIG, QUEUE, root)


def test_a_file_that_is_no_database_is_refused(root: str, context: Context) -> None:
    os.makedirs(f"{root}/var")
    Path(f"{root}/var/queue.sqlite3").write_bytes(b"not a database at all" * 100)
    with pytest.raises(WorkerStartError) as refused:
        factory(setup(root)).assert_ready(context)
    assert "not an SQLite database" in refused.value.hints[0]


def test_a_full_disk_delays_a_settlement_and_loses_nothing(
    queue: Queue, source: Any, context: Context, log: list[tuple[str, dict[str, Any]]]
) -> None:
    id = queue.enqueue("echo")
    task = source.receive(context)
    database = source._store._main
    database._connection.execute("PRAGMA max_page_count=1")
    work = database.write
    tries: list[int] = []

    def write(*arguments: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = 13
            raise database._failed(error)
        return work(*arguments)

    database.write = write
    task.complete(1)
    assert 1 == queue.result(id, timeout=0)
    assert ["worker.queue.unavailable", "worker.queue.available"] == [event for event, _ in log]


def test_eight_workers_of_two_pools_beside_a_rude_writer(
    queue: Queue, root: str, worker: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Somebody else holds the write lock at random, workers are killed and replaced: every job ends exactly once."""
    ids = queue.enqueue_many(NewJob("echo", {"n": n}, max_attempts=50) for n in range(1500))
    stop = threading.Event()
    chance = random.Random(7)

    def hold_the_lock() -> None:
        connection = sqlite3.connect(f"{root}/var/queue.sqlite3", timeout=30, isolation_level=None)
        while not stop.is_set():
            connection.execute("BEGIN IMMEDIATE")
            stop.wait(chance.uniform(0, 0.4))
            connection.execute("COMMIT")
            stop.wait(0.2)
        connection.close()

    rude = threading.Thread(target=hold_the_lock)
    rude.start()
    try:
        incarnations = dict.fromkeys(range(8), 0)
        processes = {slot: worker(slot) for slot in incarnations}
        for slot in (0, 3, 0, 5, 7):
            stop.wait(0.1)
            processes[slot].kill()
            processes[slot].wait()
            incarnations[slot] += 1
            processes[slot] = worker(slot, incarnations[slot])
        eventually(lambda: queue.counts()["default"].completed == len(ids), 60)
    finally:
        stop.set()
        rude.join()
    assert all(process.poll() is None for process in processes.values())
    starts = Counter(line[1] for line in ledger(root))
    assert set(ids) == set(starts)
    assert sum(starts.values()) - len(ids) <= 5  # one a kill at most
    for process in processes.values():
        process.send_signal(signal.SIGTERM)
    assert [0] * 8 == [process.wait(DEADLINE) for process in processes.values()]
