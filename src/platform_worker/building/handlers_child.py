"""What the handlers process does: imports the application's modules and reports the names and options it registered.

It is a process of its own because importing an application may do anything: print, start threads, exit, hang. The
answer goes to a file that the build opened, never to stdout. Started by ``host/handlers_process.py``.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module
from typing import Any

from platform_worker.tasks.errors import UnfitHandler
from platform_worker.tasks.handlers import HandlerTable, unfit_hint
from platform_worker.tasks.registry import REGISTRY, DuplicateTask


def main(answer: int, request: str) -> None:
    """``request``: ``{"handlers":[…],"log_exceptions":…,"path":[…]}``; the answer has ``tasks`` or ``error``.

    Never returns: threads, exit handlers and child processes of the application have no say in when the build goes on.
    """
    try:
        os.set_inheritable(answer, False)
        _answer(answer, _imported(json.loads(request)))
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(0)  # without a whole answer the build knows that something is wrong


def _imported(asked: dict[str, Any]) -> dict[str, Any]:
    sys.path[:0] = [os.path.normpath(os.path.join(os.getcwd(), path)) for path in asked["path"]]
    for name in asked["handlers"]:
        try:
            import_module(name)
        except BaseException as error:  # noqa: BLE001  an application's import may raise anything, SystemExit included
            if asked["log_exceptions"]:
                _show(error)
            return {"error": _hint(name, error)}
    specs = REGISTRY.specs()
    for name, spec in specs.items():
        try:
            # A child would refuse it when it boots: better now.
            HandlerTable({name: spec.function})
        except UnfitHandler as error:
            return {"error": unfit_hint(error)}
        except Exception as error:  # noqa: BLE001  an annotation of the application's may raise anything
            if asked["log_exceptions"]:
                _show(error)
            return {"error": f"app.handlers: the annotations of the task {name} raise {type(error).__name__}"}
    return {"tasks": {name: spec.record() for name, spec in specs.items()}}


def _hint(module: str, error: BaseException) -> str:
    if isinstance(error, DuplicateTask):
        one, other = error.modules
        return f"app.handlers: the task {error.task} is registered twice, in {one} and in {other}; rename one"
    if isinstance(error, ModuleNotFoundError) and error.name == module:
        return f"app.handlers: there is no module {module} in app.path"
    return f"app.handlers: importing {module} raised {type(error).__name__}"


def _show(error: BaseException) -> None:
    """The application's own traceback, without our frame."""
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    traceback.print_exception(type(error), error, frames)


def _answer(fd: int, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode()
    while data:
        data = data[os.write(fd, data) :]
