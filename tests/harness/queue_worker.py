"""A worker process for tests of stores: ``python queue_worker.py MODULE CONFIG ROOT SLOT INCARNATION [KEY=VALUE…]``.

Takes jobs until SIGTERM, or with ``until_empty=1`` until there are none. Each start and settlement of a job is one
line in ``ROOT/ledger``, appended whole.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from platform_worker.jobs.errors import Reject, Retry
from platform_worker.tasks.contract import SourceExhausted, SourceSetup, WorkerIdentity

QUEUE: dict[str, Any] = {
    "names": ["urgent", "default"], "lease_ms": 60000, "max_attempts": 3, "backoff_ms": 1, "backoff_max_ms": 1000,
    "backoff_jitter": 0.1, "timeout_ms": 0, "result_max_bytes": 200, "data_max_bytes": 10000,
    "retention_ms": 604800000,
}  # fmt: skip


class Context:
    """What a child gives its source; ``cancel`` is a stop."""

    worker_index = 0
    max_blocking_wait_ms = 1000

    def __init__(self, worker_count: int = 2) -> None:
        self.worker_count = worker_count
        self._read, self._write = os.pipe()
        self.cancelled = False

    def contact(self) -> None:
        """Nobody watches here."""

    def cancel(self, *_: object) -> None:
        self.cancelled = True
        os.write(self._write, b"!")

    def cancellation_requested(self) -> bool:
        return self.cancelled

    def fileno(self) -> int:
        return self._read

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class Handlers:
    """Tasks of the tests, by name."""

    def __init__(self, root: str) -> None:
        self.root = root

    def run(self, name: str, data: dict[str, Any], context: Any) -> object:
        write_ledger(self.root, "start", context.id, context.attempt)
        return getattr(self, name)(context, **data)

    def echo(self, context: Any, **data: Any) -> object:
        return data

    def sleep(self, context: Any, seconds: float) -> str:
        time.sleep(seconds)
        return "slept"

    def spin(self, context: Any, seconds: float) -> str:
        """Python all the way, without a system call."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
        return "spun"

    def die(self, context: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def stubborn(self, context: Any) -> None:
        """Ends for nobody."""
        while True:
            try:
                time.sleep(60)
            except Exception:
                continue

    def fail(self, context: Any) -> None:
        raise ValueError("it broke")

    def reject(self, context: Any) -> None:
        raise Reject("no good")

    def again(self, context: Any) -> int:
        if context.attempt == 1:
            raise Retry("not yet", after=0.01)
        return int(context.attempt)

    def stamp(self, context: Any) -> int:
        return time.monotonic_ns()

    def beat(self, context: Any) -> None:
        """Until somebody cancels it."""
        while True:
            context.heartbeat({"at": context.attempt})
            time.sleep(0.01)

    def work(self, context: Any) -> str:
        (context.workdir / "file").write_text("x")
        return str(context.workdir)


def write_ledger(root: str, word: str, id: str, attempt: int) -> None:
    fd = os.open(f"{root}/ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, f"{word} {id} {attempt}\n".encode())
    os.close(fd)


def setup(
    config: dict[str, Any], root: str, slot: int = 0, incarnation: int = 0, generation: int = 1, **changes: Any
) -> SourceSetup:
    until_empty = bool(changes.pop("until_empty", False))
    handlers = changes.pop("handlers", None) or Handlers(root)
    return SourceSetup(
        config=config,
        queue={**QUEUE, **changes},
        handlers=handlers,
        root=Path(root),
        identity=WorkerIdentity("pool", generation, slot, incarnation),
        until_empty=until_empty,
    )


def main() -> None:
    module, config, root, slot, incarnation = sys.argv[1:6]
    changes = {key: json.loads(value) for key, _, value in (a.partition("=") for a in sys.argv[6:])}
    factory = importlib.import_module(module).factory
    context = Context()
    signal.signal(signal.SIGTERM, context.cancel)
    source = factory(setup(json.loads(config), root, int(slot), int(incarnation), **changes))
    source.assert_ready(context)
    print("ready", flush=True)
    try:
        while (task := source.receive(context)) is not None:
            try:
                result = task.execute()
            except Exception as error:
                task.fail(error)
            else:
                task.complete(result)
    except SourceExhausted:
        pass
    source.close()


if __name__ == "__main__":
    main()
