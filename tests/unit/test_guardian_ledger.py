"""The guardian's ledger: every decision, on no process at all."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from platform_worker.guardian import ledger as module
from platform_worker.guardian.ledger import (
    AllCleared,
    ChildState,
    Cleared,
    Emit,
    Ended,
    Executed,
    Garbled,
    Heard,
    KillGroup,
    Ledger,
    LedgerError,
    LetGo,
    Name,
    NotForked,
    OwnerLost,
    OwnerState,
    Refused,
    SendTerm,
    Spawn,
    Sweep,
    SweepAll,
    Write,
)
from platform_worker.pool.shutdown import Budgets
from platform_worker.protocol.ownership import (
    Exited,
    Kill,
    OwnershipViolation,
    Release,
    Released,
    Said,
    Start,
    Started,
    StartFailed,
    Tell,
    Terminate,
)

A = Name(0, 1)
BUDGETS = Budgets(10000, 1000)
STARTING, RUNNING, REFUSED, ENDED = ChildState
GONE = None
BUG = LedgerError

#: State, event, effects, next state.
ROWS = [
    (STARTING, Executed(A), [Emit(Started(0, 1))], RUNNING),
    (RUNNING, Executed(A), [], RUNNING),
    (REFUSED, Executed(A), BUG, REFUSED),
    (ENDED, Executed(A), BUG, ENDED),
    (STARTING, Refused(A, "worker-child-start-failed"), [], REFUSED),
    (RUNNING, Refused(A, "worker-child-start-failed"), BUG, RUNNING),
    (REFUSED, Refused(A, "worker-child-start-failed"), BUG, REFUSED),
    (ENDED, Refused(A, "worker-child-start-failed"), BUG, ENDED),
    (STARTING, NotForked(A, "worker-fork-failed"), [Emit(StartFailed(0, 1, "worker-fork-failed"))], GONE),
    (RUNNING, NotForked(A, "worker-fork-failed"), BUG, RUNNING),
    (REFUSED, NotForked(A, "worker-fork-failed"), BUG, REFUSED),
    (ENDED, NotForked(A, "worker-fork-failed"), BUG, ENDED),
    (STARTING, Heard(A, "booted"), [Emit(Started(0, 1)), Emit(Said(0, 1, "booted"))], RUNNING),
    (RUNNING, Heard(A, "ready"), [Emit(Said(0, 1, "ready"))], RUNNING),
    (REFUSED, Heard(A, "ready"), [], REFUSED),
    (ENDED, Heard(A, "ready"), BUG, ENDED),
    (STARTING, Garbled(A), [KillGroup(A)], STARTING),
    (RUNNING, Garbled(A), [KillGroup(A)], RUNNING),
    (REFUSED, Garbled(A), [], REFUSED),
    (ENDED, Garbled(A), [], ENDED),
    (STARTING, Ended(A, 0, None), BUG, STARTING),
    (RUNNING, Ended(A, 0, None), [Sweep()], ENDED),
    (REFUSED, Ended(A, 127, None), [Sweep()], ENDED),
    (ENDED, Ended(A, 0, None), BUG, ENDED),
    (STARTING, Cleared(A), BUG, STARTING),
    (RUNNING, Cleared(A), BUG, RUNNING),
    (REFUSED, Cleared(A), BUG, REFUSED),
    (ENDED, Cleared(A), [Emit(Exited(0, 1, None, 9))], GONE),
    (STARTING, Tell(0, 1, "go"), [Write(A, "go")], STARTING),
    (RUNNING, Tell(0, 1, "go"), [Write(A, "go")], RUNNING),
    (REFUSED, Tell(0, 1, "go"), [], REFUSED),
    (ENDED, Tell(0, 1, "go"), [], ENDED),
    (STARTING, Terminate(0, 1), [Write(A, "terminate"), SendTerm(A)], STARTING),
    (RUNNING, Terminate(0, 1), [Write(A, "terminate"), SendTerm(A)], RUNNING),
    (REFUSED, Terminate(0, 1), [], REFUSED),
    (ENDED, Terminate(0, 1), [], ENDED),
    (STARTING, Kill(0, 1), [KillGroup(A)], STARTING),
    (RUNNING, Kill(0, 1), [KillGroup(A)], RUNNING),
    (REFUSED, Kill(0, 1), [], REFUSED),
    (ENDED, Kill(0, 1), [], ENDED),
]


def with_child(state, budgets=BUDGETS):
    """A ledger with the one child A in ``state``."""
    ledger = Ledger(budgets)
    assert [Spawn(A, {})] == ledger.handle(Start(0, 1, {}), 0.0)
    steps = {
        STARTING: [],
        RUNNING: [Executed(A)],
        REFUSED: [Refused(A, "worker-child-start-failed")],
        ENDED: [Executed(A), Ended(A, None, 9)],
    }
    for event in steps[state]:
        ledger.handle(event, 0.0)
    return ledger


def test_the_table_is_total():
    """Every state has its cell for every event, and a row here."""
    assert set(module._TABLE) == {(state, type(event)) for state, event, _, _ in ROWS}


@pytest.mark.parametrize(("state", "event", "effects", "after"), ROWS)
def test_row(state, event, effects, after):
    """One row of the table: what is done, and what the child is afterwards."""
    ledger = with_child(state)
    if effects is BUG:
        with pytest.raises(LedgerError):
            ledger.handle(event, 1.0)
    else:
        assert effects == ledger.handle(event, 1.0)
    assert ({} if after is GONE else {A: after}) == ledger.states()
    ledger.validate()


def test_a_refused_program_is_a_failed_start_not_an_exit():
    """The supervisor hears of it when the process that tried is reaped, once."""
    ledger = with_child(REFUSED)
    ledger.handle(Ended(A, 127, None), 0.0)
    assert [Emit(StartFailed(0, 1, "worker-child-start-failed"))] == ledger.handle(Cleared(A), 0.0)


@pytest.mark.parametrize("command", [Tell(0, 1, "stop"), Terminate(0, 1), Kill(0, 1)])
def test_a_command_for_a_child_that_is_gone_is_ignored(command):
    """The command and the exit crossed on their ways."""
    assert [] == Ledger(BUDGETS).handle(command, 0.0)


def test_news_of_an_unknown_child_is_a_bug():
    """The guardian knows whom it started."""
    with pytest.raises(LedgerError):
        Ledger(BUDGETS).handle(Heard(A, "ready"), 0.0)


def test_two_incarnations_of_a_slot_live_side_by_side():
    """A replacement boots while the old child works; the same child twice is refused."""
    ledger = with_child(RUNNING)
    ledger.handle(Start(0, 2, {}), 0.0)
    assert {A: RUNNING, Name(0, 2): STARTING} == ledger.states()
    with pytest.raises(OwnershipViolation):
        ledger.handle(Start(0, 2, {}), 0.0)


def test_release():
    """Strays are killed, then the fence is let go, then the supervisor hears of it."""
    ledger = Ledger(BUDGETS)
    assert [SweepAll()] == ledger.handle(Release(), 0.0)
    assert [] == ledger.handle(OwnerLost(), 0.0)
    assert [LetGo(), Emit(Released())] == ledger.handle(AllCleared(), 0.0)
    assert OwnerState.CLOSED is ledger.owner


@pytest.mark.parametrize("state", list(ChildState))
def test_release_with_a_child_is_refused(state):
    """The fence covers every child, also one that is only not yet cleared away."""
    with pytest.raises(OwnershipViolation):
        with_child(state).handle(Release(), 0.0)


def test_nothing_starts_after_release():
    """What would live beside the next generation is not begun."""
    ledger = Ledger(BUDGETS)
    ledger.handle(Release(), 0.0)
    with pytest.raises(OwnershipViolation):
        ledger.handle(Start(0, 1, {}), 0.0)


def test_the_supervisor_dies_and_nobody_is_there():
    """The fence is let go at once, and nobody is told."""
    ledger = Ledger(BUDGETS)
    assert [SweepAll()] == ledger.handle(OwnerLost(), 0.0)
    assert [LetGo()] == ledger.handle(AllCleared(), 0.0)


def test_the_supervisor_dies_over_a_child_that_does_not_end():
    """The whole ladder, with the claim's budgets; the fence is kept until the child is reaped and cleared away."""
    ledger = with_child(RUNNING)
    assert [Write(A, "stop")] == ledger.handle(OwnerLost(), 100.0)
    assert 110.0 == ledger.next_deadline()
    assert [] == ledger.advance(109.0)
    assert [Write(A, "terminate"), SendTerm(A)] == ledger.advance(110.0)
    assert [KillGroup(A)] == ledger.advance(111.0)
    assert [] == ledger.advance(112.0)
    assert ledger.next_deadline() is None
    assert [Sweep()] == ledger.handle(Ended(A, None, 9), 500.0)
    assert OwnerState.ORPHANED is ledger.owner
    assert [SweepAll()] == ledger.handle(Cleared(A), 500.0)
    assert [LetGo()] == ledger.handle(AllCleared(), 500.0)


def test_an_orphaned_guardian_tells_nobody():
    """Nothing is emitted after the supervisor's death."""
    ledger = with_child(STARTING)
    ledger.handle(OwnerLost(), 0.0)
    assert [] == ledger.handle(Heard(A, "done"), 0.0)


@pytest.mark.parametrize(("state", "told"), [(STARTING, True), (RUNNING, True), (REFUSED, False), (ENDED, False)])
def test_only_the_living_are_asked(state, told):
    """A child that is being born is asked too; one that is dead is not."""
    assert ([Write(A, "stop")] if told else []) == with_child(state).handle(OwnerLost(), 0.0)


def test_the_last_start_fails_while_orphaned():
    """The guardian ends then, too."""
    ledger = with_child(STARTING)
    ledger.handle(OwnerLost(), 0.0)
    assert [SweepAll()] == ledger.handle(NotForked(A, "worker-fork-failed"), 0.0)


def test_the_supervisor_dies_once():
    """The end of one channel comes once."""
    ledger = with_child(RUNNING)
    ledger.handle(OwnerLost(), 0.0)
    with pytest.raises(LedgerError):
        ledger.handle(OwnerLost(), 0.0)


class LateHost(RuleBasedStateMachine):
    """Plays supervisor and machine, late and out of order; at the end everything must be gone and the fence free."""

    @initialize()
    def begin(self):
        self.ledger = Ledger(BUDGETS)
        self.now = 0.0
        self.alive = {}
        self.unswept = set()
        self.free = False
        self.told = []

    def do(self, event):
        for effect in self.ledger.handle(event, self.now):
            self.effect(effect)

    def effect(self, effect):
        assert not self.free
        match effect:
            case Spawn(name):
                self.alive[name] = "forked"
            case Write(name) | SendTerm(name) | KillGroup(name):
                assert name in self.alive
            case LetGo():
                assert not self.alive
                assert not self.unswept
                self.free = True
                return
            case Emit(event):
                assert self.ledger.owner is not OwnerState.ORPHANED
                if isinstance(event, Exited):
                    assert Name(event.slot, event.incarnation) not in self.alive
                self.told.append(event)

    @precondition(lambda self: self.ledger.owner is OwnerState.OWNED)
    @rule(slot=st.integers(0, 2), incarnation=st.integers(1, 3))
    def start(self, slot, incarnation):
        if Name(slot, incarnation) not in self.ledger.states():
            self.do(Start(slot, incarnation, {}))

    @precondition(lambda self: self.ledger.owner is OwnerState.OWNED)
    @rule(slot=st.integers(0, 2), incarnation=st.integers(1, 3), kind=st.sampled_from([Terminate, Kill]))
    def command(self, slot, incarnation, kind):
        self.do(kind(slot, incarnation))

    @rule(data=st.data())
    def child(self, data):
        if not self.alive:
            return
        name = data.draw(st.sampled_from(sorted(self.alive, key=repr)))
        what = data.draw(st.sampled_from(["run", "refuse", "say", "end", "garble"]))
        forked = self.alive[name] == "forked"
        if what == "refuse" and forked:
            self.do(Refused(name, "worker-child-start-failed"))
            self.alive[name] = "refused"
        elif what == "garble":
            self.do(Garbled(name))
        elif what == "end":
            if forked:
                self.do(Executed(name))
            del self.alive[name]
            self.unswept.add(name)
            self.do(Ended(name, None, 9))
        elif self.alive[name] != "refused":
            self.alive[name] = "runs"
            self.do(Executed(name) if what == "run" else Heard(name, "ready"))

    @precondition(lambda self: self.unswept)
    @rule(data=st.data())
    def cleared(self, data):
        name = data.draw(st.sampled_from(sorted(self.unswept, key=repr)))
        self.unswept.discard(name)
        self.do(Cleared(name))

    @precondition(lambda self: self.ledger.owner is OwnerState.OWNED)
    @rule()
    def supervisor_dies(self):
        self.do(OwnerLost())

    @rule(seconds=st.floats(0, 20))
    def time_passes(self, seconds):
        self.now += seconds
        for effect in self.ledger.advance(self.now):
            self.effect(effect)

    @invariant()
    def holds(self):
        self.ledger.validate()

    def teardown(self):
        if not hasattr(self, "ledger"):
            return
        if self.ledger.owner is OwnerState.OWNED:
            self.supervisor_dies()
        for name in list(self.alive):
            if self.alive[name] == "forked":
                self.do(Executed(name))
            del self.alive[name]
            self.unswept.add(name)
            self.do(Ended(name, None, 9))
        for name in list(self.unswept):
            self.unswept.discard(name)
            self.do(Cleared(name))
        assert OwnerState.CLOSING is self.ledger.owner
        self.do(AllCleared())
        assert self.free


TestLateHost = LateHost.TestCase
TestLateHost.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
