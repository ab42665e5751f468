"""Who is still alive 1, 5 and 15 s after the main process was killed with four jobs of a minute in hand."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path

import psutil
from support import (
    BIN,
    PYTHON,
    Row,
    Times,
    application,
    busy,
    commands,
    fresh,
    peer_enqueue,
    peer_env,
    pool,
    running,
    times,
    tree,
    valkey,
)

MOMENTS = (1, 5, 15)
PEERS = ("celery", "dramatiq", "gunicorn", "supervisord")
PROGRAM = """[supervisord]
nodaemon=true
user={user}
[program:job]
command={python} -c "import app_minute; app_minute.minute()"
process_name=%(process_num)d
numprocs=4
startsecs=0
"""


def count(process: subprocess.Popen[bytes]) -> list[float]:
    """How many of the tree are left at each moment; whoever is left then is ended."""
    everybody = tree(process.pid)
    try:
        process.kill()
        process.wait()
        began, left = time.monotonic(), []
        for moment in MOMENTS:
            time.sleep(max(0.0, began + moment - time.monotonic()))
            left.append(float(sum(lives(one) for one in everybody)))
        return left
    finally:
        for one in everybody:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()


def lives(process: psutil.Process) -> bool:
    """Neither gone nor a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ours() -> list[float]:
    """With the budgets as they are where nobody sets them: 10 s to finish, then 1 s each to end and to be killed."""
    folder = application(fresh("survivors-ours"), workers=4)
    with times(folder) as fifo, pool(folder, {"BENCH_TIMES": str(fifo.path)}) as process:
        busy(folder, fifo, "minute", 4)
        return count(process)


def peer(name: str) -> list[float]:
    """With a peer."""
    folder = fresh(f"survivors-{name}")
    with contextlib.ExitStack() as stack:
        fifo = stack.enter_context(times(folder))
        url = stack.enter_context(valkey(folder)) if name in ("celery", "dramatiq") else ""
        env = peer_env(folder, url, BENCH_TIMES=str(fifo.path))
        process = stack.enter_context(running(command(name, folder, url), folder, env=env))
        if name in ("celery", "dramatiq"):
            for _ in range(4):
                peer_enqueue(f"app_{name}", env, "minute", "minute")
        if name == "gunicorn":
            ask(stack, folder, fifo)
        for _ in range(0 if name == "gunicorn" else 4):
            fifo.next()
        return count(process)


def command(name: str, folder: Path, url: str) -> list[str | Path]:
    """What starts the peer."""
    if name == "gunicorn":
        return [BIN / "gunicorn", "-w", "4", "-t", "120", "--bind", f"unix:{folder}/http", "app_minute:application"]
    if name == "supervisord":
        user = psutil.Process(os.getpid()).username()
        (folder / "supervisord.conf").write_text(PROGRAM.format(python=PYTHON, user=user))
        return [BIN / "supervisord", "-c", folder / "supervisord.conf"]
    return commands(name, 4, url)


def ask(stack: contextlib.ExitStack, folder: Path, fifo: Times) -> None:
    """Requests until four workers have one in hand."""
    deadline = time.monotonic() + 30
    while not (folder / "http").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    for _ in range(4):
        client = stack.enter_context(socket.socket(socket.AF_UNIX))
        client.connect(str(folder / "http"))
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        fifo.next()


def run(_runs: int) -> list[Row]:
    """A row for each peer and moment; of one run, since it is a count."""
    own = ours()
    rows = []
    for name in PEERS:
        for moment, mine, theirs in zip(MOMENTS, own, peer(name), strict=True):
            title = f"alive {moment} s after SIGKILL of the main process, 4 jobs in hand"
            rows.append(Row(title, "processes", [mine], [theirs], name.capitalize()))
    return rows
