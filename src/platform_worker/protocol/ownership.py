"""The ownership channel: what supervisor and guardian say to each other. One JSON object a line, at most 64 KiB.

Up, guardian to supervisor::

    {"type":"hello","credential":"<64 hex>"}
    {"type":"claimed","generation":7}
    {"type":"busy"}
    {"type":"failed","reason":"worker-lifecycle-lock-failed"}
    {"type":"started","slot":0,"incarnation":1}
    {"type":"start-failed","slot":0,"incarnation":1,"reason":"worker-fork-failed"}
    {"type":"said","slot":0,"incarnation":1,"line":"ready"}
    {"type":"exited","slot":0,"incarnation":1,"code":0,"signal":null}
    {"type":"released"}

Down, supervisor to guardian::

    {"type":"claim","root":"/srv/app","python":"/usr/bin/python3","command":null,"driver":"fork","lock_wait_ms":600,
     "start_timeout_ms":10000,"stop_timeout_ms":10000,"force_kill_timeout_ms":1000}
    {"type":"start","slot":0,"incarnation":1,"boot":{...}}
    {"type":"tell","slot":0,"incarnation":1,"word":"go"}
    {"type":"terminate","slot":0,"incarnation":1}
    {"type":"kill","slot":0,"incarnation":1}
    {"type":"release"}

``hello`` is the first line up, ``claim`` the first line down. ``exited`` comes after every line the child said, when
the child is reaped and what it left behind is gone. ``released`` is the last line up: the fence is free.

The keys are exactly these. Both ends are ours, so a line that is off is a bug or a foreign writer: it raises
``OwnershipViolation``, and whoever meets it treats the channel as lost.
"""

from __future__ import annotations

import json

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias

#: Bound of one line, newline included. The largest line is ``claim`` or ``start``: a path, a command, a boot line.
MAX_LINE = 65536
#: Bound of a lifeline's line (a boot line or a word), newline included; it fits ``PIPE_BUF``.
MAX_LIFELINE_LINE = 4096
#: Slots, incarnations, generations and milliseconds stay below this: exact in every JSON reader.
_MAX_INTEGER = 2**53 - 1


class OwnershipViolation(ValueError):  # noqa: N818  the peer's fault, named by what happened
    """A line that is not one of this protocol's messages. The text names the rule, never the content."""


class Hello(Value):
    """The guardian proves that it is the one that was started: the credential came in on its standard input."""

    credential: str


class Claimed(Value):
    """The guardian holds the fence; ``generation`` is greater than any before."""

    generation: int


class Busy(Value):
    """Another generation of this pool lives, or something of it; nothing was changed, and the guardian ends."""


class Failed(Value):
    """The claim failed for a reason of the machine's; nothing was changed, and the guardian ends."""

    reason: str


class Started(Value):
    """The child's program runs."""

    slot: int
    incarnation: int


class StartFailed(Value):
    """There is no such child, and nothing of it: the machine or the program refused. No ``exited`` follows."""

    slot: int
    incarnation: int
    reason: str


class Said(Value):
    """One line of the child's lifeline, without its newline."""

    slot: int
    incarnation: int
    line: str


class Exited(Value):
    """The child is reaped and its leftovers are gone. Exactly one of ``code`` and ``signal`` is set."""

    slot: int
    incarnation: int
    code: int | None
    signal: int | None


class Released(Value):
    """The fence is let go; the guardian exits 0."""


class Claim(Value):
    """Take the fence of ``root``. ``command`` replaces the child's program (``@python`` stands for ``python``)."""

    root: str
    python: str
    command: tuple[str, ...] | None
    driver: str
    lock_wait_ms: int
    start_timeout_ms: int
    stop_timeout_ms: int
    force_kill_timeout_ms: int


class Start(Value):
    """Start a child; ``boot`` is its first line, to which the guardian adds ``members_fd``."""

    slot: int
    incarnation: int
    boot: Mapping[str, Any]


class Tell(Value):
    """Say one line to the child."""

    slot: int
    incarnation: int
    word: str


class Terminate(Value):
    """Say ``terminate`` to the child, then send it SIGTERM."""

    slot: int
    incarnation: int


class Kill(Value):
    """SIGKILL to the child's process group."""

    slot: int
    incarnation: int


class Release(Value):
    """No child is left: let go of the fence and exit."""


if TYPE_CHECKING:
    GuardianEvent: TypeAlias = Hello | Claimed | Busy | Failed | Started | StartFailed | Said | Exited | Released
    GuardianCommand: TypeAlias = Claim | Start | Tell | Terminate | Kill | Release

EVENTS: dict[str, type[GuardianEvent]] = {
    "hello": Hello,
    "claimed": Claimed,
    "busy": Busy,
    "failed": Failed,
    "started": Started,
    "start-failed": StartFailed,
    "said": Said,
    "exited": Exited,
    "released": Released,
}
COMMANDS: dict[str, type[GuardianCommand]] = {
    "claim": Claim,
    "start": Start,
    "tell": Tell,
    "terminate": Terminate,
    "kill": Kill,
    "release": Release,
}
_TYPES: dict[type[Value], str] = {cls: name for names in (EVENTS, COMMANDS) for name, cls in names.items()}

DRIVERS = ("fork", "spawn")


def encode(message: GuardianEvent | GuardianCommand) -> bytes:
    """The message as one line; raises ``OwnershipViolation`` where its reader would refuse it."""
    line = json.dumps({"type": _TYPES[type(message)], **message.__dict__}, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_LINE:
        raise OwnershipViolation("line too long")
    _decode(line, EVENTS if type(message) in EVENTS.values() else COMMANDS)
    return line


def decode_event(line: bytes) -> GuardianEvent:
    """What the guardian said; ``line`` with or without its newline."""
    event: GuardianEvent = _decode(line, EVENTS)
    return event


def decode_command(line: bytes) -> GuardianCommand:
    """What the supervisor said; ``line`` with or without its newline."""
    command: GuardianCommand = _decode(line, COMMANDS)
    return command


def _decode(line: bytes, classes: Mapping[str, type[Any]]) -> Any:
    if len(line) > MAX_LINE:
        raise OwnershipViolation("line too long")
    try:
        fields = json.loads(line, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise OwnershipViolation("not JSON") from error
    if not isinstance(fields, dict):
        raise OwnershipViolation("not an object")
    name = fields.pop("type", None)
    cls = classes.get(name) if isinstance(name, str) else None
    if cls is None:
        raise OwnershipViolation("unknown type")
    if fields.keys() != set(cls.__fields__):
        raise OwnershipViolation(f"{name}: not its keys")
    for key, value in fields.items():
        if not _CHECKS[key](value):
            raise OwnershipViolation(f"{name}: invalid {key}")
    if cls is Exited and (fields["code"] is None) == (fields["signal"] is None):
        raise OwnershipViolation("exited: not exactly one of code and signal")
    if cls is Claim and fields["command"] is not None:
        fields["command"] = tuple(fields["command"])
    return cls(**fields)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("duplicate key")
    return fields


def _is_integer(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_INTEGER


def _is_milliseconds(value: object) -> bool:
    return type(value) is int and 1 <= value <= 86_400_000


def _is_maybe_integer(value: object) -> bool:
    return value is None or _is_integer(value)


def _is_argument(value: object) -> bool:
    """What ``execve`` takes: a string without NUL."""
    return isinstance(value, str) and value != "" and "\0" not in value


def _is_command(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, list | tuple) and len(value) > 0 and all(map(_is_argument, value))


def _is_word(value: object) -> bool:
    if not isinstance(value, str) or "\n" in value:
        return False
    try:
        return 0 < len(value.encode()) < MAX_LIFELINE_LINE
    except UnicodeEncodeError:
        return False


def _is_reason(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 128 and value.isascii() and value.isprintable()


def _is_credential(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and all(c in "0123456789abcdef" for c in value)


_CHECKS = {
    "credential": _is_credential,
    "generation": _is_integer,
    "reason": _is_reason,
    "slot": _is_integer,
    "incarnation": _is_integer,
    "line": _is_word,
    "code": _is_maybe_integer,
    "signal": _is_maybe_integer,
    "root": _is_argument,
    "python": _is_argument,
    "command": _is_command,
    "driver": lambda value: value in DRIVERS,
    "lock_wait_ms": _is_milliseconds,
    "start_timeout_ms": _is_milliseconds,
    "stop_timeout_ms": _is_milliseconds,
    "force_kill_timeout_ms": _is_milliseconds,
    "boot": lambda value: isinstance(value, dict),
    "word": _is_word,
}
