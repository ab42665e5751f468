"""``worker doctor``: what is wrong or risky here, and what to do about it."""

from __future__ import annotations

from platform_worker.cli.job_arguments import parser, say, say_json
from platform_worker.errors import EXIT_FAILED, EXIT_OK
from platform_worker.wiring import examine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run(root: str, args: list[str], json_output: bool) -> int:
    """0 where nothing is wrong, else 1."""
    own = parser(
        "doctor",
        "Says what is wrong or risky here, each with its remedy: leftovers of an old worker generation, stale "
        "artifacts, modes of folders, a network file system under the fence, limits, a unit's stop timeout, missing "
        "mechanisms of containment. Exit 0: nothing is wrong (notes may be there); 1: something is.",
        "worker doctor\n  worker doctor --fix --json",
    )
    own.add_argument("--fix", action="store_true", help="end the leftovers; nothing else is changed")
    options = own.parse_args(args)
    told = examine(root, fix=options.fix)
    if json_output:
        say_json(told)
    else:
        _show(told)
    return EXIT_OK if told["status"] == "ok" else EXIT_FAILED


def _show(told: dict[str, Any]) -> None:
    if told["fixed"]:
        say(f"ended: {told['fixed']} leftovers")
    for one in told["findings"]:
        say(f"{one['level']}: {one['text']}\n  remedy: {one['remedy']}")
    for one in told["leftovers"]:
        say(f"leftover: pid {one['pid']}, started {one['start_time']}, worker generation {one['generation']}")
    if told["status"] == "ok":
        say("ok")
