"""The shutdown ladder: ask, terminate, kill. Pure; ``now`` is monotonic seconds.

Both the pool's machine and, when the supervisor is dead, the guardian go down the same ladder with the same budgets.
Each phase has one deadline for all children, counted from the instant it was entered: a process that was stopped or
starved in between still gives the children their whole grace.
"""

from __future__ import annotations

from enum import Enum

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Phase(Enum):
    """A rung of the ladder."""

    #: Children are told to stop: they finish the task in hand and take no other.
    COOPERATIVE = "cooperative"
    #: Children that are left are told to terminate, then SIGTERM: the task in hand is interrupted and released.
    TERMINATE = "terminate"
    #: Children that are left get SIGKILL, with their whole process group.
    KILL = "kill"
    #: Even SIGKILL did not end them in time. Nothing more can be done than to wait for the kernel.
    OVER = "over"


#: The order of the rungs, and what follows each.
_NEXT: Mapping[Phase, Phase] = {
    Phase.COOPERATIVE: Phase.TERMINATE,
    Phase.TERMINATE: Phase.KILL,
    Phase.KILL: Phase.OVER,
}
_RANK: Mapping[Phase, int] = {phase: rank for rank, phase in enumerate(Phase)}


class Budgets(Value):
    """How long each phase may last, in milliseconds: the settings of the same names."""

    stop_timeout_ms: int
    force_kill_timeout_ms: int

    def seconds(self, phase: Phase) -> float | None:
        """The length of ``phase``; ``None`` where it has no end."""
        if phase is Phase.OVER:
            return None
        return (self.stop_timeout_ms if phase is Phase.COOPERATIVE else self.force_kill_timeout_ms) / 1000


class Ladder:
    """One stop under way. ``phase`` is the rung it is on, ``None`` before ``begin``."""

    def __init__(self, budgets: Budgets) -> None:
        self.budgets = budgets
        self.phase: Phase | None = None
        self._deadline: float | None = None

    def begin(self, now: float, immediate: bool = False) -> list[Phase]:
        """Enters the first phase (``immediate``: the kill phase); returns the phases entered, here exactly one."""
        if self.phase is not None:
            raise ValueError(f"the ladder is at {self.phase.value} already")
        return self._enter(Phase.KILL if immediate else Phase.COOPERATIVE, now)

    def next_deadline(self) -> float | None:
        """When to call ``advance`` next; ``None`` where nothing is due by time alone."""
        return self._deadline

    def last_deadline(self) -> float | None:
        """When the kill phase is over if every phase lasts its whole time; ``None`` before ``begin`` and after that."""
        if self.phase is None or self._deadline is None:
            return None
        at, phase = self._deadline, _NEXT[self.phase]
        while (length := self.budgets.seconds(phase)) is not None:
            at, phase = at + length, _NEXT[phase]
        return at

    def advance(self, now: float) -> list[Phase]:
        """Enters the next phase if its time has come; returns the phases entered, at most one."""
        if self.phase is None or self._deadline is None or now < self._deadline:
            return []
        return self._enter(_NEXT[self.phase], now)

    def skip_to(self, phase: Phase, now: float) -> list[Phase]:
        """Enters ``phase`` at once if it is further down (a second signal, SIGQUIT); never goes up."""
        if self.phase is None:
            raise ValueError("the ladder has not begun")
        if _RANK[phase] <= _RANK[self.phase]:
            return []
        return self._enter(phase, now)

    def _enter(self, phase: Phase, now: float) -> list[Phase]:
        self.phase = phase
        length = self.budgets.seconds(phase)
        self._deadline = None if length is None else now + length
        return [phase]


def ladder(now: float, budgets: Budgets, immediate: bool = False) -> Ladder:
    """A ladder that has begun at ``now``."""
    begun = Ladder(budgets)
    begun.begin(now, immediate)
    return begun
