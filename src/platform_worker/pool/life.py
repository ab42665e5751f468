"""Carries out the table of a child's life: boot, take over, serve, recycle, end."""

from __future__ import annotations

from platform_worker.pool.effects import Count, LogEvent, StartChild, TellChild
from platform_worker.pool.events import ChildExited, ChildNotStarted, ChildPulsed, ChildSaid, ChildStarted
from platform_worker.pool.restart import next_streak, pause
from platform_worker.pool.states import ChildPhase, PoolStatus
from platform_worker.pool.transitions import TRANSITIONS, Action, Stimulus
from platform_worker.value import unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.pool.effects import Effect
    from platform_worker.pool.events import ChildEvent
    from platform_worker.pool.machine import PoolMachine
    from platform_worker.pool.slots import Child, Slot

_WORDS = {
    "booted": Stimulus.BOOTED,
    "ready": Stimulus.READY,
    "last": Stimulus.LAST,
    "empty": Stimulus.EMPTY,
    "done": Stimulus.DONE,
    "failed": Stimulus.FAILED,
    "timeout": Stimulus.TIMED_OUT,
}
_REPORTS: dict[type[ChildEvent], Stimulus] = {
    ChildStarted: Stimulus.STARTED,
    ChildNotStarted: Stimulus.NOT_STARTED,
    ChildExited: Stimulus.EXITED,
    ChildPulsed: Stimulus.PULSED,
}
#: A pulse may be late by so much, in seconds: it is sent every two, and any of them may be lost.
_PULSE_SLACK = 5.0


class IllegalEvent(Exception):  # noqa: N818  named by what happened
    """The guardian reported what cannot be; the machine is unchanged. A bug of ours."""


class Lives:
    """The children of one pool."""

    def __init__(self, pool: PoolMachine) -> None:
        self._pool = pool
        #: Boot failures whose traceback is in the log already.
        self._logged: set[str] = set()

    def handle(self, event: ChildEvent, now: float) -> list[Effect]:
        """What an event of one child makes necessary; one of a child that is gone makes nothing."""
        if event.slot >= len(self._pool.slots):
            raise IllegalEvent(f"no slot {event.slot}")
        child = self._pool.slots[event.slot].child(event.incarnation)
        if child is None:
            return []
        stimulus = _stimulus(event)
        action = TRANSITIONS[child.phase, stimulus]
        if action is Action.EXPIRE and child.ready_at is None:
            # Told to stop before it ever took a task: it has none whose deadline could have passed.
            action = Action.REFUSE
        match action:
            case Action.RUN:
                child.phase = ChildPhase.BOOTING
            case Action.OFFER:
                return self._offer(child, now)
            case Action.SERVE:
                return self._serve(child, now)
            case Action.REPLACE:
                return self._replace(child, now)
            case Action.EXHAUST:
                child.exhausted = True
            case Action.FAREWELL:
                return self._farewell(child, now)
            case Action.EXCUSE:
                assert isinstance(event, ChildSaid)
                child.reason = child.reason or event.reason
                child.deadline = now + self._pool.grace
            case Action.EXPIRE:
                child.phase = ChildPhase.EXPIRED
                child.deadline = now + self._pool.grace
            case Action.NOTE:
                assert isinstance(event, ChildPulsed)
                return self._note(child, event, now)
            case Action.LEAVE:
                assert isinstance(event, ChildExited)
                return self._leave(child, event, now)
            case Action.VANISH:
                assert isinstance(event, ChildNotStarted)
                child.reason = child.reason or event.reason
                return self._unexpected(child, "start-failed", now)
            case Action.REFUSE:
                child.reason = child.reason or "worker-readiness-invalid"
                return child.kill()
            case Action.PRESS:
                return child.press(now, self._pool.grace)
            case Action.IGNORE:
                return []
            case Action.IMPOSSIBLE:
                raise IllegalEvent(f"{stimulus.value} of a child that is {child.phase.value}")
            case _:
                unreachable(action)
        return []

    def overdue(self, child: Child, now: float) -> list[Effect]:
        """Its time is over: one rung further down."""
        assert TRANSITIONS[child.phase, Stimulus.OVERDUE] is Action.PRESS
        if child.phase in (ChildPhase.BOOTING, ChildPhase.TAKING_OVER, ChildPhase.LAUNCHING):
            child.reason = child.reason or "worker-readiness-timeout"
        return child.press(now, self._pool.grace)

    def fall_silent(self, child: Child) -> list[Effect]:
        """It has said nothing for too long: frozen, or its source holds the interpreter's lock."""
        child.pulse_due = None
        return self._stall(child, "silent")

    def _note(self, child: Child, event: ChildPulsed, now: float) -> list[Effect]:
        left_ms = event.limit_ms - event.silent_ms
        if event.task_ms is not None:
            child.pulse_due = None  # for as long as it likes: its time is the timeout's matter
        else:
            child.pulse_due = now + max(left_ms, 0) / 1000 + _PULSE_SLACK
        if left_ms < 0:
            return self._stall(child, "no-contact")
        child.out_of_touch = False
        return []

    def _stall(self, child: Child, cause: str) -> list[Effect]:
        """Said once, however long it lasts."""
        if child.out_of_touch:
            return []
        child.out_of_touch = True
        return [LogEvent("warning", "worker.child.stalled", {"slot": child.slot.index, "cause": cause})]

    def launch(self, slot: Slot, deadline: float | None) -> list[Effect]:
        """A new child, as the holder of an empty slot or the successor of its holder."""
        child = slot.launch(deadline)
        return [StartChild(slot.index, child.incarnation, bool(self._logged))]

    def refill(self, slot: Slot, now: float) -> list[Effect]:
        """The pause is over."""
        log = LogEvent("info", "worker.child.restart", {"slot": slot.index})
        return [log, *self.launch(slot, now + self._pool.boot_time)]

    def _offer(self, child: Child, now: float) -> list[Effect]:
        slot = child.slot
        child.phase = ChildPhase.BOOTED
        if child is slot.current:
            return self._take_over(child, now)
        child.deadline = None
        holder = slot.current
        if holder is None or holder.phase not in (ChildPhase.READY, ChildPhase.LAST):
            return []
        holder.phase = ChildPhase.RETIRING
        return [TellChild(slot.index, holder.incarnation, "stop")]

    def _take_over(self, child: Child, now: float) -> list[Effect]:
        child.phase = ChildPhase.TAKING_OVER
        starting = self._pool.status is PoolStatus.STARTING and not child.slot.served
        child.deadline = None if starting else now + self._pool.boot_time
        return [TellChild(child.slot.index, child.incarnation, "go")]

    def _serve(self, child: Child, now: float) -> list[Effect]:
        slot = child.slot
        child.phase = ChildPhase.READY
        child.deadline = None
        child.ready_at = now
        effects: list[Effect] = [LogEvent("info", "worker.child.ready", {"slot": slot.index})]
        if slot.handing_over:
            effects.append(Count("recycle_success"))
        slot.handing_over = False
        slot.served = True
        self._logged.clear()
        return effects

    def _replace(self, child: Child, now: float) -> list[Effect]:
        slot = child.slot
        child.phase = ChildPhase.LAST
        if self._pool.policy.once:
            child.phase = ChildPhase.RETIRING
            child.exhausted = True
            return [TellChild(slot.index, child.incarnation, "stop")]
        slot.handing_over = True
        log = LogEvent("info", "worker.child.recycle", {"slot": slot.index})
        return [log, *self.launch(slot, now + self._pool.boot_time)]

    def _farewell(self, child: Child, now: float) -> list[Effect]:
        if child.phase in (ChildPhase.READY, ChildPhase.LAST) and not child.exhausted:
            child.slot.handing_over = True
        child.phase = ChildPhase.DONE
        if not child.pressed:
            child.deadline = now + self._pool.grace
        return []

    # The end of a child

    def _leave(self, child: Child, event: ChildExited, now: float) -> list[Effect]:
        cause = _cause(child, event)
        stopping = self._pool.status is PoolStatus.STOPPING
        # A job's hard deadline is the job's failure, not the child's: its slot is refilled, and nothing is counted.
        # One that was not ready in time is unexpected, in whatever good order it then went.
        expected = child.reason is None and (
            child.phase is ChildPhase.EXPIRED
            or (child.phase is ChildPhase.DONE and (event.code == 0 or child.pressed > 0))
        )
        slot = child.slot
        # However orderly it went: a replacement that never took over has not become what it was started for.
        if not stopping and (not expected or child is slot.successor):
            return self._unexpected(child, cause, now)
        slot.remove(child)
        level = "info" if child.phase is ChildPhase.DONE and expected and child.pressed == 0 else "warning"
        effects: list[Effect] = [LogEvent(level, "worker.child.exit", {"slot": slot.index, "cause": cause})]
        if stopping:
            return effects
        if child.exhausted:
            slot.finished, slot.handing_over = True, False
            slot.served = True
            if slot.current is not None:
                effects.append(TellChild(slot.index, slot.current.incarnation, "stop"))
                slot.current.phase = ChildPhase.RETIRING
                slot.current.deadline = now + self._pool.grace
            return effects
        return effects + self._succeed(slot, now)

    def _succeed(self, slot: Slot, now: float) -> list[Effect]:
        """The holder is gone in order: whoever waits takes over, else a new one is started."""
        if slot.current is None:
            if slot.finished:
                return []
            return self.launch(slot, now + self._pool.boot_time)
        if slot.current.phase is ChildPhase.BOOTED:
            return self._take_over(slot.current, now)
        return []

    def _unexpected(self, child: Child, cause: str, now: float) -> list[Effect]:
        slot, pool = child.slot, self._pool
        was_successor = child is slot.successor
        reason = child.reason or "worker-child-exited"
        slot.remove(child)
        log = LogEvent("error", "worker.child.exit", {"slot": slot.index, "cause": cause, "reason": reason})
        effects: list[Effect] = [log]
        if pool.status is PoolStatus.STOPPING or slot.finished:
            return effects
        if child.reason is not None:
            self._logged.add(child.reason)
        if pool.status is PoolStatus.STARTING and not slot.served:
            return effects + pool.fail(reason, now)
        if pool.policy.once and child.exhausted:
            # It had its job: another child would take a second one.
            return effects + pool.fail(reason, now)
        if was_successor and slot.current is not None and slot.current.phase is ChildPhase.LAST:
            # A bad deploy does not take a working child away.
            slot.handing_over = False
            slot.current.phase = ChildPhase.READY
            return [*effects, Count("recycle_failure"), TellChild(slot.index, slot.current.incarnation, "go on")]
        if slot.handing_over:
            effects.append(Count("recycle_failure"))
        slot.handing_over = was_successor and slot.current is not None
        if not pool.survive(now):
            return effects + pool.fail(reason, now)
        if was_successor:
            return effects  # the holder retires; whoever comes then is started when it has gone
        slot.streak = next_streak(slot.streak, 0.0 if child.ready_at is None else now - child.ready_at)
        wait = pause(slot.streak)
        slot.streak += 1
        if slot.current is not None:
            return effects + self._succeed(slot, now)
        slot.restart_at = now + wait
        return effects if wait > 0 else effects + self.refill(slot, now)


def _stimulus(event: ChildEvent) -> Stimulus:
    if isinstance(event, ChildSaid):
        return _WORDS.get(event.word, Stimulus.GARBLED)
    return _REPORTS[type(event)]


def _cause(child: Child, event: ChildExited) -> str:
    """Why the child ended, for the log: one of a closed list."""
    if child.phase is ChildPhase.DONE and event.code == 0 and not child.pressed:
        return "done"
    if child.pressed == 2:
        return "killed-at-deadline"
    if child.pressed == 1:
        return "terminated-at-deadline"
    if child.phase is ChildPhase.EXPIRED:
        return "timeout"
    if child.reason is not None:
        return "failed"
    if event.signal == 9:
        return "killed"
    if event.signal in (4, 6, 7, 8, 11):
        return "crashed"
    if event.signal is not None:
        return "signalled"
    return "exited"
