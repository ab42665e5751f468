"""``worker enqueue``, ``jobs`` and ``queues`` on every store."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.queue_worker import QUEUE, Context, setup
from harness.stores import StoreKit
from platform_worker import JobFailed, Queue, WorkerError, WorkerQueueError, WorkerUsageError
from platform_worker.cli import enqueue, jobs, queues


@pytest.fixture
def root(tmp_path: Path, store: StoreKit, monkeypatch: pytest.MonkeyPatch) -> str:
    def opened(root: str) -> Queue:
        return Queue(
            store.factory.client(store.config(), QUEUE, root), QUEUE, {"echo": {}, "fail": {"max_attempts": 1}}
        )

    monkeypatch.setattr(Queue, "open", opened)
    return str(tmp_path)


@pytest.fixture
def work(root: str, store: StoreKit) -> Iterator[Any]:
    """Performs one job."""
    context = Context()
    source = store.factory(setup(store.config(), root))
    source.assert_ready(context)

    def perform() -> None:
        task = source.receive(context)
        try:
            result = task.execute()
        except Exception as error:
            task.fail(error)
        else:
            task.complete(result)

    yield perform
    source.close()
    context.close()


def test_enqueue_prints_one_id_a_line(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == enqueue.run(root, ["echo", "--data", '{"a": 1}'], False)
    out, err = capsys.readouterr()
    assert (37, "") == (len(out), err)


def test_enqueue_json_counts_what_was_added(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    enqueue.run(root, ["echo", "--unique", "k"], True)
    first = json.loads(capsys.readouterr().out)
    enqueue.run(root, ["echo", "--unique", "k"], True)
    second = json.loads(capsys.readouterr().out)
    assert ({"created", "ids", "status"}, 1, 0) == (set(first), first["created"], second["created"])
    assert first["ids"] == second["ids"]


def test_lines_are_checked_whole_before_any_is_added(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines"
    file.write_text('{"task":"echo"}\n\n{"task":"echo","data":[1]}\nno\n{"task":"echo","colour":1}\n{"data":{}}\n')
    with pytest.raises(WorkerUsageError, match="worker-job-invalid") as refused:
        enqueue.run(root, ["--lines", str(file)], False)
    assert ["line 3", "line 4", "line 5", "line 6"] == [h.partition(":")[0] for h in refused.value.hints[:-1]]
    jobs.run(root, [], True)
    assert {"jobs": [], "status": "ok"} == json.loads(capsys.readouterr().out)
    file.write_text('{"task":"echo","run_at":"2030-01-01T00:00:00Z"}\n{"task":"echo","queue":"urgent"}')
    assert 0 == enqueue.run(root, ["--lines", str(file)], False)
    assert 2 == len(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ([], "worker-usage-invalid"),
        (["echo", "--lines", "x"], "worker-usage-invalid"),
        (["echo", "--priority", "secret"], "worker-usage-invalid"),
        (["echo", "--data", "@/nowhere"], "worker-usage-invalid"),
        (["echo", "--data", "{"], "worker-job-invalid"),
        (["echo", "--data", '{"a": NaN}'], "worker-job-invalid"),
        (["echo", "--data", "[]"], "worker-job-invalid"),
        (["echo", "--priority", "11"], "worker-job-invalid"),
        (["echo", "--max-attempts", "0"], "worker-job-invalid"),
        (["echo", "--delay", "-1"], "worker-job-invalid"),
        (["echo", "--queue", "No"], "worker-job-invalid"),
        (["ehco"], "worker-task-unknown"),
    ],
)
def test_bad_arguments_are_named_without_their_values(root: str, args: list[str], reason: str) -> None:
    with pytest.raises(WorkerUsageError) as refused:
        enqueue.run(root, args, False)
    assert reason == refused.value.reason
    assert refused.value.hints
    assert "secret" not in " ".join(refused.value.hints)


def test_data_from_standard_input(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO('{"a": "é"}'.encode())))
    enqueue.run(root, ["echo", "--data", "-"], False)
    id = capsys.readouterr().out.strip()
    jobs.run(root, ["show", id], True)
    shown = json.loads(capsys.readouterr().out)
    assert ({"a": "é"}, "ok") == (shown["job"]["data"], shown["status"])


def test_an_operator_looks_at_failures_and_retries_them(
    root: str, work: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    enqueue.run(root, ["fail"], False)
    failed = capsys.readouterr().out.strip()
    work()
    enqueue.run(root, ["echo"], False)
    queued = capsys.readouterr().out.strip()
    jobs.run(root, ["--status", "failed"], False)
    assert failed in capsys.readouterr().out
    with pytest.raises(WorkerQueueError, match="worker-job-state") as refused:
        jobs.run(root, ["retry", queued, failed, "unknown"], False)
    assert (
        f"{queued}: is queued; only a failed or cancelled job can be retried",
        "unknown: an id has 36 characters, as enqueue returned it",
        "done: 1 of 3",
    ) == refused.value.hints
    work()
    work()
    capsys.readouterr()
    assert 0 == jobs.run(root, ["retry", "--failed"], True)
    assert {"count": 1, "status": "ok"} == json.loads(capsys.readouterr().out)
    jobs.run(root, ["cancel", failed], False)
    jobs.run(root, ["recover"], False)
    jobs.run(root, ["purge", "--older-than", "0s"], False)
    assert "cancelled: 1\nrecovered: 0\nremoved: 2\n" == capsys.readouterr().out


def test_a_finished_job_says_why_it_cannot_be_cancelled_or_retried(
    root: str, work: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    enqueue.run(root, ["echo"], False)
    done = capsys.readouterr().out.strip()
    work()
    for action, needed in (("cancel", "that has not finished"), ("retry", "only a failed or cancelled")):
        with pytest.raises(WorkerQueueError, match="worker-job-state") as refused:
            jobs.run(root, [action, done], False)
        assert refused.value.hints[0].startswith(f"{done}: is completed; ")
        assert needed in refused.value.hints[0]
    with pytest.raises(WorkerQueueError, match="worker-job-unknown") as refused:
        jobs.run(root, ["show", done[:-1] + ("0" if done[-1] != "0" else "1")], False)
    assert "no job has this id" in refused.value.hints[0]


def test_a_retry_that_a_unique_key_forbids_says_so(root: str, work: Any, capsys: pytest.CaptureFixture[str]) -> None:
    enqueue.run(root, ["fail", "--unique", "k"], False)
    failed = capsys.readouterr().out.strip()
    work()
    enqueue.run(root, ["echo", "--unique", "k"], False)
    with pytest.raises(WorkerQueueError, match="worker-job-state") as refused:
        jobs.run(root, ["retry", failed], False)
    assert f"{failed}: is failed, but another unfinished job has its unique key" == refused.value.hints[0]


def test_a_running_job_is_asked_to_stop_a_waiting_one_is_cancelled(
    root: str, store: StoreKit, capsys: pytest.CaptureFixture[str]
) -> None:
    context = Context()
    source = store.factory(setup(store.config(), root))
    source.assert_ready(context)
    try:
        enqueue.run(root, ["echo"], False)
        running = capsys.readouterr().out.strip()
        task = source.receive(context)
        enqueue.run(root, ["echo"], False)
        waiting = capsys.readouterr().out.strip()
        assert 0 == jobs.run(root, ["cancel", running, waiting], False)
        assert "cancelled: 1\nasked to stop: 1\n" == capsys.readouterr().out
        jobs.run(root, ["cancel", running], False)
        assert "asked to stop: 1\n" == capsys.readouterr().out
        jobs.run(root, ["cancel", running], True)
        assert {"count": 1, "status": "ok"} == json.loads(capsys.readouterr().out)
        task.complete(None)
    finally:
        source.close()
        context.close()


def test_a_unique_hit_is_said_beside_the_id(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    enqueue.run(root, ["echo", "--unique", "k"], False)
    first = capsys.readouterr()
    enqueue.run(root, ["echo", "--unique", "k"], False)
    second = capsys.readouterr()
    assert (first.out, "") == (second.out, first.err)
    assert "1 of 1 not added: an unfinished job with that unique key is there\n" == second.err


def test_the_list_names_the_reason_of_a_failure(root: str, work: Any, capsys: pytest.CaptureFixture[str]) -> None:
    enqueue.run(root, ["fail"], False)
    enqueue.run(root, ["echo"], False)
    work()
    capsys.readouterr()
    jobs.run(root, [], False)
    head, waiting, failed = capsys.readouterr().out.splitlines()
    assert ["ERROR", "-", "exception"] == [line.split()[-1] for line in (head, waiting, failed)]


def test_a_closed_queue_refuses_to_work(root: str) -> None:
    queue = Queue.open(root)
    queue.close()
    queue.close()
    for use in (lambda: queue.enqueue("echo"), queue.counts, queue.jobs, lambda: queue.retry("x")):
        with pytest.raises(WorkerQueueError, match="worker-queue-unavailable") as refused:
            use()
        assert ("this Queue was closed; open another one",) == refused.value.hints


def test_waiting_prints_the_result(root: str, work: Any, capsys: pytest.CaptureFixture[str]) -> None:
    import threading

    worker = threading.Thread(target=work)
    worker.start()
    assert 0 == enqueue.run(root, ["echo", "--data", '{"a": 1}', "--wait"], False)
    worker.join()
    out, err = capsys.readouterr()
    assert '{"a": 1}\n' == out
    first, hint = err.splitlines()
    assert len("waiting for ") + 36 == len(first)
    assert hint.startswith("hint: no pool is running on this root")


def test_waiting_for_a_failure_shows_the_jobs_own_error(
    root: str, work: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    import threading

    worker = threading.Thread(target=work)
    worker.start()
    with pytest.raises(JobFailed) as failed:
        enqueue.run(root, ["fail", "--wait"], False)
    worker.join()
    id = capsys.readouterr().err.splitlines()[0].split()[-1]
    assert ("ValueError: it broke (exception, attempt 1 of 1)", f"worker jobs show {id}") == failed.value.hints


def test_waiting_says_when_the_queue_is_paused(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(enqueue, "lives", lambda _root: True)
    monkeypatch.setattr(Queue, "result", lambda _queue, _id: None)
    queues.run(root, ["pause", "default"], False)
    enqueue.run(root, ["echo", "--wait"], True)
    assert "hint: the job's queue is paused" in capsys.readouterr().err


def test_a_queue_that_nobody_here_serves_is_said(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == enqueue.run(root, ["echo", "--queue", "elsewhere"], False)
    out, err = capsys.readouterr()
    assert 37 == len(out)
    assert "hint: --queue: it is not in queue.names, so no pool of this root takes jobs from it\n" == err


def test_queues_are_listed_paused_and_resumed(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    enqueue.run(root, ["echo", "--queue", "elsewhere"], False)
    assert 0 == queues.run(root, ["pause", "default"], False)
    capsys.readouterr()
    queues.run(root, [], True)
    found = {q["name"]: q for q in json.loads(capsys.readouterr().out)["queues"]}
    assert ["urgent", "default", "elsewhere"] == list(found)
    assert (True, 1) == (found["default"]["paused"], found["elsewhere"]["queued"])
    assert None is found["urgent"]["oldest_queued_seconds"]
    queues.run(root, ["resume", "default"], False)
    queues.run(root, [], False)
    assert "default" in capsys.readouterr().out


@pytest.mark.parametrize("command", [enqueue, jobs, queues])
def test_help_has_an_example(root: str, command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.run(root, ["--help"], False)
    assert 0 == ended.value.code
    assert "example" in capsys.readouterr().out


def test_bad_durations_are_refused(root: str) -> None:
    with pytest.raises(WorkerError, match="worker-usage-invalid"):
        jobs.run(root, ["purge", "--older-than", "1y"], False)
