"""The pool's state machine: ``handle(event, now)`` and ``advance(now)`` give effects, ``next_deadline()`` says when.

Pure: time is an argument (monotonic seconds), nothing blocks, nothing reads a clock. ``transitions`` has the table of a
child's life; this module carries its actions out and decides for the pool: start, restart, recycle, shutdown.
"""

from __future__ import annotations

from platform_worker.pool.effects import (
    AbandonClaim,
    Announce,
    Count,
    EndGuardian,
    Finish,
    KillChild,
    LogEvent,
    RaiseStopFlag,
    ReleaseFence,
    RemoveFiles,
    StateChanged,
    TellChild,
    TerminateChild,
)
from platform_worker.pool.events import (
    ChildExited,
    ChildNotStarted,
    ChildPulsed,
    ChildSaid,
    ChildStarted,
    FenceBusy,
    FenceClaimed,
    FenceReleased,
    GuardianLost,
    GuardianRefused,
    SetupFailed,
    StopRequested,
)
from platform_worker.pool.health import health_reason
from platform_worker.pool.life import Lives
from platform_worker.pool.notices import Outlook
from platform_worker.pool.restart import RestartBudget
from platform_worker.pool.shutdown import Budgets, Ladder, Phase
from platform_worker.pool.slots import Slot
from platform_worker.pool.states import IDLE_PHASES, LEAVING_PHASES, ChildPhase, PoolStatus, StopMode
from platform_worker.value import Value, unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.pool.effects import Effect
    from platform_worker.pool.events import Event


#: What the guardian has beyond the start's own time to say that the fence is held, in seconds.
_CLAIM_SLACK = 5.0
#: How long after the last deadline of a stop the guardian may still be silent, in seconds. One that is frozen would
#: else hold up a stop for ever; its end ends the children.
_GUARDIAN_PATIENCE = 1.0


class Policy(Value):
    """What the operator decided; times in milliseconds."""

    workers: int
    start_timeout_ms: int
    stop_timeout_ms: int
    force_kill_timeout_ms: int
    restart_intensity: int
    restart_period_ms: int
    #: A batch: a slot whose child finds nothing claimable is not filled again; the pool ends when all are.
    until_empty: bool = False
    #: A batch of at most one job.
    once: bool = False


class PoolMachine:
    """One pool, from ``begin`` to the ``Finish`` effect."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.status = PoolStatus.STARTING
        self.slots = [Slot(index) for index in range(policy.workers)]
        #: Why the pool fails; ``None`` for one that works or was asked to stop.
        self.failure: str | None = None
        self._hints: tuple[str, ...] = ()
        self.generation: int | None = None
        self.finished = False
        self._announced = False
        self._released = False
        self._start_deadline: float | None = None
        self._guardian_deadline: float | None = None
        self._ladder = Ladder(Budgets(policy.stop_timeout_ms, policy.force_kill_timeout_ms))
        self._budget = RestartBudget(policy.restart_intensity, policy.restart_period_ms / 1000)
        self._lives = Lives(self)
        self._seen: tuple[object, ...] = ()

    # Time

    def begin(self, now: float) -> None:
        """The claim is on its way. The guardian itself gives up on a held fence when the start's time is over, and
        says so; the deadline here is for a guardian that says nothing.
        """
        self._start_deadline = now + self.boot_time + _CLAIM_SLACK

    def next_deadline(self) -> float | None:
        """When ``advance`` is due next; ``None``: never by time alone."""
        if self.finished:
            return None
        due = [self._start_deadline, self._guardian_deadline, self._ladder.next_deadline()]
        for slot in self.slots:
            due.append(slot.restart_at)
            for child in slot.children():
                due += [child.deadline, child.silent_at]
        return min((at for at in due if at is not None), default=None)

    def advance(self, now: float) -> list[Effect]:
        """What time alone makes necessary."""
        if self.finished:
            return []
        effects: list[Effect] = []
        if self._start_deadline is not None and now >= self._start_deadline:
            self._start_deadline = None
            effects += self.fail("worker-readiness-timeout", now)
        for slot in self.slots:
            for child in slot.children():
                if child.deadline is not None and now >= child.deadline:
                    effects += self._lives.overdue(child, now)
                if child.silent_at is not None and now >= child.silent_at:
                    effects += self._lives.fall_silent(child)
            if slot.restart_at is not None and now >= slot.restart_at:
                effects += self._lives.refill(slot, now)
        for phase in self._ladder.advance(now):
            effects += self._enter(phase)
            if phase is Phase.OVER:
                self._guardian_deadline = now + _GUARDIAN_PATIENCE
        if self._guardian_deadline is not None and now >= self._guardian_deadline:
            self._guardian_deadline = None
            self.failure = self.failure or "worker-shutdown-failed"
            effects.append(EndGuardian())
        return self._close(effects, now)

    # Events

    def handle(self, event: Event, now: float) -> list[Effect]:
        """What ``event`` makes necessary. After ``Finish`` nothing does."""
        if self.finished:
            return []
        match event:
            case FenceClaimed(generation):
                effects = self._claimed(generation, now)
            case FenceBusy():
                effects = self._finish("worker-already-running")
            case GuardianRefused(reason):
                effects = self._finish(reason)
            case GuardianLost():
                effects = self._orphaned()
            case FenceReleased():
                effects = self._finish(self.failure)
            case SetupFailed(reason, hints):
                self._hints = self._hints or hints
                effects = self.fail(reason, now)
            case StopRequested(mode):
                effects = self._stop(mode, now)
            case ChildStarted() | ChildNotStarted() | ChildSaid() | ChildPulsed() | ChildExited():
                effects = self._lives.handle(event, now)
            case _:
                unreachable(event)
        return self._close(effects, now)

    @property
    def ready_count(self) -> int:
        """Slots that count as ready; none of a pool that stops."""
        if self.status is PoolStatus.STOPPING:
            return 0
        return sum(slot.ready for slot in self.slots)

    @property
    def outlook(self) -> Outlook:
        """What a service manager may know."""
        until = self._start_deadline
        if self.status is PoolStatus.STOPPING:
            late = [at for at in (self._ladder.last_deadline(), self._guardian_deadline) if at is not None]
            until = max(late, default=None)
        return Outlook(self.status, self.ready_count, self.policy.workers, self._announced, self.failure, until)

    @property
    def health(self) -> str:
        """``healthy``, or the reason of the contract."""
        stalled = any(child.stalled for slot in self.slots for child in slot.children())
        return health_reason(self.status, self.failure is not None, self.ready_count, self.policy.workers, stalled)

    def fail(self, reason: str, now: float) -> list[Effect]:
        """The pool cannot go on; the first reason stands."""
        if self.failure is None and self.status is not PoolStatus.STOPPING:
            self.failure = reason
        return self._stop(StopMode.GRACEFUL, now) if self.status is not PoolStatus.STOPPING else []

    def survive(self, now: float) -> bool:
        """Counts one unexpected exit; false where it is one too many."""
        return self._budget.spend(now)

    def validate(self) -> None:
        """What must hold after every step."""
        for slot in self.slots:
            slot.validate()
        assert 0 <= self.ready_count <= self.policy.workers
        assert self.failure is None or self.finished or self.status is PoolStatus.STOPPING
        if self.status is PoolStatus.STOPPING:
            assert all(slot.restart_at is None for slot in self.slots)
            assert all(child.phase in LEAVING_PHASES for slot in self.slots for child in slot.children())
        assert not self._released or not any(slot.children() for slot in self.slots)

    # The pool's own steps

    def _claimed(self, generation: int, now: float) -> list[Effect]:
        self.generation = generation
        self._start_deadline = now + self.boot_time
        effects: list[Effect] = []
        for slot in self.slots:
            effects += self._lives.launch(slot, None)
        return effects

    def _stop(self, mode: StopMode, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self.status is not PoolStatus.STOPPING:
            self.status = PoolStatus.STOPPING
            self._start_deadline = None
            if self.generation is None:
                return [AbandonClaim(), *self._finish(self.failure)]
            effects.append(RaiseStopFlag())
            for slot in self.slots:
                slot.restart_at = None
                slot.handing_over = False
            asked = self._ask(now)
            if mode is not StopMode.KILLING:
                self._ladder.begin(now)
                effects += asked
            else:
                self._ladder.begin(now, immediate=True)
                effects += self._enter(Phase.KILL)
            return effects + self._emptied(now)
        if self.generation is None or self._ladder.phase is None:
            return []
        target = {StopMode.GRACEFUL: None, StopMode.HURRIED: Phase.TERMINATE, StopMode.KILLING: Phase.KILL}[mode]
        if target is not None:
            for phase in self._ladder.skip_to(target, now):
                effects += self._enter(phase)
        return effects

    def _ask(self, now: float) -> list[Effect]:
        """The cooperative phase. A child without a task in hand needs no more than the force-kill budget to end.

        Whatever a child said before it heard of the stop is of no consequence from here on: nobody is replaced.
        """
        effects: list[Effect] = []
        for slot in self.slots:
            for child in slot.children():
                if child.phase in LEAVING_PHASES - {ChildPhase.RETIRING}:
                    continue
                if child.phase in IDLE_PHASES and not child.pressed:
                    child.deadline = now + self.grace
                child.phase = ChildPhase.RETIRING
                effects.append(TellChild(slot.index, child.incarnation, "stop"))
        return effects

    def _enter(self, phase: Phase) -> list[Effect]:
        effects: list[Effect] = []
        for slot in self.slots:
            for child in slot.children():
                if phase is Phase.TERMINATE and child.pressed < 1:
                    child.pressed, child.deadline = 1, None
                    effects.append(TerminateChild(slot.index, child.incarnation))
                elif phase is Phase.KILL and child.pressed < 2:
                    child.pressed, child.deadline = 2, None
                    effects.append(KillChild(slot.index, child.incarnation))
        return effects

    def _emptied(self, now: float) -> list[Effect]:
        """Files, then fence, once no child is left."""
        if self._released or any(slot.children() for slot in self.slots):
            return []
        self._released = True
        self._guardian_deadline = now + self.grace + _GUARDIAN_PATIENCE
        return [RemoveFiles(), ReleaseFence()]

    def _orphaned(self) -> list[Effect]:
        """The guardian is dead, and so are the children."""
        if self._released:
            return self._finish(self.failure)
        self.failure = self.failure or "worker-process-guardian-failed"
        self.status = PoolStatus.STOPPING
        for slot in self.slots:
            slot.current = slot.successor = slot.restart_at = None
        return [RemoveFiles(), *self._finish(self.failure)]

    def _finish(self, reason: str | None) -> list[Effect]:
        self.finished = True
        return [Finish(reason, self._hints)]

    def _close(self, effects: list[Effect], now: float) -> list[Effect]:
        """After every step: is everybody ready, is everybody gone, has anything visible changed?"""
        if not self.finished and self.status is PoolStatus.STARTING and all(slot.served for slot in self.slots):
            self.status = PoolStatus.RUNNING
            self._start_deadline = None
        if not self.finished and self.status is PoolStatus.RUNNING and not self._announced:
            self._announced = True
            effects += [Announce(), Count("start_success"), LogEvent("info", "worker.process.start", {})]
        if not self.finished and self.status is PoolStatus.RUNNING and all(slot.finished for slot in self.slots):
            effects += self._stop(StopMode.GRACEFUL, now)
        if not self.finished and self.status is PoolStatus.STOPPING and self.generation is not None:
            effects += self._emptied(now)
        seen = (self.status, self.ready_count, self.health)
        if seen != self._seen:
            self._seen = seen
            if not self.finished:
                effects.append(StateChanged())
        return effects

    @property
    def grace(self) -> float:
        """The force-kill budget, in seconds."""
        return self.policy.force_kill_timeout_ms / 1000

    @property
    def boot_time(self) -> float:
        """What a replacement has for its boot, in seconds."""
        return self.policy.start_timeout_ms / 1000
