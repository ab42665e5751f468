"""Brings a database to this version of the schema: whoever comes first does it, the others wait for it."""

from __future__ import annotations

from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.postgres import errors, schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    import psycopg


def migrate(session: psycopg.Connection, name: str) -> None:
    """Applies what is missing, all in one transaction; the lock is the transaction's, so a pooler may be in between."""
    import psycopg

    try:
        with session.transaction():
            # Somebody who is frozen while at it must not hold up all others for ever.
            _run(session, "SET LOCAL idle_in_transaction_session_timeout = '20s'")
            _run(session, "SET LOCAL lock_timeout = '30s'")
            _run(session, f"SELECT pg_advisory_xact_lock({schema.lock_key(name, 'schema')})")
            version = _version(session, name)
            if version is None:
                if not _first(session, f"SELECT 1 FROM pg_namespace WHERE nspname = '{name}'"):
                    _run(session, f"CREATE SCHEMA {schema.quoted(name)}")
                version = 0
            for step in range(version, schema.VERSION):
                _run(session, schema.migration(name, step))
            if version < schema.VERSION:
                _run(session, f"DELETE FROM {schema.quoted(name)}.meta")
                _run(session, f"INSERT INTO {schema.quoted(name)}.meta VALUES ({schema.VERSION})")
    except psycopg.Error as error:
        found = errors.translated(error.sqlstate or "08006", str(error))
        if isinstance(found, StoreUnavailable):
            raise found from error
        raise


def _version(session: psycopg.Connection, name: str) -> int | None:
    if not _first(session, f"SELECT to_regclass('{schema.quoted(name)}.meta') IS NOT NULL"):
        return None
    return _first(session, f"SELECT version FROM {schema.quoted(name)}.meta") or 0


def _first(session: psycopg.Connection, statement: str) -> int | None:
    row = session.execute(statement.encode()).fetchone()
    return None if row is None else int(row[0])


def _run(session: psycopg.Connection, statement: str) -> None:
    session.execute(statement.encode())
