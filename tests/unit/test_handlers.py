"""How a handler gets a job's data, and what becomes of its result."""

from __future__ import annotations

import asyncio
import datetime
import functools
import sys
from typing import Annotated, Any, Optional

import pytest
from pydantic import BaseModel, Field

from platform_worker.errors import WorkerStartError
from platform_worker.jobs.context import JobContext
from platform_worker.tasks.errors import InvalidData, UnfitHandler, UnknownTask
from platform_worker.tasks.handlers import HandlerTable, load_handlers

CONTEXT = JobContext(id="1", task="t", queue="default", attempt=1, max_attempts=1)


class Item(BaseModel):
    name: str
    when: datetime.date | None = None


def run(function, data=None, context=CONTEXT):
    return HandlerTable({"t": function}).run("t", data or {}, context)


def echo(**types):
    """A handler whose parameters have these annotations."""

    def handler(**values: Any) -> Any:
        return values

    names = ", ".join(types)
    scope: dict[str, Any] = {}
    exec(f"def handler({names}): return dict({', '.join(f'{n}={n}' for n in types)})", scope)
    scope["handler"].__annotations__ = types
    return scope["handler"]


def test_data_becomes_keyword_arguments():
    def handler(a, b=2, *, c, d=4):
        return [a, b, c, d]

    assert [1, 2, 3, 4] == run(handler, {"a": 1, "c": 3})


def test_a_parameter_annotated_with_the_context_receives_it():
    def handler(path: str, context: JobContext) -> str:
        return f"{path} {context.id}"

    assert "a.pdf 1" == run(handler, {"path": "a.pdf"})


def test_the_context_is_recognised_by_name_where_only_a_type_checker_imports_it():
    scope: dict[str, Any] = {}
    exec("def handler(ctx: 'platform_worker.JobContext', n: 'Unheard'): return [ctx.id, n]", scope)

    assert ["1", 5] == run(scope["handler"], {"n": 5})


def test_the_context_cannot_come_with_the_data():
    def handler(context: JobContext, **rest: Any) -> None:
        pass

    with pytest.raises(InvalidData, match="context"):
        run(handler, {"context": 1})


def test_an_unknown_name_is_an_unknown_task():
    with pytest.raises(UnknownTask):
        HandlerTable({}).run("t", {}, CONTEXT)


@pytest.mark.parametrize("data", [{}, {"a": 1, "b": 2}, {"b": 2}])
def test_missing_and_extra_arguments_are_invalid_data_before_the_handler_is_entered(data):
    entered = []

    def handler(a):
        entered.append(a)

    with pytest.raises(InvalidData):
        run(handler, data)
    assert entered == []


def test_a_handler_with_keyword_arguments_takes_any():
    def handler(a, **rest):
        return rest

    assert {"b": 2} == run(handler, {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (str, "x", "x"),
        (int, 3, 3),
        (float, 3, 3.0),
        (float, 2.5, 2.5),
        (bool, True, True),
        (list, [1], [1]),
        (dict, {"a": 1}, {"a": 1}),
        (Any, object, object),
        (object, 1, 1),
        (int | None, None, None),
        (Optional[int], 4, 4),  # noqa: UP045  both spellings are met
        (list[int], [1, 2], [1, 2]),
        (dict[str, list[float]], {"a": [1]}, {"a": [1.0]}),
        (int | float, 3, 3),
        ("int", 3, 3),
        (datetime.date, "2024-02-29", datetime.date(2024, 2, 29)),
        (Annotated[int, Field(gt=1)], 2, 2),
        (Item, {"name": "a"}, Item(name="a")),
        (list[Item], [{"name": "a"}], [Item(name="a")]),
    ],
)
def test_values_fit_their_annotations(hint, value, expected):
    seen = []

    def handler(value):
        seen.append(value)

    handler.__annotations__ = {"value": hint}
    run(handler, {"value": value})

    assert [expected] == seen
    assert type(expected) is type(seen[0])


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (str, 1),
        (int, "1"),
        (int, True),
        (int, 1.0),
        (float, "1"),
        (float, True),
        (bool, 1),
        (list, {}),
        (dict, []),
        (int | None, "1"),
        (list[int], ["1"]),
        (dict[str, int], {"a": None}),
        (datetime.date, "yesterday"),
        (Annotated[int, Field(gt=1)], 1),
        (Item, {"name": 1}),
    ],
)
def test_a_value_that_does_not_fit_is_named_but_not_shown(hint, value):
    def handler(value):
        raise AssertionError("entered")

    handler.__annotations__ = {"value": hint}

    with pytest.raises(InvalidData, match=r"^value: ") as caught:
        run(handler, {"value": value})
    assert "yesterday" not in str(caught.value)


def test_a_decorated_handler_keeps_the_parameters_of_the_function_inside():
    def inner(path: str, context: JobContext) -> str:
        return path + context.id

    @functools.wraps(inner)
    def handler(*args, **kwargs):
        return inner(*args, **kwargs).upper()

    assert "A1" == run(handler, {"path": "a"})
    with pytest.raises(InvalidData):
        run(handler, {"path": "a", "more": 1})


def test_an_async_handler_is_run_to_its_end_on_one_loop():
    loops = []

    async def handler(n: int):
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        return n + 1

    table = HandlerTable({"t": handler})
    try:
        assert [2, 3] == [table.run("t", {"n": n}, CONTEXT) for n in (1, 2)]
        assert loops[0] is loops[1]
    finally:
        loops[0].close()
        asyncio.set_event_loop(None)


def test_an_interrupt_reaches_an_async_handler_as_a_cancellation():
    class Strike(KeyboardInterrupt):
        pass

    seen = []

    async def handler():
        loop = asyncio.get_running_loop()
        seen.append(loop)

        def strike():
            raise Strike

        loop.call_soon(strike)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    try:
        with pytest.raises(Strike):
            run(handler)
        assert "cancelled" == seen[1]
    finally:
        seen[0].close()
        asyncio.set_event_loop(None)


def test_models_in_a_result_are_dumped():
    day = datetime.date(2024, 1, 2)

    assert {"items": [{"name": "a", "when": "2024-01-02"}]} == run(lambda: {"items": (Item(name="a", when=day),)})


def test_a_module_that_cannot_be_imported_gives_the_real_error_as_the_cause(tmp_path, monkeypatch):
    (tmp_path / "broken_tasks.py").write_text("import sys; sys.exit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(WorkerStartError, match="worker-handlers-unimportable") as caught:
        load_handlers(["broken_tasks"])
    assert isinstance(caught.value.__cause__, SystemExit)


def test_handlers_are_what_the_modules_have_registered(tmp_path, monkeypatch):
    (tmp_path / "fine_tasks.py").write_text(
        "from platform_worker import task\n@task('fine-task')\ndef fine(n: int): return n * 2\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    assert 4 == load_handlers(["fine_tasks"]).run("fine-task", {"n": 2}, CONTEXT)
    sys.modules.pop("fine_tasks")


def test_positional_only_parameters_are_refused_at_load():
    def handler(a, /):
        pass

    with pytest.raises(TypeError):
        HandlerTable({"t": handler})


def test_a_wrapper_that_passes_everything_on_is_a_handler():
    def wrapper(*args, **kwargs):
        return [args, kwargs]

    assert [[], {"a": 1}] == run(wrapper, {"a": 1})


def test_a_handler_that_no_job_can_call_is_named_with_its_rule():
    def handler(*args):
        return args

    def generator():
        yield 1

    for function in (handler, generator, dict):
        with pytest.raises(UnfitHandler) as refused:
            HandlerTable({"mine": function})
        assert "mine" == refused.value.task
