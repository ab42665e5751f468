"""The side of ``Queue`` of the SQLite store."""

from __future__ import annotations

import os
import time

from platform_worker.errors import WorkerUsageError
from platform_worker.jobs import model
from platform_worker.jobs.policies import Backoff
from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.sqlite import bell, clock, recovery, retention, rows
from platform_worker.sources.sqlite.database import Database, prepare
from platform_worker.sources.sqlite.insert import insert, schema_of
from platform_worker.sources.sqlite.listing import counts, job_rows
from platform_worker.sources.sqlite.schema import JOBS, PAUSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    from platform_worker.jobs.store import Filter, Row

    T = TypeVar("T")

#: How long a caller waits for other writers before it is told.
_LOCK_SECONDS = 30.0
#: A lost ring costs the waiter this much.
_LOOK_AGAIN_MS = 1000


class _Patience:
    """Waits for the write lock for a bounded time."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _LOCK_SECONDS

    def __call__(self, seconds: float) -> None:
        if time.monotonic() > self._until:
            raise StoreUnavailable("sqlite.path: another process holds the write lock")
        time.sleep(seconds)


class SqliteClientStore:
    """Implements ``jobs.store.ClientStore``. For one thread at a time."""

    def __init__(self, path: str, synchronous: str, queue: Mapping[str, Any]) -> None:
        prepare(path)
        self._path = path
        self._database = Database(path, synchronous)
        self._backoff = Backoff(int(queue["backoff_max_ms"]), float(queue["backoff_jitter"]))
        self._read(lambda connection: connection.in_transaction)

    def now_ms(self) -> int:
        return clock.wall_ms()

    def enqueue(self, new: Sequence[Row], connection: object | None = None) -> list[str]:
        ids = self._insert_in(connection, new) if connection is not None else self._write(lambda own: insert(own, new))
        bell.ring(self._path, bell.WORKER)
        return ids

    def get(self, id: str) -> Mapping[str, Any] | None:
        found = self._read(lambda connection: job_rows(connection, "id=?", (id,), 1))
        return found[0] if found else None

    def jobs(self, wanted: Filter, limit: int, after: str | None) -> list[Mapping[str, Any]]:
        def work(connection: sqlite3.Connection) -> list[Mapping[str, Any]]:
            where, values = _where(wanted)
            if after is not None:
                where += " AND seq<?"
                values.append(_seq(connection, after))
            return job_rows(connection, where, values, limit)

        return self._read(work)

    def change(self, id: str, event: model.Event) -> str | None:
        def work(connection: sqlite3.Connection) -> tuple[str | None, bool]:
            seq = _seq(connection, id)
            if isinstance(event, model.Retry) and _key_is_taken(connection, seq):
                return model.WRONG_STATE, False
            return rows.end_claim(connection, seq, event, clock.wall_ms(), self._backoff)

        refusal, tell = self._write(work)
        if tell:
            bell.ring(self._path, f"{bell.RESULT}-{id}")
        if refusal is None and isinstance(event, model.Retry):
            bell.ring(self._path, bell.WORKER)
        return refusal

    def ids(self, wanted: Filter) -> Iterable[str]:
        where, values = _where(wanted)
        return self._read(
            lambda connection: [
                id for (id,) in connection.execute(f"SELECT id FROM {JOBS} WHERE {where} ORDER BY seq", values)
            ]
        )

    def purge(self, finished_before: int, status: str | None) -> int:
        count, after = self._purge_after(0, finished_before, status)
        while after:
            more, after = self._purge_after(after, finished_before, status)
            count += more
        return count

    def recover(self) -> int:
        boot = clock.boot_id()
        count = 0
        while ended := self._write(lambda connection: recovery.end_expired(connection, boot, self._backoff)):
            count += len(ended)
            for job_id, tell in ended:
                if tell:
                    bell.ring(self._path, f"{bell.RESULT}-{job_id}")
        if count:
            bell.ring(self._path, bell.WORKER)
        return count

    def counts(self) -> dict[str, dict[str, Any]]:
        return self._read(lambda connection: counts(connection, clock.wall_ms()))

    def pause(self, queue: str, paused: bool) -> None:
        statement = f"INSERT OR IGNORE INTO {PAUSED} VALUES (?)" if paused else f"DELETE FROM {PAUSED} WHERE queue=?"
        self._write(lambda connection: connection.execute(statement, (queue,)) and None)
        if not paused:
            bell.ring(self._path, bell.WORKER)

    def wait_finished(self, id: str, timeout: float | None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        own = bell.Bell(self._path, f"{bell.RESULT}-{id}")
        try:
            own.show()
            if not self._write(lambda connection: _watch(connection, id)):
                return True
            while True:
                left = _LOOK_AGAIN_MS if until is None else int((until - time.monotonic()) * 1000)
                if left <= 0:
                    return self._finished(id)
                own.wait(-1, min(left, _LOOK_AGAIN_MS))
                if self._finished(id):
                    return True
        finally:
            own.close()

    def close(self) -> None:
        self._database.close()

    def _purge_after(self, after: int, before: int, status: str | None) -> tuple[int, int]:
        found, end = self._read(lambda connection: retention.find_finished(connection, before, status, after))
        removed = self._write(lambda connection: retention.remove(connection, found, before)) if found else 0
        return removed, end

    def _finished(self, id: str) -> bool:
        row = self._read(
            lambda connection: connection.execute(f"SELECT finished_at FROM {JOBS} WHERE id=?", (id,)).fetchone()
        )
        return row is None or row[0] is not None

    def _insert_in(self, connection: Any, new: Sequence[Row]) -> list[str]:
        """In the caller's transaction; its own errors are the caller's."""
        import sqlite3

        if not isinstance(connection, sqlite3.Connection):
            raise WorkerUsageError("worker-job-invalid", hints=["connection: must be an sqlite3.Connection"])
        schema = schema_of(connection, os.path.realpath(self._path))
        if schema is None:
            raise WorkerUsageError(
                "worker-job-invalid", hints=["connection: must have the database of sqlite.path open or attached"]
            )
        return insert(connection, new, schema)

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._database.read(work, _Patience())

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._database.write(work, _Patience())


def _where(wanted: Filter) -> tuple[str, list[Any]]:
    parts, values = ["1"], []
    for column in ("status", "queue", "task"):
        value = getattr(wanted, column)
        if value is not None:
            parts.append(f"{column}=?")
            values.append(value)
    return " AND ".join(parts), values


def _seq(connection: sqlite3.Connection, id: str) -> int:
    row = connection.execute(f"SELECT seq FROM {JOBS} WHERE id=?", (id,)).fetchone()
    if row is None:
        raise KeyError(id)
    return int(row[0])


def _key_is_taken(connection: sqlite3.Connection, seq: int) -> bool:
    row = connection.execute(
        f"""SELECT 1 FROM {JOBS} WHERE finished_at IS NULL AND seq<>?
            AND unique_key=(SELECT unique_key FROM {JOBS} WHERE seq=?)""",
        (seq, seq),
    ).fetchone()
    return row is not None


def _watch(connection: sqlite3.Connection, id: str) -> bool:
    """Marks the job as watched; false where it has ended, or is gone."""
    changed = connection.execute(f"UPDATE {JOBS} SET watched=1 WHERE id=? AND finished_at IS NULL", (id,))
    return changed.rowcount == 1
