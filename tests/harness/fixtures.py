"""What tests are given: applications and servers of their own, of which nothing outlives the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.application import Application
from harness.servers import RedisServer
from harness.stores import STORES, StoreKit, close_servers


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest) -> StoreKit:
    """Each of the stores in turn, empty."""
    return STORES[request.param]()


@pytest.fixture(scope="session", autouse=True)
def servers() -> Iterator[None]:
    """No server outlives the tests."""
    yield
    close_servers()


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A server of the test's own, that it may hurt."""
    made = RedisServer()
    try:
        yield made.start()
    finally:
        made.close()


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Callable[..., Application]]:
    """Makes applications: ``application(name="app", tasks=None, worker={...}, queue={...})``.

    A test must leave nobody behind: who is left is killed, and the test fails.
    """
    made: list[Application] = []

    def make(name: str = "app", tasks: str | None = None, **settings: Any) -> Application:
        made.append(Application(tmp_path / name, tasks, **settings))
        return made[-1]

    yield make
    left = [pid for one in made for pid in one.close()]
    assert not left, f"processes outlived the test: {left}"
