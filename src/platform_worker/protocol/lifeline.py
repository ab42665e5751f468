"""The words on the lifeline between the guardian and one child. Each is one line of UTF-8, at most 4096 bytes.

Down, guardian to child::

    boot {"generation":7,"incarnation":2,"max_requests":1000,"members_fd":5,"pool_id":"c0ffee","slot":0,
          "stop_timeout_ms":10000,"task_type":"queue","until_empty":false,"worker_count":4}
    go
    go on
    stop
    terminate

``boot`` is the first line, and one line. ``go``: take over the slot; ``go on``: another ``max_requests``; ``stop``:
finish the task in hand, take no other; ``terminate``: what follows is a SIGTERM that interrupts the task in hand.

Up, child to guardian, in this order::

    booted
    ready
    last
    empty
    done
    failed worker-handlers-unimportable
    Timeout (0:00:31)!

and between ``ready`` and what ends it, of a source that promises contact with its back end::

    pulse limit=10000 silent=12 task=-

``booted``: the artifacts are verified, the handlers imported, the source constructed; ``ready``: tasks are taken;
``last``: the last task of the limit was received; ``empty``: nothing claimable is left; ``done``: everything is
settled and exit 0 follows; ``failed``: exit 1 follows, for a reason of the closed sets. ``Timeout``: the hard deadline
of the task in hand has passed; the stacks of all threads follow, line by line, and exit 1. The words are those of
``faulthandler``, whose watchdog says them with no help of the interpreter, which may be held by C code.

``pulse``, in milliseconds: how long the source may be without contact; how long it has been, while it has the floor;
how old the task in hand is, ``-`` where there is none. Every two seconds, and at the first start of a task after one
that said ``-``. A pulse may be lost; nothing in it names a task.

The end of the stream means to the child that the guardian is gone, and to the guardian that the child is.
"""

from __future__ import annotations

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: Bound of a line, newline included. It fits ``PIPE_BUF``, so that a line is never torn by another writer.
MAX_LINE = 4096

GO = "go"
GO_ON = "go on"
STOP = "stop"
TERMINATE = "terminate"
DOWN = frozenset({GO, GO_ON, STOP, TERMINATE})

BOOTED = "booted"
READY = "ready"
LAST = "last"
EMPTY = "empty"
DONE = "done"
UP = frozenset({BOOTED, READY, LAST, EMPTY, DONE})

_BOOT = "boot "
_FAILED = "failed "
PULSE = "pulse "
#: More digits than any time has that is meant.
_DIGITS = 15
TIMEOUT = "timeout"
_TIMEOUT = "Timeout ("

_INTEGERS = {
    "generation": 0,
    "incarnation": 0,
    "slot": 0,
    "worker_count": 1,
    "max_requests": 1,
    "stop_timeout_ms": 1,
}


class LifelineViolation(ValueError):  # noqa: N818  named as its neighbours are
    """A line that is none of this protocol's. The text names the rule, never the content."""


class Boot(Value):
    """What a child is told of itself. ``max_requests`` is its own limit, jitter applied.

    ``log_exceptions`` is false where the same boot has failed before, and the log has the traceback already.
    """

    generation: int
    incarnation: int
    slot: int
    worker_count: int
    pool_id: str
    max_requests: int
    stop_timeout_ms: int
    task_type: str
    until_empty: bool
    members_fd: int | None
    log_exceptions: bool = True


def format_boot(fields: Mapping[str, Any]) -> str:
    """The boot line, without its newline, of the dictionary that the supervisor made."""
    import json

    line = _BOOT + json.dumps(fields, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    parse_boot(line.encode())
    return line


def parse_boot(line: bytes) -> Boot:
    """What ``boot {…}`` says; raises ``LifelineViolation`` for anything else."""
    import json

    if len(line) >= MAX_LINE or not line.startswith(_BOOT.encode()):
        raise LifelineViolation("not a boot line")
    try:
        fields = json.loads(line[len(_BOOT) :])
    except (ValueError, RecursionError) as error:
        raise LifelineViolation("boot: not JSON") from error
    if not isinstance(fields, dict):
        raise LifelineViolation("boot: not an object")
    if fields.keys() - set(Boot.__match_args__) or set(Boot.__match_args__) - fields.keys() - {"log_exceptions"}:
        raise LifelineViolation("boot: not its keys")
    for key, least in _INTEGERS.items():
        if type(fields[key]) is not int or fields[key] < least:
            raise LifelineViolation(f"boot: invalid {key}")
    if not isinstance(fields["pool_id"], str) or not isinstance(fields["task_type"], str):
        raise LifelineViolation("boot: invalid pool_id or task_type")
    if type(fields["until_empty"]) is not bool or type(fields.get("log_exceptions", True)) is not bool:
        raise LifelineViolation("boot: invalid until_empty or log_exceptions")
    members = fields["members_fd"]
    if members is not None and (type(members) is not int or members < 0):
        raise LifelineViolation("boot: invalid members_fd")
    return Boot(**fields)


class Pulse(Value):
    """What a child says of its contact and its task; milliseconds. ``task_ms`` is ``None`` where it has none."""

    limit_ms: int
    silent_ms: int
    task_ms: int | None


def parse_down(line: bytes) -> str:
    """One word to a running child."""
    word = line.decode("utf-8", "replace")
    if word not in DOWN:
        raise LifelineViolation("no word to a child")
    return word


def format_failed(reason: str) -> str:
    """``failed <reason>``."""
    return _FAILED + reason


def parse_up(line: str) -> tuple[str, str | None]:
    """One line of a child: its word, and the reason where the word is ``failed``.

    The reason may be any text: whether it is of the closed sets is for the reader to check, since what a child
    says is never shown otherwise.
    """
    if line in UP:
        return line, None
    if line.startswith(_FAILED) and len(line) > len(_FAILED):
        return "failed", line[len(_FAILED) :]
    if line.startswith(_TIMEOUT):
        return TIMEOUT, None
    raise LifelineViolation("no word of a child")


def format_pulse(limit_ms: int, silent_ms: int, task_ms: int | None) -> str:
    """``pulse limit=… silent=… task=…``."""
    return f"{PULSE}limit={limit_ms} silent={silent_ms} task={'-' if task_ms is None else task_ms}"


def parse_pulse(line: str) -> Pulse:
    """What a line that begins with ``PULSE`` says."""
    words = line.removeprefix(PULSE).split(" ")
    values = [word.partition("=") for word in words]
    if [name for name, _, _ in values] != ["limit", "silent", "task"]:
        raise LifelineViolation("pulse: not its keys")
    limit, silent, task = (value for _, _, value in values)
    return Pulse(_milliseconds(limit), _milliseconds(silent), None if task == "-" else _milliseconds(task))


def _milliseconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise LifelineViolation("pulse: not milliseconds")
    return int(text)
