"""Ends claims that nobody works on any more: of a process that is gone, or whose lease has ended."""

from __future__ import annotations

from platform_worker.jobs import model
from platform_worker.jobs.ids import luck
from platform_worker.sources.postgres.functions import LIFE
from platform_worker.sources.postgres.rows import APPLY, changes_json, life_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.jobs.policies import Backoff
    from platform_worker.sources.postgres.connection import Connection, Patience, Value
    from platform_worker.tasks.contract import WorkerIdentity

#: What one statement ends at most: more would hold up the others.
BATCH = 100

#: A handler has this long after JobTimeout before its process is ended; only then has the deadline ended it.
DEADLINE_GRACE_MS = 1000

_CLAIMS = f"SELECT j.seq, {LIFE}, j.deadline, {{s}}.now_ms() FROM {{s}}.jobs j WHERE j.status = 'processing'"
# The clock once for the whole statement: asked for each row, it would be no use to the index.
_EXPIRED = f"{_CLAIMS} AND j.lease_until <= (SELECT {{s}}.now_ms()) ORDER BY j.lease_until LIMIT {BATCH}"
# A generation begins only when no process of the one before is left, an incarnation when the one before is gone.
_GONE = f"""{_CLAIMS} AND j.pool_id = $1
    AND (j.generation < $2 OR (j.generation = $2 AND j.slot = $3 AND j.incarnation < $4)) LIMIT {BATCH}"""


def end_expired(connection: Connection, backoff: Backoff, patience: Patience | None) -> int:
    """Ends the claims whose lease has ended; how many."""
    return _end_all(connection, _EXPIRED, (), backoff, patience)


def end_gone(connection: Connection, who: WorkerIdentity, backoff: Backoff, patience: Patience | None) -> int:
    """Ends the claims of this pool's older generations, and of this slot's older incarnations; how many."""
    return _end_all(
        connection, _GONE, (who.pool_id, who.generation, who.slot, who.incarnation), backoff, patience
    )  # fmt: skip


def _end_all(
    connection: Connection, claims: str, values: tuple[Value, ...], backoff: Backoff, patience: Patience | None
) -> int:
    count = 0
    while True:
        found = connection.run(claims, *values, patience=patience)
        keys, lives, changes = [], [], []
        for key, text, deadline, now in found:
            life = life_of(text)
            overdue = deadline is not None and int(now or 0) >= int(deadline) + DEADLINE_GRACE_MS
            event: model.Event = model.TimedOut(life.token, luck()) if overdue else model.Lost(life.token, luck())
            keys.append(key)
            lives.append(text)
            changes.append(changes_json(model.decide(life, event, int(now or 0), backoff).changes))
        if not keys:
            return count
        # Skips what somebody else is just at: a claim that is renewed or settled meanwhile stays as it is.
        ((done,),) = connection.run(APPLY, keys, lives, changes, True, patience=patience)
        ended = len((done or "{}").strip("{}").split(",")) if done != "{}" else 0
        count += ended
        if len(found) < BATCH or not ended:
            return count
