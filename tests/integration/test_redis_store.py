"""What only the store on Redis has: replies that never arrive, servers that refuse, its keys, its connections."""

from __future__ import annotations

import datetime
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness import eventually
from harness.queue_fixtures import DEADLINE, TASKS, Log, Workers, open_queue, perform
from harness.queue_worker import QUEUE, Context, setup
from harness.servers import RedisServer, free_port
from harness.stores import RedisKit, StoreKit
from platform_worker.errors import WorkerQueueError, WorkerStartError, WorkerUsageError
from platform_worker.jobs import model
from platform_worker.jobs.job import NewJob
from platform_worker.jobs.queue import Queue
from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.redis import factory
from platform_worker.sources.redis.worker_store import RedisWorkerStore
from platform_worker.tasks.contract import WorkerIdentity


@pytest.fixture
def store() -> StoreKit:
    return RedisKit()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """One of the test's own, that it may hurt."""
    made = RedisServer()
    try:
        yield made.start()
    finally:
        made.close()


def config(server: RedisServer, login: str = "") -> dict[str, Any]:
    return {"url": server.url.replace("://", f"://{login}"), "prefix": "test"}


@pytest.fixture
def hurt(server: RedisServer, root: str) -> Iterator[Any]:
    """A source on the server of the test's own."""
    made = factory(setup(config(server), root))
    yield made
    made.close()


def client(server: RedisServer) -> Queue:
    return Queue(factory.client(config(server), QUEUE, ""), QUEUE, TASKS)


@pytest.fixture
def worker_store(store: RedisKit) -> Iterator[RedisWorkerStore]:
    made = store.worker(QUEUE, WorkerIdentity("pool", 1, 0, 0))
    assert isinstance(made, RedisWorkerStore)
    yield made
    made.close()


def lose_reply(worker_store: RedisWorkerStore) -> None:
    """The next command reaches the server; its reply does not reach us."""
    connection = worker_store._main
    receive = connection._reply

    def lost() -> Any:
        receive()
        connection.__dict__.pop("_reply")
        connection.close()
        raise StoreUnavailable("lost")

    connection.__dict__["_reply"] = lost


def test_a_claim_whose_reply_was_lost_is_handed_out_by_the_next(queue: Queue, worker_store: RedisWorkerStore) -> None:
    first, second = queue.enqueue("echo"), queue.enqueue("echo")
    assert worker_store.next_due() is None
    worker_store.recover_gone(1, time.sleep)
    claimed = worker_store.claim(time.sleep)
    assert claimed is not None
    worker_store.settle(claimed, model.Release(claimed.token), time.sleep, False)
    lose_reply(worker_store)
    with pytest.raises(StoreUnavailable):
        worker_store.claim(time.sleep)
    adopted = worker_store.claim(time.sleep)
    assert adopted is not None
    assert (first, 1, 2) == (adopted.id, adopted.attempt, adopted.token)
    following = worker_store.claim(time.sleep)
    assert following is not None
    assert second == following.id


def test_a_settlement_whose_reply_was_lost_is_done_once_and_the_claim_with_it_too(
    queue: Queue, worker_store: RedisWorkerStore
) -> None:
    ids = [queue.enqueue("echo") for _ in range(3)]
    claimed = worker_store.claim(time.sleep)
    assert claimed is not None
    again = worker_store.settle(claimed, model.Release(claimed.token), time.sleep, True)[1]
    assert again is not None
    event = model.Complete(again.token, '"done"')
    lose_reply(worker_store)
    with pytest.raises(StoreUnavailable):
        worker_store.settle(again, event, time.sleep, True)
    fits, following = worker_store.settle(again, event, time.sleep, True)
    assert fits
    assert following is not None
    assert (ids[1], 1) == (following.id, following.attempt)
    assert ["completed", "processing", "queued"] == [queue.get(id).status for id in ids]
    assert "done" == queue.result(ids[0], timeout=0)
    assert (False, None) == worker_store.settle(again, event, time.sleep, False)


def test_an_enqueue_whose_reply_was_lost_adds_one_job(queue: Queue, store: StoreKit, root: str) -> None:
    rows = queue.rows_of([NewJob("echo"), NewJob("echo", unique="k")])
    with open_queue(store, root) as other:
        assert other.add(rows)[0] == queue.add(rows)[0]
    assert 2 == len(queue.jobs())


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("redis://127.0.0.1:{free}/0", "cannot be reached"),
        ("redis://nobody:wrong@127.0.0.1:{port}/0", "refuses the user or the password"),
        ("redis://127.0.0.1:{port}/9999", "no such database"),
        ("redis://127.0.0.1:{foreign}/0", "not a Redis server"),
        ("unix:///nowhere/redis.sock", "cannot be reached"),
        ("http://127.0.0.1:{port}", "must be redis://"),
    ],
    ids=["nobody", "password", "database", "foreign", "socket", "scheme"],
)
def test_a_server_that_cannot_be_used_is_said_at_the_start(root: str, context: Context, url: str, rule: str) -> None:
    """At once, and by the setting's name; never with its value."""
    with socket.create_server(("127.0.0.1", 0)) as foreign:

        def answer() -> None:
            with foreign.accept()[0] as peer:
                if peer.recv(1):
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        places = {"free": free_port(), "port": RedisKit.server().port, "foreign": foreign.getsockname()[1]}
        with pytest.raises((WorkerStartError, StoreUnavailable)) as refused:
            factory(setup({"url": url.format(**places), "prefix": "p"}, root)).assert_ready(context)
        if "foreign" not in url:
            socket.create_connection(foreign.getsockname()).close()
        answering.join()
    said = " ".join(getattr(refused.value, "hints", ()) or (str(refused.value),))
    assert said.startswith("redis.url: ")
    assert rule in said
    assert not any(str(port) in said for port in places.values())


def test_a_settlement_waits_until_the_server_takes_writes_again(
    server: RedisServer, hurt: Any, context: Context, log: Log
) -> None:
    with client(server) as queue:
        id = queue.enqueue("echo", {"a": 1})
        task = hurt.receive(context)
        server.call("REPLICAOF", "127.0.0.1", 1)
        timer = threading.Timer(0.3, server.call, ("REPLICAOF", "NO", "ONE"))
        timer.start()
        task.complete({"a": 1})
        timer.join()
        assert {"a": 1} == queue.result(id, timeout=0)
    assert ["worker.queue.unavailable", "worker.queue.available"] == [event for event, _ in log]
    assert "takes no writes" in log[0][1]["cause"]


def test_a_server_that_has_lost_everything_makes_the_settlement_stale_and_the_worker_goes_on(
    server: RedisServer, hurt: Any, context: Context, log: Log
) -> None:
    with client(server) as queue:
        queue.enqueue("echo")
        task = hurt.receive(context)
        server.call("FLUSHALL")
        server.call("SCRIPT", "FLUSH")
        task.complete(None)
        assert ["worker.task.lease_lost"] == [event for event, _ in log]
        id = queue.enqueue("echo")
        perform(hurt, context)
        assert {} == queue.result(id, timeout=0)


def test_a_stop_ends_the_wait_for_a_server_that_is_gone(server: RedisServer, hurt: Any, context: Context) -> None:
    hurt.assert_ready(context)
    server.kill()
    timer = threading.Timer(1.5, context.cancel)
    timer.start()
    began = time.monotonic()
    assert hurt.receive(context) is None
    assert time.monotonic() - began < 2.5
    timer.join()


def test_an_operation_after_the_server_was_restarted_does_not_fail(server: RedisServer) -> None:
    with client(server) as queue:
        first = queue.enqueue("echo")
        server.kill()
        server.start()
        queue.cancel(first)
        server.kill()
        server.start()
        second = queue.enqueue("echo")
        assert [second, first] == [job.id for job in queue.jobs()]


def test_a_result_is_waited_for_across_a_restart(server: RedisServer, hurt: Any, context: Context) -> None:
    with client(server) as queue, client(server) as other:
        id = queue.enqueue("echo", {"a": 1})
        found: list[object] = []
        waiting = threading.Thread(target=lambda: found.append(queue.result(id, timeout=DEADLINE)))
        waiting.start()
        eventually(lambda: server.call("PUBSUB", "NUMSUB", f"{{test}}:ended:{id}")[1] == 1)  # type: ignore[index]
        server.kill()
        server.start()
        task = hurt.receive(context)
        task.complete(task.execute())
        waiting.join(DEADLINE)
        assert [{"a": 1}] == found
        with pytest.raises(TimeoutError):
            other.result(other.enqueue("echo"), timeout=0.05)


def test_a_server_that_is_gone_is_said_to_the_caller(server: RedisServer) -> None:
    with client(server) as queue:
        server.kill()
        for ask in (lambda: queue.enqueue("echo"), queue.counts, queue.jobs, lambda: queue.pause("default")):
            with pytest.raises(WorkerQueueError, match="worker-queue-unavailable") as refused:
                ask()
            assert ("redis.url: the server cannot be reached",) == refused.value.hints


def test_a_job_wakes_one_worker_and_a_thousand_wake_all(
    queue: Queue, root: str, store: StoreKit, worker: Workers
) -> None:
    """One worker dies with the ring that it took: another finds the job within a second."""
    workers = [worker(slot) for slot in range(3)]
    eventually(lambda: store.somebody_waits(root))
    delays = []
    for _ in range(10):
        began = time.monotonic()
        queue.result(queue.enqueue("echo"), timeout=DEADLINE)
        delays.append(time.monotonic() - began)
    assert sorted(delays)[5] < 0.1, delays
    ids = queue.enqueue_many(NewJob("echo") for _ in range(2500))
    workers[0].kill()
    queue.result(ids[-1], timeout=DEADLINE)


def test_bells_do_not_outlive_the_work(queue: Queue, source: Any, context: Context, store: RedisKit) -> None:
    queue.enqueue_many(NewJob("echo") for _ in range(500))
    assert 64 == RedisKit.server().call("LLEN", store._key("bell:default"))
    for _ in range(500):
        perform(source, context)
    source._store.claim(time.sleep)
    assert 0 == RedisKit.server().call("LLEN", store._key("bell:default"))


def test_every_key_has_the_hash_tag_and_a_purge_leaves_nothing_of_a_job(
    server: RedisServer, hurt: Any, context: Context
) -> None:
    """A cluster keeps all keys of a prefix on one node; a queue that is used for years does not grow."""
    with client(server) as queue:
        for n in range(20):
            queue.enqueue("echo", {"x": "y" * 50 * n}, unique=f"k{n}")
        hurt.assert_ready(context)
        for _ in range(17):
            perform(hurt, context)
        hurt.receive(context).fail(ValueError("x" * 500))
        hurt.close()
        queue.cancel(queue.jobs(status="queued")[0].id)
        keys = server.call("KEYS", "*")
        assert isinstance(keys, list)
        assert [] == [key for key in keys if not key.startswith("{test}:")]
        queue.retry(queue.jobs(status="cancelled")[0].id)
        for job in (*queue.jobs(status="queued"), *queue.jobs(status="retry_wait")):
            queue.cancel(job.id)
        assert 20 == queue.purge(older_than=datetime.timedelta(0))
        left = server.call("KEYS", "*")
        assert isinstance(left, list)
        assert set(left) <= {"{test}:seq", "{test}:queues", "{test}:bell:default"}


def test_what_is_past_its_retention_is_swept_in_small_batches(store: RedisKit, queue: Queue) -> None:
    worker_store = store.worker({**QUEUE, "retention_ms": 0}, WorkerIdentity("pool", 1, 0, 0))
    ids = queue.enqueue_many(NewJob("echo") for _ in range(250))
    for id in ids:
        queue.cancel(id)
    eventually(lambda: queue._store.now_ms() > queue.get(ids[-1]).finished_at.timestamp() * 1000)  # type: ignore[union-attr]
    assert [200, 50, 0] == [worker_store.sweep(time.sleep) for _ in range(3)]
    worker_store.close()


def test_a_forked_process_gets_a_connection_of_its_own(queue: Queue, store: RedisKit) -> None:
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


def test_prefixes_do_not_see_each_other(queue: Queue, root: str) -> None:
    queue.enqueue("echo", unique="k")
    with open_queue(RedisKit(), root) as other:
        assert [] == other.jobs()
        assert other.enqueue("echo", unique="k") != queue.jobs()[0].id


def test_there_is_no_callers_transaction(queue: Queue) -> None:
    with pytest.raises(WorkerUsageError, match="worker-job-invalid"):
        queue.enqueue("echo", connection=object())


def test_a_listing_goes_through_all_jobs_whatever_is_asked_for(queue: Queue, source: Any, context: Context) -> None:
    """More than one look of the server's has; with and without a status of few."""
    ids = queue.enqueue_many(NewJob("echo", {"n": n}, queue="default" if n % 7 else "other") for n in range(4500))
    source.receive(context).fail(ValueError("x"))
    rare = [id for n, id in enumerate(ids) if not n % 7]
    assert rare[::-1] == [job.id for job in queue.jobs(queue="other", limit=10_000)]
    assert rare[:5][::-1] == [job.id for job in queue.jobs(queue="other", after=rare[5], limit=10_000)]
    assert rare == queue.ids(queue="other")
    assert [ids[1]] == [job.id for job in queue.jobs(status="retry_wait")]
    assert [ids[2]] == [job.id for job in queue.jobs(status="processing")]
    assert [] == queue.jobs(status="completed")
    assert ids[-150:][::-1] == [job.id for job in queue.jobs(limit=150)]


def test_a_unix_socket_and_a_password_serve_as_well(root: str, context: Context, tmp_path: Any) -> None:
    path = str(tmp_path / "socket")
    server = RedisServer("--unixsocket", path, "--requirepass", "p@ss")
    try:
        # PING is refused without the password: a server that says so serves.
        server.start()
        settings = {"url": f"unix://:p%40ss@{path}?db=3", "prefix": "p"}
        with Queue(factory.client(settings, QUEUE, ""), QUEUE, TASKS) as queue:
            id = queue.enqueue("echo", {"a": 1})
            source = factory(setup(settings, root))
            source.assert_ready(context)
            perform(source, context)
            source.close()
            assert {"a": 1} == queue.result(id, timeout=0)
    finally:
        server.close()
