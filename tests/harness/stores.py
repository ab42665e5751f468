"""The stores of jobs, as tests see them: one class each, and one entry in ``STORES``.

A test that takes the fixture ``store`` runs on each of them. What is started for a store is ended with the test run.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from harness.servers import RedisServer
from platform_worker.jobs.store import ClientStore, WorkerStore
from platform_worker.tasks.contract import WorkerIdentity

Lives = dict[str, tuple[Any, ...]]


class StoreKit:
    """A store for one test: nothing of another test is in it."""

    #: The module's name in ``app.modules``, and the name of its table.
    name = ""
    #: Whether leases run by the same clock as ``run_at``, so that a step of it moves them.
    one_clock = True

    @property
    def factory(self) -> Any:
        """What the entry point loads to."""
        raise AssertionError

    def config(self) -> dict[str, Any]:
        """The plugin's table."""
        raise AssertionError

    def somebody_waits(self, root: str) -> bool:
        """Whether a worker listens for rings."""
        raise AssertionError

    # For the test against the model: a store whose clocks the test moves.

    def begin(self) -> None:
        """From now on the clocks are the test's."""
        raise AssertionError

    def set_time(self, wall: int, boot: int) -> None:
        """Moves them, in milliseconds."""
        raise AssertionError

    def client(self, queue: dict[str, Any]) -> ClientStore:
        """The side of ``Queue``."""
        raise AssertionError

    def worker(self, queue: dict[str, Any], identity: WorkerIdentity) -> WorkerStore:
        """A worker's side."""
        raise AssertionError

    def lives(self, fields: Sequence[str]) -> Lives:
        """These fields of every job, as stored, and whether it has not finished; by id."""
        raise AssertionError

    def end(self) -> None:
        """Lets go of what ``begin`` took."""
        raise AssertionError


class SqliteKit(StoreKit):
    """A file in the root."""

    name = "sqlite"
    one_clock = False

    @property
    def factory(self) -> Any:
        from platform_worker.sources.sqlite import factory

        return factory

    def config(self) -> dict[str, Any]:
        return {"path": "var/queue.sqlite3", "synchronous": "normal"}

    def somebody_waits(self, root: str) -> bool:
        folder = f"{root}/var/queue.sqlite3.bells"
        return os.path.isdir(folder) and any(name.startswith("w-") for name in os.listdir(folder))

    def begin(self) -> None:
        import pytest

        from platform_worker.sources.sqlite import clock

        # In memory where there is such a place: a history makes a file, and its commits would be the test's time.
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._root = tempfile.mkdtemp(prefix="histories-", dir=shared)
        self._time = (0, 0)
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(clock, "wall_ms", lambda: self._time[0])
        self._patch.setattr(clock, "boot_ms", lambda: self._time[1])

    def set_time(self, wall: int, boot: int) -> None:
        self._time = (wall, boot)

    def client(self, queue: dict[str, Any]) -> ClientStore:
        store: ClientStore = self.factory.client(self.config(), queue, self._root)
        return store

    def worker(self, queue: dict[str, Any], identity: WorkerIdentity) -> WorkerStore:
        from platform_worker.sources.sqlite.worker_store import SqliteWorkerStore

        return SqliteWorkerStore(f"{self._root}/var/queue.sqlite3", "normal", queue, identity)

    def lives(self, fields: Sequence[str]) -> Lives:
        import sqlite3

        connection = sqlite3.connect(f"{self._root}/var/queue.sqlite3")
        try:
            rows = connection.execute(f"SELECT id, {', '.join(fields)}, finished_at IS NULL FROM platform_worker_jobs")
            return {row[0]: row[1:] for row in rows}
        finally:
            connection.close()

    def end(self) -> None:
        self._patch.undo()
        shutil.rmtree(self._root)


_JOBS = """
local jobs = {}
for i, seq in ipairs(redis.call('ZRANGE', KEYS[1] .. 'jobs', 0, -1, 'WITHSCORES')) do
  if i % 2 == 0 then jobs[#jobs + 1] = redis.call('HGETALL', KEYS[1] .. string.format('job:%014.0f', seq)) end
end
return jobs
"""


class RedisKit(StoreKit):
    """Keys of its own on the test run's one server."""

    name = "redis"
    _server: RedisServer | None = None

    def __init__(self) -> None:
        self._prefix = f"test-{secrets.token_hex(6)}"

    @classmethod
    def server(cls) -> RedisServer:
        """The one that tests share; those that hurt a server have their own."""
        if cls._server is None:
            cls._server = RedisServer("--appendonly", "no").start()
        return cls._server

    @property
    def factory(self) -> Any:
        from platform_worker.sources.redis import factory

        return factory

    def config(self) -> dict[str, Any]:
        return {"url": self.server().url, "prefix": self._prefix}

    def somebody_waits(self, root: str) -> bool:
        clients = self.server().call("CLIENT", "LIST")
        assert isinstance(clients, str)
        return any("cmd=blpop" in line and " flags=b " in line for line in clients.splitlines())

    def begin(self) -> None:
        import pytest

        from platform_worker.sources.redis import client_store, scripts

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(scripts, "CLOCK", "local now = tonumber(call('GET', base .. 'clock'))")
        self._patch.setattr(client_store, "_CLOCK_SECONDS", -1.0)

    def set_time(self, wall: int, boot: int) -> None:
        self.server().call("SET", self._key("clock"), wall)

    def client(self, queue: dict[str, Any]) -> ClientStore:
        store: ClientStore = self.factory.client(self.config(), queue, "")
        return store

    def worker(self, queue: dict[str, Any], identity: WorkerIdentity) -> WorkerStore:
        from platform_worker.sources.redis.worker_store import RedisWorkerStore

        return RedisWorkerStore(self.server().url, self._prefix, queue, identity)

    def lives(self, fields: Sequence[str]) -> Lives:
        jobs = self.server().call("EVAL", _JOBS, 1, self._key(""))
        assert isinstance(jobs, list)
        found: Lives = {}
        for flat in jobs:
            job = dict(zip(flat[::2], flat[1::2], strict=True))
            job["max_attempts"] = job["spec"].split(" ")[2]
            # What was never written is zero.
            values = (job[name] if name == "status" else int(job.get(name, 0)) for name in fields)
            found[job["id"]] = (*values, int("finished_at" not in job))
        return found

    def end(self) -> None:
        self._patch.undo()

    def _key(self, name: str) -> str:
        return f"{{{self._prefix}}}:{name}"


#: Every store that the package has: what is tested of one is tested of each.
STORES: dict[str, Callable[[], StoreKit]] = {"sqlite": SqliteKit, "redis": RedisKit}


def close_servers() -> None:
    """Ends what was started for the stores."""
    server, RedisKit._server = RedisKit._server, None
    if server is not None:
        server.close()
