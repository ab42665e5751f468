"""Plugins by entry points: known, sound, and exactly one source of the pool's task type."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from platform_worker.errors import WorkerBuildError
from platform_worker.tasks.discovery import Plugin, find_plugins, installed, load, task_source

SOURCES, HOOKS, RESETTERS = (f"platform_worker.{kind}" for kind in ("task_sources", "hooks", "resetters"))


class Factory:
    task_type = "queue"

    class settings(BaseModel):
        pass

    def __call__(self, setup: object) -> object:
        return setup


class Broken(Factory):
    @property
    def settings(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no")


class Hook:
    def before(self, info: object) -> None:
        pass


OBJECTS: dict[str, Any] = {
    "good": Factory(),
    "function": lambda setup: setup,
    "other-type": type("X", (Factory,), {"task_type": "cron"})(),
    "no-model": type("X", (Factory,), {"settings": dict})(),
    "raising": Broken(),
    "not-callable": type("X", (), {"task_type": "queue"})(),
    "hook": Hook(),
    "no-hook": object(),
    "reset": lambda: None,
    "no-reset": 3,
}


def find(sources: dict[str, str], hooks: dict[str, str] | None = None, resetters: dict[str, str] | None = None) -> Any:
    """Finds all of these, and says what was reported."""
    found = {
        group: {name: {value} for name, value in (points or {}).items()}
        for group, points in ((SOURCES, sources), (HOOKS, hooks), (RESETTERS, resetters))
    }
    names = sorted({name for points in found.values() for name in points})
    reported: list[BaseException] = []
    return find_plugins(names, found, reported.append, OBJECTS.__getitem__), reported


def test_the_package_registers_its_own_source() -> None:
    assert {"platform_worker.sources.sqlite:factory"} == installed()[SOURCES]["sqlite"]


def test_a_name_enables_everything_registered_under_it() -> None:
    plugins, _ = find({"a": "good"}, {"a": "hook", "b": "hook"}, {"a": "reset"})
    assert [
        Plugin("a", "queue", "good", Factory.settings, "hook", "reset"),
        Plugin(name="b", hook="hook"),
    ] == plugins


@pytest.mark.parametrize("point", ["function", "other-type", "no-model", "raising", "not-callable", "missing"])
def test_an_object_without_the_shape_is_invalid(point: str) -> None:
    with pytest.raises(WorkerBuildError, match="worker-module-invalid") as caught:
        find({"plugin": point})
    assert caught.value.hints[0].startswith("app.modules: the module plugin ")


def test_a_hook_and_a_resetter_have_a_shape_too() -> None:
    for hooks, resetters in (({"a": "no-hook"}, {}), ({}, {"a": "no-reset"})):
        with pytest.raises(WorkerBuildError, match="worker-module-invalid"):
            find({}, hooks, resetters)


def test_a_plugin_that_cannot_be_imported_shows_its_own_error() -> None:
    reported: list[BaseException] = []
    with pytest.raises(WorkerBuildError, match="worker-module-invalid"):
        find_plugins(["a"], {SOURCES: {"a": {"no_such_module:x"}}, HOOKS: {}, RESETTERS: {}}, reported.append)
    assert ["no_such_module"] == [error.name for error in reported if isinstance(error, ModuleNotFoundError)]


def test_two_distributions_with_one_name_are_invalid() -> None:
    with pytest.raises(WorkerBuildError, match="worker-module-invalid"):
        find_plugins(["a"], {SOURCES: {"a": {"x:y", "z:y"}}, HOOKS: {}, RESETTERS: {}}, lambda _: None)


def test_a_plugin_named_as_a_table_of_ours_is_invalid() -> None:
    with pytest.raises(WorkerBuildError, match="worker-module-invalid"):
        find({"queue": "good"})


def test_exactly_one_source_of_the_task_type() -> None:
    queue, other, web = Plugin("a", "queue", "x"), Plugin("b", "queue", "y"), Plugin("c", "http", "z")
    hook = Plugin(name="d", hook="h")
    assert queue == task_source([queue, web, hook], "queue")
    with pytest.raises(WorkerBuildError, match="worker-task-source-missing"):
        task_source([web, hook], "queue")
    with pytest.raises(WorkerBuildError, match="worker-task-source-ambiguous") as caught:
        task_source([queue, other], "queue")
    assert ("app.modules: exactly one of a, b may be enabled",) == caught.value.hints


def test_load_follows_attributes() -> None:
    assert __import__("os").path.join is load("os:path.join")
