"""What a store of jobs does, for the two who use it: a worker's source, and ``Queue``.

A store keeps rows and clocks; what an operation does to a job it asks ``model.decide``. Every operation is one
transaction. Times are wall-clock milliseconds, except leases, which a store measures as it likes.
"""

from __future__ import annotations

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Protocol

    from platform_worker.jobs import model
    from platform_worker.tasks.contract import WorkerIdentity
else:

    class Protocol:
        """Stands in for ``typing.Protocol``: a child does not pay for ``typing``."""


class Claimed:
    """A job in one worker's hands. ``token`` is the fencing token of this very claim; ``data`` is JSON text."""

    __slots__ = ("attempt", "data", "id", "key", "max_attempts", "queue", "task", "timeout_ms", "token")

    def __init__(
        self,
        key: Any,
        id: str,
        task: str,
        queue: str,
        attempt: int,
        max_attempts: int,
        token: int,
        timeout_ms: int,
        data: str,
    ) -> None:
        self.key = key
        self.id = id
        self.task = task
        self.queue = queue
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.token = token
        self.timeout_ms = timeout_ms
        self.data = data


class Held(Value):
    """What renewing a lease found: whether the claim is still ours, and whether the job is asked to stop."""

    held: bool
    cancel_requested: bool


class Row(Value):
    """A job on its way into the store, every default filled in. ``data`` is JSON text."""

    id: str
    task: str
    queue: str
    priority: int
    enqueued_at: int
    run_at: int
    max_attempts: int
    timeout_ms: int
    backoff_ms: int
    unique: str | None
    data: str


class Filter(Value):
    """Which jobs to list; ``None`` means any."""

    status: str | None = None
    queue: str | None = None
    task: str | None = None


class StoreUnavailable(Exception):  # noqa: N818  a state of the store, which may pass
    """The store cannot be used now. ``rule`` says what a person may look at, without paths and values."""

    def __init__(self, rule: str, *, transient: bool = True) -> None:
        super().__init__(rule)
        self.rule = rule
        self.transient = transient


class Interrupted(Exception):  # noqa: N818  said to the source, never shown
    """The wait for the store was given up because a stop was asked for."""


class WorkerStore(Protocol):
    """A worker's side. ``patience(seconds)`` waits natively and raises ``Interrupted`` to give up waiting.

    Any method may raise ``StoreUnavailable``; the caller tries again, and the store reconnects by itself.
    """

    def claim(self, patience: Callable[[float], None]) -> Claimed | None:
        """The next due job of the queues, in order, or ``None``. Looks before it takes any lock."""

    def settle(
        self, claimed: Claimed, event: model.Event, patience: Callable[[float], None], claim_next: bool
    ) -> tuple[bool, Claimed | None]:
        """Applies ``event`` if the token still fits, and claims the next job in the same transaction."""

    def next_due(self) -> int | None:
        """Milliseconds until the first job that is not due yet, ``None`` where there is none."""

    def recover_gone(self, worker_count: int, patience: Callable[[float], None]) -> int:
        """Ends the claims of this pool whose process is known to be gone."""

    def recover_expired(self, patience: Callable[[float], None]) -> int:
        """Ends the claims whose lease has ended; never a live one."""

    def sweep(self, patience: Callable[[float], None]) -> int:
        """Removes a small batch of finished jobs that are past the retention."""

    def renew(self, claimed: Claimed, progress: str | None) -> Held:
        """Extends the lease; from any thread."""

    def look(self, claimed: Claimed) -> Held:
        """What ``renew`` says, without extending; from any thread."""

    def wait(self, stop_fd: int, timeout_ms: int) -> bool:
        """Waits for a ring, for the stop, or for the time; true where a ring was heard."""

    def listen(self) -> None:
        """From now on rings are kept for ``wait``."""

    def unlisten(self) -> None:
        """No ring is wanted: this worker is busy."""

    def close(self) -> None:
        """Lets go of everything."""


class ClientStore(Protocol):
    """The side of ``Queue``. Raises ``StoreUnavailable`` where the store cannot be used."""

    def now_ms(self) -> int:
        """The wall clock that ``run_at`` is measured by."""

    def enqueue(self, rows: Sequence[Row], connection: object | None = None) -> list[str]:
        """Adds the jobs in one transaction (the caller's own, given a connection); an id each, of the unique job
        that is there already where there is one."""

    def get(self, id: str) -> Mapping[str, Any] | None:
        """One whole job, as stored, or ``None``."""

    def jobs(self, wanted: Filter, limit: int, after: str | None) -> list[Mapping[str, Any]]:
        """Newest first, those older than ``after``; ``KeyError`` where ``after`` is not there."""

    def change(self, id: str, event: model.Event) -> str | None:
        """Applies the event; a refusal's name, or ``None``. ``KeyError`` where the job is not there."""

    def ids(self, wanted: Filter) -> Iterable[str]:
        """Ids of all such jobs."""

    def purge(self, finished_before: int, status: str | None) -> int:
        """Removes finished jobs; how many."""

    def recover(self) -> int:
        """Ends the claims whose lease has ended."""

    def counts(self) -> dict[str, dict[str, Any]]:
        """By queue: jobs by status, ``paused``, and ``oldest_run_at`` of what is claimable."""

    def pause(self, queue: str, paused: bool) -> None:
        """A paused queue gives no jobs out; resuming wakes the workers."""

    def wait_finished(self, id: str, timeout: float | None) -> bool:
        """Waits natively until the job is finished or gone; false when the time was up first."""

    def close(self) -> None:
        """Lets go of everything."""


class StoreFactory(Protocol):
    """What a factory of a queue's source has besides the SPI, so that ``Queue`` finds the store."""

    def client(self, config: Mapping[str, Any], queue: Mapping[str, Any], root: str) -> ClientStore:
        """Opens the store for a client; creates it where it is missing."""


if TYPE_CHECKING:
    Worker = WorkerIdentity
