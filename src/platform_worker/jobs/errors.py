"""What a handler raises to steer its job, what it may find raised in it, and what waiting for a result may raise.

The names are public. ``Retry`` and ``Reject`` are words a handler says; the others are told to somebody.
"""

from __future__ import annotations

from platform_worker.errors import WorkerQueueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Retry(Exception):  # noqa: N818  a word of the handler's, not an error
    """Raise in a handler to have the job run again: after ``after`` seconds, or after the usual backoff without it.

    The attempt is spent; with none left the job fails.
    """

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        if after is not None and not 0 <= after < 10**10:
            raise ValueError("after is a number of seconds, 0 or more")
        self.after = after
        super().__init__(message)


class Reject(Exception):  # noqa: N818  a word of the handler's, not an error
    """Raise in a handler to fail the job for good, whatever attempts are left."""


class JobTimeout(Exception):  # noqa: N818  the contract's name
    """Raised in a handler whose job's ``timeout_ms`` has passed; the handler may still clean up, for a second."""


class JobCancelled(WorkerQueueError):  # noqa: N818  the contract's name
    """The job was cancelled: raised by ``JobContext.heartbeat`` in the handler, and by ``Queue.result``."""

    def __init__(self, reason: str = "worker-job-cancelled", *, hints: tuple[str, ...] = ()) -> None:
        super().__init__(reason, hints=hints)


class JobFailed(WorkerQueueError):  # noqa: N818  the contract's name
    """Raised by ``Queue.result`` for a job that failed; ``error`` is the job's ``{"message", "reason", "type"}``."""

    def __init__(
        self,
        reason: str = "worker-job-failed",
        *,
        hints: tuple[str, ...] = (),
        error: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(reason, hints=hints)
        self.error = None if error is None else dict(error)
