"""The queue on every store, with workers as processes: leases, deaths, wake-ups, cancels, deadlines."""

from __future__ import annotations

import datetime
import signal
import time

import pytest

from harness import eventually
from harness.queue_fixtures import DEADLINE, Workers, ledger
from harness.stores import StoreKit
from platform_worker.jobs.errors import JobCancelled, JobFailed
from platform_worker.jobs.queue import Queue


def test_a_lease_is_renewed_while_the_handler_computes(queue: Queue, root: str, worker: Workers) -> None:
    """A Python loop five times as long as the lease: it runs once, though another worker looks for ended leases."""
    id = queue.enqueue("spin", {"seconds": 2.5})
    worker(0, lease_ms=600)
    eventually(lambda: queue.get(id).status == "processing")
    worker(1, lease_ms=600)
    assert "spun" == queue.result(id, timeout=DEADLINE)
    assert [["start", id, "1"]] == ledger(root)


def test_an_ended_lease_is_found_by_any_worker(queue: Queue, worker: Workers) -> None:
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


def test_a_job_that_kills_its_worker_runs_out_of_attempts(queue: Queue, root: str, worker: Workers) -> None:
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


def test_an_enqueue_wakes_a_waiting_worker_within_milliseconds(
    queue: Queue, root: str, worker: Workers, store: StoreKit
) -> None:
    worker(0)
    delays = []
    for _ in range(15):
        eventually(lambda: store.somebody_waits(root))
        began = time.monotonic_ns()
        delays.append(queue.result(queue.enqueue("stamp"), timeout=DEADLINE) - began)
    assert sorted(delays)[7] < 50_000_000, delays


def test_a_job_starts_at_its_time_and_never_before(queue: Queue, worker: Workers) -> None:
    worker(0)
    job = queue.get(queue.enqueue("echo", delay=0.3))
    queue.result(job.id, timeout=DEADLINE)
    started = queue.get(job.id).started_at
    assert started is not None
    assert datetime.timedelta(0) <= started - job.run_at < datetime.timedelta(seconds=1)


def test_a_paused_queue_gives_nothing_out_and_resuming_wakes(queue: Queue, worker: Workers) -> None:
    queue.pause("default")
    worker(0)
    id = queue.enqueue("echo")
    with pytest.raises(TimeoutError):
        queue.result(id, timeout=0.3)
    assert (True, 1) == (queue.counts()["default"].paused, queue.counts()["default"].queued)
    queue.resume("default")
    assert {} == queue.result(id, timeout=DEADLINE)


def test_a_running_job_sees_its_cancel(queue: Queue, worker: Workers) -> None:
    worker(0)
    id = queue.enqueue("beat")
    eventually(lambda: queue.get(id).progress == {"at": 1})
    queue.cancel(id)
    with pytest.raises(JobCancelled):
        queue.result(id, timeout=DEADLINE)


def test_a_handler_that_ignores_its_timeout_is_ended_with_its_process(queue: Queue, worker: Workers) -> None:
    """The stacks are in the log, and whoever recovers the job sees why it ended."""
    id = queue.enqueue("stubborn", timeout_ms=100, max_attempts=1)
    process = worker(0)
    assert 1 == process.wait(DEADLINE)
    worker(0, 1)
    with pytest.raises(JobFailed) as failed:
        queue.result(id, timeout=DEADLINE)
    assert failed.value.error is not None
    assert "timeout" == failed.value.error["reason"]
