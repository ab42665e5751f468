"""The table is total, and a host that is late, repeats itself and reorders cannot break a pool."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from platform_worker.pool.effects import Finish, KillChild, ReleaseFence, StartChild, TellChild, TerminateChild
from platform_worker.pool.events import (
    ChildExited,
    ChildNotStarted,
    ChildPulsed,
    ChildSaid,
    ChildStarted,
    FenceClaimed,
    FenceReleased,
    GuardianLost,
    StopRequested,
)
from platform_worker.pool.health import health_reason
from platform_worker.pool.machine import Policy, PoolMachine
from platform_worker.pool.restart import RestartBudget, next_streak, pause
from platform_worker.pool.states import ChildPhase, PoolStatus, StopMode
from platform_worker.pool.transitions import TRANSITIONS, Action, Stimulus


def test_every_phase_has_a_cell_for_every_stimulus() -> None:
    assert {(phase, stimulus) for phase in ChildPhase for stimulus in Stimulus} == TRANSITIONS.keys()


def test_every_action_stands_in_the_table() -> None:
    assert set(Action) == set(TRANSITIONS.values())


def test_an_exit_is_possible_in_every_phase() -> None:
    assert {Action.LEAVE} == {TRANSITIONS[phase, Stimulus.EXITED] for phase in ChildPhase}


def test_the_first_reason_that_applies_is_given() -> None:
    rows = [
        (PoolStatus.STOPPING, True, 0, True, "worker-child-failure"),
        (PoolStatus.STARTING, False, 0, True, "worker-pool-starting"),
        (PoolStatus.STOPPING, False, 2, True, "worker-pool-stopping"),
        (PoolStatus.RUNNING, False, 1, True, "worker-pool-not-ready"),
        (PoolStatus.RUNNING, False, 2, True, "worker-pool-stalled"),
        (PoolStatus.RUNNING, False, 2, False, "healthy"),
    ]
    assert [row[4] for row in rows] == [
        health_reason(status, failing, ready, 2, stalled) for status, failing, ready, stalled, _ in rows
    ]


@given(st.lists(st.floats(0, 100), max_size=30), st.integers(0, 5))
def test_the_budget_never_lets_more_through_than_its_intensity_in_a_period(gaps: list[float], intensity: int) -> None:
    budget, now, survived = RestartBudget(intensity, 10.0), 0.0, []
    for gap in gaps:
        now += gap
        if budget.spend(now):
            survived.append(now)
    assert all(sum(at <= other < at + 10.0 for other in survived) <= intensity for at in survived)


@given(st.integers(0, 100), st.floats(0, 1000))
def test_pauses_are_bounded_and_never_shrink(streak: int, ready: float) -> None:
    assert 0 <= pause(streak) <= pause(streak + 1) <= 5.0
    assert next_streak(streak, ready) in (0, streak)


class LateHost:
    """A guardian with children that behave, misbehave, die and are late, as the drawn numbers say."""

    def __init__(self, workers: int, intensity: int) -> None:
        self.pool = PoolMachine(Policy(workers, 1000, 500, 100, intensity, 60_000))
        self.now = 0.0
        self.pool.begin(0.0)
        self.alive: dict[tuple[int, int], str] = {}
        self.told: set[tuple[int, int, str]] = set()
        self.finish: Finish | None = None
        self.released = False
        self.take(self.pool.handle(FenceClaimed(1), 0.0))

    def take(self, effects: list[object]) -> None:
        self.pool.validate()
        for effect in effects:
            match effect:
                case StartChild(slot, incarnation):
                    assert self.pool.status is not PoolStatus.STOPPING, "a start after the stop"
                    self.alive[slot, incarnation] = "launched"
                    at_work = [key for key, state in self.alive.items() if key[0] == slot and state == "working"]
                    assert len(at_work) <= 1, "two at work in one slot"
                case TellChild(slot, incarnation, "go"):
                    others = [key for key in self.alive if key[0] == slot and key[1] < incarnation]
                    assert [] == others, "a child takes over while an older incarnation lives"
                case TellChild(slot, incarnation, word):
                    self.told.add((slot, incarnation, word))
                case TerminateChild() | KillChild():
                    assert not self.released
                case ReleaseFence():
                    assert not self.alive, "the fence is let go while a child lives"
                    self.released = True
                case Finish():
                    self.finish = effect
                case _:
                    pass

    def step(self, pick: int, kind: int, delay: float) -> None:
        self.now += delay
        self.take(list(self.pool.advance(self.now)))
        if not self.alive:
            return
        key = sorted(self.alive)[pick % len(self.alive)]
        slot, incarnation = key
        state = self.alive[key]
        if kind == 0:
            del self.alive[key]
            self.send(ChildExited(slot, incarnation, None, 9))
        elif state == "launched" and kind == 1:
            del self.alive[key]
            self.send(ChildNotStarted(slot, incarnation, "worker-fork-failed"))
        elif state == "launched":
            self.alive[key] = "booting"
            self.send(ChildStarted(slot, incarnation))
        elif kind >= 14:
            if state in ("working", "last"):
                task_ms = None if kind == 15 else 5
                self.send(ChildPulsed(slot, incarnation, 100, 200 * (kind - 14), task_ms))
        elif kind == 1 or state == "done":
            del self.alive[key]
            self.send(ChildExited(slot, incarnation, 0 if state == "done" else 1, None))
        else:
            words = ["booted", "ready", "last", "done", "failed", "", "timeout"]
            word = {"booting": "booted", "booted": "ready", "working": "last", "last": "done"}.get(state, "done")
            word = words[kind % 7] if kind > 7 else word
            self.alive[key] = {"booted": "booted", "ready": "working", "last": "last", "done": "done"}.get(word, state)
            self.send(ChildSaid(slot, incarnation, word, "worker-child-exited" if word == "failed" else None))

    def send(self, event: object) -> None:
        self.take(list(self.pool.handle(event, self.now)))  # type: ignore[arg-type]


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(0, 4),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 16), st.floats(0, 0.3)), max_size=60),
    st.sampled_from(list(StopMode)),
    st.booleans(),
)
def test_whatever_the_children_do_the_pool_ends_with_nobody_left(
    workers: int, intensity: int, steps: list[tuple[int, int, float]], mode: StopMode, guardian_dies: bool
) -> None:
    host = LateHost(workers, intensity)
    for pick, kind, delay in steps:
        host.step(pick, kind, delay)
    if guardian_dies and host.finish is None:
        host.send(GuardianLost())
        assert host.finish is not None
        return
    host.send(StopRequested(mode))
    for _ in range(20):
        at = host.pool.next_deadline()
        if at is None:
            break
        host.now = max(host.now, at)
        host.take(list(host.pool.advance(host.now)))
    for slot, incarnation in sorted(host.alive):
        del host.alive[slot, incarnation]
        host.send(ChildExited(slot, incarnation, None, 9))
    assert host.released
    host.send(FenceReleased())
    assert host.finish is not None
    assert host.pool.next_deadline() is None
