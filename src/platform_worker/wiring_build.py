"""The composition root of the build: reads ``worker.toml``, compiles, imports the handlers, publishes."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from platform_worker.artifacts.boot import load_current, read_selected
from platform_worker.artifacts.generation import compile_generation
from platform_worker.config import WORKER_TOML
from platform_worker.errors import WorkerBuildError, WorkerStartError, WorkerUsageError
from platform_worker.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from platform_worker.building.compile import Compiled


class BuildResult(Value):
    """The generation that is selected now; ``reused`` where it was on the disk already."""

    generation: str
    reused: bool


def build(root: str, environ: Mapping[str, str] | None = None) -> BuildResult:
    """Compiles ``worker.toml`` and the enabled plugins into an artifact generation and selects it.

    Raises ``WorkerUsageError`` or ``WorkerBuildError``; then what was selected still is.
    """
    from platform_worker.host.publish import publish

    generation_id, files = _compile(root, os.environ if environ is None else environ)
    return BuildResult(generation_id, publish(root, generation_id, files))


def check(root: str, environ: Mapping[str, str] | None = None) -> tuple[str, bool]:
    """The id that a build would give, and whether it is the selected one, whole. Changes nothing."""
    generation_id, _ = _compile(root, os.environ if environ is None else environ)
    try:
        return generation_id, read_selected(root) == generation_id and load_current(root).id == generation_id
    except (OSError, ValueError, WorkerStartError):
        return generation_id, False


def _compile(root: str, environ: Mapping[str, str]) -> tuple[str, dict[str, bytes]]:
    from platform_worker.building.compile import compile_settings
    from platform_worker.host.handlers_process import import_handlers
    from platform_worker.tasks.discovery import installed

    data = read_worker_toml(root)
    # A plugin that prints while it is imported must not write into what scripts read.
    with contextlib.redirect_stdout(sys.stderr):
        compiled = compile_settings(data, environ, installed(), _show)
    app = compiled.app
    tasks = import_handlers(root, app.path, app.handlers, log_exceptions=app.log_exceptions)
    return _generation(compiled, tasks)


def _generation(compiled: Compiled, tasks: Mapping[str, object]) -> tuple[str, dict[str, bytes]]:
    try:
        return compile_generation(compiled.config, compiled.container(tasks), compiled.modules())
    except ValueError as error:
        hint = "app.modules: a module's settings have a default that JSON cannot say"
        raise WorkerBuildError("worker-module-invalid", hints=[hint]) from error


def read_worker_toml(root: str) -> bytes:
    """The bytes of the root's ``worker.toml``; ``WorkerUsageError`` where there is none or it cannot be read."""
    from platform_worker.building.document import MAX_BYTES

    try:
        with open(os.path.join(root, WORKER_TOML), "rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        hint = "there is no worker.toml in the root; `worker init` writes one"
        raise WorkerUsageError("worker-config-missing", hints=[hint]) from None
    except (OSError, ValueError):
        raise WorkerUsageError("worker-config-missing", hints=["worker.toml cannot be read"]) from None


def initialize(root: str) -> list[str]:
    """Writes those of the starter files that the root lacks, all or none; their names. Raises ``WorkerUsageError``."""
    from platform_worker.building.starter import TASKS, starter_settings

    files = {WORKER_TOML: starter_settings(), "tasks.py": TASKS}
    missing = [name for name in files if not os.path.lexists(os.path.join(root, name))]
    if not missing:
        hint = f"{' and '.join(files)} are there already; nothing was written"
        raise WorkerUsageError("worker-usage-invalid", hints=[hint])
    written: list[str] = []
    try:
        os.makedirs(root, exist_ok=True)
        for name in missing:
            with open(os.path.join(root, name), "x", encoding="utf-8") as stream:
                written.append(name)
                stream.write(files[name])
    except (OSError, ValueError) as error:
        for name in written:
            os.unlink(os.path.join(root, name))
        rule = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "not a path"
        raise WorkerUsageError("worker-usage-invalid", hints=[f"the root cannot be written to: {rule}"]) from None
    return missing


def _show(error: BaseException) -> None:
    """A broken plugin shows its real error."""
    import traceback

    traceback.print_exception(type(error), error, error.__traceback__)
