"""What a pool wants done: a closed union of frozen values. The supervisor's shell carries them out, in order."""

from __future__ import annotations

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias


class StartChild(Value):
    """Start a child. ``quiet``: a boot failure of this pool has been logged with its traceback already."""

    slot: int
    incarnation: int
    quiet: bool


class TellChild(Value):
    """Say one word to the child."""

    slot: int
    incarnation: int
    word: str


class TerminateChild(Value):
    """``terminate`` on the lifeline, then SIGTERM."""

    slot: int
    incarnation: int


class KillChild(Value):
    """SIGKILL to the child's process group."""

    slot: int
    incarnation: int


class Announce(Value):
    """Every slot has been ready: print the summary, tell the service manager."""


class StateChanged(Value):
    """What ``worker status`` would say is another thing than before."""


class RaiseStopFlag(Value):
    """The pool is stopping: write the stop flag."""


class RemoveFiles(Value):
    """No child is left: remove state, stop flag, socket and locator."""


class ReleaseFence(Value):
    """The files are gone: the guardian may let go of the fence and end."""


class AbandonClaim(Value):
    """A stop before the fence was claimed: part from the guardian, which ends without having changed anything."""


class EndGuardian(Value):
    """It has not done in time what it was told: end it, which ends the children."""


class Finish(Value):
    """The end. ``reason`` is ``None`` for a pool that stopped as asked."""

    reason: str | None
    hints: tuple[str, ...] = ()


class LogEvent(Value):
    """One line for the log."""

    level: str
    event: str
    fields: Mapping[str, object]


class Count(Value):
    """One more of a status of ``worker.process_total``."""

    status: str


if TYPE_CHECKING:
    Effect: TypeAlias = (
        StartChild
        | TellChild
        | TerminateChild
        | KillChild
        | Announce
        | StateChanged
        | RaiseStopFlag
        | RemoveFiles
        | ReleaseFence
        | AbandonClaim
        | EndGuardian
        | Finish
        | LogEvent
        | Count
    )
