"""The tables of the SQLite store, and how a file gets them. All names are prefixed: the file may be the application's.

The claim needs one seek in ``…_waiting`` for the first job of the lowest priority of a queue; only where that one is
not due yet, the next priority is looked at. So it costs the same with a million jobs queued or delayed.
Large data lives in its own table, since SQLite writes a whole row again for each change of it.
"""

from __future__ import annotations

VERSION = 1
JOBS = "platform_worker_jobs"
DATA = "platform_worker_data"
PAUSED = "platform_worker_paused"
META = "platform_worker_meta"

#: Data up to this size stays in the job's row; more would be copied at every change of it.
INLINE_BYTES = 1024

#: What a claim and a settlement add to a row, about. A row that grows in a full page has the page split and its
#: neighbours rewritten; so it is enqueued with this much room, which the claim gives up.
ROOM_BYTES = 80

STATEMENTS = (
    f"CREATE TABLE IF NOT EXISTS {META} (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    f"""CREATE TABLE IF NOT EXISTS {JOBS} (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of enqueueing; never used twice
        status TEXT NOT NULL,
        token INTEGER NOT NULL DEFAULT 0,      -- fencing token: grows with every claim, never reset
        attempt INTEGER NOT NULL DEFAULT 0,
        max_attempts INTEGER NOT NULL,
        interruptions INTEGER NOT NULL DEFAULT 0,
        losses INTEGER NOT NULL DEFAULT 0,
        cancel_requested INTEGER NOT NULL DEFAULT 0,
        run_at INTEGER NOT NULL,               -- wall clock, ms
        backoff_ms INTEGER NOT NULL,
        timeout_ms INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        lease_until INTEGER,                   -- boot clock, ms, of the boot in lease_boot
        lease_boot TEXT,
        deadline INTEGER,                      -- boot clock, ms; null: no timeout
        pool_id TEXT, generation INTEGER, slot INTEGER, incarnation INTEGER, -- who has claimed it
        watched INTEGER NOT NULL DEFAULT 0,    -- somebody waits for its end
        enqueued_at INTEGER NOT NULL, started_at INTEGER, finished_at INTEGER,
        id TEXT NOT NULL, task TEXT NOT NULL, queue TEXT NOT NULL, unique_key TEXT,
        error TEXT, progress TEXT, result TEXT,
        data TEXT,                             -- null: in the table of large data
        room BLOB                              -- until the claim; see ROOM_BYTES
    )""",
    f"CREATE TABLE IF NOT EXISTS {DATA} (seq INTEGER PRIMARY KEY, data TEXT NOT NULL)",
    f"CREATE TABLE IF NOT EXISTS {PAUSED} (queue TEXT PRIMARY KEY) WITHOUT ROWID",
    f"CREATE UNIQUE INDEX IF NOT EXISTS {JOBS}_id ON {JOBS}(id)",
    f"""CREATE INDEX IF NOT EXISTS {JOBS}_waiting ON {JOBS}(queue, priority, run_at, seq)
        WHERE status IN ('queued', 'retry_wait')""",
    f"CREATE INDEX IF NOT EXISTS {JOBS}_held ON {JOBS}(seq) WHERE status = 'processing'",
    # Not of completed jobs: an index of them would be a third of all that a job writes, and is only wanted to count
    # them, and to remove the old ones, both of which can read the table.
    f"""CREATE INDEX IF NOT EXISTS {JOBS}_unsuccessful ON {JOBS}(status, finished_at, queue)
        WHERE status IN ('failed', 'cancelled')""",
    f"""CREATE UNIQUE INDEX IF NOT EXISTS {JOBS}_unique ON {JOBS}(unique_key)
        WHERE unique_key IS NOT NULL AND finished_at IS NULL""",
    f"INSERT OR IGNORE INTO {META} VALUES ('version', {VERSION})",
)
