"""``worker.toml``: every problem at once, each with line, key and rule; never a value or a traceback."""

from __future__ import annotations

import tomllib
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, field_validator

from platform_worker.building.compile import compile_settings
from platform_worker.building.document import Document, dotted, line_of
from platform_worker.building.models import TABLES
from platform_worker.building.starter import default_settings, starter_settings
from platform_worker.building.tables import Table
from platform_worker.errors import WorkerBuildError, WorkerUsageError
from platform_worker.tasks.discovery import installed

FOUND = installed()


def compiled(text: str, environ: dict[str, str] | None = None) -> dict[str, Any]:
    """``config.json`` of this worker.toml."""
    return compile_settings(text.encode(), environ or {}, FOUND, lambda _: None).config


def hints(text: str) -> tuple[str, ...]:
    """What is wrong with this worker.toml."""
    with pytest.raises(WorkerUsageError, match="worker-config-invalid") as caught:
        compiled(text)
    return caught.value.hints


def test_the_shipped_file_is_the_defaults_and_says_every_key() -> None:
    shipped = default_settings()
    assert compiled("") == compiled(shipped)
    written = tomllib.loads(shipped)
    for name, model in TABLES.items():
        assert model().model_dump() == written[name]


def test_the_starter_file_differs_in_the_handlers_only() -> None:
    config = compiled(starter_settings())
    assert ["tasks"] == config["app"].pop("handlers")
    expected = compiled("")
    expected["app"].pop("handlers")
    assert expected == config


def test_every_problem_is_reported_at_once_with_its_line() -> None:
    text = (
        '[app]\nname = 3\n\n[worker]\nworkers = "4"\nmax_request = 3\n# no\n'
        "max_requests_jitter = 2000\n[worker.tcp]\nport = 0\n"
    )
    assert (
        "worker.toml line 2: app.name must be a string",
        "worker.toml line 5: worker.workers must be a whole number, without quotes",
        "worker.toml line 6: worker.max_request is not a known key; did you mean max_requests?",
        "worker.toml line 8: worker.max_requests_jitter must be less than max_requests",
        "worker.toml line 10: worker.tcp.port must be 1 or more",
    ) == hints(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("workers = 3", "worker.toml line 1: workers is not a known table; did you mean worker?"),
        ("worker = 3", "worker.toml line 1: worker must be a table"),
        ("[worker]\ntcp = 3", "worker.toml line 2: worker.tcp must be a table"),
        ("[worker]\nworkers = 1025", "worker.toml line 2: worker.workers must be at most 1024"),
        ("[worker]\nworkers = 1.5", "worker.toml line 2: worker.workers must be a whole number, without quotes"),
        ("[worker]\nworkers = true", "worker.toml line 2: worker.workers must be a whole number, without quotes"),
        ("[worker]\nmax_requests = 0", "worker.toml line 2: worker.max_requests must be 1 or more"),
        ("[worker]\nstop_timeout_ms = 86400001", "worker.toml line 2: worker.stop_timeout_ms must be at most 86400000"),
        ('[worker]\ndriver = "x"', "worker.toml line 2: worker.driver must be one of auto, fork or spawn"),
        ('[worker.tcp]\nhost = "0.0.0.0"', "worker.toml line 2: worker.tcp.host must be one of 127.0.0.1"),
        ('[queue]\nnames = ["A"]', "worker.toml line 2: queue.names[0] must match ^[a-z0-9._-]+$"),
        ('[queue]\nnames = ["a", "a"]', "worker.toml line 2: queue.names[1] is there twice"),
        ("[queue]\nbackoff_jitter = nan", "worker.toml line 2: queue.backoff_jitter must be a finite number"),
        ("[queue]\nlease_ms = 999", "worker.toml line 2: queue.lease_ms must be 1000 or more"),
        ('[sqlite]\npaht = "x"', "worker.toml line 2: sqlite.paht is not a known key; did you mean path?"),
        ('[app]\nname = { env = "N" }', "worker.toml line 2: app.name takes no environment reference"),
        ('[worker]\ntcp = { env = "N" }', "worker.toml line 2: worker.tcp is a table; each of its keys may be an environment reference"),  # noqa: E501  one row, one line
        ('[worker]\nworkers = { env = "N", defualt = 3 }', "worker.toml line 2: worker.workers must have no key but env and default, as an environment reference"),  # noqa: E501  one row, one line
        ('[worker]\nworkers = { env = "1N" }', "worker.toml line 2: worker.workers must name an environment variable: letters, digits and _"),  # noqa: E501  one row, one line
        ('[worker]\nworkers = { env = "N", default = "3" }', "worker.toml line 2: worker.workers must be a whole number, without quotes"),  # noqa: E501  one row, one line
        ('[app]\nhandlers = ["a-b"]', r"worker.toml line 2: app.handlers[0] must match ^[^\W\d]\w*(\.[^\W\d]\w*)*$"),
        ("[worker]\nworkers = 99999999999999999999", "worker.toml: worker.workers must fit in 64 bits"),
        ("a = 1\na = 2", "worker.toml: Cannot overwrite a value (at end of document)"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_named_with_its_rule(text: str, hint: str) -> None:
    assert (hint,) == hints(text)


@pytest.mark.parametrize("path", ["/srv/app", "", "a\\u0000"])
def test_app_path_is_relative_to_the_root(path: str) -> None:
    assert "app.path[0] must match" in hints(f'[app]\npath = ["{path}"]')[0]


@pytest.mark.parametrize(
    "data", [b"\xff", b"[" * 100_000, b"a" * (1 << 20) + b"a", b"a = " + b"[" * 5000, b"a = 1" + b"0" * 5000]
)
def test_bytes_that_are_no_toml_are_one_error(data: bytes) -> None:
    with pytest.raises(WorkerUsageError, match="worker-config-invalid"):
        Document(data).raise_problems()


def test_the_table_of_a_module_that_is_not_enabled_is_an_error() -> None:
    text = '[app]\nmodules = ["other"]\n[sqlite]\npath = "x"\n'
    found = {**FOUND, "platform_worker.hooks": {"other": {"m:hook"}}}
    with pytest.raises(WorkerUsageError) as caught:
        compile_settings(text.encode(), {}, found, lambda _: None)
    assert "worker.toml line 3: sqlite is the table of a module that app.modules does not enable" in caught.value.hints


def test_an_unknown_module_is_a_build_error_with_the_nearest() -> None:
    with pytest.raises(WorkerBuildError, match="worker-module-unknown") as caught:
        compiled('[app]\nmodules = ["sqlit"]')
    assert ("app.modules: no installed module is named sqlit; did you mean sqlite?",) == caught.value.hints


def test_the_reference_and_its_rule_go_into_the_artifact_not_the_value() -> None:
    config = compiled(
        '[worker]\nworkers = { env = "N", default = 2 }\n[sqlite]\nsynchronous = { env = "S" }\n'
        '[queue]\nnames = { env = "Q", default = ["a"] }',
        {"N": "7", "S": "secret"},
    )
    assert {"env": "N", "default": 2, "type": "integer", "minimum": 1, "maximum": 1024} == config["worker"]["workers"]
    assert {"env": "S", "type": "string", "enum": ["full", "normal"]} == config["plugins"]["sqlite"]["synchronous"]
    rule = {"type": "string", "pattern": "^[a-z0-9._-]+$", "max_length": 64}
    assert {"env": "Q", "default": ["a"], "type": "array", "items": rule, "min_length": 1} == config["queue"]["names"]


class Inner(BaseModel):
    level: int = 1


class Settings(BaseModel):
    url: str
    token: SecretStr = SecretStr("")
    inner: Inner = Inner()
    even: int = 2
    choice: Literal[1, 2] = 1
    ratio: Annotated[float, Field(gt=0, lt=1)] = 0.5

    @field_validator("even")
    @classmethod
    def is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd")
        return value


def table(text: str, model: type[BaseModel] = Settings) -> tuple[Document, Table]:
    document = Document(text.encode())
    return document, Table(document, "plugin", model, f"{__name__}:factory")


class factory:
    settings = Settings


def test_a_required_setting_may_come_from_the_environment_alone() -> None:
    document, plugin = table('[plugin]\nurl = { env = "URL" }\ninner.level = { env = "L" }\nratio = { env = "R" }')
    assert [] == document.problems
    assert {"env": "URL", "type": "string"} == plugin.compiled["url"]
    assert {"level": {"env": "L", "type": "integer"}} == plugin.compiled["inner"]
    assert {"env": "R", "type": "number", "above": 0, "below": 1} == plugin.compiled["ratio"]
    assert 2 == plugin.compiled["even"]


def test_a_rule_that_only_the_model_knows_is_asked_of_the_model() -> None:
    from platform_worker.artifacts.references import resolve_settings

    document, plugin = table('[plugin]\nurl = "u"\neven = { env = "E", default = 4 }')
    assert [] == document.problems
    assert {"env": "E", "default": 4, "type": "model", "model": f"{__name__}:factory"} == plugin.compiled["even"]
    assert 6 == resolve_settings(plugin.compiled, {"E": "6"})["even"]
    assert 4 == resolve_settings(plugin.compiled, {})["even"]
    with pytest.raises(WorkerUsageError) as caught:
        resolve_settings(plugin.compiled, {"E": "7"})
    assert ("the environment variable E (key even): its module refuses it",) == caught.value.hints


def test_a_message_of_a_plugin_that_has_the_value_is_not_shown() -> None:
    document, _ = table('[plugin]\nurl = "u"\neven = 4711')
    assert [(("plugin", "even"), "is refused by its module")] == document.problems


def test_a_secret_in_the_file_is_refused_and_a_reference_kept() -> None:
    document, _ = table('[plugin]\nurl = "u"\ntoken = "hunter2"')
    assert ["is a secret: it must be an environment reference without a default"] == [r for _, r in document.problems]
    document, plugin = table('[plugin]\nurl = "u"\ntoken = { env = "T" }')
    assert [] == document.problems
    assert "T" == plugin.compiled["token"]["env"]


def test_a_plugins_unknown_key_is_an_error_though_its_model_ignores_it() -> None:
    document, _ = table('[plugin]\nurl = "u"\nulr = "x"')
    assert ["is not a known key; did you mean url?"] == [rule for _, rule in document.problems]


def test_lines_are_found_in_headers_keys_and_past_strings() -> None:
    text = 'a = """\n[worker]\nworkers = 1\n"""\n[worker] # x\n  workers = 2\ntcp.port = 3\n["app"]\nname="x"\n'
    assert 6 == line_of(text, ("worker", "workers"))
    assert 7 == line_of(text, ("worker", "tcp", "port"))
    assert 5 == line_of(text, ("worker", "driver"))
    assert 9 == line_of(text, ("app", "name"))
    assert line_of(text, ("queue",)) is None


def test_a_key_that_is_no_plain_word_is_quoted() -> None:
    assert "worker.'a b'[2]" == dotted(("worker", "a b", 2))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["env", "default", "a"]), inner),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [*TABLES["worker"].model_fields, *TABLES["app"].model_fields, *TABLES["queue"].model_fields, "x"]
)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["app", "worker", "queue", "sqlite", "other"]), st.dictionaries(KEYS, VALUES) | VALUES
    )
)
def test_any_values_compile_or_are_refused(tables: dict[str, Any]) -> None:
    document = Document(b"")
    document.tables = tables
    try:
        for name, model in TABLES.items():
            Table(document, name, model)
        document.raise_problems()
    except (WorkerUsageError, WorkerBuildError) as error:
        assert error.hints  # noqa: PT017  a refusal is one of two good ends


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet="[]{}=\"\n.ae1#'", max_size=60).map(str.encode))
def test_any_bytes_are_a_document_or_one_error(data: bytes) -> None:
    try:
        compile_settings(data, {}, FOUND, lambda _: None)
    except (WorkerUsageError, WorkerBuildError) as error:
        assert error.hints  # noqa: PT017  a refusal is one of two good ends
