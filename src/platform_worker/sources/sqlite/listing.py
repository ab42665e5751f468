"""Reading jobs for a person: whole rows, and counts."""

from __future__ import annotations

from platform_worker.jobs import model
from platform_worker.sources.sqlite.schema import DATA, JOBS, PAUSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from typing import Any

_COLUMNS = (
    "id", "task", "queue", "priority", "status", "attempt", "max_attempts", "interruptions", "cancel_requested",
    "enqueued_at", "run_at", "started_at", "finished_at", "result", "error", "progress", "unique_key",
)  # fmt: skip


def job_rows(connection: sqlite3.Connection, where: str, values: Sequence[Any], limit: int) -> list[Mapping[str, Any]]:
    """Whole jobs, newest first, by the names of ``Job``."""
    found = connection.execute(
        f"""SELECT {", ".join(_COLUMNS)}, coalesce(data, (SELECT data FROM {DATA} d WHERE d.seq={JOBS}.seq))
            FROM {JOBS} WHERE {where} ORDER BY seq DESC LIMIT ?""",
        (*values, limit),
    ).fetchall()
    names = (*_COLUMNS[:-1], "unique", "data")
    return [dict(zip(names, row, strict=True)) for row in found]


def counts(connection: sqlite3.Connection, now: int) -> dict[str, dict[str, Any]]:
    """By queue: jobs by status, whether it is paused, and since when the oldest claimable job has been due."""
    queues: dict[str, dict[str, Any]] = {}

    def of(queue: str) -> dict[str, Any]:
        if queue not in queues:
            queues[queue] = {**dict.fromkeys(model.STATUSES, 0), "paused": False, "oldest_run_at": None}
        return queues[queue]

    # Each from its own index but for the last, which reads the table.
    for condition in (
        "status IN ('queued', 'retry_wait')",
        "status='processing'",
        "status IN ('failed', 'cancelled')",
        "status='completed'",
    ):
        for queue, status, count in connection.execute(
            f"SELECT queue, status, count(*) FROM {JOBS} WHERE {condition} GROUP BY queue, status"
        ):
            of(queue)[status] = count
    for queue, oldest in connection.execute(
        f"SELECT queue, min(run_at) FROM {JOBS} WHERE status IN ('queued', 'retry_wait') AND run_at<=? GROUP BY queue",
        (now,),
    ):
        of(queue)["oldest_run_at"] = oldest
    for (queue,) in connection.execute(f"SELECT queue FROM {PAUSED}"):
        of(queue)["paused"] = True
    return queues
