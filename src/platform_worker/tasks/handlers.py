"""The task handlers of a child: imported once, called with a job's data."""

from __future__ import annotations

import sys

from platform_worker.errors import WorkerStartError
from platform_worker.jobs.context import JobContext
from platform_worker.tasks.errors import InvalidData, UnfitHandler, UnknownTask
from platform_worker.tasks.signature import Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

__all__ = ["HandlerTable", "InvalidData", "UnknownTask", "import_modules", "load_handlers"]


class HandlerTable:
    """Implements ``Handlers``. ``context_type`` is the class whose annotation asks for the job's context."""

    def __init__(self, functions: Mapping[str, Callable[..., object]], context_type: type | None = JobContext) -> None:
        self._plans = {
            name: (function, _signature(name, function, context_type)) for name, function in functions.items()
        }
        self._loop: AbstractEventLoop | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._plans

    def names(self) -> list[str]:
        """The names of the tasks, sorted."""
        return sorted(self._plans)

    def run(self, name: str, data: Mapping[str, Any], context: Any) -> object:
        """Calls the handler ``name``; async ones are run to their end. The result has no pydantic model left in it."""
        plan = self._plans.get(name)
        if plan is None:
            raise UnknownTask(f"no handler is registered as {name}")
        function, signature = plan
        result = function(**signature.arguments(data, context))
        if result is None:
            return None
        if hasattr(result, "__await__"):
            result = self._run_async(result)
        return _dumped(result)

    def prepare(self) -> None:
        """Makes the loop of the async handlers, if there are any: no interrupt can strike it half made here."""
        functions = (getattr(function, "__code__", None) for function, _ in self._plans.values())
        if any(code is not None and code.co_flags & _COROUTINE for code in functions):
            self._make_loop()

    def _make_loop(self) -> AbstractEventLoop:
        """The one loop of this child: clients and pools that belong to a loop outlive a task."""
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop

    def _run_async(self, awaitable: Any) -> object:
        import asyncio

        loop = self._make_loop()
        future = loop.create_task(_await(awaitable))
        try:
            return loop.run_until_complete(future)
        except BaseException:
            # The interrupt strikes the loop, not the handler that waits in it: the handler gets it as a cancellation.
            if future.done():
                raise
            future.cancel()
            loop.run_until_complete(asyncio.wait([future]))
            if future.cancelled() or future.exception() is not None:
                raise
            return future.result()


def _signature(name: str, function: Callable[..., object], context_type: type | None) -> Signature:
    try:
        return Signature(function, context_type)
    except UnfitHandler as error:
        error.task = name
        raise


async def _await(awaitable: Any) -> object:
    return await awaitable


def load_handlers(modules: Iterable[str], context_type: type | None = JobContext) -> HandlerTable:
    """Imports the modules, and gives what they have registered with ``@task``.

    Raises ``WorkerStartError("worker-handlers-unimportable")`` from the application's real error.
    """
    import_modules(modules)
    # Not loaded: nobody has registered anything.
    registry = sys.modules.get("platform_worker.tasks.registry")
    specs = {} if registry is None else registry.REGISTRY.specs()
    try:
        table = HandlerTable({name: spec.function for name, spec in specs.items()}, context_type)
        table.prepare()
        return table
    except UnfitHandler as error:
        raise WorkerStartError("worker-handlers-unimportable", hints=(unfit_hint(error),)) from error
    except Exception as error:  # whatever an annotation of the application's may raise
        raise WorkerStartError("worker-handlers-unimportable") from error


def unfit_hint(error: UnfitHandler) -> str:
    """What a person is told: the build and the child say the same."""
    return f"app.handlers: the task {error.task} cannot be called: {error}"


def import_modules(modules: Iterable[str]) -> None:
    """Imports an application's modules; ``SystemExit`` in one of them is an import that failed, too."""
    for module in modules:
        try:
            __import__(module)
        except BaseException as error:
            raise WorkerStartError(
                "worker-handlers-unimportable", hints=(f"app.handlers: {module} cannot be imported",)
            ) from error


#: The flag of ``async def`` in a code object, as ``inspect`` has it.
_COROUTINE = 0x80
_ATOMS = frozenset({str, int, float, bool})


def _dumped(result: Any) -> Any:
    """The result with the pydantic models in it dumped; nothing to look for where pydantic is not even loaded."""
    pydantic = sys.modules.get("pydantic")
    if type(result) in _ATOMS or pydantic is None:
        return result
    return _dump(result, pydantic.BaseModel)


def _dump(value: Any, model: type) -> Any:
    if isinstance(value, model):
        return value.model_dump(mode="json")  # type: ignore[attr-defined]  # a BaseModel
    if type(value) is dict:
        return {key: _dump(item, model) for key, item in value.items()}
    if type(value) is list or type(value) is tuple:
        return [_dump(item, model) for item in value]
    return value
