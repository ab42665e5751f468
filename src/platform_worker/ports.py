"""What children and the supervisor need of the machine: protocols of a few methods. ``host`` implements them.

The words that go through them (events, levels, statuses, outcomes) are closed lists; see docs/ssot/events.md.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, Protocol, TypeAlias

    Level: TypeAlias = Literal["debug", "info", "warning", "error"]
    #: ``queue`` or ``http``: the task type of the pool.
    Operation: TypeAlias = str
    Outcome: TypeAlias = Literal["success", "failure"]
else:

    class Protocol:
        """Stands in for ``typing.Protocol``: importing ``typing`` costs every child a fifth of its start."""


#: Every event that this package logs. No other name is ever logged.
EVENTS = frozenset(
    {
        "worker.process.start",
        "worker.process.stop",
        "worker.process.status",
        "worker.process.containment",
        "worker.child.ready",
        "worker.child.exit",
        "worker.child.recycle",
        "worker.child.restart",
        "worker.child.rejected",
        "worker.child.stalled",
        "worker.task.failed",
        "worker.task.lease_lost",
        "worker.task.released",
        "worker.queue.unavailable",
        "worker.queue.available",
    }
)

#: Every value of the label ``status`` of ``worker.process_total``.
PROCESS_STATUSES = frozenset(
    {
        "start_success",
        "start_failure",
        "stop_success",
        "stop_failure",
        "status_success",
        "status_failure",
        "recycle_success",
        "recycle_failure",
    }
)


class Clock(Protocol):
    """Time that never goes back."""

    def now(self) -> float:
        """Monotonic seconds."""


class Log(Protocol):
    """The log of this process. A log that fails, or whose reader stalls, changes nothing for who writes to it."""

    def event(self, level: Level, event: str, /, **fields: object) -> None:
        """Writes one event of ``EVENTS`` with bounded fields."""

    def failure(self, level: Level, event: str, error: BaseException, /, **fields: object) -> None:
        """The same, with the traceback of an application's own error."""

    def quote(self, level: Level, event: str, text: str, /, **fields: object) -> None:
        """The same, with an application's stacks as a child has written them."""


class TaskSpan(Protocol):
    """One task being measured; current for what the task itself traces."""

    def end(self, outcome: Outcome) -> None:
        """Closes the span, counts the task and its duration."""


class Telemetry(Protocol):
    """Spans and metrics. A back end that fails or hangs changes nothing about a task or a pool."""

    def task(self, operation: Operation) -> TaskSpan:
        """Begins the span ``worker.task``."""

    def process(self, status: str, seconds: float = 0.0) -> None:
        """Counts one of ``PROCESS_STATUSES`` and records the span ``worker.process`` that took ``seconds``."""

    def flush(self, seconds: float) -> None:
        """Hands over what was recorded; waits ``seconds`` at most."""


class Wake(Protocol):
    """A descriptor that is readable while something is to be noticed."""

    def fileno(self) -> int:
        """The descriptor to wait on, never to read."""

    def set(self) -> None:
        """Makes it readable; from any thread, any number of times."""

    def clear(self) -> None:
        """Makes it unreadable again."""


class Self(Protocol):
    """What a child may do to its own process, and say to its guardian."""

    def say(self, line: str) -> None:
        """One line up the lifeline; ends the process where the guardian is gone."""

    def mention(self, line: str) -> None:
        """One line that may be lost: nothing is said where it would have to be waited for."""

    def nudge(self) -> None:
        """Makes the thread that watches look at what is due."""

    def interrupt(self) -> None:
        """Makes the main thread run its signal handler, out of whatever system call it is in."""

    def leave(self) -> None:
        """Ends the process at once with exit code 0."""

    def die(self) -> None:
        """Ends the process and its process group at once, without appeal."""

    def restore_signals(self) -> None:
        """Puts our signal handlers back where a task has replaced them."""
