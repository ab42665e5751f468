"""The queue on every store, in one process: life cycle, order, claims of the gone, steering."""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.queue_fixtures import Log, perform
from harness.queue_worker import Context
from platform_worker.errors import WorkerQueueError, WorkerUsageError
from platform_worker.jobs.errors import JobCancelled, JobFailed
from platform_worker.jobs.job import NewJob
from platform_worker.jobs.queue import Queue
from platform_worker.tasks.contract import SourceExhausted
from platform_worker.tasks.errors import InvalidData, UnknownTask


def test_a_job_runs_and_its_result_is_kept(queue: Queue, source: Any, context: Context) -> None:
    id = queue.enqueue("echo", {"a": "é"})
    perform(source, context)
    job = queue.get(id)
    assert ("completed", {"a": "é"}, None, 1) == (job.status, job.result, job.error, job.attempt)
    assert {"a": "é"} == queue.result(id, timeout=0)
    keys = """id task queue priority status attempt max_attempts interruptions cancel_requested enqueued_at run_at
        started_at finished_at data result error progress unique"""
    assert set(keys.split()) == set(job.to_json())


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


def test_close_gives_back_what_was_claimed_ahead(queue: Queue, context: Context, make: Callable[..., Any]) -> None:
    source = make()
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


def test_until_empty_ends_when_nothing_is_claimable(queue: Queue, context: Context, make: Callable[..., Any]) -> None:
    queue.enqueue("echo")
    queue.enqueue("echo", delay=3600)
    source = make(until_empty=True)
    source.assert_ready(context)
    perform(source, context)
    with pytest.raises(SourceExhausted):
        source.receive(context)
    source.close()


def test_an_old_claim_changes_nothing_and_is_logged(
    queue: Queue, source: Any, context: Context, log: Log, make: Callable[..., Any]
) -> None:
    id = queue.enqueue("echo")
    stale = source.receive(context)
    follower = make(incarnation=1)
    follower.assert_ready(context)
    task = follower.receive(context)
    stale.complete("stale")
    assert [("worker.task.lease_lost", {"job_id": id})] == log
    assert "processing" == queue.get(id).status
    task.complete("fresh")
    assert "fresh" == queue.result(id, timeout=0)
    follower.close()


def test_a_handler_whose_claim_is_lost_is_told_to_stop(
    queue: Queue, source: Any, context: Context, make: Callable[..., Any]
) -> None:
    """Its heartbeat raises as for a cancelled job, for another worker may be at it; the job itself is not cancelled."""
    id = queue.enqueue("beat")
    frozen = source.receive(context)
    follower = make(incarnation=1)
    follower.assert_ready(context)
    with pytest.raises(JobCancelled):
        frozen.execute()
    assert "queued" == queue.get(id).status
    follower.close()


def test_a_follower_recovers_only_claims_of_the_gone(queue: Queue, context: Context, make: Callable[..., Any]) -> None:
    """Older incarnations of the slot, older generations of the pool; not a neighbour, not another pool."""
    claims = {}
    sources = []
    for name, slot, generation in (("own", 0, 2), ("neighbour", 1, 2), ("older", 7, 1)):
        claims[name] = queue.enqueue("echo")
        sources.append(make(slot=slot, generation=generation))
        sources[-1].receive(context)
    follower = make(slot=0, incarnation=1, generation=2)
    follower.assert_ready(context)
    assert {"own": "queued", "neighbour": "processing", "older": "queued"} == {
        name: queue.get(id).status for name, id in claims.items()
    }
    for each in (*sources, follower):
        each.close()


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
