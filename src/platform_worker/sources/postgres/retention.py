"""Removes jobs that finished long ago, a batch at a time, in the order of enqueueing."""

from __future__ import annotations

from platform_worker.jobs import model

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.sources.postgres.connection import Connection, Patience

#: One statement removes so many jobs at most, and looks at so many.
REMOVED, LOOKED_AT = 200, 2000

# Skips what somebody is just at. The last row says where to go on, also where nothing was removed.
_REMOVE = f"""WITH looked AS (
        SELECT seq, status, finished_at FROM {{s}}.jobs WHERE seq > $1 ORDER BY seq LIMIT {LOOKED_AT}
    ), old AS (
        SELECT seq FROM looked WHERE status = ANY($2::text[])
        AND finished_at < CASE WHEN $4 THEN (SELECT {{s}}.now_ms()) - $3::bigint ELSE $3::bigint END
        ORDER BY seq LIMIT {REMOVED}
    ), free AS (
        SELECT j.seq FROM {{s}}.jobs j JOIN old USING (seq) WHERE j.finished_at IS NOT NULL FOR UPDATE OF j SKIP LOCKED
    ), removed AS (
        DELETE FROM {{s}}.jobs j USING free WHERE j.seq = free.seq RETURNING 1
    )
    SELECT (SELECT count(*) FROM removed), (SELECT count(*) FROM old), (SELECT max(seq) FROM old),
        (SELECT count(*) FROM looked), (SELECT max(seq) FROM looked)"""


def remove_finished(
    connection: Connection, limit: int, status: str | None, after: int, patience: Patience | None, *, age: bool
) -> tuple[int, int]:
    """Removes the next jobs that finished before ``limit``, of those enqueued after the job ``after``.

    With ``age`` the limit is how long ago. Returns how many, and where to go on: 0 where the end was reached.
    """
    statuses = sorted(model.FINISHED) if status is None else [status]
    ((removed, old, last_old, looked, last),) = connection.run(
        _REMOVE, after, statuses, limit, age, patience=patience
    )  # fmt: skip
    if int(old or 0) == REMOVED:
        return int(removed or 0), int(last_old or 0)
    return int(removed or 0), int(last or 0) if int(looked or 0) == LOOKED_AT else 0
