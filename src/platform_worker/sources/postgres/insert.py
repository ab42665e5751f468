"""Adding jobs: in our own transaction, or in one of the caller's."""

from __future__ import annotations

from platform_worker.errors import WorkerUsageError
from platform_worker.sources.postgres import schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from platform_worker.jobs.store import Row
    from platform_worker.sources.postgres.connection import Connection, Value

_ENQUEUE = "SELECT o_now, o_ids FROM {s}.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, false, $11)"
_ENQUEUE_IN = """SELECT o_ids::text[]
    FROM {s}.enqueue(%s::uuid[], %s, %s, %s, %s::bigint[], %s, %s, %s, %s::text[], %s, true, false)"""
_RING = "SELECT {s}.ring($1)"


def insert(connection: Connection, new: Sequence[Row], again: bool = False) -> tuple[list[str], int]:
    """Adds the jobs and then wakes who waits, in one round trip; the ids, and the server's time.

    ``again``: an answer was lost, so they may be there already.
    """
    values = _values(new)
    due = sorted({row.queue for row in new})
    ((now, ids),), _ = connection.run_all([(_ENQUEUE, (*values, again)), (_RING, (due,))])
    return [row.id for row in new] if ids is None else ids.strip("{}").split(","), int(now or 0)


def insert_in(connection: object, schema_name: str, new: Sequence[Row]) -> list[str]:
    """In the caller's transaction, whose commit wakes who waits; its own errors are the caller's."""
    import psycopg
    from psycopg.rows import tuple_row

    if not isinstance(connection, psycopg.Connection):
        raise WorkerUsageError("worker-job-invalid", hints=["connection: must be a psycopg.Connection (psycopg 3)"])
    statement = _ENQUEUE_IN.replace("{s}", schema.quoted(schema_name)).encode()
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(statement, [_typed(value) for value in _values(new)]).fetchone()
    ids: list[str] | None = None if row is None else row[0]
    return [row.id for row in new] if ids is None else ids


def _typed(value: Value) -> Value:
    return list(value) if isinstance(value, tuple) else value


def _values(new: Sequence[Row]) -> tuple[Value, ...]:
    """The columns; what is to run at once gets its time from the server."""
    unique = tuple([row.unique for row in new])
    if any(key is not None and "\0" in key for key in unique):
        # Everything else is JSON, or printable.
        raise WorkerUsageError("worker-job-invalid", hints=["unique: PostgreSQL keeps no text with the character NUL"])
    return (
        tuple([row.id for row in new]),
        tuple([row.task for row in new]),
        tuple([row.queue for row in new]),
        tuple([row.priority for row in new]),
        tuple([None if row.run_at == row.enqueued_at else row.run_at for row in new]),
        tuple([row.max_attempts for row in new]),
        tuple([row.timeout_ms for row in new]),
        tuple([row.backoff_ms for row in new]),
        None if all(key is None for key in unique) else unique,
        tuple([row.data for row in new]),
    )
