"""``@task`` registers, and returns the function as it was."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from platform_worker.tasks import registry
from platform_worker.tasks.registry import DuplicateTask, Registry, TaskSpec, task


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of the test's own."""
    mine = Registry()
    monkeypatch.setattr(registry, "REGISTRY", mine)
    return mine


def sample() -> int:
    return 3


def test_the_three_ways_to_write_it(own: Registry) -> None:
    assert task(sample) is sample
    assert task()(sample) is sample
    assert task("named", queue="q", priority=1, max_attempts=2, timeout_ms=0, backoff_ms=0)(sample) is sample

    assert {f"{__name__}.sample", "named"} == set(own.specs())
    spec = own.specs()["named"]
    assert TaskSpec("named", sample, "q", 1, 2, 0, 0) == spec
    assert {
        "module": __name__,
        "qualname": "sample",
        "queue": "q",
        "priority": 1,
        "max_attempts": 2,
        "timeout_ms": 0,
        "backoff_ms": 0,
    } == spec.record()
    assert 3 == sample()


def test_one_name_for_two_functions_is_refused(own: Registry) -> None:
    def first() -> None: ...
    def second() -> None: ...

    task("same")(first)
    task("same")(first)
    with pytest.raises(DuplicateTask, match=r"is taken twice, in .* and in "):
        task("same")(second)
    assert "same" == own.name_of(first)
    assert own.name_of(second) is None


def test_two_functions_of_one_name_in_one_module_are_refused() -> None:
    def twin(number: int) -> Any:
        if number:

            def handler() -> None: ...
        else:

            def handler() -> None: ...

        return handler

    task(twin(0))
    with pytest.raises(DuplicateTask):
        task(twin(1))


@pytest.mark.parametrize(
    "options",
    [{"name": name} for name in ("", " a", "a\n", "\ud800", "a" * 201)]
    + [{"queue": queue} for queue in ("", "A", "a b", "a" * 65)]
    + [{"priority": 0}, {"priority": 11}, {"max_attempts": 0}, {"timeout_ms": -1}, {"backoff_ms": 2**63}]
    + [{"priority": True}, {"priority": "1"}, {"max_attempts": 1.0}, {"queue": 3}, {"name": 3}],
)
def test_options_off_their_rules_are_refused(options: dict[str, Any]) -> None:
    name = options.pop("name", "name")
    with pytest.raises((TypeError, ValueError), match="of a task must"):
        task(name, **options)(sample)


def test_a_callable_without_a_name_of_its_own_needs_one_for_its_task(own: Registry) -> None:
    class Tool:
        def __call__(self) -> int:
            return 3

    for nameless in (Tool(), functools.partial(sample)):
        with pytest.raises(TypeError, match="give the task one"):
            task(nameless)
        name = type(nameless).__name__
        task(name)(nameless)
        assert type(nameless).__qualname__ == own.specs()[name].record()["qualname"]
