"""``@task``: registers a function as the handler of a task's name. Every child imports this, so it is cheap.

The registry is one a process: importing the application's modules fills it, and the build and the child read it.
"""

from __future__ import annotations

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar, overload

    F = TypeVar("F", bound=Callable[..., Any])
else:

    def overload(function: Any) -> Any:
        return function


NAME_MAX = 200
QUEUE_MAX = 64
INTEGER_MAX = 2**63 - 1
_QUEUE = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")


class DuplicateTask(ValueError):  # noqa: N818  named by what it says of the task
    """Two functions want the same task name; give one of them another: ``@task("name")``."""

    def __init__(self, name: str, modules: tuple[str, str]) -> None:
        super().__init__(f"the task name {name!r} is taken twice, in {modules[0]} and in {modules[1]}")
        self.task = name
        self.modules = modules


class TaskSpec(Value):
    """A registered handler. An option that is None was not given; 0 means none."""

    name: str
    function: Callable[..., Any]
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout_ms: int | None = None
    backoff_ms: int | None = None

    def record(self) -> dict[str, Any]:
        """What the build writes into ``container.json`` under the task's name."""
        return {
            "module": self.function.__module__,
            "qualname": _qualname(self.function) or type(self.function).__qualname__,
            "queue": self.queue,
            "priority": self.priority,
            "max_attempts": self.max_attempts,
            "timeout_ms": self.timeout_ms,
            "backoff_ms": self.backoff_ms,
        }


class Registry:
    """The handlers by task name."""

    def __init__(self) -> None:
        self._specs: dict[str, TaskSpec] = {}

    def add(self, spec: TaskSpec) -> None:
        """Registers; the same function again (a reloaded module) replaces, another one raises ``DuplicateTask``."""
        other = self._specs.get(spec.name)
        if other is not None and _place(other.function) != _place(spec.function):
            raise DuplicateTask(spec.name, (other.function.__module__, spec.function.__module__))
        self._specs[spec.name] = spec

    def specs(self) -> dict[str, TaskSpec]:
        """A copy, by name."""
        return dict(self._specs)

    def name_of(self, function: Callable[..., Any]) -> str | None:
        """The task name that ``function`` is registered under."""
        return next((name for name, spec in self._specs.items() if spec.function is function), None)


REGISTRY = Registry()


@overload
def task(name: F, /) -> F: ...
@overload
def task(  # noqa: F811  overload, by the stand-in above
    name: str | None = None,
    /,
    *,
    queue: str | None = None,
    priority: int | None = None,
    max_attempts: int | None = None,
    timeout_ms: int | None = None,
    backoff_ms: int | None = None,
) -> Callable[[F], F]: ...
def task(  # noqa: F811  the implementation of the two above
    name: Any = None,
    /,
    *,
    queue: str | None = None,
    priority: int | None = None,
    max_attempts: int | None = None,
    timeout_ms: int | None = None,
    backoff_ms: int | None = None,
) -> Any:
    """Registers a function as a task's handler and returns it unchanged.

    ``@task`` and ``@task()`` name the task ``module.qualname``. ``queue``, ``priority`` (1 first, 10 last),
    ``max_attempts``, ``timeout_ms`` and ``backoff_ms`` are the task's defaults; a call of ``enqueue`` wins over them,
    they win over ``[queue]``. Raises ``ValueError`` or ``TypeError`` for options off their rules.
    """
    if callable(name):
        return task()(name)

    def register(function: F) -> F:
        if name is None and _qualname(function) is None:
            raise TypeError('this callable has no name of its own; give the task one: task("name")(…)')
        spec = TaskSpec(
            name=f"{function.__module__}.{_qualname(function)}" if name is None else name,
            function=function,
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            timeout_ms=timeout_ms,
            backoff_ms=backoff_ms,
        )
        _check(spec)
        REGISTRY.add(spec)
        return function

    return register


def _check(spec: TaskSpec) -> None:
    if type(spec.name) is not str:
        raise TypeError("the name of a task must be a string")
    if not 0 < len(spec.name) <= NAME_MAX or not spec.name.isprintable() or spec.name != spec.name.strip():
        raise ValueError(f"the name of a task must have 1 to {NAME_MAX} printable characters, no space around them")
    if spec.queue is not None:
        if type(spec.queue) is not str:
            raise TypeError("the queue of a task must be a string")
        if not 0 < len(spec.queue) <= QUEUE_MAX or not _QUEUE.issuperset(spec.queue):
            raise ValueError("the queue of a task must have 1 to 64 of the characters a-z 0-9 . _ -")
    for option, low, high in (
        ("priority", 1, 10),
        ("max_attempts", 1, INTEGER_MAX),
        ("timeout_ms", 0, INTEGER_MAX),
        ("backoff_ms", 0, INTEGER_MAX),
    ):
        value = getattr(spec, option)
        if value is not None and type(value) is not int:
            raise TypeError(f"{option} of a task must be a whole number")
        if value is not None and not low <= value <= high:
            raise ValueError(f"{option} of a task must be {low} " + (f"to {high}" if high <= 10 else "or more"))


def _place(function: Callable[..., Any]) -> tuple[object, ...]:
    code = getattr(function, "__code__", None)
    where = (code.co_filename, code.co_firstlineno) if code is not None else (id(function),)
    return (function.__module__, _qualname(function), *where)


def _qualname(function: Callable[..., Any]) -> str | None:
    """A partial and an instance have none."""
    return getattr(function, "__qualname__", None)
