"""The ledger of children: every decision of the guardian. Pure; nothing else moves a child's state.

A child is ``STARTING`` (forked, its program not known to run), ``RUNNING``, ``REFUSED`` (its program could not be
executed), ``ENDED`` (reaped, what it left behind is being killed), and then forgotten. The guardian has no policy of
its own: it does what it is told, and when the supervisor is dead it goes down the shutdown ladder with the budgets it
got with the claim.
"""

from __future__ import annotations

from enum import Enum

from platform_worker.pool.shutdown import Ladder, Phase
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
from platform_worker.value import Value, unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    from platform_worker.pool.shutdown import Budgets
    from platform_worker.protocol.ownership import GuardianEvent


class Name(Value):
    """Which child: the slot's number and how manieth child of the slot it is."""

    slot: int
    incarnation: int


class ChildState(Enum):
    """Where a child is."""

    #: Forked; whether its program runs is not known yet.
    STARTING = "starting"
    #: Its program runs.
    RUNNING = "running"
    #: Its program could not be executed; the process that tried is about to be reaped.
    REFUSED = "refused"
    #: Reaped; what it left behind is being killed.
    ENDED = "ended"


class OwnerState(Enum):
    """Whose word counts."""

    #: The supervisor's.
    OWNED = "owned"
    #: Nobody's: the supervisor is dead, the ladder decides.
    ORPHANED = "orphaned"
    #: No child is left, none will come; stray descendants are being killed.
    CLOSING = "closing"
    #: The fence is let go.
    CLOSED = "closed"


class Executed(Value):
    """The child's program runs."""

    name: Name


class Refused(Value):
    """The child's program could not be executed; its process ends by itself."""

    name: Name
    reason: str


class NotForked(Value):
    """The machine refused a process; there is none."""

    name: Name
    reason: str


class Heard(Value):
    """The child said a line."""

    name: Name
    line: str


class Garbled(Value):
    """The child said what is no line, or has long not read what it is told."""

    name: Name


class Ended(Value):
    """The child is reaped; everything it said has been heard."""

    name: Name
    code: int | None
    signal: int | None


class Cleared(Value):
    """Nothing is left of what the child left behind."""

    name: Name


class OwnerLost(Value):
    """The supervisor is dead, or what it says is not to be trusted."""


class AllCleared(Value):
    """The guardian has no process left, neither children nor strays."""


class Spawn(Value):
    """Start the child; its first line is ``boot``."""

    name: Name
    boot: Mapping[str, Any]


class Write(Value):
    """Say ``word`` on the child's lifeline."""

    name: Name
    word: str


class SendTerm(Value):
    """SIGTERM to the child."""

    name: Name


class KillGroup(Value):
    """SIGKILL to the child and its process group."""

    name: Name


class Sweep(Value):
    """Kill what ended children left behind; answer with ``Cleared`` for each."""


class SweepAll(Value):
    """Kill every process that is left; answer with ``AllCleared``."""


class Emit(Value):
    """Tell the supervisor."""

    event: GuardianEvent


class LetGo(Value):
    """Release the fence. Nothing of this generation lives but the guardian (and the supervisor, if it does)."""


if TYPE_CHECKING:
    ChildEvent: TypeAlias = Executed | Refused | NotForked | Heard | Garbled | Ended | Cleared | Tell | Terminate | Kill
    Event: TypeAlias = ChildEvent | Start | Release | OwnerLost | AllCleared
    Effect: TypeAlias = Spawn | Write | SendTerm | KillGroup | Sweep | SweepAll | Emit | LetGo


class LedgerError(AssertionError):
    """Something happened that cannot: a bug of the guardian's. Its death ends the children at once, which is safe."""


class _Child:
    __slots__ = ("code", "name", "reason", "signal", "state")

    def __init__(self, name: Name) -> None:
        self.name = name
        self.state = ChildState.STARTING
        self.reason: str | None = None
        self.code: int | None = None
        self.signal: int | None = None


class Ledger:
    """``handle(event, now)`` and ``advance(now)`` return what to do; ``next_deadline()`` says when to ``advance``."""

    def __init__(self, budgets: Budgets) -> None:
        self.owner = OwnerState.OWNED
        self._children: dict[Name, _Child] = {}
        self._ladder = Ladder(budgets)
        self._told = True

    def states(self) -> dict[Name, ChildState]:
        """Every child that is not forgotten."""
        return {name: child.state for name, child in self._children.items()}

    def ended(self) -> list[Name]:
        """The children whose leftovers are being killed."""
        return [name for name, child in self._children.items() if child.state is ChildState.ENDED]

    def next_deadline(self) -> float | None:
        """When the ladder's next phase begins."""
        return self._ladder.next_deadline() if self.owner is OwnerState.ORPHANED else None

    def advance(self, now: float) -> list[Effect]:
        """Time has passed."""
        if self.owner is not OwnerState.ORPHANED:
            return []
        return self._enter(self._ladder.advance(now))

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Something happened. Raises ``OwnershipViolation`` for a command the supervisor must not give."""
        if isinstance(event, Start):
            return self._start(event)
        if isinstance(event, Release):
            if self._children or self.owner is not OwnerState.OWNED:
                raise OwnershipViolation("release: children are left")
            return self._close()
        if isinstance(event, OwnerLost):
            return self._orphan(now)
        return self._closed() if isinstance(event, AllCleared) else self._of_child(event)

    def _of_child(self, event: ChildEvent) -> list[Effect]:
        commanded = isinstance(event, Tell | Terminate | Kill)
        name = Name(event.slot, event.incarnation) if isinstance(event, Tell | Terminate | Kill) else event.name
        child = self._children.get(name)
        if child is None:
            if commanded:
                return []  # a command and the child's end crossed on their ways
            raise LedgerError(f"{type(event).__name__} of {name}, who is not in the ledger")
        effects = _TABLE[child.state, type(event)](child, event)
        if isinstance(event, Cleared | NotForked):
            del self._children[name]
        if self.owner is OwnerState.OWNED:
            return effects
        effects = [effect for effect in effects if not isinstance(effect, Emit)]
        if self.owner is OwnerState.ORPHANED and not self._children:
            effects += self._close()
        return effects

    def validate(self) -> None:
        """The invariants, for tests."""
        assert not (self._children and self.owner in (OwnerState.CLOSING, OwnerState.CLOSED))
        for name, child in self._children.items():
            assert child.name == name
            assert (child.code is None) or (child.signal is None)
            assert (child.state is ChildState.ENDED) == (child.code is not None or child.signal is not None)
            assert child.reason is None or child.state in (ChildState.REFUSED, ChildState.ENDED)

    def _start(self, event: Start) -> list[Effect]:
        name = Name(event.slot, event.incarnation)
        if name in self._children or self.owner is not OwnerState.OWNED:
            raise OwnershipViolation("start: not now, or not this child again")
        self._children[name] = _Child(name)
        return [Spawn(name, event.boot)]

    def _orphan(self, now: float) -> list[Effect]:
        if self.owner is not OwnerState.OWNED:
            if self.owner is OwnerState.ORPHANED:
                raise LedgerError("the supervisor was lost twice")
            return []  # it released, then went away
        self.owner = OwnerState.ORPHANED
        if not self._children:
            return self._close()
        return self._enter(self._ladder.begin(now))

    def _enter(self, phases: list[Phase]) -> list[Effect]:
        alive = [name for name, child in self._children.items() if child.state in _ALIVE]
        effects: list[Effect] = []
        for phase in phases:
            match phase:
                case Phase.COOPERATIVE:
                    effects += [Write(name, "stop") for name in alive]
                case Phase.TERMINATE:
                    for name in alive:
                        effects += [Write(name, "terminate"), SendTerm(name)]
                case Phase.KILL:
                    effects += [KillGroup(name) for name in alive]
                case Phase.OVER:
                    pass  # the kernel has not let them go; the fence is kept until it does
                case _:
                    unreachable(phase)
        return effects

    def _close(self) -> list[Effect]:
        self._told = self.owner is OwnerState.OWNED
        self.owner = OwnerState.CLOSING
        return [SweepAll()]

    def _closed(self) -> list[Effect]:
        if self.owner is not OwnerState.CLOSING:
            raise LedgerError(f"all cleared while {self.owner.value}")
        self.owner = OwnerState.CLOSED
        return [LetGo(), Emit(Released())] if self._told else [LetGo()]


_ALIVE = (ChildState.STARTING, ChildState.RUNNING)


def _executed(child: _Child, _event: object) -> list[Effect]:
    child.state = ChildState.RUNNING
    return [Emit(Started(child.name.slot, child.name.incarnation))]


def _refused(child: _Child, event: Refused) -> list[Effect]:
    child.state = ChildState.REFUSED
    child.reason = event.reason
    return []


def _not_forked(child: _Child, event: NotForked) -> list[Effect]:
    return [Emit(StartFailed(child.name.slot, child.name.incarnation, event.reason))]


def _heard(child: _Child, event: Heard) -> list[Effect]:
    return [Emit(Said(child.name.slot, child.name.incarnation, event.line))]


def _heard_early(child: _Child, event: Heard) -> list[Effect]:
    """What speaks runs; the report of it is still on its way."""
    return [*_executed(child, event), *_heard(child, event)]


def _kill(child: _Child, _event: object) -> list[Effect]:
    return [KillGroup(child.name)]


def _tell(child: _Child, event: Tell) -> list[Effect]:
    return [Write(child.name, event.word)]


def _terminate(child: _Child, _event: Terminate) -> list[Effect]:
    return [Write(child.name, "terminate"), SendTerm(child.name)]


def _ended(child: _Child, event: Ended) -> list[Effect]:
    child.state = ChildState.ENDED
    child.code, child.signal = event.code, event.signal
    return [Sweep()]


def _cleared(child: _Child, _event: Cleared) -> list[Effect]:
    slot, incarnation = child.name.slot, child.name.incarnation
    if child.reason is not None:
        return [Emit(StartFailed(slot, incarnation, child.reason))]
    return [Emit(Exited(slot, incarnation, child.code, child.signal))]


def _ignored(_child: _Child, _event: object) -> list[Effect]:
    """It comes too late to matter, and rightly so."""
    return []


def _impossible(child: _Child, event: object) -> list[Effect]:
    raise LedgerError(f"{type(event).__name__} of a child that is {child.state.value}")


_COLUMNS: tuple[ChildState, ...] = (
    ChildState.STARTING,
    ChildState.RUNNING,
    ChildState.REFUSED,
    ChildState.ENDED,
)
_ROWS: dict[type[Any], tuple[Callable[[_Child, Any], list[Effect]], ...]] = {
    #          STARTING      RUNNING      REFUSED      ENDED
    Executed: (_executed, _ignored, _impossible, _impossible),
    Refused: (_refused, _impossible, _impossible, _impossible),
    NotForked: (_not_forked, _impossible, _impossible, _impossible),
    Heard: (_heard_early, _heard, _ignored, _impossible),
    Garbled: (_kill, _kill, _ignored, _ignored),
    Ended: (_impossible, _ended, _ended, _impossible),
    Cleared: (_impossible, _impossible, _impossible, _cleared),
    Tell: (_tell, _tell, _ignored, _ignored),
    Terminate: (_terminate, _terminate, _ignored, _ignored),
    Kill: (_kill, _kill, _ignored, _ignored),
}
_TABLE = {(state, event): row[column] for event, row in _ROWS.items() for column, state in enumerate(_COLUMNS)}
