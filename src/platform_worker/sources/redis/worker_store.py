"""The worker's side of the Redis store: claim, settle, renew, recover, and the wait for a ring."""

from __future__ import annotations

import _thread
import json
import time

from platform_worker.jobs import model
from platform_worker.jobs.ids import luck
from platform_worker.jobs.store import Claimed, Held, StoreUnavailable
from platform_worker.sources.redis import scripts, upkeep_scripts
from platform_worker.sources.redis.bell import Bell
from platform_worker.sources.redis.connection import Connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from platform_worker.tasks.contract import WorkerIdentity

    Patience = Callable[[float], None]

_SWEEP_BATCH = 200
_RECOVER_BATCH = 100
#: Claims that one look for those of the gone reads.
_GONE_BATCH = 500
#: A handler has this long after JobTimeout before its process is ended; only then has the deadline ended it.
DEADLINE_GRACE_MS = 1000


def base_of(prefix: str) -> str:
    """What all keys begin with: a hash tag, by which a cluster keeps them together."""
    return f"{{{prefix}}}:"


class RedisWorkerStore:
    """Implements ``jobs.store.WorkerStore``. ``renew`` and ``look`` have a connection of their own, for any thread.

    A round trip that failed may have happened all the same. So a settlement is recognised by its token when it comes
    again, and a claim after a failure first looks for what this worker was given in a reply that never arrived.
    """

    def __init__(self, url: str, prefix: str, queue: Mapping[str, Any], identity: WorkerIdentity) -> None:
        base = base_of(prefix)
        self._main = Connection(url, base)
        self._side = Connection(url, base)
        self._side_lock = _thread.allocate_lock()
        self._names = tuple(queue["names"])
        self._bell = Bell(Connection(url, base), [f"{base}bell:{name}" for name in self._names])
        self._lease_ms = int(queue["lease_ms"])
        self._retention_ms = int(queue["retention_ms"])
        self._backoff = (int(queue["backoff_max_ms"]), repr(float(queue["backoff_jitter"])))
        self._identity = identity
        self._owner = f"{identity.generation} {identity.slot} {identity.incarnation} {identity.pool_id}"
        #: The tail of a claim's arguments.
        self._claimant = (self._owner, self._lease_ms, *self._names)
        #: Whether the last claim may have happened without our knowing.
        self._unsure = False
        #: When the first job is due that was not at the last look, by our monotonic clock; None: none is.
        self._due: float | None = None

    def claim(self, patience: Patience) -> Claimed | None:  # noqa: ARG002  there is no lock to wait for
        reply = self._run(scripts.CLAIM, int(self._unsure), *self._claimant)
        self._unsure = False
        return self._claimed(reply)

    def settle(
        self,
        claimed: Claimed,
        event: model.Event,
        patience: Patience,  # noqa: ARG002
        claim_next: bool,
    ) -> tuple[bool, Claimed | None]:
        tail = (int(claim_next), int(self._unsure), *self._claimant)
        what = (claimed.key, claimed.token)
        if type(event) is model.Complete:
            about = (event.result, claimed.queue, claimed.id)
            stale, following = self._run(scripts.COMPLETE, *what, *about, *tail)
        else:
            stale, following = self._run(scripts.SETTLE, *what, *_arguments(event), *self._backoff, *tail)
        if not claim_next:
            return not stale, None
        self._unsure = False
        return not stale, self._claimed(following)

    def next_due(self) -> int | None:
        # The last look for a job has said so already.
        return None if self._due is None else max(int((self._due - time.monotonic()) * 1000), 0)

    def recover_gone(self, worker_count: int, patience: Patience) -> int:  # noqa: ARG002  all older generations are gone
        who = self._identity
        count = skip = 0
        while skip >= 0:
            ended, skip = self._run(
                upkeep_scripts.GONE,
                *self._recovery(_GONE_BATCH),
                skip,
                who.generation,
                who.slot,
                who.incarnation,
                who.pool_id,
            )
            count += ended
        return count

    def recover_expired(self, patience: Patience) -> int:  # noqa: ARG002
        count = ended = self._run(upkeep_scripts.EXPIRED, *self._recovery(_RECOVER_BATCH))
        while ended == _RECOVER_BATCH:
            ended = self._run(upkeep_scripts.EXPIRED, *self._recovery(_RECOVER_BATCH))
            count += ended
        return int(count)

    def sweep(self, patience: Patience) -> int:  # noqa: ARG002
        return int(self._run(upkeep_scripts.REMOVE, _SWEEP_BATCH, "age", self._retention_ms, *sorted(model.FINISHED)))

    def renew(self, claimed: Claimed, progress: str | None) -> Held:
        return self._held(claimed, self._lease_ms, progress or "")

    def look(self, claimed: Claimed) -> Held:
        return self._held(claimed, "", "")

    def wait(self, stop_fd: int, timeout_ms: int) -> bool:
        # While the store is away there is nobody to hear a ring from: this is only a pause then.
        return self._bell.wait(stop_fd, timeout_ms, listen=self._main.opened)

    def listen(self) -> None:
        """Rings are kept on the server until somebody hears them."""

    def unlisten(self) -> None:
        self._bell.withdraw()

    def close(self) -> None:
        self._bell.close()
        self._main.close()
        with self._side_lock:
            self._side.close()

    def _run(self, script: scripts.Script, *arguments: str | int | float) -> Any:
        try:
            return self._main.script(script, *arguments)
        except BaseException:
            # Also what interrupts a handler: whether the server has done it nobody knows.
            self._unsure = True
            self._bell.close()
            raise

    def _held(self, claimed: Claimed, lease_ms: int | str, progress: str) -> Held:
        with self._side_lock:
            if self._side.stale():
                self._side.close()
            held, cancel = self._side.script(scripts.RENEW, claimed.key, claimed.token, lease_ms, progress)
        return Held(bool(held), bool(cancel))

    def _recovery(self, batch: int) -> tuple[int | str, ...]:
        return (batch, repr(luck()), *self._backoff, DEADLINE_GRACE_MS)

    def _claimed(self, reply: Any) -> Claimed | None:
        if isinstance(reply, int):
            self._due = None if reply < 0 else time.monotonic() + reply / 1000
            return None
        member, id, task, spec, attempt, token, data = reply
        queue, _, max_attempts, timeout_ms, _, _ = spec.split(" ")
        return Claimed(member, id, task, queue, attempt, int(max_attempts), token, int(timeout_ms), data)


def _arguments(event: model.Event) -> tuple[str | int, ...]:
    """The settlement's event, the error, the error if the job was cancelled, final, after_ms, luck."""
    if isinstance(event, model.Release):
        return ("release", "", _error("cancelled", "cancelled while it ran", None), "", "", "")
    if isinstance(event, model.Fail):
        after = "" if event.after_ms is None else event.after_ms
        why = _error(event.reason, event.message, event.type)
        cancelled = _error("cancelled", event.message, event.type)
        return ("fail", why, cancelled, int(event.final), after, repr(event.luck))
    raise StoreUnavailable("a worker settles by completing, failing or releasing", transient=False)


def _error(reason: str, message: str, type_name: str | None) -> str:
    return json.dumps(model.error(reason, message, type_name), ensure_ascii=False, separators=(",", ":"))
