"""Compiles ``worker.toml`` and the enabled plugins into what an artifact generation holds, short of the handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from platform_worker.artifacts.references import resolve_settings
from platform_worker.building.document import Document, Path
from platform_worker.building.models import TABLES
from platform_worker.building.models import Table as Closed
from platform_worker.building.tables import Table
from platform_worker.config import AppSettings, app_settings, worker_problems
from platform_worker.errors import WorkerBuildError
from platform_worker.tasks.discovery import Plugin, find_plugins, task_source
from platform_worker.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Compiled(Value):
    """``config`` is ``config.json``; ``app`` is its table as the environment of the build has it."""

    config: dict[str, Any]
    app: AppSettings
    plugins: tuple[Plugin, ...]
    source: Plugin

    def container(self, tasks: Mapping[str, Any]) -> dict[str, Any]:
        """``container.json`` with these handlers."""
        return {
            "tasks": dict(tasks),
            "task_source": {
                "name": self.source.name,
                "task_type": self.source.task_type,
                "entry_point": self.source.source,
            },
            # By name: the order of app.modules says nothing about the order of hooks.
            "hooks": _points((p.name, p.hook) for p in self.plugins),
            "resetters": _points((p.name, p.resetter) for p in self.plugins),
        }

    def modules(self) -> dict[str, Any]:
        """``modules.json``."""
        return {
            "modules": [
                {"name": p.name, "task_type": p.task_type, "entry_point": p.source}
                for p in sorted(self.plugins, key=lambda p: p.name)
            ]
        }


def compile_settings(
    data: bytes,
    environ: Mapping[str, str],
    found: dict[str, dict[str, set[str]]],
    report: Callable[[BaseException], None],
) -> Compiled:
    """Compiles the bytes of ``worker.toml``; ``found`` is ``discovery.installed()``.

    Raises ``WorkerUsageError`` with every problem of the file, or ``WorkerBuildError`` for the plugins.
    """
    document = Document(data)
    tables = {name: Table(document, name, model) for name, model in TABLES.items()}
    _check_worker(document, tables["worker"].known)
    _check_lists(document, tables)
    app: AppSettings | None = None
    if tables["app"].compiled:
        app = app_settings({"app": tables["app"].compiled}, environ)
    enabled = app.modules if app is not None else ()
    _check_tables(document, set(enabled), found if app is not None else None)
    plugins: list[Plugin] = []
    try:
        plugins = find_plugins(enabled, found, report)
    except WorkerBuildError:
        document.raise_problems()
        raise
    compiled = {p.name: Table(document, p.name, p.settings or Closed, p.source) for p in plugins}
    document.raise_problems()
    if app is None:  # without a problem that says why: cannot be
        raise AssertionError("[app] did not compile")
    task_type = resolve_settings({"task_type": tables["worker"].compiled["task_type"]}, environ)["task_type"]
    return Compiled(
        config={
            **{name: table.compiled for name, table in tables.items()},
            "plugins": {name: table.compiled for name, table in compiled.items()},
        },
        app=app,
        plugins=tuple(plugins),
        source=task_source(plugins, task_type),
    )


def _check_worker(document: Document, known: dict[str, Any]) -> None:
    for key, rule in worker_problems(known):
        document.problem(("worker", *key.split(".")), rule)


def _check_lists(document: Document, tables: dict[str, Table]) -> None:
    for path in (("app", "path"), ("app", "handlers"), ("app", "modules"), ("queue", "names")):
        seen: set[str] = set()
        for i, item in enumerate(tables[path[0]].known.get(path[1], ())):
            if item in seen:
                where: Path = (*path, i)
                document.problem(where, "is there twice")
            seen.add(item)


def _check_tables(document: Document, enabled: set[str], found: dict[str, dict[str, set[str]]] | None) -> None:
    """Each table must be ours or an enabled plugin's; where ``app`` is broken nobody knows which are enabled."""
    if found is None:
        return
    known = set(TABLES) | enabled
    available = {name for group in found.values() for name in group}
    for name in document.tables.keys() - known:
        if name in available:
            document.problem((name,), "is the table of a module that app.modules does not enable")
        else:
            document.unknown((name,), known, "is not a known table")


def _points(pairs: Any) -> list[dict[str, str]]:
    return [{"name": name, "entry_point": point} for name, point in sorted(pairs) if point is not None]
