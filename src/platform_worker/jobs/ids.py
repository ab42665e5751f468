"""Job ids: UUIDv7 strings (RFC 9562, section 5.7), and the luck that jitter needs.

Made by hand: ``uuid`` and ``random`` would cost every process that enqueues more than the id itself.
"""

from __future__ import annotations

import os


def new_id(now_ms: int) -> str:
    """A UUIDv7 for the wall clock time ``now_ms``."""
    raw = bytearray(now_ms.to_bytes(8, "big")[2:] + os.urandom(10))
    raw[6] = 0x70 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_id(value: object) -> bool:
    """Whether ``value`` has the form of an id; one that has not cannot be in a store."""
    if not isinstance(value, str) or len(value) != 36:
        return False
    return all(c == "-" if i in (8, 13, 18, 23) else c in "0123456789abcdef" for i, c in enumerate(value))


def luck() -> float:
    """A number in [0, 1)."""
    return int.from_bytes(os.urandom(4), "big") / 2**32
