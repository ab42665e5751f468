"""Fixtures for tests of the queue on any store: its two sides, and workers as processes. They take the store from the
fixture ``store``; a module that is about one store alone overrides that one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import queue_worker
from harness.queue_worker import QUEUE, Context, setup
from harness.stores import StoreKit
from platform_worker.jobs import events
from platform_worker.jobs.queue import Queue

DEADLINE = 20.0
TASKS: dict[str, dict[str, Any]] = {name: {} for name in vars(queue_worker.Handlers) if not name.startswith("_")}
Workers = Callable[..., "subprocess.Popen[bytes]"]
Log = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


def open_queue(store: StoreKit, root: str) -> Queue:
    """The side of an application."""
    return Queue(store.factory.client(store.config(), QUEUE, root), QUEUE, TASKS)


@pytest.fixture
def queue(store: StoreKit, root: str) -> Iterator[Queue]:
    with open_queue(store, root) as opened:
        yield opened


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context()
    yield made
    made.close()


@pytest.fixture
def make(store: StoreKit, root: str) -> Callable[..., Any]:
    """Makes sources: ``make(slot=…, incarnation=…, generation=…, KEY=VALUE…)``; whoever calls closes them."""
    return lambda **changes: store.factory(setup(store.config(), root, **changes))


@pytest.fixture
def source(make: Callable[..., Any], context: Context) -> Iterator[Any]:
    made = make()
    made.assert_ready(context)
    yield made
    made.close()


@pytest.fixture
def log() -> Iterator[Log]:
    seen: Log = []
    events.set_sink(lambda level, event, fields: seen.append((event, fields)))
    yield seen
    events.set_sink(None)


@pytest.fixture
def worker(store: StoreKit, root: str) -> Iterator[Workers]:
    """Starts worker processes: ``worker(slot, incarnation, KEY=VALUE…)``."""
    started: list[subprocess.Popen[bytes]] = []

    def start(slot: int = 0, incarnation: int = 0, **changes: Any) -> subprocess.Popen[bytes]:
        module, config = type(store.factory).__module__, json.dumps(store.config())
        arguments = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
        command = [sys.executable, queue_worker.__file__, module, config, root, str(slot), str(incarnation), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert b"ready\n" == process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def ledger(root: str) -> list[list[str]]:
    """What the workers' handlers have done."""
    return [line.split() for line in (Path(root) / "ledger").read_text().splitlines()]


def perform(source: Any, context: Context) -> None:
    """One job, from its receipt to its settlement."""
    task = source.receive(context)
    try:
        result = task.execute()
    except Exception as error:
        task.fail(error)
    else:
        task.complete(result)
