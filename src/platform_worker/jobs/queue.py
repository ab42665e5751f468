"""``Queue``: how an application, and the command line, use the queue. It needs no running pool."""

from __future__ import annotations

import datetime
import os

from platform_worker.errors import WorkerQueueError
from platform_worker.jobs import model
from platform_worker.jobs.errors import JobCancelled, JobFailed
from platform_worker.jobs.ids import is_id
from platform_worker.jobs.job import Job, NewJob, QueueCounts, job_of
from platform_worker.jobs.new import QUEUE_NAME, invalid, row_of
from platform_worker.jobs.store import Filter, StoreUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from platform_worker.jobs.store import ClientStore, Row

#: Rows a round trip of ``enqueue_many``.
_BATCH = 1000


class Queue:
    """The queue that the selected artifact generation enables. A context manager; for one thread at a time.

    Every method raises ``WorkerQueueError("worker-queue-unavailable")`` where the store cannot be reached, and
    ``WorkerUsageError("worker-job-invalid")``, with the field and its rule as a hint, for arguments off the rules.
    """

    def __init__(self, store: ClientStore, settings: Mapping[str, Any], tasks: Mapping[str, Mapping[str, Any]]) -> None:
        self._store = store
        self._settings = settings
        self._tasks = tasks

    @classmethod
    def open(cls, root: str | Path | None = None) -> Queue:
        """Opens the queue of ``root`` (else ``$WORKER_ROOT``, else the current directory); creates the store."""
        where = os.path.abspath(os.fspath(root) if root is not None else os.environ.get("WORKER_ROOT") or ".")
        from platform_worker.artifacts.boot import has_current, load_current, resolve_settings

        if not has_current(where):
            hint = "run worker build first"
            if not os.path.exists(os.path.join(where, "worker.toml")):
                hint = "there is no worker.toml in the root; give --root DIR, or set WORKER_ROOT (in Python: root=…)"
            raise WorkerQueueError("worker-generation-missing", hints=[hint])
        generation = load_current(where)
        source = generation.container["task_source"]
        factory = _load(source["entry_point"])
        if not hasattr(factory, "client"):
            raise WorkerQueueError("worker-queue-unavailable", hints=["app.modules: no queue with a store is enabled"])
        config = resolve_settings(generation.config["plugins"].get(source["name"], {}), os.environ)
        settings = resolve_settings(generation.config["queue"], os.environ)
        with _reachable():
            store = factory.client(config, settings, where)
        return cls(store, settings, generation.container["tasks"])

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the store; whatever is asked for afterwards is refused."""
        store, self._store = self._store, _Closed()
        store.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The queues that this root's pool serves, in order."""
        return tuple(self._settings["names"])

    def enqueue(
        self,
        task: str | Callable[..., object],
        data: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | datetime.timedelta | None = None,
        run_at: datetime.datetime | None = None,
        max_attempts: int | None = None,
        timeout_ms: int | None = None,
        backoff_ms: int | None = None,
        unique: str | None = None,
        connection: object | None = None,
        allow_unknown: bool = False,
    ) -> str:
        """Adds one job, or finds the unfinished one with the same ``unique`` key; its id.

        With ``connection`` it is part of the caller's transaction: nothing is seen before its commit.
        """
        job = NewJob(
            task, data, queue, priority, delay, run_at, max_attempts, timeout_ms, backoff_ms, unique, allow_unknown
        )
        row = row_of(job, self._tasks, self._settings, self._now())
        with _reachable():
            return self._store.enqueue([row], connection)[0]

    def enqueue_many(self, jobs: Iterable[NewJob]) -> list[str]:
        """Adds many, a thousand a round trip; the ids, in order. All are checked before the first is added."""
        return self.add(self.rows_of(jobs))[0]

    def get(self, id: str) -> Job:
        """One job, whole; ``worker-job-unknown`` where it is not there."""
        with _reachable():
            row = self._store.get(id) if is_id(id) else None
        if row is None:
            raise _unknown(id)
        return job_of(row)

    def jobs(
        self,
        *,
        status: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[Job]:
        """Newest first; ``after`` is the last id seen."""
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise invalid("limit: must be a whole number, 1 or more")
        with _reachable():
            try:
                rows = self._store.jobs(Filter(_status(status), queue, task), min(limit, 2**31), after)
            except KeyError:
                raise WorkerQueueError("worker-job-unknown", hints=["after: no job has this id"]) from None
        return [job_of(row) for row in rows]

    def cancel(self, id: str) -> None:
        """Cancels a job that waits; asks one that runs to stop. ``worker-job-state`` for a finished one."""
        self._change(id, model.Cancel())

    def retry(self, id: str) -> None:
        """Puts a failed or cancelled job back on its queue, as new."""
        self._change(id, model.Retry())

    def ids(self, *, status: str | None = None, queue: str | None = None) -> list[str]:
        """The ids of all such jobs, oldest first."""
        with _reachable():
            return list(self._store.ids(Filter(_status(status), queue)))

    def purge(self, *, older_than: datetime.timedelta, status: str | None = None) -> int:
        """Removes jobs that finished longer than ``older_than`` ago; how many."""
        if not isinstance(older_than, datetime.timedelta) or older_than < datetime.timedelta(0):
            raise invalid("older_than: must be a timedelta, 0 or more")
        if _status(status) not in (None, *model.FINISHED):
            raise invalid("status: only completed, failed and cancelled jobs can be removed")
        before = self._now() - older_than // datetime.timedelta(milliseconds=1)
        with _reachable():
            # With no age to keep, what finished in this very millisecond is meant too.
            return self._store.purge(before if older_than else before + 1, status)

    def recover(self) -> int:
        """Ends the claims whose lease has ended, never a live one; how many."""
        with _reachable():
            return self._store.recover()

    def counts(self) -> dict[str, QueueCounts]:
        """Every queue of ``names``, in order, then every other that has jobs or is paused."""
        with _reachable():
            found = self._store.counts()
        now = self._now()
        names = [*self.names, *sorted(set(found) - set(self.names))]
        return {name: _counts(found.get(name, {}), now) for name in names}

    def pause(self, name: str) -> None:
        """The queue takes jobs in and gives none out."""
        self._pause(name, True)

    def resume(self, name: str) -> None:
        """The queue gives jobs out again; waiting workers are woken."""
        self._pause(name, False)

    def result(self, id: str, timeout: float | None = None) -> Any:
        """Waits for the job's end; its result. Raises ``JobFailed``, ``JobCancelled``, or ``TimeoutError``."""
        self.get(id)
        with _reachable():
            if not self._store.wait_finished(id, timeout):
                raise TimeoutError("the job has not finished in time")
        job = self.get(id)
        if job.status == model.FAILED:
            raise JobFailed(error=job.error)
        if job.status == model.CANCELLED:
            raise JobCancelled()
        return job.result

    def rows_of(self, jobs: Iterable[NewJob]) -> list[Row]:
        """Checks jobs as ``enqueue`` would, adding none; the first that is off raises."""
        now = self._now()
        return [row_of(job, self._tasks, self._settings, now) for job in jobs]

    def add(self, rows: Sequence[Row], on_batch: Callable[[int], None] | None = None) -> tuple[list[str], int]:
        """Adds checked jobs: their ids, and how many were not there already; ``on_batch(done)`` after each batch."""
        ids: list[str] = []
        for start in range(0, len(rows), _BATCH):
            with _reachable():
                ids += self._store.enqueue(rows[start : start + _BATCH])
            if on_batch is not None:
                on_batch(len(ids))
        return ids, sum(row.id == id for row, id in zip(rows, ids, strict=True))

    def _now(self) -> int:
        with _reachable():
            return self._store.now_ms()

    def _change(self, id: str, event: model.Event) -> None:
        with _reachable():
            try:
                refusal = self._store.change(id, event)
            except KeyError:
                raise _unknown(id) from None
            if refusal is not None:
                row = self._store.get(id)
                raise WorkerQueueError(
                    "worker-job-state", hints=[_refusal("" if row is None else row["status"], event)]
                )

    def _pause(self, name: str, paused: bool) -> None:
        if not isinstance(name, str) or QUEUE_NAME.fullmatch(name) is None:
            raise invalid("queue: must match [a-z0-9._-]{1,64}")
        with _reachable():
            self._store.pause(name, paused)


class _Closed:
    """Stands where the store was."""

    def __getattr__(self, _name: str) -> Any:
        raise WorkerQueueError("worker-queue-unavailable", hints=["this Queue was closed; open another one"])

    def close(self) -> None:
        """Closing twice is no mistake."""


def _unknown(id: object) -> WorkerQueueError:
    rule = "no job has this id, or it was removed" if is_id(id) else "an id has 36 characters, as enqueue returned it"
    return WorkerQueueError("worker-job-unknown", hints=[rule])


def _refusal(status: str, event: model.Event) -> str:
    """What the job is, and what it would have to be."""
    if isinstance(event, model.Cancel):
        return f"is {status}; only a job that has not finished can be cancelled"
    if status in (model.FAILED, model.CANCELLED):
        return f"is {status}, but another unfinished job has its unique key"
    return f"is {status}; only a failed or cancelled job can be retried"


class _reachable:  # noqa: N801  reads as the statement it is
    """Turns the store's word for being away into the public error, at this one edge."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, StoreUnavailable):
            raise WorkerQueueError("worker-queue-unavailable", hints=[error.rule]) from error


def _load(entry_point: str) -> Any:
    import importlib

    module, _, attribute = entry_point.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        remedy = getattr(error, "remedy", None)
        hint = f"{entry_point} is missing" if remedy is None else f"a library is missing; run {remedy}"
        raise WorkerQueueError("worker-queue-unavailable", hints=[f"app.modules: {hint}"]) from error


def _status(status: str | None) -> str | None:
    if status is not None and status not in model.STATUSES:
        raise invalid(f"status: must be one of {', '.join(model.STATUSES)}")
    return status


def _counts(found: Mapping[str, Any], now: int) -> QueueCounts:
    oldest = found.get("oldest_run_at")
    return QueueCounts(
        paused=bool(found.get("paused", False)),
        **{status: found.get(status, 0) for status in model.STATUSES},
        oldest_queued_seconds=None if oldest is None else max(now - oldest, 0) / 1000,
    )
