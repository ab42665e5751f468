"""The table ``[redis]``, its URL, and what is said where its library is missing."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from platform_worker.artifacts.references import resolve_settings
from platform_worker.building.compile import compile_settings
from platform_worker.errors import WorkerBuildError, WorkerQueueError, WorkerUsageError
from platform_worker.jobs.queue import _load
from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.redis.address import Address, parse
from platform_worker.tasks.discovery import installed


def compiled(table: str = "") -> dict[str, Any]:
    """The compiled table."""
    text = f'[app]\nmodules = ["redis"]\n{table}'
    plugins = compile_settings(text.encode(), {}, installed(), lambda _: None).config["plugins"]
    table_of_redis: dict[str, Any] = plugins["redis"]
    return table_of_redis


def test_the_server_comes_from_the_environment_unless_it_is_given() -> None:
    """The artifact keeps the variable's name and the default, as if they had been written into the file."""
    found = compiled()
    assert ("REDIS_URL", "redis://127.0.0.1:6379/0") == (found["url"]["env"], found["url"]["default"])
    assert compiled('[redis]\nurl = { env = "REDIS_URL", default = "redis://127.0.0.1:6379/0" }') == found
    assert {"url": "redis://there/3", "prefix": "platform-worker"} == resolve_settings(
        found, {"REDIS_URL": "redis://there/3"}
    )
    assert "redis://here" == compiled('[redis]\nurl = "redis://here"\nprefix = "p"')["url"]


@pytest.mark.parametrize(
    "table", ['url = "http://x"', 'url = "redis://a b"', 'prefix = "a{b}"', 'prefix = ""', "port = 1"]
)
def test_what_is_off_the_rules_is_refused(table: str) -> None:
    with pytest.raises(WorkerUsageError, match="worker-config-invalid"):
        compiled(f"[redis]\n{table}")


def test_a_variable_off_the_rules_is_refused_by_name() -> None:
    with pytest.raises(WorkerUsageError, match="worker-config-invalid") as refused:
        resolve_settings({"redis": compiled()}, {"REDIS_URL": "http://secret"})
    assert "REDIS_URL" in refused.value.hints[0]
    assert "secret" not in refused.value.hints[0]


def address(**parts: Any) -> Address:
    """An address that differs from the plainest one in these parts."""
    plain = {"host": "h", "port": 6379, "path": "", "tls": False, "database": 0, "user": "", "password": ""}
    return Address(**{**plain, **parts})


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", address()),
        ("redis://h/", address()),
        ("redis://h:1/2", address(port=1, database=2)),
        ("redis://h?db=4", address(database=4)),
        ("redis://:p%40s%2Fs@h", address(password="p@s/s")),
        ("redis://u:p@h:7/1", address(user="u", password="p", port=7, database=1)),
        ("redis://u:p@w@h", address(user="u", password="p@w")),
        ("rediss://h:1", address(tls=True, port=1)),
        ("rediss://h?ssl_ca_certs=/etc/ca%20s.pem", address(tls=True, ca_file="/etc/ca s.pem")),
        ("redis://[::1]:5/6", address(host="::1", port=5, database=6)),
        ("redis://[::1]", address(host="::1")),
        ("unix:///run/redis.sock", address(host="", path="/run/redis.sock")),
        ("unix://:p@/run/redis.sock?db=3", address(host="", path="/run/redis.sock", password="p", database=3)),
    ],
)
def test_a_url_is_taken_apart(url: str, expected: Address) -> None:
    assert expected == parse(url)


@pytest.mark.parametrize(
    "url",
    ["", "h", "http://h", "redis://", "redis://:p@", "redis://h:port", "redis://h/x", "redis://h:1:2", "redis://h?x=1",
     "redis://h/-1", "redis://%zz", "redis://h:99999", "unix://", "redis://h?db="],
)  # fmt: skip
def test_a_url_off_the_rules_is_refused_without_its_value(url: str) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        parse(url)
    assert not refused.value.transient
    assert refused.value.rule.startswith("redis.url: must be ")


def test_a_library_that_is_missing_is_named_with_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the build, and by whoever opens the queue of what was built elsewhere."""
    for name in [name for name in sys.modules if name.startswith("platform_worker.sources.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hiredis", None)
    with pytest.raises(WorkerBuildError, match="worker-module-invalid") as refused:
        compiled()
    assert "pip install platform-worker[redis]" in refused.value.hints[0]
    with pytest.raises(WorkerQueueError, match="worker-queue-unavailable") as unavailable:
        _load("platform_worker.sources.redis:factory")
    assert "pip install platform-worker[redis]" in unavailable.value.hints[0]
