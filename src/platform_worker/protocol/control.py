"""The control protocol, version 1: one request, one response, one connection; a JSON object a line, up to 4096 bytes.

::

    {"credential":"<64 hex>","operation":"status","request_id":"a1","version":1}
    {"request_id":"a1","result":{"state":{...}},"status":"ok","version":1}

``operation`` is ``status``, ``health`` or ``stop``. The keys are exactly these, in any order. Whatever else comes in is
answered by a silent close, so nothing here says what was wrong with it.
"""

from __future__ import annotations

import json

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: Bound of a frame, newline included.
MAX_FRAME = 4096
VERSION = 1
OPERATIONS = ("status", "health", "stop")
#: What an answer holds, exactly.
STATE_KEYS = frozenset(
    (
        "control_transport",
        "control_transport_requested",
        "driver",
        "driver_requested",
        "endpoint_hash",
        "pid",
        "ready_worker_count",
        "status",
        "version",
        "worker_count",
    )
)
HEALTH_KEYS = STATE_KEYS - {"control_transport_requested", "driver_requested", "version"} | {"healthy", "reason"}
_ID_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_HEX = frozenset("0123456789abcdef")


class Request(Value):
    """What a client asks. The credential is well formed, and not yet compared."""

    credential: str
    operation: str
    request_id: str


def is_credential(value: object) -> bool:
    """64 lowercase hexadecimal digits."""
    return isinstance(value, str) and len(value) == 64 and _HEX.issuperset(value)


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= 64 and _ID_CHARACTERS.issuperset(value)


def parse_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object without duplicate keys, or ``None``."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def parse_request(line: bytes) -> Request | None:
    """The request that a line (without its newline) makes; ``None`` for anything else."""
    fields = parse_object(line) if len(line) < MAX_FRAME else None
    if fields is None or fields.keys() != {"credential", "operation", "request_id", "version"}:
        return None
    if type(fields["version"]) is not int or fields["version"] != VERSION:
        return None
    operation, request_id, credential = fields["operation"], fields["request_id"], fields["credential"]
    if not (
        isinstance(operation, str) and operation in OPERATIONS and _is_id(request_id) and is_credential(credential)
    ):
        return None
    return Request(credential, operation, request_id)


def format_request(request: Request) -> bytes:
    """One frame, newline included."""
    return dump({**request.__dict__, "version": VERSION})


def format_response(request_id: str, result: Mapping[str, object]) -> bytes:
    """``result`` is ``{"state": …}`` or ``{"health": …}``, from a stop with ``"status": "stopped"``."""
    status = "stopped" if result.get("stopped") else "ok"
    body = {key: value for key, value in result.items() if key != "stopped"}
    return dump({"request_id": request_id, "result": body, "status": status, "version": VERSION})


def parse_response(line: bytes, request: Request) -> dict[str, Any] | None:
    """The state or health in the answer to ``request``; ``None`` where it is none."""
    fields = parse_object(line)
    if fields is None or fields.keys() != {"request_id", "result", "status", "version"}:
        return None
    wanted = "stopped" if request.operation == "stop" else "ok"
    if fields["version"] != VERSION or fields["request_id"] != request.request_id or fields["status"] != wanted:
        return None
    key = "health" if request.operation == "health" else "state"
    result = fields["result"]
    if not isinstance(result, dict) or result.keys() != {key} or not isinstance(result[key], dict):
        return None
    found: dict[str, Any] = result[key]
    return found if found.keys() == (HEALTH_KEYS if key == "health" else STATE_KEYS) else None


def dump(value: Mapping[str, object]) -> bytes:
    """Sorted keys, compact, raw UTF-8, one newline: the form of every JSON file and frame."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("duplicate key")
    return fields


def _refuse(name: str) -> object:
    raise ValueError(f"no JSON: {name}")
