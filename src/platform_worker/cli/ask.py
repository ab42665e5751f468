"""``worker status``, ``health`` and ``stop``: one question to the live supervisor. As cheap as can be."""

from __future__ import annotations

import json
import os
import sys

from platform_worker.errors import (
    EXIT_FAILED,
    EXIT_OK,
    WorkerCommunicationError,
    WorkerNotRunningError,
    WorkerUsageError,
)
from platform_worker.wiring import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SUMMARY = ("status", "pid", "worker_count", "ready_worker_count", "driver", "control_transport", "endpoint_hash")


def status(root: str, args: list[str], json_output: bool) -> int:
    """The pool's state."""
    if _help(args, "status", "Asks the live supervisor for its state. Exit 3: not running; 5: it cannot be talked to."):
        return EXIT_OK
    state = _ask(root, "status")
    _show({key: state[key] for key in _SUMMARY}, json_output)
    return EXIT_OK


def stop(root: str, args: list[str], json_output: bool) -> int:
    """Returns when children and guardian are gone and the fence is free."""
    if _help(
        args, "stop", "Asks the live supervisor to stop, and returns when all of its pool is gone. Exit 3: not running."
    ):
        return EXIT_OK
    state = _ask(root, "stop")
    _show({**{key: state[key] for key in _SUMMARY}, "status": "stopped", "ready_worker_count": 0}, json_output)
    return EXIT_OK


def health(root: str, args: list[str], json_output: bool) -> int:
    """Exit 0: healthy; 1: reachable and unhealthy."""
    if _help(args, "health", "Asks the live supervisor whether it can take work. Exit 0: healthy; 1: unhealthy; 3; 5."):
        return EXIT_OK
    told = _ask(root, "health")
    healthy = told["healthy"] is True
    told["pool_status"] = told["status"]
    told["status"] = "healthy" if healthy else "unhealthy"
    _show(told, json_output)
    return EXIT_OK if healthy else EXIT_FAILED


def _ask(root: str, operation: str) -> dict[str, Any]:
    try:
        return ask(root, operation)
    except WorkerNotRunningError as error:
        hint = "nothing runs on this root; `worker start` runs a pool"
        if not os.path.exists(os.path.join(root, "worker.toml")):
            hint = "there is no worker.toml in the root; give --root DIR, or set WORKER_ROOT"
        raise WorkerNotRunningError(error.reason, hints=[hint]) from error
    except WorkerCommunicationError as error:
        hints = [
            "a pool that is starting cannot be asked yet: try again in a moment",
            "a pool whose supervisor was killed ends by itself, within stop_timeout_ms + 2 x force_kill_timeout_ms",
        ]
        raise WorkerCommunicationError(error.reason, hints=hints) from error


def _help(args: list[str], command: str, text: str) -> bool:
    if args in (["--help"], ["-h"]):
        sys.stdout.write(
            f"usage: worker {command} [--root DIR] [--json]\n\n{text}\n\nexample: worker {command} --json\n"
        )
        return True
    if args:
        raise WorkerUsageError(
            "worker-usage-invalid", hints=[f"{command} takes no arguments; see `worker {command} --help`"]
        )
    return False


def _show(told: dict[str, object], json_output: bool) -> None:
    if json_output:
        text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    elif told["status"] == "stopped":
        text = "stopped"
    else:
        reason = told.get("reason")
        said = f" ({reason})" if reason not in (None, "healthy") else ""
        text = f"{told['status']}{said}: {told['ready_worker_count']} of {told['worker_count']} workers ready"
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
