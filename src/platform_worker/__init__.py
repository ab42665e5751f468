"""Runs Python work that must not be lost and must not run twice at once.

The public names, and nothing else. They are loaded on first use: importing the package costs next to nothing, because
every probe and every child pays for it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.errors import (
        WorkerAlreadyRunningError,
        WorkerBuildError,
        WorkerCommunicationError,
        WorkerError,
        WorkerForkError,
        WorkerLifecycleError,
        WorkerNotRunningError,
        WorkerQueueError,
        WorkerStartError,
        WorkerUsageError,
    )
    from platform_worker.jobs.context import JobContext
    from platform_worker.jobs.errors import JobCancelled, JobFailed, JobTimeout, Reject, Retry
    from platform_worker.jobs.job import Job, NewJob
    from platform_worker.jobs.queue import Queue
    from platform_worker.tasks.contract import (
        Handlers,
        SourceContext,
        SourceExhausted,
        SourceSetup,
        Task,
        TaskSource,
        TaskSourceFactory,
        WorkerIdentity,
    )
    from platform_worker.tasks.registry import task

_HOMES = {
    "platform_worker.errors": (
        "WorkerAlreadyRunningError",
        "WorkerBuildError",
        "WorkerCommunicationError",
        "WorkerError",
        "WorkerForkError",
        "WorkerLifecycleError",
        "WorkerNotRunningError",
        "WorkerQueueError",
        "WorkerStartError",
        "WorkerUsageError",
    ),
    "platform_worker.jobs.context": ("JobContext",),
    "platform_worker.jobs.errors": ("JobCancelled", "JobFailed", "JobTimeout", "Reject", "Retry"),
    "platform_worker.jobs.job": ("Job", "NewJob"),
    "platform_worker.jobs.queue": ("Queue",),
    "platform_worker.tasks.contract": (
        "Handlers",
        "SourceContext",
        "SourceExhausted",
        "SourceSetup",
        "Task",
        "TaskSource",
        "TaskSourceFactory",
        "WorkerIdentity",
    ),
    "platform_worker.tasks.registry": ("task",),
}

__all__ = [
    "Handlers",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobFailed",
    "JobTimeout",
    "NewJob",
    "Queue",
    "Reject",
    "Retry",
    "SourceContext",
    "SourceExhausted",
    "SourceSetup",
    "Task",
    "TaskSource",
    "TaskSourceFactory",
    "WorkerAlreadyRunningError",
    "WorkerBuildError",
    "WorkerCommunicationError",
    "WorkerError",
    "WorkerForkError",
    "WorkerIdentity",
    "WorkerLifecycleError",
    "WorkerNotRunningError",
    "WorkerQueueError",
    "WorkerStartError",
    "WorkerUsageError",
    "task",
]


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            import importlib

            value = getattr(importlib.import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'platform_worker' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
