"""Bytes that are nearly right."""

from __future__ import annotations

import random


def mutated(data: bytes, chance: random.Random) -> bytes:
    """``data`` with one to three bytes or stretches of it changed, taken out, doubled or put in."""
    text = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.choice([1, 1, 1, 2, 8, 64]))
        kind = chance.randrange(5)
        if kind == 0:
            text[at:end] = bytes(chance.randrange(256) for _ in range(end - at))
        elif kind == 1:
            del text[at:end]
        elif kind == 2:
            text[at:at] = text[at:end]
        elif kind == 3:
            text[at:at] = chance.choice([b"\n", b"\0", b'"', b"{", b"}", b",", b"9", b"\\u0000", b"\xff", b"NaN", b"-"])
        else:
            text[at:end] = chance.choice([b"true", b"null", b"1e9", b"[]", b"{}", b'""', b"1", b"1.0", b" "])
    return bytes(text)
