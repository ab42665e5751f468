"""A child from its start to `ready` with no handlers; the benchmark plays the guardian at its lifeline."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

from support import PYTHON, Row, application, fresh, now

from measures.health import spent

PROGRAM = "from platform_worker.wiring import run_child; run_child()"
REPEATS = 10


def boot(folder: Path, incarnation: int) -> float:
    """Seconds from the start of the process to its `ready`."""
    parameters = {
        "generation": 1,
        "incarnation": incarnation,
        "slot": 0,
        "worker_count": 1,
        "pool_id": "bench",
        "max_requests": 1000,
        "stop_timeout_ms": 10000,
        "task_type": "queue",
        "until_empty": False,
        "members_fd": None,
    }
    here, there = socket.socketpair()
    began = now()
    with (folder / "log").open("ab") as log, here:
        child = subprocess.Popen(
            [PYTHON, "-P", "-c", PROGRAM],
            cwd=folder,
            stdin=there,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PLATFORM_WORKER_CHILD": f"1.0.{incarnation}"},
        )
        there.close()
        try:
            here.settimeout(30)
            here.sendall(f"boot {json.dumps(parameters)}\ngo\n".encode())
            said = b""
            while b"ready\n" not in said:
                part = here.recv(4096)
                if not part:
                    raise RuntimeError(f"the child ended: {said!r}")
                said += part
            seconds = now() - began
            here.sendall(b"stop\n")
            child.wait(10)
            return seconds
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()


def run(runs: int) -> list[Row]:
    """One row."""
    folder = application(fresh("child"), workers=1, handlers=False)
    ours, bare = [], []
    for one in range(runs):
        ours.append(1000 * sum(boot(folder, one * REPEATS + n + 1) for n in range(REPEATS)) / REPEATS)
        bare.append(1000 * spent([PYTHON, "-c", "pass"]))
    return [Row("a child from start to ready, no handlers", "ms", ours, bare, "python -c pass", at_most=4)]
