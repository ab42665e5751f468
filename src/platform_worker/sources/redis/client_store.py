"""The side of ``Queue`` of the Redis store."""

from __future__ import annotations

import json
import select
import time

from platform_worker.errors import WorkerUsageError
from platform_worker.jobs import model
from platform_worker.jobs.ids import luck
from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.redis import client_scripts, upkeep_scripts
from platform_worker.sources.redis.connection import Connection
from platform_worker.sources.redis.worker_store import DEADLINE_GRACE_MS, base_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from platform_worker.jobs.store import Filter, Row
    from platform_worker.sources.redis.scripts import Script

#: How often, and how long at first, an operation that may be repeated is tried again.
_TRIES = 4
_FIRST_PAUSE = 0.05
#: Jobs that one look reads, and that one batch ends or removes.
_LOOK_AT = 2000
_BATCH = 500
#: How old our idea of the server's clock may be, in seconds.
_CLOCK_SECONDS = 10.0
_UNKNOWN = (0, float("-inf"))
#: A lost announcement costs whoever waits for a result this much; and after this long without a server it gives up.
_LOOK_AGAIN = 1.0
_AWAY_SECONDS = 60.0

#: The parts of a job's ``spec``, in its order.
_SPEC = ("queue", "priority", "max_attempts", "timeout_ms", "backoff_ms", "enqueued_at")
_NUMBERS = (
    "priority", "attempt", "max_attempts", "interruptions", "cancel_requested", "enqueued_at", "run_at", "started_at",
    "finished_at",
)  # fmt: skip
_ZERO = ("attempt", "interruptions", "cancel_requested")
_LARGE = ("data", "result", "error", "progress")


class RedisClientStore:
    """Implements ``jobs.store.ClientStore``. For one thread at a time."""

    def __init__(self, url: str, prefix: str, queue: Mapping[str, Any]) -> None:
        self._url, self._base = url, base_of(prefix)
        self._connection = Connection(url, self._base)
        self._backoff = (int(queue["backoff_max_ms"]), repr(float(queue["backoff_jitter"])))
        #: The server's clock, as of a moment of ours.
        self._clock = _UNKNOWN

    def now_ms(self) -> int:
        # One enqueue after the other needs no round trip for it: the last reply has told.
        told, at = self._clock
        now = time.monotonic()
        if now - at > _CLOCK_SECONDS:
            told = int(self._insist(client_scripts.NOW))
            self._clock = (told, time.monotonic())
            return told
        return told + int((now - at) * 1000)

    def enqueue(self, rows: Sequence[Row], connection: object | None = None) -> list[str]:
        if connection is not None:
            raise WorkerUsageError("worker-job-invalid", hints=["connection: this queue's store has no transactions"])
        if not rows:
            return []
        arguments: list[Any] = []
        for row in rows:
            queue, priority, timeout_ms = row.queue, row.priority, row.timeout_ms
            spec = f"{queue} {priority} {row.max_attempts} {timeout_ms} {row.backoff_ms} {row.enqueued_at}"
            arguments += (row.id, queue, row.unique or "", priority, row.run_at, timeout_ms, row.task, spec, row.data)
        reply: list[Any] = self._insist(client_scripts.ENQUEUE, *arguments)
        self._clock = (reply[0], time.monotonic())
        ids: list[str] = reply[1:]
        return ids

    def get(self, id: str) -> Mapping[str, Any] | None:
        found = self._insist(client_scripts.GET, id)
        return _job(found) if found and found[0] else None

    def jobs(self, wanted: Filter, limit: int, after: str | None) -> list[Mapping[str, Any]]:
        below = "+inf"
        if after is not None:
            seq = self._command("ZSCORE", f"{self._base}jobs", after)
            if seq is None:
                raise KeyError(after)
            below = seq
        return [_job(found) for found in self._walk(wanted, limit, below, whole=True)]

    def change(self, id: str, event: model.Event) -> str | None:
        # Not tried again: what the first try did, the second would refuse.
        what = "cancel" if isinstance(event, model.Cancel) else "retry"
        why = json.dumps(model.error("cancelled", "cancelled before it ran", None), separators=(",", ":"))
        self._freshen()
        refused = self._connection.script(client_scripts.CHANGE, id, what, why)
        if refused is None:
            raise KeyError(id)
        return model.WRONG_STATE if refused else None

    def ids(self, wanted: Filter) -> Iterable[str]:
        return self._walk(wanted, 2**31, "+inf", whole=False)[::-1]

    def purge(self, finished_before: int, status: str | None) -> int:
        statuses = sorted(model.FINISHED) if status is None else [status]
        count = 0
        while removed := self._insist(upkeep_scripts.REMOVE, _BATCH, "time", finished_before, *statuses):
            count += removed
        return count

    def recover(self) -> int:
        count = 0
        while ended := self._insist(upkeep_scripts.EXPIRED, _BATCH, repr(luck()), *self._backoff, DEADLINE_GRACE_MS):
            count += ended
        return count

    def counts(self) -> dict[str, dict[str, Any]]:
        counted, held, waiting, paused = self._insist(client_scripts.COUNTS)
        queues: dict[str, dict[str, Any]] = {}

        def of(queue: str) -> dict[str, Any]:
            empty = {**dict.fromkeys(model.STATUSES, 0), "paused": False, "oldest_run_at": None}
            return queues.setdefault(queue, empty)

        for field, number in _pairs(counted):
            status, _, queue = field.partition(" ")
            of(queue)[status] = int(number)
        for queue in filter(None, held):
            of(queue)[model.PROCESSING] += 1
        for queue, number, oldest in waiting:
            if number:
                of(queue)[model.QUEUED] = number - of(queue)[model.RETRY_WAIT]
                of(queue)["oldest_run_at"] = None if oldest < 0 else oldest
        for queue in paused:
            of(queue)["paused"] = True
        return queues

    def pause(self, queue: str, paused: bool) -> None:
        self._insist(client_scripts.PAUSE, queue, int(paused))

    def wait_finished(self, id: str, timeout: float | None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        listener = Connection(self._url, self._base)
        answered = time.monotonic()
        try:
            while True:
                try:
                    if not listener.opened:
                        listener.call("SUBSCRIBE", f"{self._base}ended:{id}")
                    if not self._insist(client_scripts.WATCH, id):
                        return True
                    answered = time.monotonic()
                except StoreUnavailable:
                    if time.monotonic() - answered > _AWAY_SECONDS:
                        raise
                left = _LOOK_AGAIN if until is None else min(until - time.monotonic(), _LOOK_AGAIN)
                if left <= 0:
                    return False
                _hear(listener, left)
        finally:
            listener.close()

    def close(self) -> None:
        self._connection.close()

    def _walk(self, wanted: Filter, limit: int, below: str, *, whole: bool) -> list[Any]:
        found: list[Any] = []
        filters = (wanted.status or "", wanted.queue or "", wanted.task or "")
        while len(found) < limit:
            # Whole jobs may be large: few at a time.
            most = min(limit - len(found), 100) if whole else limit - len(found)
            more, some = self._insist(client_scripts.WALK, _LOOK_AT, most, int(whole), below, *filters)
            found += some
            if whole and len(some) == most < limit:
                more = self._command("ZSCORE", f"{self._base}jobs", dict(_pairs(some[-1][0]))["id"])
            if not more:
                break
            below = str(more)
        return found

    def _insist(self, script: Script, *arguments: str | int) -> Any:
        """Runs a script that may be run twice; a server that is away for a moment is waited for."""
        return self._again(lambda: self._connection.script(script, *arguments))

    def _command(self, *command: str) -> Any:
        return self._again(lambda: self._connection.call(*command))

    def _again(self, operation: Any) -> Any:
        self._clock = _UNKNOWN
        pause = _FIRST_PAUSE
        left = _TRIES
        while True:
            self._freshen()
            left -= 1
            try:
                return operation()
            except StoreUnavailable as error:
                if not error.transient or not left:
                    raise
            time.sleep(pause * (0.5 + luck()))
            pause *= 2

    def _freshen(self) -> None:
        # The server may have been restarted since the last operation: that is no reason to fail this one.
        if self._connection.stale():
            self._connection.close()


def _hear(listener: Connection, seconds: float) -> None:
    """Waits for whatever the server announces."""
    poll = select.poll()
    if listener.opened:
        poll.register(listener.fileno(), select.POLLIN)
    if poll.poll(seconds * 1000):
        try:
            listener.received()
        except StoreUnavailable:
            listener.close()


def _job(found: Sequence[list[str]]) -> dict[str, Any]:
    """A job by the names of ``Job``, from its hash and its large values."""
    values: dict[str, Any] = dict(_pairs(found[0]))
    values.update(zip(_SPEC, values["spec"].split(" "), strict=True))
    large = dict(_pairs(found[1]))
    for name in _ZERO:
        values.setdefault(name, 0)
    for name in _NUMBERS:
        values[name] = int(values[name]) if name in values else None
    for name in _LARGE:
        values[name] = large.get(name) if values.get(name) == "" else values.get(name)
    values.setdefault("unique", None)
    return values


def _pairs(flat: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)
