"""One unit of work a task: its id, before hooks, the body, after hooks, every resetter once, whatever failed.

A hook is an object with ``before(info)`` or ``after(info, outcome)`` or both, registered in the entry-point group
``platform_worker.hooks``; ``outcome`` is ``success``, ``failure`` or ``released``. Hooks go in by name, and out in
reverse order: ``after`` runs for each hook whose ``before`` did not raise. A ``before`` that raises fails the task
before its body is entered; an ``after`` that raises makes a success a failure, because an application commits there.

A resetter is a callable without arguments, registered in ``platform_worker.resetters``. It puts back what a task may
leave behind in the process. One that raises is logged, and the others run.
"""

from __future__ import annotations

from contextvars import ContextVar

from platform_worker.tasks.interrupt import Interrupted, Raised, Returned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, TypeAlias

    from platform_worker.ports import Log
    from platform_worker.tasks.contract import Task
    from platform_worker.tasks.interrupt import Guard

    Ending: TypeAlias = Returned | Raised | Interrupted
    UnitOutcome: TypeAlias = Literal["success", "failure", "released"]


class TaskInfo:
    """What a hook may know of the task. ``id`` is unique within the pool, and grows within a child."""

    __slots__ = ("id", "operation", "task")

    def __init__(self, id: str, operation: str, task: Task) -> None:
        self.id = id
        self.operation = operation
        self.task = task


#: The id of the unit of work that is running, for an application's own log lines and traces.
current_unit: ContextVar[str] = ContextVar("platform_worker.unit", default="")


class UnitOfWork:
    """Runs tasks one after the other, each in a unit of its own. ``prefix`` makes the ids unique within the pool."""

    def __init__(
        self,
        guard: Guard,
        log: Log,
        *,
        prefix: str,
        operation: str,
        hooks: Sequence[Any] = (),
        resetters: Sequence[Callable[[], object]] = (),
    ) -> None:
        self._guard = guard
        self._log = log
        self._prefix = prefix
        self._operation = operation
        self._hooks = tuple(hooks)
        self._resetters = tuple(resetters)
        self._count = 0

    def run(self, task: Task) -> Ending:
        """The task's body, with everything around it. Does not settle it, and raises nothing."""
        self._count += 1
        unit = f"{self._prefix}.{self._count}"
        token = current_unit.set(unit)
        try:
            if not self._hooks:
                return self._guard.call(task.execute)
            return self._run_hooked(TaskInfo(unit, self._operation, task))
        finally:
            for reset in self._resetters:
                self._reset(reset, task)
            current_unit.reset(token)

    def _run_hooked(self, info: TaskInfo) -> Ending:
        entered: list[Any] = []
        ending: Ending | None = None
        for hook in self._hooks:
            try:
                if hasattr(hook, "before"):
                    hook.before(info)
            except BaseException as error:  # noqa: BLE001  the edge to a plugin: its failure is the task's
                ending = Raised(error)
                break
            entered.append(hook)
        if ending is None:
            ending = self._guard.call(info.task.execute)
        for hook in reversed(entered):
            ending = self._leave(hook, info, ending)
        return ending

    def _leave(self, hook: Any, info: TaskInfo, ending: Ending) -> Ending:
        try:
            if hasattr(hook, "after"):
                hook.after(info, outcome_of(ending))
        except BaseException as error:  # noqa: BLE001  the edge to a plugin: its failure is the task's
            if isinstance(ending, Returned):
                return Raised(error)
            self._log.failure("error", "worker.task.failed", error, cause="after-hook", **named(info.task))
        return ending

    def _reset(self, reset: Callable[[], object], task: Task) -> None:
        try:
            reset()
        except BaseException as error:  # noqa: BLE001  the edge to a plugin: the task has its outcome, the others their turn
            self._log.failure("error", "worker.task.failed", error, cause="resetter", **named(task))


def outcome_of(ending: Ending) -> UnitOutcome:
    """The word for an ending."""
    if isinstance(ending, Returned):
        return "success"
    return "failure" if isinstance(ending, Raised) else "released"


def named(task: Task) -> dict[str, str]:
    """Whose log line it is: ``job_id`` and ``task``, where the task has an ``id`` and a ``name``."""
    found = {}
    for field, attribute in (("job_id", "id"), ("task", "name")):
        try:
            value = getattr(task, attribute, None)
        except Exception:  # noqa: BLE001  the edge to a plugin: a log line is no reason to end the child
            continue
        if isinstance(value, str):
            found[field] = value
    return found
