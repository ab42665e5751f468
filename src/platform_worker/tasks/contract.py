"""The task-source SPI: what a plugin implements, and what it may use. Public; see docs/ssot/task-sources.md.

A pool has exactly one task source. Each child creates it once through its factory, asks it for one task at a time,
executes the task, and settles it with exactly one of ``complete``, ``fail`` and ``release``.
"""

from __future__ import annotations

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any, Literal, Protocol

    from pydantic import BaseModel
else:

    class Protocol:
        """Stands in for ``typing.Protocol``: importing ``typing`` costs every child a fifth of its start."""


TASK_SOURCE_GROUP = "platform_worker.task_sources"
HOOK_GROUP = "platform_worker.hooks"
RESETTER_GROUP = "platform_worker.resetters"


class SourceExhausted(Exception):  # noqa: N818  the contract's name
    """Raised by ``receive`` where the setup says ``until_empty`` and nothing claimable is left."""


class WorkerIdentity(Value):
    """Who a child is. ``generation`` is the worker generation's number; it only grows within one pool.

    A claim that carries the same ``pool_id`` and ``slot`` and an older ``(generation, incarnation)`` belongs to a
    process that is gone, and may be recovered at once.
    """

    pool_id: str
    generation: int
    slot: int
    incarnation: int


class Handlers(Protocol):
    """The registered task handlers of this child."""

    def run(self, name: str, data: Mapping[str, Any], context: Any) -> object:
        """Calls the handler ``name`` with ``data`` as keyword arguments; async handlers are run to their end.

        ``context`` (a ``JobContext``) goes to parameters annotated so. Raises ``UnknownTask`` or ``InvalidData``
        (``platform_worker.tasks.handlers``) before the handler is entered, else whatever the handler raises.
        """


class SourceSetup(Value):
    """What a factory may use, frozen. ``config`` is the plugin's own table, environment references resolved."""

    config: Mapping[str, Any]
    queue: Mapping[str, Any]
    handlers: Handlers
    root: Path
    identity: WorkerIdentity
    until_empty: bool


class SourceContext(Protocol):
    """What a source may know about its child and pool, and nothing more."""

    worker_index: int
    worker_count: int
    #: The longest stretch that ``receive`` may block, in milliseconds: min(1000, stop_timeout_ms).
    max_blocking_wait_ms: int

    def cancellation_requested(self) -> bool:
        """True as soon as no further task may be taken: a stop, or the child's last task is in hand."""

    def fileno(self) -> int:
        """A descriptor that is readable as soon as cancellation is requested; only to wait on, never to read."""

    def contact(self) -> None:
        """The back end has answered. Costs next to nothing; from any thread. See ``TaskSource.contact_limit_ms``."""


class Task(Protocol):
    """One acquired piece of work."""

    def execute(self) -> object:
        """Does the work; what it raises is the task's failure."""

    def complete(self, result: object) -> None:
        """Settles a success."""

    def fail(self, failure: BaseException) -> None:
        """Settles a failure."""

    def release(self) -> None:
        """Gives the task back unharmed: interrupted by a stop, not failed."""


class TaskSource(Protocol):
    """Where a child's tasks come from.

    May have an attribute ``contact_limit_ms``, read once after ``assert_ready``: the source then calls
    ``context.contact()`` whenever its back end has answered, and a child without contact for longer, while the source
    has the floor, makes the pool unhealthy (``worker-pool-stalled``). Without it, or where it is ``None``, nothing is
    promised and nothing is watched.
    """

    def assert_ready(self, context: SourceContext) -> None:
        """Raises if the source cannot give tasks; takes none. Recovers old claims of this slot."""

    def receive(self, context: SourceContext) -> Task | None:
        """Blocks natively until there is a task; ``None`` only when cancellation was requested.

        Blocks at most ``context.max_blocking_wait_ms`` at a stretch between two looks at the cancellation.
        """

    def close(self) -> None:
        """Gives back what is held. Called on every way out once there is a source."""


class TaskSourceFactory(Protocol):
    """What an entry point of the group ``platform_worker.task_sources`` loads to.

    May have an attribute ``settings``, a pydantic model that the build validates the plugin's table with.
    """

    task_type: Literal["queue", "http"]

    def __call__(self, setup: SourceSetup) -> TaskSource:
        """Creates the child's source."""


if TYPE_CHECKING:

    class ConfiguredTaskSourceFactory(TaskSourceFactory, Protocol):
        """A factory with settings."""

        settings: type[BaseModel]
