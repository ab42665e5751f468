"""The task source over any store of jobs: the claim, the wait, the settlement, and what a worker does in between.

``complete`` claims the next job in the transaction that settles the last one; ``receive`` then only hands it out. That
job was never started, so it is given back where a stop comes first, and none is claimed once a stop, or the end of
the child's limit, is asked for.
"""

from __future__ import annotations

import os
import time

from platform_worker.errors import WorkerStartError
from platform_worker.jobs import events, model
from platform_worker.jobs.ids import luck
from platform_worker.jobs.store import Interrupted, StoreUnavailable
from platform_worker.sources.keeper import Keeper
from platform_worker.sources.queue_task import QueueTask, remove_workdirs
from platform_worker.tasks.contract import SourceExhausted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from platform_worker.jobs.store import Claimed, Held, WorkerStore
    from platform_worker.tasks.contract import SourceContext, SourceSetup, Task

    T = TypeVar("T")

#: A ring may come before the commit it tells of: look again after these, in milliseconds.
_AFTER_FRUITLESS_RING = (5, 25, 125)
#: A lost ring costs this much, never a job.
_LOOK_AGAIN_MS = 1000
#: A store that has not answered for so long is not merely slow; milliseconds.
_CONTACT_LIMIT_MS = 10_000
#: How often a worker looks for ended leases, and removes what is past its retention; seconds.
_RECOVER_EVERY = 1.0
_SWEEP_EVERY = 60.0
#: A settlement that takes longer says in the log whose it is, so that a kill does not hide it; seconds.
_SLOW_SETTLEMENT = 1.0
_SLOW_STOP = 0.05


class QueueSource:
    """Implements ``tasks.contract.TaskSource``."""

    contact_limit_ms = _CONTACT_LIMIT_MS

    def __init__(self, setup: SourceSetup, store: WorkerStore) -> None:
        self.handlers = setup.handlers
        self.result_max_bytes = int(setup.queue["result_max_bytes"])
        self._until_empty = setup.until_empty
        self._identity = setup.identity
        self._workdirs = os.path.join(os.fspath(vars(setup)["root"]), "var", "tmp", "jobs")
        who = setup.identity
        self._workdir_prefix = os.path.join(self._workdirs, f"{who.slot}.{who.generation}.{who.incarnation}.")
        self._store = store
        self._keeper = Keeper(store, int(setup.queue["lease_ms"]) / 3000)
        self._context: SourceContext | None = None
        self._ahead: Claimed | None = None
        self._next_recovery = 0.0
        self._next_sweep = time.monotonic() + _SWEEP_EVERY
        self._unavailable = False

    def assert_ready(self, context: SourceContext) -> None:
        """Recovers what older incarnations held; ``worker-task-source-not-ready`` where the store is unusable."""
        self._context = context
        remove_workdirs(self._workdirs, self._identity.slot)
        try:
            self._store.recover_gone(context.worker_count, self._patience)
        except Interrupted:
            # Asked to stop while something held the lock: receive says so.
            return
        except StoreUnavailable as error:
            raise WorkerStartError("worker-task-source-not-ready", hints=[error.rule]) from error

    def receive(self, context: SourceContext) -> Task | None:
        self._context = context
        claimed, self._ahead = self._ahead, None
        if claimed is not None:
            return self._start_ahead(claimed, context)
        try:
            return self._wait_for_job(context)
        except Interrupted:
            return None
        finally:
            self._store.unlisten()

    def close(self) -> None:
        """Gives back a job that was claimed ahead; ends the thread and the connections."""
        claimed, self._ahead = self._ahead, None
        try:
            if claimed is not None:
                self._give_back(claimed)
        finally:
            self._keeper.close()
            self._store.close()

    def settle(self, claimed: Claimed, event: model.Event, *, claim_next: bool = True) -> None:
        """Settles a job, however long the store is away; a claim that is not ours any more changes nothing."""
        context = self._context
        ahead = claim_next and not self._until_empty and context is not None and not context.cancellation_requested()
        patience = _SettlementPatience(claimed, context)
        self._keeper.settling()
        try:
            fits, self._ahead = self._insist(lambda: self._store.settle(claimed, event, patience, ahead), patience)
        except BaseException:
            # Also what the terminate phase raises: the job's lease will end, and an operator can see whose it was.
            events.emit("error", "worker.task.failed", job_id=claimed.id, cause="settlement-unfinished")
            raise
        self._keeper.hold(self._ahead)
        if not fits:
            self._keeper.lost(claimed)

    def renew(self, claimed: Claimed, progress: str | None) -> Held:
        """Extends the lease now."""
        held = self._insist(lambda: self._store.renew(claimed, progress), time.sleep)
        if not held.held:
            self._keeper.lost(claimed)
        return held

    def look(self, claimed: Claimed) -> Held:
        """Whether the job was asked to stop."""
        return self._insist(lambda: self._store.look(claimed), time.sleep)

    def workdir_path(self, job_id: str) -> str:
        """Where a job's work directory is; the name says whose it is, so that the next incarnation can remove it."""
        return self._workdir_prefix + job_id

    def _start_ahead(self, claimed: Claimed, context: SourceContext) -> Task | None:
        try:
            self._maintain()
        except Interrupted:
            self._unavailable = False
        if context.cancellation_requested():
            self._give_back(claimed)
            return None
        return self._hand_out(claimed)

    def _give_back(self, claimed: Claimed) -> None:
        """A job that was claimed ahead and never started."""
        self.settle(claimed, model.Release(claimed.token), claim_next=False)
        events.emit("info", "worker.task.released", job_id=claimed.id)

    def _hand_out(self, claimed: Claimed) -> Task:
        self._keeper.hold(claimed)
        return QueueTask(self, claimed)

    def _wait_for_job(self, context: SourceContext) -> Task | None:
        rechecks: list[int] = []
        while not context.cancellation_requested():
            self._maintain()
            claimed = self._insist(lambda: self._store.claim(self._patience), self._patience)
            if claimed is not None:
                return self._hand_out(claimed)
            if self._until_empty:
                raise SourceExhausted
            self._store.listen()
            # Between the look above and the bell a job may have come: this look is the one that counts.
            claimed = self._insist(lambda: self._store.claim(self._patience), self._patience)
            if claimed is not None:
                return self._hand_out(claimed)
            timeout = self._timeout_ms(context, rechecks)
            if self._store.wait(context.fileno(), timeout):
                rechecks = list(_AFTER_FRUITLESS_RING)
        return None

    def _timeout_ms(self, context: SourceContext, rechecks: list[int]) -> int:
        timeout = min(context.max_blocking_wait_ms, rechecks.pop(0) if rechecks else _LOOK_AGAIN_MS)
        due = self._insist(self._store.next_due, self._patience)
        # A millisecond more: a poll may end a little early, and no job starts before its time.
        return timeout if due is None else min(timeout, due + 1)

    def _maintain(self) -> None:
        """What any live child does for all: end ended leases, remove what is past its retention."""
        now = time.monotonic()
        if now >= self._next_recovery:
            self._next_recovery = now + _RECOVER_EVERY
            self._insist(lambda: self._store.recover_expired(self._patience), self._patience)
        if now >= self._next_sweep:
            # A full batch means there is more: the next round goes on, after a job has had its turn.
            removed = self._insist(lambda: self._store.sweep(self._patience), self._patience)
            self._next_sweep = now + (_RECOVER_EVERY if removed else _SWEEP_EVERY)

    def _patience(self, seconds: float) -> None:
        """A pause while the store is away; a stop ends it."""
        context = self._context
        if context is None:
            time.sleep(seconds)
            return
        if seconds >= 0.001:
            self._store.wait(context.fileno(), int(seconds * 1000))
        else:
            time.sleep(seconds)
        if context.cancellation_requested():
            raise Interrupted

    def _insist(self, operation: Callable[[], T], patience: Callable[[float], None]) -> T:
        """``operation`` until the store answers; says once in the log that it does not, and once that it does again."""
        pause = 0.05
        while True:
            try:
                value = operation()
            except StoreUnavailable as error:
                if not error.transient:
                    raise
                if not self._unavailable:
                    self._unavailable = True
                    events.emit("warning", "worker.queue.unavailable", cause=error.rule)
            else:
                if self._unavailable:
                    self._unavailable = False
                    events.emit("info", "worker.queue.available")
                if self._context is not None:
                    self._context.contact()
                return value
            # Not all at once: they lost the store at the same moment.
            patience(pause * (0.5 + luck() / 2))
            pause = min(pause * 2, 1.0)


class _SettlementPatience:
    """Waits for as long as it takes: work that was done is settled.

    Says whose settlement it is when it takes long, sooner where a stop may end the wait with the process.
    """

    def __init__(self, claimed: Claimed, context: SourceContext | None) -> None:
        self._claimed = claimed
        self._context = context
        self._waited = 0.0
        self._said = False

    def __call__(self, seconds: float) -> None:
        time.sleep(seconds)
        self._waited += seconds
        if not self._said and (self._waited >= _SLOW_SETTLEMENT or (self._waited >= _SLOW_STOP and self._stopping())):
            self._said = True
            events.emit("warning", "worker.queue.unavailable", job_id=self._claimed.id, cause="settlement-waits")

    def _stopping(self) -> bool:
        return self._context is not None and self._context.cancellation_requested()
