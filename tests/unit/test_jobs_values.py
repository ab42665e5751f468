"""Arguments of a job and their rules, the public values, the context, the log's sink. No store, no clock."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_worker.errors import WorkerUsageError
from platform_worker.jobs import events
from platform_worker.jobs.context import JobContext
from platform_worker.jobs.errors import JobCancelled, JobFailed, Retry
from platform_worker.jobs.ids import is_id, new_id
from platform_worker.jobs.job import NewJob, job_of
from platform_worker.jobs.new import row_of

NOW = 1_700_000_000_000
QUEUE: dict[str, Any] = {
    "names": ["urgent", "default"], "max_attempts": 3, "backoff_ms": 60000, "timeout_ms": 9, "data_max_bytes": 100,
}  # fmt: skip
TASKS: dict[str, dict[str, Any]] = {
    "plain": {"module": "m", "qualname": "f"},
    "tuned": {"queue": "urgent", "priority": 2, "max_attempts": 7, "timeout_ms": 0, "backoff_ms": 0},
}
UTC = datetime.UTC


def test_defaults_come_from_the_queue_table() -> None:
    row = row_of(NewJob("plain"), TASKS, QUEUE, NOW)
    assert ("default", 5, 3, 9, 60000, NOW, "{}", None) == (
        row.queue, row.priority, row.max_attempts, row.timeout_ms, row.backoff_ms, row.run_at, row.data, row.unique,
    )  # fmt: skip


def test_the_decorator_wins_over_the_table_and_zero_means_none() -> None:
    row = row_of(NewJob("tuned"), TASKS, QUEUE, NOW)
    assert ("urgent", 2, 7, 0, 0) == (row.queue, row.priority, row.max_attempts, row.timeout_ms, row.backoff_ms)


def test_the_call_wins_over_the_decorator() -> None:
    job = NewJob("tuned", queue="q", priority=9, max_attempts=1, timeout_ms=5, backoff_ms=6)
    row = row_of(job, TASKS, QUEUE, NOW)
    assert ("q", 9, 1, 5, 6) == (row.queue, row.priority, row.max_attempts, row.timeout_ms, row.backoff_ms)


def test_without_a_default_queue_the_first_is_taken() -> None:
    assert "b" == row_of(NewJob("plain"), TASKS, {**QUEUE, "names": ["b", "a"]}, NOW).queue


def test_a_function_is_found_by_where_it_is_defined() -> None:
    def function() -> None: ...

    function.__module__, function.__qualname__ = "m", "f"
    assert "plain" == row_of(NewJob(function), TASKS, QUEUE, NOW).task


def test_a_time_is_never_before_the_one_asked_for() -> None:
    assert NOW + 1501 == row_of(NewJob("plain", delay=1.5001), TASKS, QUEUE, NOW).run_at
    assert NOW + 2000 == row_of(NewJob("plain", delay=datetime.timedelta(seconds=2)), TASKS, QUEUE, NOW).run_at
    at = datetime.datetime(2030, 1, 1, 1, 0, 0, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    assert 1893456000001 == row_of(NewJob("plain", run_at=at), TASKS, QUEUE, NOW).run_at


@pytest.mark.parametrize(
    ("field", "job"),
    [
        ("task", NewJob("")),
        ("task", NewJob("a\nb", allow_unknown=True)),
        ("task", NewJob(3)),  # type: ignore[arg-type]
        ("queue", NewJob("plain", queue="Upper")),
        ("queue", NewJob("plain", queue="x" * 65)),
        ("priority", NewJob("plain", priority=0)),
        ("priority", NewJob("plain", priority=11)),
        ("priority", NewJob("plain", priority=True)),
        ("max_attempts", NewJob("plain", max_attempts=0)),
        ("timeout_ms", NewJob("plain", timeout_ms=-1)),
        ("backoff_ms", NewJob("plain", backoff_ms=1.5)),  # type: ignore[arg-type]
        ("delay", NewJob("plain", delay=-1)),
        ("delay", NewJob("plain", delay=float("nan"))),
        ("delay", NewJob("plain", delay=float("inf"))),
        ("delay, run_at", NewJob("plain", delay=1, run_at=datetime.datetime(2030, 1, 1, tzinfo=UTC))),
        ("run_at", NewJob("plain", run_at=datetime.datetime(2030, 1, 1))),
        ("run_at", NewJob("plain", run_at=datetime.datetime(1960, 1, 1, tzinfo=UTC))),
        ("unique", NewJob("plain", unique="")),
        ("unique", NewJob("plain", unique="\ud800")),
        ("data", NewJob("plain", [])),  # type: ignore[arg-type]
        ("data", NewJob("plain", {1: 2})),  # type: ignore[dict-item]
        ("data", NewJob("plain", {"a": float("nan")})),
        ("data", NewJob("plain", {"a": {1}})),
        ("data", NewJob("plain", {"a": "\ud800"})),
        ("data", NewJob("plain", {"a": "x" * 100})),
    ],
    ids=str,
)
def test_an_argument_off_its_rule_is_named(field: str, job: NewJob) -> None:
    with pytest.raises(WorkerUsageError, match="worker-job-invalid") as refused:
        row_of(job, TASKS, QUEUE, NOW)
    assert field == refused.value.hints[0].partition(":")[0]


def test_an_unknown_task_is_refused_with_the_nearest_name_unless_allowed() -> None:
    with pytest.raises(WorkerUsageError, match="worker-task-unknown") as refused:
        row_of(NewJob("plian"), TASKS, QUEUE, NOW)
    assert "plain" in refused.value.hints[0]
    assert "--allow-unknown" in refused.value.hints[1]
    assert "plian" == row_of(NewJob("plian", allow_unknown=True), TASKS, QUEUE, NOW).task


def test_a_function_s_name_finds_the_task_that_is_named_after_its_module() -> None:
    with pytest.raises(WorkerUsageError, match="worker-task-unknown") as refused:
        row_of(NewJob("crop"), {"crops": {}, "app.images.crop": {}, "tasks.Tools.crop": {}}, QUEUE, NOW)
    assert "task: did you mean app.images.crop or tasks.Tools.crop?" == refused.value.hints[0]


@given(st.integers(0, 2**48 - 1))
def test_an_id_is_a_uuid_of_version_7_that_sorts_by_time(now: int) -> None:
    import uuid

    made = new_id(now)
    parsed = uuid.UUID(made)
    assert (str(parsed), 7, uuid.RFC_4122, now) == (made, parsed.version, parsed.variant, parsed.int >> 80)
    assert is_id(made)


@pytest.mark.parametrize("value", ["", "x" * 36, 3, None, "0190b3c4_0000-7000-8000-000000000000"])
def test_anything_else_is_no_id(value: object) -> None:
    assert not is_id(value)


def test_a_job_as_json_has_times_in_utc_to_the_millisecond() -> None:
    row = {
        "id": "i", "task": "t", "queue": "q", "priority": 5, "status": "queued", "attempt": 0, "max_attempts": 3,
        "interruptions": 0, "cancel_requested": 0, "enqueued_at": NOW + 7, "run_at": NOW, "started_at": None,
        "finished_at": None, "data": "{}", "result": None, "error": None, "progress": None, "unique": None,
    }  # fmt: skip
    record = job_of(row).to_json()
    assert ("2023-11-14T22:13:20.007Z", None, False) == (
        record["enqueued_at"], record["started_at"], record["cancel_requested"],
    )  # fmt: skip


def context(**changes: Any) -> JobContext:
    return JobContext(id="i", task="t", queue="q", attempt=1, max_attempts=3, **changes)


def test_a_heartbeat_passes_the_progress_on_and_raises_when_asked_to_stop() -> None:
    seen: list[object] = []
    context(on_heartbeat=seen.append).heartbeat({"done": 3})
    assert [{"done": 3}] == seen
    with pytest.raises(JobCancelled):
        context(on_heartbeat=seen.append, is_cancelled=lambda: True).heartbeat()
    assert context(is_cancelled=lambda: True).cancelled
    assert not context().cancelled


@pytest.mark.parametrize("progress", ["x" * 4095, float("nan"), object()], ids=["large", "nan", "object"])
def test_progress_off_the_rule_is_refused(progress: object) -> None:
    with pytest.raises(WorkerUsageError, match="worker-job-invalid"):
        context(on_heartbeat=lambda _: None).heartbeat(progress)


def test_the_work_directory_is_private_and_goes_with_the_context(tmp_path: Any) -> None:
    own = context(workdir_path=str(tmp_path / "jobs" / "one"))
    assert not (tmp_path / "jobs").exists()
    assert 0o700 == own.workdir.stat().st_mode & 0o777
    (own.workdir / "file").write_text("x")
    own.close()
    assert not (tmp_path / "jobs" / "one").exists()


def test_errors_survive_pickling_with_their_reason() -> None:
    import pickle

    for error in (JobFailed(error={"reason": "timeout"}), JobCancelled()):
        assert error.reason == pickle.loads(pickle.dumps(error)).reason


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf")])
def test_retry_after_is_a_time_to_come(after: float) -> None:
    with pytest.raises(ValueError, match="after"):
        Retry(after=after)


def test_events_go_to_the_sink_or_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[object] = []
    events.set_sink(lambda *line: seen.append(line))
    events.emit("info", "worker.task.released", job_id="i")
    events.set_sink(None)
    events.emit("info", "worker.task.released", job_id="j")
    assert [("info", "worker.task.released", {"job_id": "i"})] == seen
    out, err = capfd.readouterr()
    assert ("", True) == (out, '"job_id": "j"' in err)
