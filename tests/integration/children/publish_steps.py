"""Publishes again and again, killed before each system call in turn; prints how many steps there were.

Run as ``python publish_steps.py ROOT``, where ROOT has generation 1 selected.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
from typing import Any

from platform_worker.artifacts.boot import load_current
from platform_worker.artifacts.generation import compile_generation
from platform_worker.host.publish import publish

CALLS = ("open", "mkdir", "write", "fsync", "rename", "unlink", "close", "utime", "listdir")


def generation(number: int) -> tuple[str, dict[str, bytes]]:
    """One of many."""
    container: dict[str, Any] = {"hooks": [], "resetters": [], "task_source": {}, "tasks": {}}
    config: dict[str, Any] = {"app": {"name": str(number)}, "plugins": {}, "queue": {}, "worker": {}}
    return compile_generation(config, container, {"modules": []})


def arm(left: int) -> None:
    """Kills this process right before its call number ``left``."""

    def armed(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        setattr(os, name, armed(getattr(os, name)))
    fcntl.flock = armed(fcntl.flock)  # type: ignore[assignment]


def main(pattern: str) -> None:
    """Goes through the steps until a run is not killed any more."""
    old, (new, files) = generation(1)[0], generation(2)
    for step in range(1, 500):
        root = f"{pattern}-step"
        shutil.copytree(pattern, root)
        pid = os.fork()
        if pid == 0:
            arm(step)
            publish(root, new, files)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        selected = load_current(root).id
        assert selected in {old, new}, step
        publish(root, new, files)  # what the dead one left is in nobody's way
        assert load_current(root).id == new, step
        left = set(os.listdir(f"{root}/var/artifacts")) | set(os.listdir(f"{root}/var/artifacts/generations"))
        assert left == {"current", "generation.lock", "generations", old, new}, (step, left)
        shutil.rmtree(root)
        if status == 0:
            assert selected == new
            print(step)
            return
    raise AssertionError("no end of steps")


if __name__ == "__main__":
    publish(sys.argv[1], *generation(1))
    main(sys.argv[1])
