"""The worker's side of the SQLite store: claim, settle, renew, recover, and the wait for the doorbell."""

from __future__ import annotations

import _thread
import sqlite3
import time

from platform_worker.jobs import model
from platform_worker.jobs.policies import Backoff
from platform_worker.jobs.store import Claimed, Held
from platform_worker.sources.sqlite import bell, clock, recovery, retention, rows
from platform_worker.sources.sqlite.database import Database, prepare
from platform_worker.sources.sqlite.schema import DATA, JOBS, PAUSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from platform_worker.tasks.contract import WorkerIdentity

    Patience = Callable[[float], None]

# Placeholders without numbers: Python 3.12.0 to 3.12.3 take a numbered one for a name, and warn.
_NEXT = f"""SELECT {rows.LIFE}, seq, priority, id, task, timeout_ms, data FROM {JOBS}
    WHERE status IN ('queued', 'retry_wait') AND queue=? AND priority>=?
    AND NOT EXISTS (SELECT 1 FROM {PAUSED} WHERE queue=?) ORDER BY priority, run_at, seq LIMIT 1"""

#: Since 3.35 a statement can say what it has changed.
_RETURNING = sqlite3.sqlite_version_info >= (3, 35)

# What ``model.CLAIM`` does to a job that is due, in one statement; the model's test holds the two together. It is asked
# for the first job of the first queue: where that one is due, none goes before it.
_CLAIM_FIRST = f"""UPDATE {JOBS} SET status='{model.PROCESSING}', token=token+1, attempt=attempt+1, started_at=?,
    lease_until=?, lease_boot=?, deadline=CASE timeout_ms WHEN 0 THEN NULL ELSE ?+timeout_ms END,
    pool_id=?, generation=?, slot=?, incarnation=?, room=NULL
    WHERE run_at<=? AND seq=(SELECT seq FROM {JOBS} WHERE status IN ('queued', 'retry_wait') AND queue=?
        AND NOT EXISTS (SELECT 1 FROM {PAUSED} WHERE queue=?) ORDER BY priority, run_at, seq LIMIT 1)
    RETURNING seq, id, task, queue, attempt, max_attempts, token, timeout_ms, data"""


class SqliteWorkerStore:
    """Implements ``jobs.store.WorkerStore``. ``renew`` and ``look`` have a connection of their own, for any thread."""

    def __init__(self, path: str, synchronous: str, queue: Mapping[str, Any], identity: WorkerIdentity) -> None:
        self._path = path
        self._main = Database(path, synchronous, logs=True)
        self._side = Database(path, synchronous)
        self._side_lock = _thread.allocate_lock()
        self._names = tuple(queue["names"])
        self._lease_ms = int(queue["lease_ms"])
        self._retention_ms = int(queue["retention_ms"])
        self._backoff = Backoff(int(queue["backoff_max_ms"]), float(queue["backoff_jitter"]))
        self._identity = identity
        self._boot = clock.boot_id()
        self._bell = bell.Bell(path, bell.WORKER)
        #: Where the sweep goes on.
        self._swept = 0

    def claim(self, patience: Patience) -> Claimed | None:
        # Looking takes no lock: a worker that finds nothing holds nobody up.
        if self._main.read(self._due, patience) is None:
            return None
        return self._main.write(self._claim, patience)

    def settle(
        self, claimed: Claimed, event: model.Event, patience: Patience, claim_next: bool
    ) -> tuple[bool, Claimed | None]:
        def work(connection: sqlite3.Connection) -> tuple[str | None, bool, Claimed | None]:
            refusal, tell = None, False
            if type(event) is not model.Complete or not rows.complete(connection, claimed, event, self._backoff):
                refusal, tell = rows.end_claim(connection, claimed.key, event, clock.wall_ms(), self._backoff)
            return refusal, tell, self._claim(connection) if claim_next else None

        refusal, tell, following = self._main.write(work, patience)
        if tell:
            bell.ring(self._path, f"{bell.RESULT}-{claimed.id}")
        return refusal is None, following

    def next_due(self) -> int | None:
        soonest = self._main.read(self._soonest, time.sleep)
        return None if soonest is None else max(soonest - clock.wall_ms(), 0)

    def recover_gone(self, worker_count: int, patience: Patience) -> int:
        self._main.share(worker_count)
        prepare(self._path)
        bell.sweep(self._path)
        if not self._main.read(lambda connection: recovery.gone(connection, self._identity), patience):
            return 0
        return self._recover(
            lambda connection: recovery.end_gone(connection, self._identity, self._boot, self._backoff), patience
        )

    def recover_expired(self, patience: Patience) -> int:
        if not self._main.read(lambda connection: recovery.expired(connection, self._boot), patience):
            return 0
        return self._recover(lambda connection: recovery.end_expired(connection, self._boot, self._backoff), patience)

    def sweep(self, patience: Patience) -> int:
        limit = clock.wall_ms() - self._retention_ms
        after = self._swept
        found, self._swept = self._main.read(
            lambda connection: retention.find_finished(connection, limit, None, after), patience
        )
        return self._main.write(lambda connection: retention.remove(connection, found, limit), patience) if found else 0

    def renew(self, claimed: Claimed, progress: str | None) -> Held:
        until = clock.boot_ms() + self._lease_ms

        def work(connection: sqlite3.Connection) -> Held:
            held = self._held(connection, claimed)
            if held.held:
                rows.write(connection, claimed.key, {"lease_until": until, "lease_boot": self._boot})
                if progress is not None:
                    rows.write(connection, claimed.key, {"progress": progress})
            return held

        with self._side_lock:
            return self._side.write(work, time.sleep)

    def look(self, claimed: Claimed) -> Held:
        with self._side_lock:
            return self._side.read(lambda connection: self._held(connection, claimed), time.sleep)

    def wait(self, stop_fd: int, timeout_ms: int) -> bool:
        return self._bell.wait(stop_fd, timeout_ms)

    def listen(self) -> None:
        self._bell.show()

    def unlisten(self) -> None:
        self._bell.hide()

    def close(self) -> None:
        self._bell.close()
        self._main.close()
        with self._side_lock:
            self._side.close()

    def _recover(self, work: Callable[[sqlite3.Connection], list[tuple[str, bool]]], patience: Patience) -> int:
        count = 0
        while True:
            ended = self._main.write(work, patience)
            count += len(ended)
            for job_id, tell in ended:
                if tell:
                    bell.ring(self._path, f"{bell.RESULT}-{job_id}")
            if len(ended) < recovery.BATCH:
                break
        if count:
            bell.ring(self._path, bell.WORKER)
        return count

    def _due(self, connection: sqlite3.Connection) -> tuple[Any, ...] | None:
        """The first due job's row: of the first queue, of the lowest priority number, the longest due."""
        now = clock.wall_ms()
        for name in self._names:
            priority = 0
            while (row := connection.execute(_NEXT, (name, priority, name)).fetchone()) is not None:
                if row[7] <= now:
                    return (*row, name)
                # The first of this priority is not due, so none of it is: on to the next priority that has any.
                priority = row[10] + 1
        return None

    def _soonest(self, connection: sqlite3.Connection) -> int | None:
        soonest: int | None = None
        for name in self._names:
            priority = 0
            while (row := connection.execute(_NEXT, (name, priority, name)).fetchone()) is not None:
                soonest = row[7] if soonest is None else min(soonest, row[7])
                priority = row[10] + 1
        return soonest

    def _claim(self, connection: sqlite3.Connection) -> Claimed | None:
        claimed = self._claim_first(connection) if _RETURNING else None
        return claimed or self._claim_any(connection)

    def _claim_first(self, connection: sqlite3.Connection) -> Claimed | None:
        now, boot, who, name = clock.wall_ms(), clock.boot_ms(), self._identity, self._names[0]
        row = connection.execute(
            _CLAIM_FIRST,
            (
                now, boot + self._lease_ms, self._boot, boot,
                who.pool_id, who.generation, who.slot, who.incarnation,
                now, name, name,
            ),
        ).fetchone()  # fmt: skip
        if row is None:
            return None
        seq, job_id, task, queue, attempt, max_attempts, token, timeout_ms, data = row
        if data is None:
            data = _large(connection, seq)
        return Claimed(seq, job_id, task, queue, attempt, max_attempts, token, timeout_ms, data)

    def _claim_any(self, connection: sqlite3.Connection) -> Claimed | None:
        found = self._due(connection)
        if found is None:
            return None
        life = model.Life(*found[:9])
        seq, _, job_id, task, timeout_ms, data, queue = found[9:]
        decision = model.decide(life, model.CLAIM, clock.wall_ms(), self._backoff)
        if decision.refusal is not None:
            # The wall clock was set back between two looks.
            return None
        if data is None:
            data = _large(connection, seq)
        now = clock.boot_ms()
        who = self._identity
        changes = decision.changes
        token, attempt = changes["token"], changes["attempt"]
        changes["lease_until"] = now + self._lease_ms
        changes["lease_boot"] = self._boot
        changes["deadline"] = now + timeout_ms if timeout_ms else None
        changes["pool_id"] = who.pool_id
        changes["generation"] = who.generation
        changes["slot"] = who.slot
        changes["incarnation"] = who.incarnation
        changes["room"] = None
        rows.write(connection, seq, changes)
        return Claimed(seq, job_id, task, queue, attempt, life.max_attempts, token, timeout_ms, data)

    @staticmethod
    def _held(connection: sqlite3.Connection, claimed: Claimed) -> Held:
        row = connection.execute(
            f"SELECT status='processing' AND token=?, cancel_requested FROM {JOBS} WHERE seq=?",
            (claimed.token, claimed.key),
        ).fetchone()
        return Held(False, False) if row is None else Held(bool(row[0]), bool(row[0] and row[1]))


def _large(connection: sqlite3.Connection, seq: int) -> str:
    data: str = connection.execute(f"SELECT data FROM {DATA} WHERE seq=?", (seq,)).fetchone()[0]
    return data
