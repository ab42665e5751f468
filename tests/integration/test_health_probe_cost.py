"""``worker health`` at the worst of times: handlers that take long to import, everybody busy, the backend away."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from harness import Application, eventually
from harness.application import WORKER
from harness.servers import RedisServer

Make = Callable[..., Application]

TASKS = """
import os, time
from platform_worker import JobContext, task

with open("imported", "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(3)

@task("gate")
def gate(context: JobContext) -> None:
    open(f"busy-{context.id}", "w").close()
    while not os.path.exists("gate"):
        time.sleep(0.005)
"""
#: What the probe needs none of: the application, every store's library, and what makes an interpreter slow to start.
FORBIDDEN = {"tasks", "hiredis", "psycopg", "sqlite3", "pydantic", "structlog", "opentelemetry", "asyncio", "typing"}


class Trap:
    """Stands where the probe would find the backend, and counts who comes."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.socket.getsockname()[1]}/0"
        self.visits = 0
        self.thread = threading.Thread(target=self._count)
        self.thread.start()

    def _count(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            with connection:
                if connection.recv(1) == b"\0":
                    return
                self.visits += 1

    def close(self) -> None:
        with socket.create_connection(self.socket.getsockname()) as last:
            last.sendall(b"\0")
        self.thread.join()
        self.socket.close()


@pytest.fixture
def trap() -> Iterator[Trap]:
    made = Trap()
    yield made
    made.close()


def probe(app: Application, url: str) -> tuple[int, dict[str, object], set[str]]:
    """The exit code, the object, and everything that the process imported."""
    done = subprocess.run(
        [WORKER, "--root", str(app.root), "health", "--json"],
        env={**os.environ, "REDIS_URL": url, "PYTHONPROFILEIMPORTTIME": "1", "PYTHONPATH": str(app.root)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert len(lines) > 20, done.stderr
    return done.returncode, json.loads(done.stdout), {line.rpartition("|")[2].strip() for line in lines}


def test_it_imports_no_handler_and_touches_no_backend_with_everybody_busy_and_the_backend_down(
    application: Make, redis_server: RedisServer, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    app = application(tasks=TASKS, app={"modules": ["redis"]})
    pool = app.start()
    ids = app.enqueue("gate", 2)
    eventually(lambda: all((app.root / f"busy-{id}").exists() for id in ids))
    imported = (app.root / "imported").read_text()
    redis_server.kill()

    for _ in range(3):
        code, health, modules = probe(app, trap.url)
        assert (0, "healthy") == (code, health["reason"])
        assert set() == {name for name in modules if name.split(".")[0] in FORBIDDEN}
    assert imported == (app.root / "imported").read_text()
    assert 0 == trap.visits

    redis_server.start()
    (app.root / "gate").touch()
    eventually(lambda: app.statuses() == {"completed": 2}, 20)
    pool.stop()
