"""Finds the enabled plugins by their entry points, at build time only; a child loads what the artifact names.

A name in ``app.modules`` enables everything that installed distributions register under it, in any of the three
groups: a task source, a hook, a resetter.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from platform_worker.artifacts.entry_points import load
from platform_worker.errors import WorkerBuildError
from platform_worker.tasks.contract import HOOK_GROUP, RESETTER_GROUP, TASK_SOURCE_GROUP
from platform_worker.tasks.errors import MissingLibrary
from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from pydantic import BaseModel

__all__ = ["Plugin", "find_plugins", "installed", "load", "task_source"]

GROUPS = (TASK_SOURCE_GROUP, HOOK_GROUP, RESETTER_GROUP)
#: Tables that are the package's own.
RESERVED = frozenset({"app", "worker", "queue"})


class Plugin(Value):
    """An enabled module. ``task_type`` and ``source`` are None for one that only has hooks or resetters."""

    name: str
    task_type: str | None = None
    source: str | None = None
    settings: type[BaseModel] | None = None
    hook: str | None = None
    resetter: str | None = None


def installed() -> dict[str, dict[str, set[str]]]:
    """What the distributions of this interpreter register. A distribution that is found twice counts once."""
    found: dict[str, dict[str, set[str]]] = {group: {} for group in GROUPS}
    for group in GROUPS:
        for point in entry_points(group=group):
            found[group].setdefault(point.name, set()).add(point.value.replace(" ", "").partition("[")[0])
    return found


def find_plugins(
    names: Sequence[str],
    found: dict[str, dict[str, set[str]]],
    report: Callable[[BaseException], None],
    load: Callable[[str], object] = load,
) -> list[Plugin]:
    """The plugins of ``names``, loaded and checked, in that order.

    Raises ``WorkerBuildError``: ``worker-module-unknown``, or ``worker-module-invalid`` after the plugin's own error
    was given to ``report``.
    """
    known = {name for group in found.values() for name in group}
    unknown = [name for name in names if name not in known]
    if unknown:
        import difflib

        near = {name: difflib.get_close_matches(name, sorted(known), n=1) for name in unknown}
        hints = [
            f"app.modules: no installed module is named {name}"
            + (f"; did you mean {near[name][0]}?" if near[name] else f"; installed: {', '.join(sorted(known))}")
            for name in unknown
        ]
        raise WorkerBuildError("worker-module-unknown", hints=hints)
    return [_plugin(name, found, report, load) for name in names]


def task_source(plugins: Iterable[Plugin], task_type: str) -> Plugin:
    """The one enabled source of ``task_type``; else ``WorkerBuildError``."""
    fitting = [plugin for plugin in plugins if plugin.task_type == task_type]
    if not fitting:
        hint = f"app.modules: no enabled module is a task source of worker.task_type ({task_type})"
        raise WorkerBuildError("worker-task-source-missing", hints=[hint])
    if len(fitting) > 1:
        hint = f"app.modules: exactly one of {', '.join(plugin.name for plugin in fitting)} may be enabled"
        raise WorkerBuildError("worker-task-source-ambiguous", hints=[hint])
    return fitting[0]


def _plugin(
    name: str,
    found: dict[str, dict[str, set[str]]],
    report: Callable[[BaseException], None],
    load: Callable[[str], object],
) -> Plugin:
    source, hook, resetter = (_only(name, found[group]) for group in GROUPS)
    if name in RESERVED:
        raise _invalid(name, "has the name of a table of the package itself")
    loaded: dict[str, Any] = {}
    for kind, point in (("source", source), ("hook", hook), ("resetter", resetter)):
        if point is None:
            continue
        try:
            loaded[kind] = load(point)
        except MissingLibrary as error:
            raise _invalid(name, str(error)) from error
        except (Exception, SystemExit) as error:
            report(error)
            raise _invalid(name, "cannot be imported") from error
    if "resetter" in loaded and not callable(loaded["resetter"]):
        raise _invalid(name, "has a resetter that cannot be called")
    if "hook" in loaded and not any(callable(getattr(loaded["hook"], m, None)) for m in ("before", "after")):
        raise _invalid(name, "has a hook with neither before nor after")
    if source is None:
        return Plugin(name=name, hook=hook, resetter=resetter)
    task_type, settings = _factory(name, loaded["source"], report)
    return Plugin(name=name, task_type=task_type, source=source, settings=settings, hook=hook, resetter=resetter)


def _factory(name: str, factory: Any, report: Callable[[BaseException], None]) -> tuple[str, type[BaseModel] | None]:
    from pydantic import BaseModel

    try:
        task_type, settings = getattr(factory, "task_type", None), getattr(factory, "settings", None)
    except Exception as error:
        report(error)
        raise _invalid(name, "has a factory that cannot be read") from error
    if not callable(factory) or task_type not in ("queue", "http"):
        raise _invalid(name, "has no factory: a callable with task_type queue or http")
    if settings is not None and not (isinstance(settings, type) and issubclass(settings, BaseModel)):
        raise _invalid(name, "has settings that are no pydantic model")
    return task_type, settings


def _only(name: str, points: dict[str, set[str]]) -> str | None:
    values = sorted(points.get(name, ()))
    if len(values) > 1:
        raise _invalid(name, "is registered by more than one installed distribution")
    return values[0] if values else None


def _invalid(name: str, what: str) -> WorkerBuildError:
    return WorkerBuildError("worker-module-invalid", hints=[f"app.modules: the module {name} {what}"])
