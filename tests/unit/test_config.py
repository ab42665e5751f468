"""The settings of a running process: references resolved, the rules across keys, the paths."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_worker.artifacts.references import convert, resolve_settings
from platform_worker.building.compile import compile_settings
from platform_worker.config import (
    FIXED_PATHS,
    app_settings,
    overlap,
    path_is_plain,
    plugin_settings,
    queue_settings,
    worker_problems,
    worker_settings,
)
from platform_worker.errors import WorkerUsageError
from platform_worker.tasks.discovery import installed

PATHS = {"socket_path": "var/s", "state_path": "var/t", "stop_flag_path": "var/u"}


def compiled(text: str, environ: dict[str, str] | None = None) -> dict[str, Any]:
    """``config.json`` of this worker.toml."""
    return compile_settings(text.encode(), environ or {}, installed(), lambda _: None).config


def test_the_defaults_are_the_contracts() -> None:
    config = compiled("")
    settings = worker_settings(config, {})

    assert (4, 1000, 0, "queue", "auto") == (
        settings.workers,
        settings.max_requests,
        settings.max_requests_jitter,
        settings.task_type,
        settings.driver,
    )
    assert ("auto", "127.0.0.1", 9327) == (settings.control_transport, settings.tcp_host, settings.tcp_port)
    assert ("@python", "-m", "platform_worker.child") == settings.spawn_command
    assert ("sqlite",) == app_settings(config, {}).modules
    assert ["default"] == queue_settings(config, {})["names"]
    assert {"path": "var/queue.sqlite3", "synchronous": "full"} == plugin_settings(config, "sqlite", {})


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/a",
        "a//b",
        "a/",
        "./a",
        "a/../b",
        "..",
        ".",
        "a b",
        "a\tb",
        "a\\b",
        "unix://a",
        "@a",
        "v/@a",
        "a\x00",
        "a\u200b",
        "x" * 256,
        "a/" * 600 + "b",
    ],
)
def test_a_path_off_the_rules_is_refused(path: str) -> None:
    assert not path_is_plain(path)


@pytest.mark.parametrize("path", ["a", "var/tmp/worker.sock", "a@b", "ü/ñ.sock", "...", ".hidden", "a:b"])
def test_a_plain_path_is_taken(path: str) -> None:
    assert path_is_plain(path)


@pytest.mark.parametrize("fixed", FIXED_PATHS)
@pytest.mark.parametrize("key", sorted(PATHS))
def test_no_path_may_equal_contain_or_be_inside_of_a_fixed_file(key: str, fixed: str) -> None:
    for path in (fixed, fixed + "/x", fixed.rpartition("/")[0] or fixed):
        assert key in [where for where, _ in worker_problems({**PATHS, key: path})]


def test_the_temporary_name_of_the_state_file_is_taken_too() -> None:
    assert [("stop_flag_path", "must not equal, contain or be inside of state_path + .tmp")] == list(
        worker_problems({**PATHS, "stop_flag_path": "var/t.tmp"})
    )


def test_names_that_only_begin_alike_do_not_overlap() -> None:
    assert not overlap("var/tmp/worker.lock2", "var/tmp/worker.lock")


def test_jitter_stays_below_the_limit() -> None:
    assert [] == list(worker_problems({"max_requests": 10, "max_requests_jitter": 9}))
    assert ["max_requests_jitter"] == [
        key for key, _ in worker_problems({"max_requests": 10, "max_requests_jitter": 10})
    ]


def test_the_environment_is_bounded_by_the_rules_across_keys() -> None:
    config = compiled('[worker]\nmax_requests = { env = "LIMIT" }\nmax_requests_jitter = 9\n')
    assert 10 == worker_settings(config, {"LIMIT": "10"}).max_requests

    with pytest.raises(WorkerUsageError) as caught:
        worker_settings(config, {"LIMIT": "9"})
    assert ("worker.max_requests_jitter: must be less than max_requests",) == caught.value.hints


def test_every_missing_variable_is_named_and_none_of_their_values() -> None:
    config = compiled(
        '[worker]\nworkers = { env = "N" }\npool_id = { env = "POOL" }\n[worker.tcp]\nport = {env="PORT"}'
    )

    with pytest.raises(WorkerUsageError, match="worker-environment-missing") as caught:
        worker_settings(config, {"N": "secret"})
    assert {
        "the environment variable POOL is not set (key worker.pool_id)",
        "the environment variable PORT is not set (key worker.tcp.port)",
    } == set(caught.value.hints)


def test_an_empty_variable_is_set() -> None:
    config = compiled('[worker]\npool_id = { env = "POOL", default = "a" }\nworkers = { env = "N", default = 3 }')
    assert "" == worker_settings(config, {"POOL": ""}).pool_id
    assert "a" == worker_settings(config, {}).pool_id
    with pytest.raises(WorkerUsageError, match="worker-config-invalid"):
        worker_settings(config, {"N": ""})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("integer", "0", 0),
        ("integer", "-12", -12),
        ("number", "1e3", 1000.0),
        ("number", ".5", 0.5),
        ("boolean", "true", True),
        ("boolean", "0", False),
        ("string", "", ""),
        ("array", '["a"]', ["a"]),
    ],
)
def test_a_variable_becomes_the_settings_type(kind: str, text: str, value: object) -> None:
    assert value == convert(text, {"type": kind, "items": {"type": "string"}})


@pytest.mark.parametrize(
    ("kind", "text"),
    [("integer", t) for t in ("", "-", "+1", "1.0", "01", "-0", " 1", "1_0", "٣", "0x1", "1e3", "9" * 20, "9" * 5000)]
    + [("number", t) for t in ("", "nan", "inf", "1e999", "1_0", "0x1", " 1", "٣")]
    + [("boolean", t) for t in ("", "True", "yes", "2", " 1")]
    + [("array", t) for t in ("", "a", "{}", "[1]", '["a"', "[" * 9999)]
    + [("string", "\udcff")],
)
def test_what_is_not_exactly_of_the_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        convert(text, {"type": kind, "items": {"type": "string"}})


def test_the_end_of_a_pattern_is_the_end() -> None:
    with pytest.raises(ValueError, match="must match"):
        convert("a\n", {"type": "string", "pattern": "^[a-z]+$"})


@given(st.text(), st.sampled_from(["integer", "number", "boolean", "string", "array"]))
def test_any_text_is_a_value_or_a_rule(text: str, kind: str) -> None:
    try:
        convert(text, {"type": kind, "minimum": 3, "items": {"type": "integer", "maximum": 3}})
    except ValueError as rule:
        assert text not in str(rule) or len(text) < 3  # noqa: PT017  a refusal is one of two good ends


def test_an_error_never_has_the_value() -> None:
    with pytest.raises(WorkerUsageError) as caught:
        resolve_settings({"a": {"b": {"env": "V", "type": "integer", "maximum": 3}}}, {"V": "hunter2"})
    assert ("the environment variable V (key a.b): must be a whole decimal number",) == caught.value.hints


def test_a_default_needs_no_conversion() -> None:
    assert {"a": [1]} == resolve_settings({"a": {"env": "V", "type": "array", "default": [1]}}, {})
