"""What only the queue on SQLite has: the file, its bells, a caller's transaction, a full disk, other writers."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import eventually
from harness.queue_fixtures import DEADLINE, Log, Workers, ledger, open_queue
from harness.queue_worker import Context
from harness.stores import SqliteKit, StoreKit
from platform_worker.errors import WorkerQueueError, WorkerStartError, WorkerUsageError
from platform_worker.jobs.job import NewJob
from platform_worker.jobs.queue import Queue
from platform_worker.sources.sqlite import bell


@pytest.fixture
def store() -> StoreKit:
    return SqliteKit()


def test_the_file_is_its_owners_alone(queue: Queue, root: str) -> None:
    assert 0o600 == stat.S_IMODE(os.stat(f"{root}/var/queue.sqlite3").st_mode)


def test_bells_of_the_dead_are_taken_down(queue: Queue, root: str, worker: Workers, store: StoreKit) -> None:
    folder = bell.folder(f"{root}/var/queue.sqlite3")
    dead = worker(0)
    eventually(lambda: store.somebody_waits(root))
    dead.kill()
    dead.wait()
    queue.enqueue("echo")
    assert [] == os.listdir(folder)


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


def test_a_store_that_cannot_be_used_says_why(root: str, context: Context, make: Callable[..., Any]) -> None:
    os.makedirs(f"{root}/var/queue.sqlite3")
    with pytest.raises(WorkerStartError, match="worker-task-source-not-ready") as refused:
        make().assert_ready(context)
    assert "sqlite.path" in refused.value.hints[0]
    with pytest.raises(WorkerQueueError, match="worker-queue-unavailable"):
        raise_public(root)


def raise_public(root: str) -> None:
    from platform_worker.jobs.queue import _reachable

    with _reachable():
        open_queue(SqliteKit(), root)


def test_a_file_that_is_no_database_is_refused(root: str, context: Context, make: Callable[..., Any]) -> None:
    os.makedirs(f"{root}/var")
    Path(f"{root}/var/queue.sqlite3").write_bytes(b"not a database at all" * 100)
    with pytest.raises(WorkerStartError) as refused:
        make().assert_ready(context)
    assert "not an SQLite database" in refused.value.hints[0]


def test_a_full_disk_delays_a_settlement_and_loses_nothing(
    queue: Queue, source: Any, context: Context, log: Log
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


def test_eight_workers_of_two_pools_beside_a_rude_writer(queue: Queue, root: str, worker: Workers) -> None:
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
