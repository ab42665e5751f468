"""Takes one task at a time from the source, runs it in a unit of work, settles it with exactly one of three words."""

from __future__ import annotations

from platform_worker.errors import WorkerError, WorkerLifecycleError
from platform_worker.protocol.lifeline import EMPTY, GO_ON, LAST
from platform_worker.tasks.contract import SourceExhausted
from platform_worker.tasks.errors import InvalidData, UnknownTask
from platform_worker.tasks.interrupt import Interrupted, Raised, Returned
from platform_worker.tasks.unit_of_work import named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.child.orders import Orders, TaskContext
    from platform_worker.child.progress import Progress
    from platform_worker.ports import Log, Self, Telemetry
    from platform_worker.tasks.contract import Task, TaskSource
    from platform_worker.tasks.unit_of_work import Ending, UnitOfWork


class Runner:
    """The loop of a child that has taken over its slot."""

    def __init__(
        self,
        *,
        source: TaskSource,
        context: TaskContext,
        orders: Orders,
        progress: Progress,
        process: Self,
        unit: UnitOfWork,
        log: Log,
        telemetry: Telemetry,
        limit: int,
        operation: str,
        until_empty: bool,
        log_exceptions: bool,
        quiet: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._source = source
        self._context = context
        self._orders = orders
        self._progress = progress
        self._process = process
        self._unit = unit
        self._log = log
        self._telemetry = telemetry
        self._limit = limit
        self._operation = operation
        self._until_empty = until_empty
        self._log_exceptions = log_exceptions
        #: Words that a handler says by raising, not failures that a person must see the traceback of.
        self._quiet = quiet

    def run(self) -> None:
        """Works until told to stop, or until nothing is left; raises ``WorkerLifecycleError`` where it cannot go on."""
        while self._round() and self._orders.wait() == GO_ON:
            self._context.renew_limit()

    def _round(self) -> bool:
        """One limit of tasks; false where no further round may come."""
        self._progress.ask()
        for left in range(self._limit - 1, -1, -1):
            if self._orders.stop_requested():
                return False
            task = self._receive()
            if task is None:
                return False
            if self._orders.stop_requested():
                # The stop came between the claim and the start: the handler is not entered any more.
                self._settle(task, Interrupted())
                continue
            if left == 0:
                # A stop that answers this word means the time after this task: that is how a batch of one job ends.
                self._context.reach_limit()
                self._process.say(LAST)
            self._work(task)
        self._progress.rest()
        return True

    def _receive(self) -> Task | None:
        try:
            task = self._source.receive(self._context)
        except SourceExhausted as error:
            if not self._until_empty:
                raise self._failed("worker-task-source-receive-failed", error) from error
            self._process.say(EMPTY)
            return None
        except BaseException as error:
            raise self._failed("worker-task-source-receive-failed", error) from error
        if task is None and not self._context.cancellation_requested():
            raise WorkerLifecycleError("worker-task-source-terminated")
        return task

    def _work(self, task: Task) -> None:
        span = self._telemetry.task(self._operation)
        self._progress.begin_task()
        ending = self._unit.run(task)
        self._progress.end_task()
        self._process.restore_signals()
        span.end("success" if isinstance(ending, Returned) else "failure")
        if isinstance(ending, Raised):
            self._report(task, ending.error)
        self._settle(task, ending)

    def _settle(self, task: Task, ending: Ending) -> None:
        try:
            if isinstance(ending, Returned):
                task.complete(ending.value)
            elif isinstance(ending, Raised):
                task.fail(ending.error)
            else:
                task.release()
        except BaseException as error:
            raise self._failed("worker-task-settlement-failed", error) from error
        if isinstance(ending, Interrupted):
            self._log.event("info", "worker.task.released", slot=self._context.worker_index, **named(task))

    def _report(self, task: Task, error: BaseException) -> None:
        fields = {"slot": self._context.worker_index, "error": type(error).__name__, **named(task)}
        if isinstance(error, self._quiet):
            self._log.event("info", "worker.task.failed", **fields)
        elif isinstance(error, InvalidData | UnknownTask):
            # No traceback: it would show our own frames only.
            cause = "data-invalid" if isinstance(error, InvalidData) else "task-unknown"
            self._log.event("error", "worker.task.failed", cause=cause, **fields)
        elif self._log_exceptions:
            self._log.failure("error", "worker.task.failed", error, **fields)
        else:
            self._log.event("error", "worker.task.failed", **fields)

    def _failed(self, reason: str, error: BaseException) -> WorkerLifecycleError:
        """What ends the child, with the source's own reason where it gave one of the closed set."""
        own = error.reason if isinstance(error, WorkerError) else reason
        if own in WorkerLifecycleError.reasons:
            reason = own
        self._log.failure("error", "worker.child.rejected", error, slot=self._context.worker_index, reason=reason)
        return WorkerLifecycleError(reason)
