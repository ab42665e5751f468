"""Removes jobs that finished long ago, a batch at a time, in the order of enqueueing."""

from __future__ import annotations

from platform_worker.jobs import model
from platform_worker.sources.sqlite.schema import DATA, JOBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3

#: A batch is one transaction. So many jobs are removed by it, and so many are looked at.
REMOVED, LOOKED_AT = 200, 2000


def find_finished(connection: sqlite3.Connection, before: int, status: str | None, after: int) -> tuple[list[int], int]:
    """The next jobs that finished before ``before`` (wall clock, ms), of those enqueued after the job ``after``.

    Returns their keys, and where to go on: 0 where the end was reached. Only looks, and so holds nobody up.
    """
    statuses = model.FINISHED if status is None else {status}
    rows = connection.execute(
        f"SELECT seq, status, finished_at FROM {JOBS} WHERE seq>? ORDER BY seq LIMIT {LOOKED_AT}", (after,)
    ).fetchall()
    found: list[int] = []
    for seq, its_status, finished_at in rows:
        if its_status in statuses and finished_at is not None and finished_at < before:
            found.append(seq)
            if len(found) == REMOVED:
                return found, seq
    return found, rows[-1][0] if len(rows) == LOOKED_AT else 0


def remove(connection: sqlite3.Connection, found: list[int], before: int) -> int:
    """Removes them, but for those that were retried meanwhile; how many. Inside a caller's transaction."""
    count = 0
    for seq in found:
        removed = connection.execute(f"DELETE FROM {JOBS} WHERE seq=? AND finished_at<?", (seq, before)).rowcount
        if removed:
            connection.execute(f"DELETE FROM {DATA} WHERE seq=?", (seq,))
            count += 1
    return count
