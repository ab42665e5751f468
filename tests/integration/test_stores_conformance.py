"""The source of every store passes the suite that every task source must pass."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.queue_worker import QUEUE
from harness.stores import STORES, StoreKit
from platform_worker.jobs.job import NewJob
from platform_worker.jobs.queue import Queue
from platform_worker.testing import TaskSourceConformance


class TestSource(TaskSourceConformance):
    @pytest.fixture(autouse=True, params=sorted(STORES))
    def _store(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store: StoreKit = STORES[request.param]()
        monkeypatch.setattr(type(self), "factory", self.store.factory, raising=False)

    def config(self, root: Path) -> Mapping[str, Any]:
        return self.store.config()

    def queue(self) -> Mapping[str, Any]:
        return QUEUE

    def put(self, root: Path, count: int) -> None:
        with Queue(self.factory.client(self.store.config(), QUEUE, str(root)), QUEUE, {}) as queue:
            queue.enqueue_many(NewJob("t", allow_unknown=True) for _ in range(count))
