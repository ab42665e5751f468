"""What a job's task says to its store and to the log, with a source that only listens."""

from __future__ import annotations

import pytest

from platform_worker.jobs import events
from platform_worker.jobs.errors import Retry
from platform_worker.jobs.store import Claimed
from platform_worker.sources.queue_task import QueueTask


class Source:
    result_max_bytes = 10

    def __init__(self):
        self.settled = []

    def settle(self, claimed, event, *, claim_next=True):
        self.settled.append(event)


@pytest.fixture
def log():
    seen = []
    events.set_sink(lambda level, event, fields: seen.append((level, event, fields)))
    yield seen
    events.set_sink(None)


def task(source, attempt=1):
    return QueueTask(source, Claimed(1, "job-1", "crop", "default", attempt, 3, 7, 0, "{}"))


@pytest.mark.parametrize(("result", "cause"), [({1, 2}, "result-invalid"), ("x" * 20, "result-too-large")])
def test_a_result_that_cannot_be_kept_is_in_the_log_without_its_content(log, result, cause):
    source = Source()
    task(source).complete(result)

    assert [cause] == [event.reason for event in source.settled]
    assert [("error", "worker.task.failed", {"job_id": "job-1", "task": "crop", "cause": cause})] == log


def test_a_result_that_is_kept_is_no_event(log):
    source = Source()
    task(source).complete([1])

    assert [] == log


@pytest.mark.parametrize(
    ("failure", "attempt", "message"),
    [
        (Retry(), 1, "the handler asked for a retry in attempt 1 of 3"),
        (Retry(after=1), 3, "the handler asked for a retry in attempt 3 of 3, which was the last"),
        (Retry("not yet"), 3, "not yet"),
    ],
)
def test_a_retry_leaves_a_message_even_without_words(failure, attempt, message):
    source = Source()
    task(source, attempt).fail(failure)

    assert [message] == [event.message for event in source.settled]
