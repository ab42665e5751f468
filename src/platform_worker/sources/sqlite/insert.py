"""Adding jobs: in our own transaction, or in one of the caller's."""

from __future__ import annotations

import os

from platform_worker.jobs.model import QUEUED
from platform_worker.sources.sqlite.schema import DATA, INLINE_BYTES, JOBS, ROOM_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from platform_worker.jobs.store import Row

_COLUMNS = """status, max_attempts, run_at, backoff_ms, timeout_ms, priority, enqueued_at,
    id, task, queue, unique_key, data, room"""


def insert(connection: sqlite3.Connection, new: Sequence[Row], schema: str = "main") -> list[str]:
    """Adds the jobs; for each its id, or that of the unfinished job that has its unique key."""
    cursor = connection.cursor()
    cursor.row_factory = None
    statement = f"INSERT INTO {schema}.{JOBS} ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,zeroblob({ROOM_BYTES}))"
    if len(new) > 1 and all(row.unique is None and len(row.data) <= INLINE_BYTES for row in new):
        cursor.executemany(statement, [_values(row) for row in new])
        return [row.id for row in new]
    ids = []
    for row in new:
        if row.unique is not None:
            held = cursor.execute(
                f"SELECT id FROM {schema}.{JOBS} WHERE unique_key=? AND finished_at IS NULL", (row.unique,)
            ).fetchone()
            if held is not None:
                ids.append(held[0])
                continue
        cursor.execute(statement, _values(row))
        if len(row.data) > INLINE_BYTES:
            cursor.execute(f"INSERT INTO {schema}.{DATA} VALUES (?,?)", (cursor.lastrowid, row.data))
        ids.append(row.id)
    return ids


def _values(row: Row) -> tuple[object, ...]:
    data = row.data if len(row.data) <= INLINE_BYTES else None
    return (
        QUEUED, row.max_attempts, row.run_at, row.backoff_ms, row.timeout_ms, row.priority, row.enqueued_at,
        row.id, row.task, row.queue, row.unique, data,
    )  # fmt: skip


def schema_of(connection: sqlite3.Connection, path: str) -> str | None:
    """The name under which a connection has the database at ``path``: main, or attached."""
    cursor = connection.cursor()
    cursor.row_factory = None
    for _, name, file in cursor.execute("PRAGMA database_list").fetchall():
        if file and os.path.exists(file) and os.path.samefile(file, path):
            quoted = str(name).replace('"', '""')
            return f'"{quoted}"'
    return None
