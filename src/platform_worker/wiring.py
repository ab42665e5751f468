"""The composition root: what each command and process is made of. Imports what it composes when it composes it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run_child() -> None:
    """The process of a child; see ``wiring_child``."""
    from platform_worker.wiring_child import run_child as run

    run()


def ask(root: str, operation: str) -> dict[str, Any]:
    """What the live supervisor says to ``status``, ``health`` or ``stop``."""
    from platform_worker.host.control_client import ask as converse

    return converse(root, operation)


def lives(root: str) -> bool:
    """Whether anything of a pool on this root lives; disturbs nobody."""
    from platform_worker.host.fence import fence_held

    return fence_held(root)


def run_start(root: str, *, build: bool, until_empty: bool, once: bool, json_output: bool) -> int:
    """Runs the pool in the foreground; the exit code, or a ``WorkerError``; see ``wiring_start``."""
    from platform_worker.wiring_start import run_start as run

    return run(root, build=build, until_empty=until_empty, once=once, json_output=json_output)


def examine(root: str, *, fix: bool) -> dict[str, Any]:
    """What ``doctor`` finds; see ``wiring_doctor``."""
    from platform_worker.wiring_doctor import examine as look

    return look(root, fix=fix)
