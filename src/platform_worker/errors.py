"""The exception tree, its closed sets of reasons, and the exit codes. Imports nothing of ours.

The text of every error is ``CODE: reason``. Hints are for people: they name keys, files relative to the root and
rules, never values, absolute paths, process ids or payloads.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar

#: Done; a pool stopped as asked; healthy.
EXIT_OK = 0
#: Failed; reachable and unhealthy; the pool failed; the build is stale.
EXIT_FAILED = 1
#: Usage, configuration or build error; nothing was started or changed.
EXIT_USAGE = 2
#: Nothing of this pool lives.
EXIT_NOT_RUNNING = 3
#: Another generation of this pool lives.
EXIT_ALREADY_RUNNING = 4
#: Something of this pool lives, but it cannot be talked to.
EXIT_COMMUNICATION = 5


class WorkerError(Exception):
    """Base of every error of this package; ``code`` and ``reason`` come from closed sets.

    ``hints`` are lines for a person, without the ``hint: `` prefix.
    """

    code: ClassVar[str] = "PLATFORM_WORKER_FAILED"
    exit_code: ClassVar[int] = EXIT_FAILED
    reasons: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, reason: str, *, hints: Sequence[str] = ()) -> None:
        if reason not in self.reasons:
            raise ValueError(f"{type(self).__name__} has no reason {reason!r}")
        self.reason = reason
        self.hints = tuple(hints)
        super().__init__(f"{self.code}: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.reason, self.hints))


def _rebuild(cls: type[WorkerError], reason: str, hints: tuple[str, ...]) -> WorkerError:
    return cls(reason, hints=hints)


class WorkerUsageError(WorkerError):
    """The command line, ``worker.toml``, the environment or a job's arguments are off; correct them and call again."""

    code = "PLATFORM_WORKER_USAGE"
    exit_code = EXIT_USAGE
    reasons = frozenset(
        {
            "worker-usage-invalid",
            "worker-config-invalid",
            "worker-config-missing",
            "worker-environment-missing",
            "worker-task-unknown",
            "worker-job-invalid",
        }
    )


class WorkerBuildError(WorkerError):
    """``worker build`` could not compile or publish an artifact generation; the selected one is untouched."""

    code = "PLATFORM_WORKER_BUILD_FAILED"
    exit_code = EXIT_USAGE
    reasons = frozenset(
        {
            "worker-module-unknown",
            "worker-module-invalid",
            "worker-handlers-unimportable",
            "worker-task-source-missing",
            "worker-task-source-ambiguous",
            "worker-task-source-invalid",
            "worker-generation-conflict",
            "worker-generation-write-failed",
        }
    )


class WorkerStartError(WorkerError):
    """The pool, or a child of it, could not be started."""

    code = "PLATFORM_WORKER_START_FAILED"
    reasons = frozenset(
        {
            "worker-start-failed",
            "worker-task-source-missing",
            "worker-task-source-ambiguous",
            "worker-task-source-invalid",
            "worker-task-source-unresolvable",
            "worker-task-source-not-ready",
            "worker-handlers-unimportable",
            "worker-generation-invalid",
            "worker-control-unavailable",
            "worker-readiness-timeout",
            "worker-readiness-invalid",
            "worker-child-start-failed",
            "worker-signal-handling-unavailable",
            "worker-pool-changed",
        }
    )


class WorkerForkError(WorkerError):
    """The machine refused to start a process (limits of processes or memory)."""

    code = "PLATFORM_WORKER_FORK_FAILED"
    reasons = frozenset({"worker-fork-failed"})


class WorkerLifecycleError(WorkerError):
    """A running pool failed, or could not keep its files, its fence or its guardian."""

    code = "PLATFORM_WORKER_LIFECYCLE_FAILED"
    reasons = frozenset(
        {
            "worker-lifecycle-failed",
            "worker-invalid-state",
            "worker-task-source-terminated",
            "worker-task-source-receive-failed",
            "worker-task-settlement-failed",
            "worker-child-exited",
            "worker-shutdown-failed",
            "worker-runtime-cleanup-failed",
            "worker-lifecycle-lock-failed",
            "worker-lifecycle-locator-failed",
            "worker-process-guardian-failed",
            "worker-process-host-failed",
        }
    )


class WorkerQueueError(WorkerError):
    """The queue refused an operation, or its store could not be reached."""

    code = "PLATFORM_WORKER_QUEUE_FAILED"
    reasons = frozenset(
        {
            "worker-queue-unavailable",
            "worker-generation-missing",
            "worker-job-unknown",
            "worker-job-state",
            "worker-job-failed",
            "worker-job-cancelled",
        }
    )


class WorkerNotRunningError(WorkerError):
    """Nothing of this pool lives: the fence is free."""

    code = "PLATFORM_WORKER_NOT_RUNNING"
    exit_code = EXIT_NOT_RUNNING
    reasons = frozenset({"worker-not-running"})


class WorkerAlreadyRunningError(WorkerError):
    """The fence is held by another generation of this pool; nothing was started."""

    code = "PLATFORM_WORKER_ALREADY_RUNNING"
    exit_code = EXIT_ALREADY_RUNNING
    reasons = frozenset({"worker-already-running"})


class WorkerCommunicationError(WorkerError):
    """The fence is held, but the supervisor cannot be talked to."""

    code = "PLATFORM_WORKER_COMMUNICATION_FAILED"
    exit_code = EXIT_COMMUNICATION
    reasons = frozenset({"worker-communication-failed"})


#: Where a reason of a running pool belongs when it stands under more than one code: starting comes first.
_RUNTIME_ERRORS: tuple[type[WorkerError], ...] = (
    WorkerStartError,
    WorkerForkError,
    WorkerLifecycleError,
    WorkerAlreadyRunningError,
    WorkerUsageError,
    WorkerQueueError,
)


def runtime_error(reason: str, *, hints: Sequence[str] = ()) -> WorkerError:
    """The error that ``worker start`` ends with for ``reason``, a word that a child or the guardian gave.

    An unknown reason becomes ``worker-lifecycle-failed``: what a child says is shown only where the closed set has it.
    """
    for cls in _RUNTIME_ERRORS:
        if reason in cls.reasons:
            return cls(reason, hints=hints)
    return WorkerLifecycleError("worker-lifecycle-failed", hints=hints)
