"""Plays the guardian for one real child, over the lifeline it would have."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from harness.variants import DRIVER
from platform_worker.artifacts.generation import compile_generation

RUN = "from platform_worker.wiring_child import run_child; run_child()"
#: What the driver of this run executes.
COMMAND = ("-m", "platform_worker.child") if DRIVER == "spawn" else ("-P", "-c", RUN)

#: Takes the numbers from the file ``todo`` and runs the handler ``work``; writes what it settles to ``ledger``.
FILE_SOURCE = "child_parts:FileSource"


def publish(root, *, handlers=(), source=FILE_SOURCE, task_type="queue", plugins=None, hooks=(), resetters=(), **app):
    """Writes an artifact generation of ``root`` and selects it, without a build."""
    name = "parts"
    record = {"name": name, "task_type": task_type, "entry_point": source}
    config = {
        "app": {
            "name": "app",
            "path": ["."],
            "handlers": list(handlers),
            "modules": [name],
            "log_exceptions": True,
            **app,
        },
        "worker": {},
        "queue": {},
        "plugins": plugins if plugins is not None else {name: {}},
    }
    container = {
        "tasks": {},
        "task_source": record,
        "hooks": [{"name": str(i), "entry_point": item} for i, item in enumerate(hooks)],
        "resetters": [{"name": str(i), "entry_point": item} for i, item in enumerate(resetters)],
    }
    id, files = compile_generation(config, container, {"modules": [record]})
    folder = Path(root, "var/artifacts/generations", id)
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        (folder / file).write_bytes(data)
    Path(root, "var/artifacts/current").write_text(id + "\n")
    return id


class Child:
    """One child, in a session of its own, and our end of its lifeline."""

    def __init__(self, root, *, command=COMMAND, python=sys.executable, env=None, stderr=None, **boot):
        ours, theirs = socket.socketpair()
        self.stderr_path = Path(root, "stderr.txt")
        with self.stderr_path.open("ab") as file:
            self.process = subprocess.Popen(
                [python, *command],
                stdin=theirs,
                stdout=stderr or file,
                stderr=stderr or file,
                cwd=root,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parent / "children"), **(env or {})},
                preexec_fn=_block_stops,  # noqa: PLW1509  no thread is about
            )
        theirs.close()
        self.lifeline = ours
        self.boot = {
            "generation": 1,
            "incarnation": 1,
            "slot": 0,
            "worker_count": 1,
            "pool_id": "test",
            "max_requests": 1000,
            "stop_timeout_ms": 5000,
            "task_type": "queue",
            "until_empty": False,
            "members_fd": None,
            **boot,
        }
        self._lines = []
        self._partial = b""
        self._ended = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lifeline.close()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def tell(self, line):
        self.lifeline.sendall(line.encode() + b"\n")

    def start(self):
        self.tell("boot " + json.dumps(self.boot))
        return self

    def started(self):
        """Boots, takes over, and is ready."""
        self.start()
        assert self.heard() == "booted", self.stderr()
        self.tell("go")
        assert self.heard() == "ready", self.stderr()
        return self

    def heard(self, seconds=15.0):
        """The next line of the child's that is no pulse, which may come at any time; ``None`` at the end."""
        deadline = time.monotonic() + seconds
        while not self._lines and not self._ended:
            left = deadline - time.monotonic()
            assert left > 0, "the child says nothing"
            if select.select([self.lifeline], [], [], left)[0]:
                try:
                    data = self.lifeline.recv(4096)
                except ConnectionResetError:
                    data = b""
                self._ended = not data
                *whole, self._partial = (self._partial + data).split(b"\n")
                self._lines += [line.decode() for line in whole if not line.startswith(b"pulse ")]
        return self._lines.pop(0) if self._lines else None

    def terminate(self):
        """What the guardian does in the terminate phase."""
        self.tell("terminate")
        self.process.send_signal(signal.SIGTERM)

    def ends(self, seconds=15.0):
        """Its exit code, as ``subprocess`` has it."""
        return self.process.wait(seconds)

    def stderr(self):
        return self.stderr_path.read_text()

    def events(self):
        """The log events among what it wrote."""
        lines = self.stderr().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


def _block_stops():
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))


def eventually(look, seconds=15.0):
    """Calls ``look`` until it returns something true, and returns that."""
    deadline = time.monotonic() + seconds
    while not (value := look()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        select.select([], [], [], 0.002)
    return value
