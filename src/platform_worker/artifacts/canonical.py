"""Canonical JSON, the only form of every file in an artifact generation, and its hash.

Keys sorted, compact, raw UTF-8, one final newline: the same content is the same bytes on any machine.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256
    from typing import Any
else:
    # hashlib loads OpenSSL: a tenth of a child's start, and memory in every process. The interpreter's own module
    # gives the same digest; it has had two names.
    try:
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256


def canonical(value: object) -> bytes:
    """The canonical bytes of a JSON value; ``ValueError`` for what JSON cannot say (NaN, a lone surrogate, a date)."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    except TypeError as error:
        raise ValueError(str(error)) from error
    return text.encode("utf-8") + b"\n"


def parse_canonical(data: bytes) -> dict[str, Any]:
    """The object in ``data``; ``ValueError`` where it is no object or these are not its canonical bytes.

    Comparing bytes also refuses duplicate keys, NaN, a missing newline and anything after it.
    """
    try:
        value = json.loads(data.decode("utf-8"))
        if type(value) is dict and canonical(value) == data:
            return value
    except RecursionError:
        pass
    raise ValueError("not one canonical JSON object")


def sha256_hex(data: bytes) -> str:
    """The SHA-256 of ``data`` in 64 lowercase hex digits."""
    return sha256(data).hexdigest()
