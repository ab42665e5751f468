"""Reading jobs for a person: whole rows, and counts."""

from __future__ import annotations

from platform_worker.jobs import model

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from platform_worker.jobs.store import Filter
    from platform_worker.sources.postgres.connection import Connection, Value

_TEXT = ("id", "task", "queue", "status", "data", "result", "error", "progress", "unique_key")
_NUMBERS = (
    "priority", "attempt", "max_attempts", "interruptions", "cancel_requested", "enqueued_at", "run_at", "started_at",
    "finished_at",
)  # fmt: skip
_NAMES = (*_TEXT[:-1], "unique")

# Each from its own index but for the last, which reads the table.
_COUNTS = " UNION ALL ".join(
    f"SELECT queue, status, count(*) FROM {{s}}.jobs WHERE {condition} GROUP BY queue, status"
    for condition in (
        "status IN ('queued', 'retry_wait')",
        "status = 'processing'",
        "status IN ('failed', 'cancelled')",
        "status = 'completed'",
    )
)
_OLDEST = """SELECT queue, min(run_at) FROM {s}.jobs WHERE status IN ('queued', 'retry_wait')
    AND run_at <= (SELECT {s}.now_ms()) GROUP BY queue"""


def job_rows(connection: Connection, where: str, values: Sequence[Value], limit: int) -> list[Mapping[str, Any]]:
    """Whole jobs, newest first, by the names of ``Job``."""
    found = connection.run(
        f"""SELECT {", ".join((*_TEXT, *_NUMBERS))} FROM {{s}}.jobs WHERE {where}
            ORDER BY seq DESC LIMIT {int(limit)}""",
        *values,
    )
    jobs: list[Mapping[str, Any]] = []
    for row in found:
        numbers = (None if value is None else int(value) for value in row[len(_TEXT) :])
        jobs.append(dict(zip((*_NAMES, *_NUMBERS), (*row[: len(_TEXT)], *numbers), strict=True)))
    return jobs


def where_of(wanted: Filter) -> tuple[str, list[Value]]:
    """The condition for a filter, and its values."""
    parts = ["true"]
    values: list[Value] = []
    for column in ("status", "queue", "task"):
        value = getattr(wanted, column)
        if value is not None:
            values.append(value)
            parts.append(f"{column} = ${len(values)}")
    return " AND ".join(parts), values


def counts(connection: Connection) -> dict[str, dict[str, Any]]:
    """By queue: jobs by status, whether it is paused, and since when the oldest claimable job has been due."""
    statements = [(_COUNTS, ()), (_OLDEST, ()), ("SELECT queue FROM {s}.paused", ())]
    counted, oldest, paused = connection.run_all(statements)
    queues: dict[str, dict[str, Any]] = {}

    def of(queue: str | None) -> dict[str, Any]:
        fresh = {**dict.fromkeys(model.STATUSES, 0), "paused": False, "oldest_run_at": None}
        return queues.setdefault(str(queue), fresh)

    for queue, status, count in counted:
        of(queue)[str(status)] = int(count or 0)
    for queue, run_at in oldest:
        of(queue)["oldest_run_at"] = int(run_at or 0)
    for (queue,) in paused:
        of(queue)["paused"] = True
    return queues
