"""The life of a child: boot, wait for its slot, work, and one last word, whatever happened."""

from __future__ import annotations

from platform_worker.child.boot import BootFailed, boot_application, construct_source, contact_limit, own_reason
from platform_worker.child.orders import TaskContext
from platform_worker.child.runner import Runner
from platform_worker.errors import WorkerError
from platform_worker.protocol.lifeline import BOOTED, DONE, GO, READY, format_failed, parse_boot
from platform_worker.tasks.unit_of_work import UnitOfWork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from platform_worker.child.boot import Application
    from platform_worker.child.orders import Orders
    from platform_worker.child.progress import Progress
    from platform_worker.ports import Log, Self, Telemetry, Wake
    from platform_worker.protocol.lifeline import Boot
    from platform_worker.tasks.contract import Handlers, TaskSource
    from platform_worker.tasks.interrupt import Guard

#: How long the spans and metrics of a child may hold up its end.
FLUSH_SECONDS = 2.0
#: The longest stretch that a source may block without looking at the cancellation.
_MAX_WAIT_MS = 1000


class Life:
    """One child, from its boot line to its last word."""

    def __init__(
        self,
        process: Self,
        orders: Orders,
        progress: Progress,
        wake: Wake,
        guard: Guard,
        log: Log,
        *,
        root: str,
        environ: Mapping[str, str],
        adopt_members: Callable[[int | None], None],
        import_handlers: Callable[[list[str]], Handlers],
        make_telemetry: Callable[[], Telemetry],
        quiet: tuple[type[BaseException], ...],
    ) -> None:
        self._process = process
        self._orders = orders
        self._progress = progress
        self._wake = wake
        self._guard = guard
        self._log = log
        self._root = root
        self._environ = environ
        self._adopt_members = adopt_members
        self._import_handlers = import_handlers
        self._make_telemetry = make_telemetry
        self._quiet = quiet
        self._telemetry: Telemetry | None = None

    def live(self) -> int:
        """Runs the child to its last word; the exit code that must follow at once."""
        boot = parse_boot(self._orders.first_line())
        self._adopt_members(boot.members_fd)
        try:
            application = boot_application(boot, self._root, self._environ, self._import_handlers)
            self._telemetry = self._make_telemetry()
            source = construct_source(application, boot, self._root, self._environ)
        except BootFailed as failure:
            self._reject(boot, failure.error, failure.__cause__ if failure.log_exceptions else None)
            return self._last_word(failure.error.reason)
        self._orders.booted()
        reason: str | None = None
        try:
            self._process.say(BOOTED)
            if self._orders.wait() == GO:
                self._work(boot, application, source)
        except WorkerError as error:
            reason = error.reason
        finally:
            self._close(boot, source)
        return self._last_word(reason)

    def _work(self, boot: Boot, application: Application, source: TaskSource) -> None:
        wait_ms = min(_MAX_WAIT_MS, boot.stop_timeout_ms)
        context = TaskContext(self._orders, self._progress, self._wake, boot.slot, boot.worker_count, wait_ms)
        try:
            source.assert_ready(context)
            limit_ms = contact_limit(source)
        except BaseException as error:
            mine = own_reason(error, "worker-task-source-not-ready")
            self._reject(boot, mine, error)
            raise mine from error
        self._process.say(READY)
        if limit_ms is not None:
            self._progress.watch(limit_ms)
        assert self._telemetry is not None
        unit = UnitOfWork(
            self._guard,
            self._log,
            prefix=f"{boot.generation}.{boot.slot}.{boot.incarnation}",
            operation=boot.task_type,
            hooks=application.hooks,
            resetters=application.resetters,
        )
        Runner(
            source=source,
            context=context,
            orders=self._orders,
            progress=self._progress,
            process=self._process,
            unit=unit,
            log=self._log,
            telemetry=self._telemetry,
            limit=boot.max_requests,
            operation=boot.task_type,
            until_empty=boot.until_empty,
            log_exceptions=application.log_exceptions,
            quiet=self._quiet,
        ).run()

    def _close(self, boot: Boot, source: TaskSource) -> None:
        try:
            source.close()
        except BaseException as error:  # noqa: BLE001  the edge to a plugin: every task is settled, the child ends either way
            self._log.failure("error", "worker.child.exit", error, slot=boot.slot, cause="source-close")

    def _reject(self, boot: Boot, error: WorkerError, cause: BaseException | None) -> None:
        fields: dict[str, object] = {"slot": boot.slot, "reason": error.reason}
        if error.hints:
            fields["hints"] = list(error.hints)
        if cause is None or isinstance(cause, WorkerError):
            self._log.event("error", "worker.child.rejected", **fields)
        else:
            self._log.failure("error", "worker.child.rejected", cause, **fields)

    def _last_word(self, reason: str | None) -> int:
        if self._telemetry is not None:
            self._telemetry.flush(FLUSH_SECONDS)
        self._progress.close()
        self._process.say(DONE if reason is None else format_failed(reason))
        return 0 if reason is None else 1
