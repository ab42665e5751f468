"""What only the store on PostgreSQL has: answers that never arrive, its schema, poolers, callers' transactions."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from harness import eventually
from harness.postgres import PostgresServer, unused_schema
from harness.queue_fixtures import DEADLINE, TASKS, Log, Workers, open_queue, perform
from harness.queue_worker import QUEUE, Context, setup
from harness.servers import free_port
from harness.stores import PostgresKit, StoreKit
from platform_worker.errors import WorkerQueueError, WorkerStartError, WorkerUsageError
from platform_worker.jobs import model
from platform_worker.jobs.job import NewJob
from platform_worker.jobs.queue import Queue
from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.postgres import factory, schema
from platform_worker.sources.postgres.worker_store import PostgresWorkerStore
from platform_worker.tasks.contract import WorkerIdentity


@pytest.fixture
def store() -> StoreKit:
    return PostgresKit()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One of the test's own, that it may hurt."""
    made = PostgresServer()
    try:
        yield made.start()
    finally:
        made.close()


def client(server: PostgresServer) -> Queue:
    return Queue(factory.client({"url": server.url, "schema": "jobs"}, QUEUE, ""), QUEUE, TASKS)


@pytest.fixture
def session(store: PostgresKit) -> Iterator[psycopg.Connection]:
    """An application's own."""
    with psycopg.connect(store.server().url) as made:
        yield made


@pytest.fixture
def worker_store(store: PostgresKit) -> Iterator[PostgresWorkerStore]:
    made = store.worker(QUEUE, WorkerIdentity("pool", 1, 0, 0))
    assert isinstance(made, PostgresWorkerStore)
    yield made
    made.close()


def lose_answer(connection: Any) -> None:
    """The next statement reaches the server; its answer does not reach us."""
    answers = connection._answers

    def lost(*arguments: Any) -> Any:
        answers(*arguments)
        connection.__dict__.pop("_answers")
        raise StoreUnavailable("lost")

    connection.__dict__["_answers"] = lost


def test_a_claim_whose_answer_was_lost_is_handed_out_by_the_next(
    queue: Queue, worker_store: PostgresWorkerStore
) -> None:
    first, second = queue.enqueue("echo"), queue.enqueue("echo")
    worker_store.recover_gone(1, time.sleep)
    lose_answer(worker_store._main)
    with pytest.raises(StoreUnavailable):
        worker_store.claim(time.sleep)
    adopted = worker_store.claim(time.sleep)
    assert adopted is not None
    assert (first, 1, 1) == (adopted.id, adopted.attempt, adopted.token)
    following = worker_store.claim(time.sleep)
    assert following is not None
    assert second == following.id


@pytest.mark.parametrize("how", ["complete", "reject", "fail", "release"])
def test_a_settlement_whose_answer_was_lost_is_done_once_and_the_claim_with_it_too(
    queue: Queue, worker_store: PostgresWorkerStore, how: str
) -> None:
    ids = [queue.enqueue("echo", backoff_ms=60_000) for _ in range(3)]
    claimed = worker_store.claim(time.sleep)
    assert claimed is not None
    event, status = {
        "complete": (model.Complete(1, "1"), "completed"),
        "reject": (model.Fail(1, "rejected", "m", "E", final=True), "failed"),
        "fail": (model.Fail(1, "exception", "m", "E"), "retry_wait"),
        "release": (model.Release(1), "queued"),
    }[how]
    ahead = how != "release"
    write = worker_store._turn

    def losing(*arguments: Any) -> Any:
        worker_store.__dict__.pop("_turn")
        lose_answer(worker_store._main)
        return write(*arguments)

    worker_store.__dict__["_turn"] = losing
    with pytest.raises(StoreUnavailable):
        worker_store.settle(claimed, event, time.sleep, ahead)
    fits, following = worker_store.settle(claimed, event, time.sleep, ahead)
    assert fits
    assert (ids[1] if ahead else None) == (following.id if following else None)
    assert [status, "processing" if ahead else "queued", "queued"] == [queue.get(id).status for id in ids]


def test_a_settlement_is_stale_where_the_worker_was_taken_for_lost_meanwhile(
    queue: Queue, worker_store: PostgresWorkerStore, store: PostgresKit
) -> None:
    queue.enqueue("echo")
    claimed = worker_store.claim(time.sleep)
    assert claimed is not None
    heir = store.worker(QUEUE, WorkerIdentity("pool", 2, 0, 0))
    assert 1 == heir.recover_gone(1, time.sleep)
    heir.close()
    worker_store._unsure = True
    for event in (model.Complete(1, "1"), model.Fail(1, "exception", "m", "E"), model.Release(1)):
        assert (False, None) == worker_store.settle(claimed, event, time.sleep, False)


def test_an_enqueue_whose_answer_was_lost_adds_one_job(queue: Queue) -> None:
    for unique in (None, "k"):
        lose_answer(queue._store._connection)  # type: ignore[attr-defined]
        id = queue.enqueue("echo", unique=unique)
        assert id == queue.jobs()[0].id
    assert 2 == len(queue.jobs())


def test_an_enqueue_in_a_callers_transaction_is_seen_and_heard_at_its_commit(
    queue: Queue, session: psycopg.Connection, store: StoreKit, root: str, worker: Workers
) -> None:
    worker(0)
    eventually(lambda: store.somebody_waits(root))
    id = queue.enqueue("echo", {"a": 1}, connection=session)
    with pytest.raises(WorkerQueueError, match="worker-job-unknown"):
        queue.get(id)
    began = time.monotonic()
    session.commit()
    assert {"a": 1} == queue.result(id, timeout=DEADLINE)
    assert time.monotonic() - began < 1
    gone = queue.enqueue("echo", connection=session)
    session.rollback()
    with pytest.raises(WorkerQueueError, match="worker-job-unknown"):
        queue.get(gone)


def test_a_callers_rows_and_unique_keys_and_jobs_go_together(queue: Queue, session: psycopg.Connection) -> None:
    session.row_factory = psycopg.rows.dict_row  # type: ignore[assignment]
    first = queue.enqueue("echo", unique="k", connection=session)
    assert first == queue.enqueue("echo", unique="k", connection=session)
    session.commit()
    assert first == queue.enqueue("echo", unique="k")
    with pytest.raises(WorkerUsageError, match="worker-job-invalid") as refused:
        queue.enqueue("echo", connection=object())
    assert "psycopg" in refused.value.hints[0]


def test_two_who_enqueue_the_same_unique_key_get_one_job(queue: Queue, session: psycopg.Connection) -> None:
    """The second waits for the first one's commit, and takes its job."""
    first = queue.enqueue("echo", unique="k", connection=session)
    found: list[str] = []
    other = threading.Thread(target=lambda: found.append(queue.enqueue("echo", unique="k")))
    other.start()
    other.join(0.2)
    assert [] == found
    session.commit()
    other.join(DEADLINE)
    assert [first] == found


def test_what_a_database_cannot_keep_is_refused(queue: Queue) -> None:
    with pytest.raises(WorkerUsageError, match="worker-job-invalid") as refused:
        queue.enqueue("echo", unique="a\0b")
    assert refused.value.hints[0].startswith("unique: ")
    assert {"a": "\0\\\"{},'\n"} == queue.get(queue.enqueue("echo", {"a": "\0\\\"{},'\n"})).data
    ids = queue.enqueue_many([NewJob("echo", {"a": x}, unique=x) for x in ('"', "\\", "{", ",", "NULL", " ")])
    assert ['"', "\\", "{", ",", "NULL", " "] == [queue.get(id).unique for id in ids]


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("postgresql://postgres@127.0.0.1:{free}/postgres", "cannot be reached"),
        ("postgresql://nobody@127.0.0.1:{port}/postgres", "refuses"),
        ("postgresql://postgres@127.0.0.1:{port}/nowhere", "refuses"),
        ("http://127.0.0.1:{port}", "must be a connection URL"),
    ],
    ids=["nobody", "role", "database", "scheme"],
)
def test_a_server_that_cannot_be_used_is_said_at_the_start(root: str, context: Context, url: str, rule: str) -> None:
    """At once, and by the setting's name; never with its value."""
    places = {"free": free_port(), "port": PostgresKit.server().port}
    with pytest.raises(WorkerStartError, match="worker-task-source-not-ready") as refused:
        factory(setup({"url": url.format(**places), "schema": "s"}, root)).assert_ready(context)
    said = " ".join(refused.value.hints)
    assert said.startswith("postgres.url: ")
    assert rule in said
    assert not any(str(port) in said for port in places.values())


def test_a_role_that_may_not_make_the_schema_is_told_so_and_may_use_one_that_is_made_for_it(
    server: PostgresServer, root: str, context: Context
) -> None:
    server.execute("CREATE ROLE little LOGIN")
    config = {"url": server.url.replace("postgres@", "little@"), "schema": "little"}
    with pytest.raises(WorkerStartError) as refused:
        factory(setup(config, root)).assert_ready(context)
    assert "must be allowed to create" in refused.value.hints[0]
    server.execute("CREATE SCHEMA little AUTHORIZATION little")
    source = factory(setup(config, root))
    source.assert_ready(context)
    source.close()


def test_many_who_come_at_once_make_the_schema_once(server: PostgresServer) -> None:
    failed: list[BaseException] = []

    def come() -> None:
        try:
            client(server).close()
        except BaseException as error:
            failed.append(error)

    comers = [threading.Thread(target=come) for _ in range(8)]
    for comer in comers:
        comer.start()
    for comer in comers:
        comer.join(60)
    assert [] == failed
    assert [(schema.VERSION,)] == server.execute("SELECT version FROM jobs.meta")


def test_a_schema_of_a_newer_version_is_refused(store: PostgresKit, queue: Queue, root: str, context: Context) -> None:
    store.server().execute(f"UPDATE {store.config()['schema']}.meta SET version = 99")
    with pytest.raises(WorkerStartError) as refused:
        factory(setup(store.config(), root)).assert_ready(context)
    assert "newer version" in refused.value.hints[0]


def test_a_schema_may_be_named_by_a_word_of_sql(root: str) -> None:
    config = {"url": PostgresKit.server().url, "schema": "select"}
    with Queue(factory.client(config, QUEUE, root), QUEUE, TASKS) as queue:
        assert "queued" == queue.get(queue.enqueue("echo")).status


def test_schemas_do_not_see_each_other(queue: Queue, root: str) -> None:
    queue.enqueue("echo", unique="k")
    with open_queue(PostgresKit(), root) as other:
        assert [] == other.jobs()
        assert other.enqueue("echo", unique="k") != queue.jobs()[0].id


def test_a_forked_process_gets_a_session_of_its_own(queue: Queue) -> None:
    first = queue.enqueue("echo")
    pid = os.fork()
    if not pid:
        try:
            queue.enqueue("echo")
            os._exit(0)
        finally:
            os._exit(1)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    third = queue.enqueue("echo")
    assert (third, first) == (queue.jobs()[0].id, queue.jobs()[2].id)


def test_an_operation_after_the_server_was_restarted_does_not_fail(server: PostgresServer) -> None:
    with client(server) as queue:
        first = queue.enqueue("echo")
        server.stop()
        server.start()
        queue.cancel(first)
        server.stop("fast")
        server.start()
        second = queue.enqueue("echo")
        assert [second, first] == [job.id for job in queue.jobs()]


def test_a_server_that_is_gone_is_said_to_the_caller(server: PostgresServer) -> None:
    with client(server) as queue:
        server.stop()
        for ask in (lambda: queue.enqueue("echo"), queue.counts, queue.jobs, lambda: queue.pause("default")):
            with pytest.raises(WorkerQueueError, match="worker-queue-unavailable") as refused:
                ask()
            assert refused.value.hints[0].startswith("postgres.url: the server cannot be reached")


def test_a_result_is_waited_for_across_a_restart(server: PostgresServer, root: str, context: Context) -> None:
    source = factory(setup({"url": server.url, "schema": "jobs"}, root))
    with client(server) as queue:
        id = queue.enqueue("echo", {"a": 1})
        found: list[object] = []
        waiting = threading.Thread(target=lambda: found.append(queue.result(id, timeout=DEADLINE)))
        waiting.start()
        eventually(lambda: server.execute("SELECT 1 FROM jobs.jobs WHERE watched"))
        server.stop()
        server.start()
        perform(source, context)
        waiting.join(DEADLINE)
        assert [{"a": 1}] == found
    source.close()


def test_a_stop_ends_the_wait_for_a_server_that_is_gone(server: PostgresServer, root: str, context: Context) -> None:
    source = factory(setup({"url": server.url, "schema": "jobs"}, root))
    source.assert_ready(context)
    server.stop()
    timer = threading.Timer(1.0, context.cancel)
    timer.start()
    began = time.monotonic()
    assert source.receive(context) is None
    assert time.monotonic() - began < 3
    timer.join()
    source.close()


def test_a_job_that_somebody_locks_by_hand_holds_nobody_else_up(
    queue: Queue, store: PostgresKit, session: psycopg.Connection, worker_store: PostgresWorkerStore
) -> None:
    """Claims, recovery and sweeping go round it."""
    ids = [queue.enqueue("echo") for _ in range(3)]
    lost = worker_store.claim(time.sleep)
    assert lost is not None
    name = store.config()["schema"]
    session.execute(f"SELECT 1 FROM {name}.jobs WHERE id IN ('{ids[0]}', '{ids[1]}') FOR UPDATE".encode())
    heir = store.worker(QUEUE, WorkerIdentity("pool", 2, 0, 0))
    assert 0 == heir.recover_gone(1, time.sleep)
    claimed = heir.claim(time.sleep)
    assert claimed is not None
    assert ids[2] == claimed.id
    session.rollback()
    assert 1 == heir.recover_gone(1, time.sleep)
    heir.close()


def test_what_is_past_its_retention_is_swept_in_small_batches(store: PostgresKit, queue: Queue) -> None:
    worker_store = store.worker({**QUEUE, "retention_ms": 0}, WorkerIdentity("pool", 1, 0, 0))
    ids = queue.enqueue_many(NewJob("echo") for _ in range(250))
    for id in ids:
        queue.cancel(id)
    eventually(lambda: queue._store.now_ms() > queue.get(ids[-1]).finished_at.timestamp() * 1000 + 50)  # type: ignore[union-attr]
    assert [200, 50, 0] == [worker_store.sweep(time.sleep) for _ in range(3)]
    worker_store.close()


def test_a_plan_made_for_an_empty_table_serves_a_full_one(queue: Queue, worker_store: PostgresWorkerStore) -> None:
    """A claim among many costs no more than among few: the same pages, give or take what is not yet cleared away."""
    for _ in range(8):
        worker_store.claim(time.sleep)
    queue.enqueue_many(NewJob("echo", delay=3600, priority=1) for _ in range(3000))
    ids = queue.enqueue_many(NewJob("echo") for _ in range(3000))
    plan = worker_store._main.run("SELECT pg_stat_reset_single_table_counters('{s}.jobs'::regclass)")
    assert plan
    claimed = worker_store.claim(time.sleep)
    assert claimed is not None
    assert ids[0] == claimed.id
    scanned = "SELECT seq_scan FROM pg_stat_user_tables WHERE relid = '{s}.jobs'::regclass"
    assert [("0",)] == worker_store._main.run(scanned)


def test_a_settlement_waits_until_the_server_is_back(
    server: PostgresServer, root: str, context: Context, log: Log
) -> None:
    source = factory(setup({"url": server.url, "schema": unused_schema()}, root))
    config = {"url": server.url, "schema": source._store._main.schema}
    with Queue(factory.client(config, QUEUE, ""), QUEUE, TASKS) as queue:
        id = queue.enqueue("echo", {"a": 1})
        task = source.receive(context)
        server.stop()
        settling = threading.Thread(target=lambda: task.complete({"a": 1}))
        settling.start()
        eventually(lambda: log)
        server.start()
        settling.join(DEADLINE)
        assert {"a": 1} == queue.result(id, timeout=0)
    assert ("worker.queue.unavailable", "worker.queue.available") == (log[0][0], log[-1][0])
    source.close()
