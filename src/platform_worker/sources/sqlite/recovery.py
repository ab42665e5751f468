"""Ends claims that nobody works on any more: of a process that is gone, or whose lease has ended."""

from __future__ import annotations

from platform_worker.jobs import model
from platform_worker.jobs.ids import luck
from platform_worker.sources.sqlite import clock, rows
from platform_worker.sources.sqlite.schema import JOBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3

    from platform_worker.jobs.policies import Backoff
    from platform_worker.tasks.contract import WorkerIdentity

#: A batch is one transaction; more than this would hold up the others.
BATCH = 100

#: A handler has this long after JobTimeout before its process is ended; only then has the deadline ended it.
DEADLINE_GRACE_MS = 1000

#: Claims of older generations, and of older incarnations of the slot.
_GONE = "pool_id=? AND (generation<? OR (generation=? AND slot=? AND incarnation<?))"

_CLAIM = f"SELECT seq, token, deadline, lease_boot, id FROM {JOBS} WHERE status='processing'"


def expired(connection: sqlite3.Connection, boot: str) -> bool:
    """Whether some lease has ended; only looks."""
    found = connection.execute(
        f"SELECT 1 FROM {JOBS} WHERE status='processing' AND (lease_until<=? OR lease_boot<>?) LIMIT 1",
        (clock.boot_ms(), boot),
    )
    return found.fetchone() is not None


def end_expired(connection: sqlite3.Connection, boot: str, backoff: Backoff) -> list[tuple[str, bool]]:
    """Ends the claims whose lease has ended: the jobs' ids, and whether somebody waits for the end of each."""
    claims = connection.execute(
        f"{_CLAIM} AND (lease_until<=? OR lease_boot<>?) LIMIT {BATCH}", (clock.boot_ms(), boot)
    ).fetchall()
    return _end(connection, claims, boot, backoff)


def end_gone(
    connection: sqlite3.Connection, identity: WorkerIdentity, boot: str, backoff: Backoff
) -> list[tuple[str, bool]]:
    """Ends the claims of this pool's older generations, and of this slot's older incarnations.

    A generation begins only when no process of the one before is left, an incarnation when the one before is gone.
    """
    claims = connection.execute(f"{_CLAIM} AND {_GONE} LIMIT {BATCH}", _older(identity)).fetchall()
    return _end(connection, claims, boot, backoff)


def gone(connection: sqlite3.Connection, identity: WorkerIdentity) -> bool:
    """Whether there is a claim for ``end_gone``; only looks, so a boot with nothing to recover needs no lock."""
    found = connection.execute(f"SELECT 1 FROM {JOBS} WHERE status='processing' AND {_GONE} LIMIT 1", _older(identity))
    return found.fetchone() is not None


def _older(identity: WorkerIdentity) -> tuple[str, int, int, int, int]:
    return identity.pool_id, identity.generation, identity.generation, identity.slot, identity.incarnation


def _end(
    connection: sqlite3.Connection, claims: list[tuple[int, int, int | None, str, str]], boot: str, backoff: Backoff
) -> list[tuple[str, bool]]:
    now, now_boot = clock.wall_ms(), clock.boot_ms()
    ended = []
    for seq, token, deadline, lease_boot, job_id in claims:
        overdue = deadline is not None and lease_boot == boot and now_boot >= deadline + DEADLINE_GRACE_MS
        event: model.Event = model.TimedOut(token, luck()) if overdue else model.Lost(token, luck())
        ended.append((job_id, rows.end_claim(connection, seq, event, now, backoff)[1]))
    return ended
