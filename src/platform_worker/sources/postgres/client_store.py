"""The side of ``Queue`` of the PostgreSQL store."""

from __future__ import annotations

import time

from platform_worker.jobs import model
from platform_worker.jobs.ids import is_id
from platform_worker.jobs.policies import Backoff
from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.postgres import listing, recovery, retention, rows, schema
from platform_worker.sources.postgres.bell import Bell
from platform_worker.sources.postgres.connection import Connection
from platform_worker.sources.postgres.insert import insert, insert_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from platform_worker.jobs.store import Filter, Row

#: A lost ring costs the waiter this much.
_LOOK_AGAIN_MS = 1000
#: How long the server's clock is reckoned by ours before it is asked again, seconds.
_CLOCK_SECONDS = 30.0
#: Counting millions takes a while; seconds.
_ANSWER_SECONDS = 120.0

# Nothing where the job has ended, or is gone; written once.
_WATCH = """WITH watched AS (
        UPDATE {s}.jobs SET watched = true WHERE id = $1 AND finished_at IS NULL AND NOT watched RETURNING 1
    ) SELECT 1 FROM watched UNION ALL SELECT 1 FROM {s}.jobs WHERE id = $1 AND finished_at IS NULL"""
_PAUSE = "INSERT INTO {s}.paused VALUES ($1) ON CONFLICT DO NOTHING"
_RESUME = "WITH gone AS (DELETE FROM {s}.paused WHERE queue = $1) SELECT 1"


class PostgresClientStore:
    """Implements ``jobs.store.ClientStore``. For one thread at a time."""

    def __init__(self, url: str, schema_name: str, queue: Mapping[str, Any]) -> None:
        self._url = url
        self._connection = Connection(url, schema_name, seconds=_ANSWER_SECONDS)
        self._backoff = Backoff(int(queue["backoff_max_ms"]), float(queue["backoff_jitter"]))
        #: The server's clock less our monotonic one, in milliseconds, and when that was found out.
        self._offset = 0.0
        self._asked = float("-inf")
        self._ask()

    def now_ms(self) -> int:
        if time.monotonic() - self._asked > _CLOCK_SECONDS:
            self._ask()
        return int(time.monotonic() * 1000 + self._offset)

    def enqueue(self, new: Sequence[Row], connection: object | None = None) -> list[str]:
        if connection is not None:
            return insert_in(connection, self._connection.schema, new)
        began = time.monotonic()
        try:
            ids, now = insert(self._connection, new)
        except StoreUnavailable as error:
            if not error.transient:
                raise
            # Perhaps the session was cut, and nobody knows whether before or after.
            began = time.monotonic()
            ids, now = insert(self._connection, new, again=True)
        self._learn(began, now)
        return ids

    def get(self, id: str) -> Mapping[str, Any] | None:
        found = listing.job_rows(self._connection, "id = $1", (id,), 1)
        return found[0] if found else None

    def jobs(self, wanted: Filter, limit: int, after: str | None) -> list[Mapping[str, Any]]:
        where, values = listing.where_of(wanted)
        if after is not None:
            values.append(self._seq(after))
            where += f" AND seq < ${len(values)}"
        return listing.job_rows(self._connection, where, values, limit)

    def change(self, id: str, event: model.Event) -> str | None:
        return rows.apply_event(self._connection, self._seq(id), event, self._backoff)

    def ids(self, wanted: Filter) -> Iterable[str]:
        where, values = listing.where_of(wanted)
        found = self._connection.run(f"SELECT id FROM {{s}}.jobs WHERE {where} ORDER BY seq", *values)
        return [str(id) for (id,) in found]

    def purge(self, finished_before: int, status: str | None) -> int:
        count = after = 0
        while after >= 0:
            removed, after = retention.remove_finished(
                self._connection, finished_before, status, after, None, age=False
            )  # fmt: skip
            count += removed
            after = after or -1
        return count

    def recover(self) -> int:
        return recovery.end_expired(self._connection, self._backoff, None)

    def counts(self) -> dict[str, dict[str, Any]]:
        return listing.counts(self._connection)

    def pause(self, queue: str, paused: bool) -> None:
        if paused:
            self._connection.run(_PAUSE, queue)
        else:
            self._connection.run_all([(_RESUME, (queue,)), ("SELECT {s}.ring($1)", ([queue],))])

    def wait_finished(self, id: str, timeout: float | None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        connection = Connection(self._url, self._connection.schema)
        bell = Bell(connection, schema.result_channel(id), lambda _: True, count=False)
        try:
            while True:
                bell.show()
                left = _LOOK_AGAIN_MS if until is None else int((until - time.monotonic()) * 1000)
                try:
                    # Between the look before and the bell it may have ended: this look is the one that counts.
                    if not self._connection.run(_WATCH, id):
                        return True
                except StoreUnavailable as error:
                    if left <= 0 or not error.transient:
                        raise
                if left <= 0:
                    return False
                bell.wait(-1, min(left, _LOOK_AGAIN_MS))
        finally:
            bell.close()

    def close(self) -> None:
        self._connection.close()

    def _seq(self, id: str) -> str:
        found = self._connection.run("SELECT seq FROM {s}.jobs WHERE id = $1", id) if is_id(id) else []
        if not found:
            raise KeyError(id)
        return str(found[0][0])

    def _ask(self) -> None:
        began = time.monotonic()
        ((now,),) = self._connection.run("SELECT {s}.now_ms()")
        self._learn(began, int(now or 0))

    def _learn(self, began: float, now: int) -> None:
        # By when we asked, not by when we heard: our reckoning is never behind the server's clock.
        self._offset, self._asked = now - began * 1000, time.monotonic()
