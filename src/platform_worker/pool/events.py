"""What can happen to a pool: a closed union of frozen values."""

from __future__ import annotations

from platform_worker.pool.states import StopMode
from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias


class FenceClaimed(Value):
    """The guardian holds the fence; ``generation`` is the worker generation's number."""

    generation: int


class FenceBusy(Value):
    """Another generation of this pool lives."""


class GuardianRefused(Value):
    """The claim failed for a reason of the machine's."""

    reason: str


class GuardianLost(Value):
    """The guardian is dead; the children die with it."""


class FenceReleased(Value):
    """The guardian let go of the fence and ends."""


class SetupFailed(Value):
    """A file or socket that the supervisor cannot do without could not be made."""

    reason: str
    hints: tuple[str, ...] = ()


class StopRequested(Value):
    """A signal, or ``worker stop``."""

    mode: StopMode


class ChildStarted(Value):
    """The child's program runs."""

    slot: int
    incarnation: int


class ChildNotStarted(Value):
    """There is no such child: the machine or its program refused. Nothing else follows."""

    slot: int
    incarnation: int
    reason: str


class ChildSaid(Value):
    """A word on the lifeline; ``reason`` only with ``failed``. A word that is none is ``word`` = "" here."""

    slot: int
    incarnation: int
    word: str
    reason: str | None = None


class ChildPulsed(Value):
    """What a child says of itself, in milliseconds: see ``protocol.lifeline.Pulse``."""

    slot: int
    incarnation: int
    limit_ms: int
    silent_ms: int
    task_ms: int | None


class ChildExited(Value):
    """The child is reaped, and nothing of it is left. Exactly one of ``code`` and ``signal`` is set."""

    slot: int
    incarnation: int
    code: int | None
    signal: int | None


if TYPE_CHECKING:
    ChildEvent: TypeAlias = ChildStarted | ChildNotStarted | ChildSaid | ChildPulsed | ChildExited
    Event: TypeAlias = (
        FenceClaimed
        | FenceBusy
        | GuardianRefused
        | GuardianLost
        | FenceReleased
        | SetupFailed
        | StopRequested
        | ChildEvent
    )
