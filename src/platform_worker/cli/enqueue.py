"""``worker enqueue``: puts one job, or a file of them, on the queue."""

from __future__ import annotations

import datetime
import json
import os
import sys

from platform_worker import JobCancelled, JobFailed, NewJob, Queue, WorkerUsageError
from platform_worker.cli.job_arguments import decimal, parser, plain, say, say_json, whole
from platform_worker.wiring import lives

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

#: More bad lines than this help nobody.
_BAD_LINES = 20
_BAR = 30
#: Of a failed job's message; `worker jobs show` has all of it.
_MESSAGE_MAX = 300
#: Keys of a line, and options that fill in what a line does not say.
_KEYS = frozenset(NewJob.__match_args__)
_OPTIONS = ("queue", "priority", "delay", "max_attempts", "timeout_ms", "unique")


def run(root: str, args: list[str], json_output: bool) -> int:
    """Runs the command; 0, or a ``WorkerError``."""
    options = _parse(args)
    with Queue.open(root) as queue:
        if options.lines is not None:
            rows = _rows_of_lines(queue, _read(options.lines, "lines"), options)
        else:
            data = _json(_data_text(options.data), "data: ")
            rows = queue.rows_of([NewJob(**{**_given(options), "task": options.name, "data": data})])
        if options.queue is not None and options.queue not in queue.names:
            _tell("hint: --queue: it is not in queue.names, so no pool of this root takes jobs from it")
        ids, created = queue.add(rows, _bar(len(rows)) if options.lines is not None else None)
        summary: dict[str, Any] = {"created": created, "ids": ids, "status": "ok"}
        if options.wait:
            _tell(f"waiting for {ids[0]}")
            summary["result"] = _result(root, queue, ids[0])
    if json_output:
        say_json(summary)
    elif options.wait:
        say(json.dumps(summary["result"], ensure_ascii=False))
    else:
        for id in ids:
            say(id)
        if created < len(ids):
            _tell(f"{len(ids) - created} of {len(ids)} not added: an unfinished job with that unique key is there")
    return 0


def _tell(line: str) -> None:
    """One line for a person; stdout is for ids and results."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _parse(args: list[str]) -> argparse.Namespace:
    own = parser(
        "enqueue",
        "Puts one job on the queue, or many with --lines; prints one id a line.",
        'worker enqueue checksum --data \'{"path": "a.pdf"}\'\n  worker enqueue --lines jobs.jsonl',
    )
    own.extra = """one NAME only; its data go in --data, as '{"path": "a.pdf"}'"""
    own.add_argument("name", nargs="?", metavar="NAME", help="the task")
    own.add_argument("--data", metavar="JSON|@FILE|-", help="the handler's arguments, a JSON object")
    own.add_argument("--lines", metavar="FILE|-", help='one job a line: {"task":…,"data":…,…}')
    own.add_argument("--queue", metavar="NAME")
    own.add_argument("--priority", type=whole, metavar="1-10", help="1 first, 10 last")
    own.add_argument("--delay", type=decimal, metavar="SECONDS")
    own.add_argument("--max-attempts", type=whole, metavar="N")
    own.add_argument("--timeout-ms", type=whole, metavar="N", help="0: none")
    own.add_argument("--unique", metavar="KEY", help="while a job with this key is unfinished, none is added")
    own.add_argument("--allow-unknown", action="store_true", help="also a task that no recorded handler has")
    own.add_argument("--wait", action="store_true", help="wait for the result and print it as JSON")
    options = own.parse_args(args)
    if (options.name is None) == (options.lines is None):
        own.error("give a NAME or --lines FILE")
    if options.lines is not None and (options.data is not None or options.wait or options.unique is not None):
        own.error("--data, --unique and --wait are for one job")
    return options


def _given(options: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(options, name) for name in _OPTIONS if getattr(options, name) is not None}
    return {**given, "allow_unknown": options.allow_unknown}


def _data_text(argument: str | None) -> str:
    if argument is None:
        return "{}"
    if argument == "-" or argument.startswith("@"):
        return _read(argument.removeprefix("@"), "data")
    return argument


def _read(name: str, option: str) -> str:
    try:
        if name == "-":
            return sys.stdin.buffer.read().decode("utf-8-sig")
        with open(name, encoding="utf-8-sig") as file:
            return file.read()
    except OSError as error:
        rule = f"cannot be read: {os.strerror(error.errno)}" if error.errno else "cannot be read"
        raise WorkerUsageError("worker-usage-invalid", hints=[f"--{option}: the file {rule}"]) from error
    except UnicodeDecodeError as error:
        raise WorkerUsageError("worker-usage-invalid", hints=[f"--{option}: the file must be UTF-8"]) from error
    except ValueError as error:
        raise WorkerUsageError("worker-usage-invalid", hints=[f"--{option}: not the name of a file"]) from error


def _json(text: str, prefix: str = "") -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        # Its message names what was expected, never what was there.
        where = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        rule = f"is not JSON: {error.msg}, {where}" if text.strip() else "is empty, must be JSON"
    except _NoJsonError:
        rule = "is not JSON: NaN and Infinity are not allowed"
    except RecursionError:
        rule = "is nested too deeply"
    except ValueError:
        rule = "has a number with too many digits"
    raise WorkerUsageError("worker-job-invalid", hints=[prefix + rule])


class _NoJsonError(ValueError):
    """A constant that Python's parser takes and JSON does not have."""


def _refuse(_: str) -> None:
    raise _NoJsonError


def _rows_of_lines(queue: Queue, text: str, options: argparse.Namespace) -> list[Any]:
    """Every line checked before the first is added; the bad ones are named by their numbers."""
    rows: list[Any] = []
    reason = ""
    hints: list[str] = []
    # Not splitlines: a JSON string may hold other separators.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows += queue.rows_of([_job_of_line(line, options)])
        except WorkerUsageError as error:
            reason = reason or error.reason
            hints += [f"line {number}: {hint}" for hint in error.hints[:1]]
            if len(hints) >= _BAD_LINES:
                break
    if hints:
        raise WorkerUsageError(reason, hints=[*hints, "nothing was enqueued"])
    return rows


def _job_of_line(line: str, options: argparse.Namespace) -> NewJob:
    record = _json(line)
    if not isinstance(record, dict):
        raise WorkerUsageError("worker-job-invalid", hints=["must be a JSON object"])
    unknown = sorted(set(record) - _KEYS)
    if unknown:
        raise WorkerUsageError("worker-job-invalid", hints=[f"not a key of a job; keys are {', '.join(sorted(_KEYS))}"])
    if "task" not in record:
        raise WorkerUsageError("worker-job-invalid", hints=["task: is missing"])
    if record.get("run_at") is not None:
        record["run_at"] = _time(record["run_at"])
    return NewJob(**{**_given(options), **record})


def _time(value: object) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(str(value))
    except ValueError:
        raise WorkerUsageError("worker-job-invalid", hints=["run_at: must be a time in RFC 3339"]) from None


def _bar(total: int) -> Any:
    """A progress bar, where a person looks."""
    if not total or not sys.stderr.isatty():
        return None

    def draw(done: int) -> None:
        filled = _BAR * done // total
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r[{'#' * filled}{'.' * (_BAR - filled)}] {done}/{total}{end}")
        sys.stderr.flush()

    return draw


def _result(root: str, queue: Queue, id: str) -> Any:
    job = queue.get(id)
    if not lives(root):
        _tell("hint: no pool is running on this root; `worker start` in another terminal runs one")
    elif any(counts.paused for name, counts in queue.counts().items() if name == job.queue):
        _tell("hint: the job's queue is paused; `worker queues resume NAME` opens it")
    try:
        return queue.result(id)
    except JobFailed as error:
        hints = (_failure(error, queue, id), f"worker jobs show {id}")
        raise JobFailed(hints=hints, error=error.error) from error
    except JobCancelled as error:
        raise JobCancelled(hints=(f"worker jobs show {id}",)) from error


def _failure(failed: JobFailed, queue: Queue, id: str) -> str:
    """The job's own error: who waits for its result is its owner."""
    job = queue.get(id)
    error = failed.error or {}
    text = ": ".join(word for word in (error.get("type"), error.get("message")) if word) or error.get("reason", "")
    shown = text if len(text) <= _MESSAGE_MAX else text[:_MESSAGE_MAX] + "…"
    return f"{plain(shown)} ({error.get('reason')}, attempt {job.attempt} of {job.max_attempts})"
