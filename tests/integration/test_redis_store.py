"""What only the store on Redis has: replies that never arrive, rings, its own listing, its connections."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness import eventually
from harness.queue_fixtures import DEADLINE, Workers, open_queue, perform
from harness.queue_worker import QUEUE, Context
from harness.stores import RedisKit, StoreKit
from platform_worker.errors import WorkerQueueError, WorkerUsageError
from platform_worker.jobs import model
from platform_worker.jobs.job import NewJob
from platform_worker.jobs.queue import Queue
from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.redis.worker_store import RedisWorkerStore
from platform_worker.tasks.contract import WorkerIdentity


@pytest.fixture
def store() -> StoreKit:
    return RedisKit()


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


def test_a_command_that_was_interrupted_leaves_no_reply_for_the_next(
    queue: Queue, worker_store: RedisWorkerStore
) -> None:
    """Whatever the moment at which a signal's exception arrives."""
    first, second = queue.enqueue("echo"), queue.enqueue("echo")
    connection = worker_store._main
    connection.call("PING")
    connection.send("PING")  # and here it is interrupted
    claimed = worker_store.claim(time.sleep)
    assert claimed is not None
    assert first == claimed.id
    assert second == worker_store.settle(claimed, model.Complete(claimed.token, "1"), time.sleep, True)[1].id  # type: ignore[union-attr]


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
    assert sorted(delays)[5] < 0.5, delays
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


def test_records_that_are_deleted_by_hand_stop_nobody(
    queue: Queue, source: Any, context: Context, store: RedisKit
) -> None:
    """Waiting, claimed, finished, and large data alone: what is left of them is cleared away as it is met."""
    server = RedisKit.server()

    def delete(kind: str, id: str) -> None:
        seq = server.call("ZSCORE", store._key("jobs"), id)
        assert 1 == server.call("DEL", store._key(f"{kind}:{int(str(seq)):014d}"))

    done = queue.enqueue("echo")
    perform(source, context)
    delete("job", done)
    held = queue.enqueue("echo")
    task = source.receive(context)
    delete("job", held)
    task.complete(None)
    server.call("ZADD", store._key("leases"), 1, "00000000000002")
    for id in [queue.enqueue("echo") for _ in range(3)]:
        delete("job", id)
    hollow = queue.enqueue("echo", {"x": "y" * 500}, max_attempts=1)
    delete("big", hollow)
    perform(source, context)
    assert "data-invalid" == (queue.get(hollow).error or {})["reason"]
    assert [hollow] == [job.id for job in queue.jobs()]
    with pytest.raises(WorkerQueueError, match="worker-job-unknown"):
        queue.cancel(done)
    assert (0, 1) == (queue.counts()["default"].processing, queue.counts()["default"].failed)
    assert 1 == queue.recover()
    assert 2 == queue.purge(older_than=datetime.timedelta(0))
    good = queue.enqueue("echo")
    perform(source, context)
    assert "completed" == queue.get(good).status
