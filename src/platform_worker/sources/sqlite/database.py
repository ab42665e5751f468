"""One connection to the file: how it is opened, how it waits for the write lock, how SQLite's errors become ours.

SQLite's own busy handler sleeps 1, 2, 5, 10 … ms, a hundred times the length of our transactions. So its timeout is
zero here, and the wait is ours: where there is a processor for each worker it first tries for about the length of two
transactions, since a sleep, however short, is followed by a wake-up that the lock stands idle for; then it sleeps, from
20 µs on, and waits on the stop's descriptor, so that a stop ends it.
A lock beside SQLite's own would be fairer, and would let one frozen process hold up all others; so there is none.
"""

from __future__ import annotations

import os
import sqlite3
import time

from platform_worker.jobs import events
from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.sqlite import schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")
    Patience = Callable[[float], None]

_BUSY, _LOCKED, _READONLY, _IOERR, _FULL, _CANTOPEN, _PROTOCOL, _NOTADB, _CORRUPT = 5, 6, 8, 10, 13, 14, 15, 26, 11

#: What a person may look at, by SQLite's primary result code.
_RULES = {
    _BUSY: "sqlite.path: another process holds the write lock",
    _LOCKED: "sqlite.path: the database is locked",
    _READONLY: "sqlite.path: the file and its folder must be writable",
    _IOERR: "sqlite.path: the disk answers with an error",
    _FULL: "sqlite.path: the disk is full",
    _CANTOPEN: "sqlite.path: the file and its folder must be readable and writable",
    _PROTOCOL: "sqlite.path: the file's locks do not work",
    _NOTADB: "sqlite.path: the file is not an SQLite database",
    _CORRUPT: "sqlite.path: the database is damaged",
}
#: These do not pass by themselves.
_LASTING = frozenset({_NOTADB, _CORRUPT})

_PAGE_BYTES = 1024
#: Writes of one connection after which it has the log written back; the log is then some MiB long.
_CHECKPOINT_WRITES = 2000
#: SQLite's own checkpoint, for those who write a lot at once: 16 MiB of log.
_CHECKPOINT_PAGES = 16000
#: How often a checkpoint is tried while others are in its way.
_CHECKPOINT_TRIES = 20

#: How often the write lock is tried before the first pause, where there is a processor for each who shares it.
_SPINS = 20
_FIRST_PAUSE = 0.00002
_LONGEST_PAUSE = 0.01
#: A worker that has waited for a lock this long says so in the log; seconds.
_LONG_WAIT = 1.0


def unavailable(error: sqlite3.Error) -> StoreUnavailable | None:
    """Our word for an error of the machine's; ``None`` for one that is a mistake in a statement."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None or code & 0xFF not in _RULES:
        return None
    return StoreUnavailable(_RULES[code & 0xFF], transient=code & 0xFF not in _LASTING)


def prepare(path: str) -> None:
    """Creates the file, readable by its owner alone, and its folder, where they are missing."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        code = _FULL if error.errno == 28 else _CANTOPEN
        raise StoreUnavailable(_RULES[code], transient=False) from error


class Database:
    """A connection that opens itself again after an error. Not for two threads at once, nor for a forked process.

    ``patience(seconds)`` is how whoever calls waits for a lock; it raises to give up. ``logs``: a long wait is logged.
    """

    def __init__(self, path: str, synchronous: str, *, logs: bool = False) -> None:
        self.path = path
        self._logs = logs
        self._synchronous = "FULL" if synchronous == "full" else "NORMAL"
        self._connection: sqlite3.Connection | None = None
        self._pid = os.getpid()
        self._spins = 0
        # Many connections must not all come to it at once.
        self._writes = self._pid * 7919 % _CHECKPOINT_WRITES

    def share(self, workers: int) -> None:
        """Says how many write: with a processor for each, one who waits takes nobody's by trying at once again."""
        self._spins = _SPINS if workers <= len(os.sched_getaffinity(0)) else 0

    def read(self, work: Callable[[sqlite3.Connection], T], patience: Patience) -> T:
        """``work`` on the connection, outside a transaction: it must only read, in one statement or regardless."""
        try:
            return _insist(lambda: work(self._open(patience)), patience, self._logs)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def write(self, work: Callable[[sqlite3.Connection], T], patience: Patience) -> T:
        """``work`` in one write transaction: all of it happens, or nothing and an error."""
        try:
            connection = self._open(patience)
            _insist(lambda: connection.execute("BEGIN IMMEDIATE"), patience, self._logs, self._spins)
            try:
                value = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self._writes += 1
            if self._writes >= _CHECKPOINT_WRITES:
                self._writes = 0
                _checkpoint(connection)
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return value

    def close(self) -> None:
        """Closes the connection; the next use opens a new one."""
        connection, self._connection = self._connection, None
        # In a forked process the connection is the parent's: left alone, not closed.
        if connection is not None and self._pid == os.getpid():
            connection.close()

    def _failed(self, error: sqlite3.Error) -> Exception:
        if self._connection is not None and getattr(error, "sqlite_errorcode", 0) & 0xFF == _FULL:
            _make_room(self._connection)
        self.close()
        return unavailable(error) or error

    def _open(self, patience: Patience) -> sqlite3.Connection:
        if self._pid != os.getpid():
            # Two processes on one connection damage the file: SQLite's locks belong to the process.
            raise RuntimeError("a forked process must not use the queue of its parent")
        if self._connection is None:
            connection = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            try:
                _set_up(connection, self._synchronous, patience, self._logs)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def _checkpoint(connection: sqlite3.Connection) -> None:
    """Writes the log back into the file, and has the next writer begin it anew.

    SQLite's own way lets the others go on writing meanwhile, so that the log is never wholly written back while they
    do; it then grows without end, and is written back, with a flush to disk, after every single commit.
    """
    pause = _FIRST_PAUSE
    for _ in range(_CHECKPOINT_TRIES):
        if not connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0]:
            return
        time.sleep(pause)
        pause = min(pause * 2, 0.001)


def _make_room(connection: sqlite3.Connection) -> None:
    """Writes the log back into the file, where most pages have their place already: then the log begins anew."""
    try:
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
    except sqlite3.Error:
        # The disk is as full as before; whoever called has the error that matters.
        return


def _set_up(connection: sqlite3.Connection, synchronous: str, patience: Patience, logs: bool) -> None:
    def run(statement: str) -> sqlite3.Cursor:
        return _insist(lambda: connection.execute(statement), patience, logs)

    # For a file that is being made: a commit writes whole pages, and ours change a few bytes of five.
    run(f"PRAGMA page_size={_PAGE_BYTES}")
    run(f"PRAGMA synchronous={synchronous}")
    # A checkpoint writes each changed page once, however often it changed: the fewer, the less is written.
    run(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
    if run("PRAGMA journal_mode").fetchone()[0] != "wal":
        run("PRAGMA journal_mode=WAL")
    if run(f"SELECT 1 FROM sqlite_master WHERE name='{schema.META}'").fetchone() is None:
        run("BEGIN IMMEDIATE")
        for statement in schema.STATEMENTS:
            run(statement)
        run("COMMIT")
    version = run(f"SELECT value FROM {schema.META} WHERE key='version'").fetchone()
    if version is None or version[0] != schema.VERSION:
        raise StoreUnavailable("sqlite.path: the file is of another version of this package", transient=False)


def _insist(attempt: Callable[[], T], patience: Patience, logs: bool, spins: int = 0) -> T:
    """``attempt`` until no lock is in its way; ``spins`` times without a pause."""
    pause, waited, said = _FIRST_PAUSE, 0.0, False
    while True:
        try:
            value = attempt()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (_BUSY, _LOCKED):
                raise
            if logs and not said and waited >= _LONG_WAIT:
                said = True
                events.emit("warning", "worker.queue.unavailable", cause=_RULES[error.sqlite_errorcode & 0xFF])
        else:
            if said:
                events.emit("info", "worker.queue.available")
            return value
        if spins > 0:
            spins -= 1
            os.sched_yield()
            continue
        patience(pause)
        waited += pause
        pause = min(pause * 1.5, _LONGEST_PAUSE)
