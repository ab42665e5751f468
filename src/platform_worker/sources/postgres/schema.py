"""The versions of the schema, and how a database gets them. All objects are in one schema of their own.

A claim is one seek in ``jobs_waiting`` for the first priority of a queue, and one for its first due job; it costs the
same with a million jobs queued or delayed. There is no index of completed jobs: it would be a write a job, and is only
wanted to count them and to remove the old ones, both of which can read the table.
"""

from __future__ import annotations

import hashlib

from platform_worker.sources.postgres import functions

VERSION = 1

_TABLES = """
CREATE TABLE {s}.meta (version integer NOT NULL);
CREATE TABLE {s}.paused (queue text PRIMARY KEY);
CREATE TABLE {s}.jobs (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order of enqueueing
    token bigint NOT NULL DEFAULT 0,              -- fencing token: grows with every claim, never reset
    run_at bigint NOT NULL,                       -- all times: this server's clock, ms since 1970
    enqueued_at bigint NOT NULL,
    started_at bigint,
    finished_at bigint,
    lease_until bigint,
    deadline bigint,                              -- null: no timeout
    generation bigint,
    incarnation bigint,
    attempt integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    interruptions integer NOT NULL DEFAULT 0,
    losses integer NOT NULL DEFAULT 0,
    cancel_requested integer NOT NULL DEFAULT 0,
    backoff_ms integer NOT NULL,
    timeout_ms integer NOT NULL,
    priority integer NOT NULL,
    slot integer,
    watched boolean NOT NULL DEFAULT false,       -- somebody waits for its end
    id uuid NOT NULL,
    status text NOT NULL DEFAULT 'queued',
    queue text NOT NULL,
    task text NOT NULL,
    pool_id text,
    unique_key text,
    error text,
    progress text,
    result text,
    data text NOT NULL                            -- JSON as text, as it was given
) WITH (
    -- Room in its page for the next version of a row: a claim and a settlement then write to one page.
    fillfactor = 70,
    -- Most rows change twice in their life and soon: what is left of them is cleared away early.
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 2000
);
CREATE UNIQUE INDEX jobs_id ON {s}.jobs (id);
CREATE INDEX jobs_waiting ON {s}.jobs (queue, priority, run_at, seq) WHERE status IN ('queued', 'retry_wait');
CREATE INDEX jobs_held ON {s}.jobs (lease_until) WHERE status = 'processing';
CREATE INDEX jobs_unsuccessful ON {s}.jobs (status, queue, seq) WHERE status IN ('failed', 'cancelled');
CREATE UNIQUE INDEX jobs_unique ON {s}.jobs (unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL;
"""

#: From each version to the next. What is here is never changed, only added to.
MIGRATIONS: tuple[str, ...] = (_TABLES + functions.CREATE,)


def quoted(schema: str) -> str:
    """The schema's name in a statement; it may be a word of SQL."""
    return f'"{schema}"'


def lock_key(schema: str, purpose: str) -> int:
    """The advisory lock for a purpose, of this schema alone."""
    digest = hashlib.sha256(f"platform-worker {schema} {purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def bell_channel(schema: str) -> str:
    """Where waiting workers are woken; what is said is the name of a queue."""
    return f"platform_worker:{schema}"


def result_channel(job_id: str) -> str:
    """Where the end of one job is told."""
    return f"platform_worker:{job_id}"


def migration(schema: str, version: int) -> str:
    """The statements that lead from ``version`` to the next one."""
    text = MIGRATIONS[version]
    for name, value in (
        ("{s}", quoted(schema)),
        ("{bell}", f"'{bell_channel(schema)}'"),
        ("{result}", f"'{result_channel('')}'"),
        ("{waiters}", f"{lock_key(schema, 'waiters')}::bigint"),
    ):
        text = text.replace(name, value)
    return text
