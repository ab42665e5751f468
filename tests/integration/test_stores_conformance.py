"""The SQLite source passes the suite that every task source must pass."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))
from sqlite_worker import CONFIG, QUEUE

from platform_worker.jobs.job import NewJob
from platform_worker.jobs.queue import Queue
from platform_worker.sources.sqlite import factory
from platform_worker.testing import TaskSourceConformance


class TestSqliteSource(TaskSourceConformance):
    factory = factory

    def config(self, root: Path) -> Mapping[str, Any]:
        return CONFIG

    def queue(self) -> Mapping[str, Any]:
        return QUEUE

    def put(self, root: Path, count: int) -> None:
        with Queue(factory.client(CONFIG, QUEUE, str(root)), QUEUE, {}) as queue:
            queue.enqueue_many(NewJob("t", allow_unknown=True) for _ in range(count))
