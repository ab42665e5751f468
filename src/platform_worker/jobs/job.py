"""The public values: ``Job``, a job as it is in the store, and ``NewJob``, the arguments of ``Queue.enqueue``."""

from __future__ import annotations

import datetime
import json

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_TIMES = ("enqueued_at", "run_at", "started_at", "finished_at")


class NewJob(Value):
    """One job to enqueue; the fields are the arguments of ``Queue.enqueue``, ``None`` meaning not given."""

    task: str | Callable[..., object]
    data: Mapping[str, Any] | None = None
    queue: str | None = None
    priority: int | None = None
    delay: float | datetime.timedelta | None = None
    run_at: datetime.datetime | None = None
    max_attempts: int | None = None
    timeout_ms: int | None = None
    backoff_ms: int | None = None
    unique: str | None = None
    allow_unknown: bool = False


class Job(Value):
    """One job. Times are aware datetimes, ``None`` where not yet; ``status`` is one of ``jobs.model.STATUSES``."""

    id: str
    task: str
    queue: str
    priority: int
    status: str
    attempt: int
    max_attempts: int
    interruptions: int
    cancel_requested: bool
    enqueued_at: datetime.datetime
    run_at: datetime.datetime
    started_at: datetime.datetime | None
    finished_at: datetime.datetime | None
    data: dict[str, Any]
    result: Any
    error: dict[str, Any] | None
    progress: Any
    unique: str | None

    def __hash__(self) -> int:
        return hash((Job, self.id))

    def to_json(self) -> dict[str, Any]:
        """The job as a JSON object with exactly the attributes as keys; times in RFC 3339, UTC."""
        names: tuple[str, ...] = Job.__fields__
        record = {name: getattr(self, name) for name in names}
        for name in _TIMES:
            record[name] = rfc3339(record[name])
        return record


class QueueCounts(Value):
    """One queue's jobs by status. ``oldest_queued_seconds`` is ``None`` where nothing claimable waits."""

    paused: bool
    queued: int
    processing: int
    retry_wait: int
    completed: int
    failed: int
    cancelled: int
    oldest_queued_seconds: float | None


def job_of(row: Mapping[str, Any]) -> Job:
    """The job of a store's row: times in milliseconds, JSON as text."""
    names: tuple[str, ...] = Job.__fields__
    values: dict[str, Any] = {name: row[name] for name in names}
    for name in _TIMES:
        values[name] = None if values[name] is None else _time(values[name])
    for name in ("data", "result", "error", "progress"):
        values[name] = None if values[name] is None else json.loads(values[name])
    values["cancel_requested"] = bool(values["cancel_requested"])
    return Job(**values)


def rfc3339(time: datetime.datetime | None) -> str | None:
    """A time as text, in UTC, to the millisecond."""
    if time is None:
        return None
    utc = time.astimezone(datetime.UTC)
    return utc.strftime("%Y-%m-%dT%H:%M:%S.") + f"{utc.microsecond // 1000:03d}Z"


def _time(milliseconds: int) -> datetime.datetime:
    # Not fromtimestamp: a float would lose the last digit.
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=milliseconds)
