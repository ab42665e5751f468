"""Through a pooler that gives each transaction another session, all is the same but for the wake-up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from harness import Application, eventually
from harness.pooler import Pooler
from harness.postgres import PostgresServer
from harness.queue_fixtures import DEADLINE, perform
from harness.queue_worker import Context
from harness.stores import PostgresKit, StoreKit
from platform_worker.jobs.errors import JobFailed
from platform_worker.jobs.job import NewJob
from platform_worker.jobs.queue import Queue


class PooledKit(PostgresKit):
    """The same, through a pooler."""

    def __init__(self, pooler: Pooler) -> None:
        super().__init__()
        self._pooler = pooler

    def config(self) -> dict[str, Any]:
        return {**super().config(), "url": self._pooler.url}


@pytest.fixture
def pooler() -> Iterator[Pooler]:
    with Pooler(PostgresKit.server().port) as made:
        yield made


@pytest.fixture
def store(pooler: Pooler) -> StoreKit:
    return PooledKit(pooler)


def test_jobs_are_added_done_failed_and_counted(
    queue: Queue, source: Any, make: Callable[..., Any], context: Context, pooler: Pooler
) -> None:
    """Also a schema is made through it, a bulk is added, a caller's transaction kept, a claim of the gone recovered."""
    assert queue._store._connection.pooled  # type: ignore[attr-defined]
    done = queue.enqueue("echo", {"a": 1}, unique="k")
    failed = queue.enqueue("fail", max_attempts=1)
    with psycopg.connect(pooler.url, prepare_threshold=None) as session:
        mine = queue.enqueue("echo", connection=session)
    for _ in range(3):
        perform(source, context)
    assert {"a": 1} == queue.result(done, timeout=DEADLINE)
    with pytest.raises(JobFailed):
        queue.result(failed, timeout=DEADLINE)
    assert "completed" == queue.get(mine).status
    ids = queue.enqueue_many(NewJob("echo", {"n": n}) for n in range(1500))
    source.receive(context)
    heir = make(incarnation=1)
    heir.assert_ready(context)
    task = heir.receive(context)
    assert ids[0] == task.id
    task.complete(None)
    heir.close()
    counts = queue.counts()["default"]
    assert (1499, 3, 1) == (counts.queued, counts.completed, counts.failed)


def test_nothing_is_left_in_a_session_that_is_somebody_elses_next(
    queue: Queue, source: Any, context: Context, pooler: Pooler
) -> None:
    queue.enqueue("echo")
    perform(source, context)
    source._store.listen()
    assert not source._store._bell._connection.opened
    names = ("statement_timeout", "enable_seqscan", "default_transaction_isolation")
    for _ in range(4):
        with psycopg.connect(pooler.url, autocommit=True) as session:
            assert [("0",), ("on",), ("read committed",)] == [
                session.execute(f"SHOW {name}".encode()).fetchone() for name in names
            ]
            assert (
                []
                == session.execute(
                    b"SELECT 1 FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"
                ).fetchall()
            )
            assert [] == session.execute(b"SELECT pg_listening_channels()").fetchall()


def test_a_whole_pool_waits_by_looking_once_a_second(application: Callable[..., Application]) -> None:
    server = PostgresServer().start()
    try:
        with Pooler(server.port) as pooler:
            app = application(app={"modules": ["postgres"]}, postgres={"url": pooler.url})
            pool = app.start()
            for _ in range(3):
                began = time.monotonic()
                (id,) = app.enqueue("nap")
                eventually(lambda id=id: app.ledger.count("finish", id) == 1)
                assert time.monotonic() - began < 4
            ids = app.enqueue("nap", 100)
            eventually(lambda: app.ledger.count("finish") == 103, 30)
            assert set(ids) <= {job for event, job, *_ in app.ledger.lines() if event == "finish"}
            pool.stop()
    finally:
        server.close()
