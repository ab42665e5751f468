"""The interrupt of the terminate phase, and the one place where it may strike: a task's body."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class TaskInterrupted(KeyboardInterrupt):
    """Raised in a task's body when the cooperative phase of a stop is over; the task is released, not failed.

    A ``KeyboardInterrupt``, because that is the one thing that may be raised at any point of Python code and that
    libraries let through: asyncio, for one, swallows any other exception that strikes in one of its callbacks.
    """


class Returned:
    """The body returned ``value``."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class Raised:
    """The body raised ``error``."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Interrupted:
    """The terminate phase has begun, and the body was not entered, or did not return."""

    __slots__ = ()


class Guard:
    """Lets the interrupt into a task's body and nowhere else.

    The signal handler calls ``strike`` with the frame that the signal met. Everything happens in the main thread, so
    the only question is where in it: ``strike`` raises while a frame below ``call`` is running, never in ``call``
    itself. What comes before the body is covered by the look at ``terminating``, what comes after it has its result.
    """

    __slots__ = ("_active", "_struck", "terminating")

    def __init__(self) -> None:
        #: Set by the watcher, before the signal.
        self.terminating = False
        self._active = False
        self._struck = False

    def strike(self, frame: FrameType | None) -> None:
        """Raises ``TaskInterrupted`` if the main thread is in a task's body; once a task, so that it may clean up."""
        if self._active and self.terminating and not self._struck and frame is not None and frame.f_code is not _CALL:
            self._struck = True
            raise TaskInterrupted

    def call(self, body: Callable[[], object]) -> Returned | Raised | Interrupted:
        """Runs the body to its end, whatever that is."""
        try:
            self._struck = False
            self._active = True
            if self.terminating:
                self._active = False
                return Interrupted()
            value = body()
            self._active = False
            return Returned(value)
        except BaseException as error:  # noqa: BLE001  the edge to the task: whatever ends it is the task's own failure
            self._active = False
            # A handler may turn the interrupt into an exception of its own: it is an interrupt all the same.
            if self.terminating or isinstance(error, TaskInterrupted):
                return Interrupted()
            return Raised(error)


_CALL = Guard.call.__code__
