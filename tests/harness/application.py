"""An application's root in a temporary folder, built at most once for the same content."""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.ledger import Ledger
from harness.pool import Pool
from harness.processes import eventually
from harness.variants import chosen
from platform_worker import Queue

WORKER = str(Path(sys.executable).with_name("worker"))
#: The files that are never deleted.
KEPT = {"worker.lock", "worker.members", "worker.pool"}
_TASKS = Path(__file__).with_name("tasks.py")
_BUILT: dict[str, Path] = {}
_CACHE = tempfile.TemporaryDirectory(prefix="platform-worker-built-")
atexit.register(_CACHE.cleanup)


class Application:
    """``worker.toml`` and ``tasks.py``; ``settings`` are tables by name, e.g. ``worker={"workers": 1}``.

    A table in a table goes by its whole name: ``**{"worker.control": {"transport": "tcp"}}``.
    """

    def __init__(self, root: Path, tasks: str | None = None, **settings: dict[str, object]) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        #: The source of ``tasks.py``; without one, the handlers of ``harness/tasks.py``.
        (root / "tasks.py").write_text(_TASKS.read_text() if tasks is None else tasks)
        self.configure(**settings)
        self.ledger = Ledger(root / "ledger")
        self.pools: list[Pool] = []

    def configure(self, **settings: dict[str, object]) -> None:
        """Writes ``worker.toml`` anew; where no driver or transport is given, those of this run: see ``variants``."""
        tables: dict[str, dict[str, object]] = {
            "app": {"handlers": ["tasks"]},
            "worker": {"workers": 2},
            "queue": {"backoff_ms": 50},
            "sqlite": {"synchronous": "normal"},
        }
        for name, table in [*chosen(self.root.name).items(), *settings.items()]:
            tables.setdefault(name, {}).update(table)
        if "sqlite" not in tables["app"].get("modules", ["sqlite"]):
            del tables["sqlite"]
        lines = []
        for name, table in tables.items():
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
        (self.root / "worker.toml").write_text("\n".join(lines) + "\n")

    def build(self) -> Application:
        """Selects the artifact generation of the content, from an earlier build of the same where there is one."""
        digest = hashlib.sha256()
        for name in ("worker.toml", "tasks.py"):
            digest.update((self.root / name).read_bytes() + b"\0")
        key = digest.hexdigest()
        artifacts = self.root / "var" / "artifacts"
        if key in _BUILT:
            shutil.rmtree(artifacts, ignore_errors=True)
            shutil.copytree(_BUILT[key], artifacts)
            return self
        done = self.run("build")
        assert 0 == done.returncode, done.stderr
        _BUILT[key] = Path(_CACHE.name) / key
        shutil.copytree(artifacts, _BUILT[key])
        return self

    def run(self, *arguments: str, seconds: float = 30) -> subprocess.CompletedProcess[str]:
        """Runs one command to its end."""
        command = [WORKER, "--root", str(self.root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)

    def json(self, *arguments: str) -> tuple[int, dict[str, object]]:
        """The exit code, and the one line on stdout, of a command with ``--json``."""
        done = self.run(*arguments, "--json")
        return done.returncode, json.loads(done.stdout)

    def pool(self, **environ: str) -> Pool:
        """Another pool on this root, not started; it is killed when the test ends."""
        pool = Pool(WORKER, self.root, environ, len(self.pools))
        self.pools.append(pool)
        return pool

    def start(self, *arguments: str, **environ: str) -> Pool:
        """Builds, starts a pool, and waits until it is ready."""
        self.build()
        pool = self.pool(**environ)
        pool.start(*arguments)
        return pool

    def queue(self) -> Queue:
        """The queue of this application; a context manager."""
        return Queue.open(self.root)

    def enqueue(self, task: str, count: int = 1, **data: object) -> list[str]:
        """Adds ``count`` jobs of the same task and data."""
        with self.queue() as queue:
            return [queue.enqueue(task, data) for _ in range(count)]

    def job(self, id: str):
        """One job as it is now."""
        with self.queue() as queue:
            return queue.get(id)

    def statuses(self) -> dict[str, int]:
        """How many jobs are in each status; those in none are left out."""
        found: dict[str, int] = {}
        with self.queue() as queue:
            for counts in queue.counts().values():
                for status in ("queued", "processing", "retry_wait", "completed", "failed", "cancelled"):
                    if number := getattr(counts, status):
                        found[status] = found.get(status, 0) + number
        return found

    def fence_free(self) -> bool:
        """True where no process of any generation of this root holds a lock. Creates nothing."""
        held = []
        try:
            for name, mode in (("worker.lock", fcntl.LOCK_SH), ("worker.members", fcntl.LOCK_EX)):
                try:
                    fd = os.open(self.root / "var" / "tmp" / name, os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    continue
                held.append(fd)
                fcntl.flock(fd, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            for fd in held:
                os.close(fd)
        return True

    def leftovers(self) -> list[str]:
        """What is in ``var/tmp`` beside the three files that are never deleted."""
        try:
            return sorted(set(os.listdir(self.root / "var" / "tmp")) - KEPT)
        except FileNotFoundError:
            return []

    def assert_clean(self, seconds: float = 5.0) -> None:
        """Nobody lives, the fence is free; within ``seconds``."""
        for pool in self.pools:
            pool.assert_gone(seconds)
        # A process that ends loses its environment, by which it is found, an instant before its descriptors.
        eventually(self.fence_free, seconds, "the fence is free")

    def close(self) -> list[int]:
        """Kills what is left; returns who that was."""
        return [pid for pool in self.pools for pid in pool.close()]
