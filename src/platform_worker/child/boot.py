"""From a verified artifact generation to a constructed task source. No ``worker.toml``, no discovery, no fall-back."""

from __future__ import annotations

import os
import sys
from types import MappingProxyType

from platform_worker.artifacts.boot import load_current, resolve_settings
from platform_worker.artifacts.entry_points import load
from platform_worker.errors import WorkerError, WorkerStartError, runtime_error
from platform_worker.tasks.contract import SourceSetup, WorkerIdentity
from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from platform_worker.artifacts.boot import Generation
    from platform_worker.protocol.lifeline import Boot
    from platform_worker.tasks.contract import Handlers, TaskSource

#: A day: who may be silent for longer has nothing to promise.
_CONTACT_LIMIT_MAX_MS = 86_400_000
_SOURCE_METHODS = ("assert_ready", "receive", "close")


class Application(Value):
    """What a child has booted, before there is a source."""

    generation: Generation
    handlers: Handlers
    hooks: tuple[Any, ...]
    resetters: tuple[Callable[[], object], ...]
    log_exceptions: bool


class BootFailed(Exception):  # noqa: N818  carries the reason to the one place that says it
    """The child cannot boot. ``__cause__`` is the real error; ``log_exceptions`` says whether the log shows it."""

    def __init__(self, error: WorkerError, log_exceptions: bool) -> None:
        self.error = error
        self.log_exceptions = log_exceptions
        super().__init__(error.reason)


def boot_application(
    boot: Boot, root: str, environ: Mapping[str, str], import_handlers: Callable[[list[str]], Handlers]
) -> Application:
    """Verifies the selected generation and imports what it names. Raises ``BootFailed``."""
    show = boot.log_exceptions
    try:
        generation = load_current(root)
        check_task_source(generation, boot.task_type)
        app = resolve_settings(generation.config["app"], environ)
        show = show and app["log_exceptions"]
        sys.path[:0] = [os.path.normpath(os.path.join(root, path)) for path in app["path"]]
        handlers = import_handlers(app["handlers"])
        return Application(
            generation=generation,
            handlers=handlers,
            hooks=tuple(_plugin(item) for item in generation.container["hooks"]),
            resetters=tuple(_plugin(item) for item in generation.container["resetters"]),
            log_exceptions=app["log_exceptions"],
        )
    except WorkerError as error:
        raise BootFailed(error, show) from (error.__cause__ or error)


def check_task_source(generation: Generation, task_type: str) -> None:
    """Exactly one source, and of the type that the pool was started with."""
    source = generation.container["task_source"]
    if source is not None and source["task_type"] != task_type:
        raise WorkerStartError("worker-pool-changed")
    fitting = [module for module in generation.modules["modules"] if module["task_type"] == task_type]
    if source is None or not fitting:
        raise WorkerStartError("worker-task-source-missing")
    if len(fitting) > 1:
        raise WorkerStartError("worker-task-source-ambiguous")


def construct_source(application: Application, boot: Boot, root: str, environ: Mapping[str, str]) -> TaskSource:
    """Calls the source's factory. Raises ``BootFailed``."""
    record = application.generation.container["task_source"]
    config = application.generation.config
    show = boot.log_exceptions
    try:
        setup = _Setup(
            config=MappingProxyType(resolve_settings(config["plugins"].get(record["name"], {}), environ)),
            queue=MappingProxyType(resolve_settings(config["queue"], environ)),
            handlers=application.handlers,
            identity=WorkerIdentity(boot.pool_id, boot.generation, boot.slot, boot.incarnation),
            root=root,  # type: ignore[arg-type]  # what _Setup makes the Path of
            until_empty=boot.until_empty,
        )
        factory = _load(record["entry_point"], "worker-task-source-unresolvable")
        if not callable(factory) or getattr(factory, "task_type", None) != boot.task_type:
            raise WorkerStartError("worker-task-source-invalid")
        source: TaskSource = _construct(factory, setup)
        if not all(callable(getattr(source, name, None)) for name in _SOURCE_METHODS):
            raise WorkerStartError("worker-task-source-invalid")
        return source
    except WorkerError as error:
        raise BootFailed(error, show) from (error.__cause__ or error)


def contact_limit(source: TaskSource) -> int | None:
    """For how many milliseconds the source may be without contact; ``None``: it promises nothing."""
    limit = getattr(source, "contact_limit_ms", None)
    if limit is not None and (type(limit) is not int or not 1 <= limit <= _CONTACT_LIMIT_MAX_MS):
        rule = f"contact_limit_ms: must be a whole number of milliseconds, 1 to {_CONTACT_LIMIT_MAX_MS}, or None"
        raise WorkerStartError("worker-task-source-invalid", hints=[rule])
    return limit


class _Setup(SourceSetup):
    """Makes the ``Path`` only for a source that asks for it: ``pathlib`` costs a child a fifth of its start."""

    @property  # type: ignore[misc]  # in a field's place
    def root(self) -> Any:
        from pathlib import Path

        return Path(self.__dict__["root"])


def _construct(factory: Callable[[SourceSetup], Any], setup: SourceSetup) -> Any:
    try:
        return factory(setup)
    except BaseException as error:
        raise own_reason(error, "worker-task-source-unresolvable") from error


def _plugin(record: Mapping[str, Any]) -> Any:
    plugin = _load(record["entry_point"], "worker-start-failed")
    return plugin() if isinstance(plugin, type) else plugin


def _load(entry_point: str, reason: str) -> object:
    try:
        return load(entry_point)
    except BaseException as error:  # a plugin's import may raise anything, SystemExit included
        raise WorkerStartError(reason) from error


def own_reason(error: BaseException, reason: str) -> WorkerError:
    """What to end with for ``error`` of a plugin's: the reason it gave, where it is one of the closed sets."""
    if isinstance(error, WorkerError) and runtime_error(error.reason).reason == error.reason:
        return runtime_error(error.reason, hints=error.hints)
    return WorkerStartError(reason)
