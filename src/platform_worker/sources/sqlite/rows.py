"""From rows to lives and back: reads what the model needs, writes what it decided. Inside a caller's transaction."""

from __future__ import annotations

import json

from platform_worker.jobs import model
from platform_worker.sources.sqlite import clock
from platform_worker.sources.sqlite.schema import JOBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from typing import Any

    from platform_worker.jobs.policies import Backoff
    from platform_worker.jobs.store import Claimed

#: The columns of ``model.Life``, in its order.
LIFE = "status, token, attempt, max_attempts, interruptions, losses, cancel_requested, run_at, backoff_ms"

_updates: dict[tuple[str, ...], str] = {}


def life_of(connection: sqlite3.Connection, seq: int) -> tuple[model.Life, int] | None:
    """A job's life and whether somebody waits for its end, or ``None`` where the job is gone."""
    row = connection.execute(f"SELECT {LIFE}, watched FROM {JOBS} WHERE seq=?", (seq,)).fetchone()
    return None if row is None else (model.Life(*row[:9]), row[9])


def write(connection: sqlite3.Connection, seq: int, changes: dict[str, Any]) -> None:
    """Writes a decision's changes."""
    if not changes:
        return
    columns = tuple(changes)
    statement = _updates.get(columns)
    if statement is None:
        assignments = ", ".join(f"{column}=?" for column in columns)
        statement = _updates[columns] = f"UPDATE {JOBS} SET {assignments} WHERE seq=?"
    if changes.get("error") is not None:
        changes = {**changes, "error": json.dumps(changes["error"], ensure_ascii=False, separators=(",", ":"))}
    connection.execute(statement, (*changes.values(), seq))


def complete(connection: sqlite3.Connection, claimed: Claimed, event: model.Complete, backoff: Backoff) -> bool:
    """Completes a job without reading it first; false where that cannot be, and ``end_claim`` says why.

    What completing does depends on status and token alone: the model is asked with what the claim was, and the
    statement holds only if it still is so and nobody waits to be told.
    """
    life = model.Life(model.PROCESSING, claimed.token, claimed.attempt, claimed.max_attempts, 0, 0, 0, 0, 0)
    changes = model.decide(life, event, clock.wall_ms(), backoff).changes
    cursor = connection.execute(
        f"""UPDATE {JOBS} SET status=?, finished_at=?, result=?, error=?
            WHERE seq=? AND token=? AND status='processing' AND watched=0""",
        (changes["status"], changes["finished_at"], changes["result"], changes["error"], claimed.key, claimed.token),
    )
    return cursor.rowcount == 1


def end_claim(
    connection: sqlite3.Connection, seq: int, event: model.Event, now: int, backoff: Backoff
) -> tuple[str | None, bool]:
    """Applies one event to one job: a refusal or ``None``, and whether somebody who waits must be told."""
    found = life_of(connection, seq)
    if found is None:
        return model.STALE, False
    life, watched = found
    decision = model.decide(life, event, now, backoff)
    write(connection, seq, decision.changes)
    return decision.refusal, bool(watched) and decision.changes.get("status") in model.FINISHED
