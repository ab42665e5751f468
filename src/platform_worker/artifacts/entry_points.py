"""Loads what an entry point of an artifact generation names; no metadata is read."""

from __future__ import annotations

import sys


def load(entry_point: str) -> object:
    """The object that ``module:attribute.path`` names; whatever its import raises, or ``AttributeError``."""
    module, _, path = entry_point.partition(":")
    __import__(module)
    target: object = sys.modules[module]
    for name in path.split(".") if path else ():
        target = getattr(target, name)
    return target
