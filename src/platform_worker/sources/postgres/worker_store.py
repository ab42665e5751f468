"""The worker's side of the PostgreSQL store: claim, settle, renew, recover, and the wait for the doorbell."""

from __future__ import annotations

import _thread
import time

from platform_worker.jobs import model
from platform_worker.jobs.policies import Backoff
from platform_worker.jobs.store import Claimed, Held, StoreUnavailable
from platform_worker.sources.postgres import recovery, retention, rows, schema
from platform_worker.sources.postgres.bell import Bell
from platform_worker.sources.postgres.connection import Connection
from platform_worker.sources.postgres.functions import PLANNER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from platform_worker.sources.postgres.connection import Value
    from platform_worker.tasks.contract import WorkerIdentity

    Patience = Callable[[float], None]

_TURN = "SELECT * FROM {s}.turn($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
_POOLED_TURN = _TURN.replace("turn", "pooled_turn")
_RENEW = """UPDATE {s}.jobs SET lease_until = {s}.now_ms() + $3::bigint, progress = coalesce($4, progress)
    WHERE seq = $1 AND token = $2 AND status = 'processing' RETURNING cancel_requested"""
_LOOK = "SELECT cancel_requested FROM {s}.jobs WHERE seq = $1 AND token = $2 AND status = 'processing'"
_STATE = "SELECT status, error FROM {s}.jobs WHERE seq = $1 AND token = $2"


class PostgresWorkerStore:
    """Implements ``jobs.store.WorkerStore``. ``renew`` and ``look`` have a session of their own, for any thread.

    A round trip that failed may have happened all the same. So a settlement that comes again is recognised, and a claim
    after a failure first looks for what this worker was given in an answer that never arrived.
    """

    def __init__(self, url: str, schema_name: str, queue: Mapping[str, Any], identity: WorkerIdentity) -> None:
        self._main = Connection(url, schema_name, settings=PLANNER)
        self._side = Connection(url, schema_name)
        self._side_lock = _thread.allocate_lock()
        names = tuple(queue["names"])
        channel = schema.bell_channel(schema_name)
        self._bell = Bell(Connection(url, schema_name), channel, names.__contains__, count=True)
        self._lease_ms = int(queue["lease_ms"])
        self._retention_ms = int(queue["retention_ms"])
        self._backoff = Backoff(int(queue["backoff_max_ms"]), float(queue["backoff_jitter"]))
        self._identity = who = identity
        self._claimant = (names, self._lease_ms, who.pool_id, who.generation, who.slot, who.incarnation)
        #: Whether the last claim or settlement may have happened without our knowing.
        self._unsure = False
        #: When the first job is due that was not at the last look, by our monotonic clock; None: none is.
        self._due: float | None = None
        #: Where the sweep goes on.
        self._swept = 0

    def claim(self, patience: Patience) -> Claimed | None:
        return self._turn(patience, None, None, None, None, None, True)[1]

    def settle(
        self, claimed: Claimed, event: model.Event, patience: Patience, claim_next: bool
    ) -> tuple[bool, Claimed | None]:
        if type(event) is model.Complete:
            return self._turn(patience, claimed.key, claimed.token, event.result, None, None, claim_next)
        return self._settle_otherwise(claimed, event, patience, claim_next)

    def next_due(self) -> int | None:
        # The last look for a job has said so already.
        return None if self._due is None else max(int((self._due - time.monotonic()) * 1000), 0)

    def recover_gone(self, worker_count: int, patience: Patience) -> int:  # noqa: ARG002  all older generations are gone
        return recovery.end_gone(self._main, self._identity, self._backoff, patience)

    def recover_expired(self, patience: Patience) -> int:
        return recovery.end_expired(self._main, self._backoff, patience)

    def sweep(self, patience: Patience) -> int:
        removed, self._swept = retention.remove_finished(
            self._main, self._retention_ms, None, self._swept, patience, age=True
        )
        return removed

    def renew(self, claimed: Claimed, progress: str | None) -> Held:
        return self._held(_RENEW, claimed.key, claimed.token, self._lease_ms, progress)

    def look(self, claimed: Claimed) -> Held:
        return self._held(_LOOK, claimed.key, claimed.token)

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

    def _settle_otherwise(
        self, claimed: Claimed, event: model.Event, patience: Patience, claim_next: bool
    ) -> tuple[bool, Claimed | None]:
        """What is not a completion is decided by the model here, about the life as it is read."""
        unsure = self._unsure
        following: list[Claimed | None] = []

        def write(life: str | None, changes: str) -> bool:
            done, claim = self._turn(patience, claimed.key, claimed.token, None, life, changes, claim_next)
            if done and claim_next:
                following.append(claim)
            return done

        refusal = rows.apply_event(self._main, claimed.key, event, self._backoff, patience, write)
        fits = refusal is None or (unsure and self._settled_before(claimed, patience))
        if claim_next and not following:
            following.append(self.claim(patience))
        return fits, following[0] if following else None

    def _settled_before(self, claimed: Claimed, patience: Patience) -> bool:
        """Refused after a failure: it has happened before, unless somebody took the worker for lost meanwhile."""
        found = self._main.run(_STATE, claimed.key, claimed.token, patience=patience)
        return bool(found) and found[0][0] != model.PROCESSING and '"worker-lost"' not in (found[0][1] or "")

    def _turn(self, patience: Patience, *values: Value) -> tuple[bool, Claimed | None]:
        """Settles and claims, whichever is asked for; whether it was settled, and what was claimed."""
        try:
            statement = _POOLED_TURN if self._main.pooled else _TURN
            row = self._main.run(statement, *values, *self._claimant, self._unsure, patience=patience)[0]
        except BaseException:
            # Also what interrupts a handler: whether the server has done it nobody knows.
            self._unsure = True
            raise
        settled = row[0] == "t"
        if not values[-1] or (values[-2] is not None and not settled):
            return settled, None
        self._unsure = False
        return settled, self._claimed(row[1:])

    def _held(self, statement: str, *values: Value) -> Held:
        with self._side_lock:
            found = self._side.run(statement, *values)
        return Held(bool(found), bool(found) and found[0][0] != "0")

    def _claimed(self, row: Sequence[str | None]) -> Claimed | None:
        key, id, task, queue, attempt, max_attempts, token, timeout_ms, data, due_in = row
        if key is None:
            self._due = None if due_in is None else time.monotonic() + int(due_in) / 1000
            return None
        if id is None or task is None or queue is None or data is None:
            raise StoreUnavailable("postgres.schema: the schema was changed", transient=False)
        numbers = (int(attempt or 0), int(max_attempts or 0), int(token or 0), int(timeout_ms or 0))
        return Claimed(key, id, task, queue, *numbers, data)
