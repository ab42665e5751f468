"""A cheap look at whether ``worker.toml`` says otherwise than the selected generation, for ``worker start`` to warn.

It reads the file and the shipped defaults and compares; no pydantic, no discovery, no handlers. It may miss what only
a plugin's own model can tell; ``worker build --check`` misses nothing.
"""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Any

from platform_worker.artifacts.references import is_reference
from platform_worker.building.starter import default_settings
from platform_worker.config import WORKER_TOML

if TYPE_CHECKING:
    from platform_worker.artifacts.generation import Generation

_CORE = ("app", "worker", "queue")


def config_differs(root: str, generation: Generation) -> bool:
    """True where a build would compile other settings, or ``worker.toml`` cannot be read."""
    try:
        with open(os.path.join(root, WORKER_TOML), "rb") as stream:
            written = tomllib.load(stream)
        defaults = tomllib.loads(default_settings())
    except (OSError, ValueError, RecursionError):
        return True
    compiled = generation.config
    if not (written.keys() - set(_CORE) <= compiled["plugins"].keys()):
        return True
    for name in _CORE:
        table = written.get(name, {})
        if not isinstance(table, dict) or not _equal(_merged(defaults[name], table), compiled[name], exact=True):
            return True
    return any(
        not _equal(_merged(defaults.get(name, {}), written.get(name, {})), table, exact=False)
        for name, table in compiled["plugins"].items()
    )


def _merged(defaults: dict[str, Any], table: Any) -> Any:
    if not isinstance(table, dict):
        return table
    merged = {**defaults, **table}
    for key, value in table.items():
        if isinstance(value, dict) and isinstance(defaults.get(key), dict):
            merged[key] = _merged(defaults[key], value)
    return merged


def _equal(written: Any, compiled: Any, *, exact: bool) -> bool:
    """``exact``: the same keys; else ``compiled`` may have more, defaults that only the plugin's model knows."""
    if is_reference(compiled):
        return bool(written == {key: compiled[key] for key in ("env", "default") if key in compiled})
    if isinstance(written, dict) and isinstance(compiled, dict):
        same_keys = written.keys() == compiled.keys() if exact else written.keys() <= compiled.keys()
        return same_keys and all(_equal(value, compiled[key], exact=exact) for key, value in written.items())
    if isinstance(written, list) and isinstance(compiled, list):
        return len(written) == len(compiled) and all(
            _equal(a, b, exact=exact) for a, b in zip(written, compiled, strict=True)
        )
    if not exact and type(written) is not type(compiled):
        return True  # normalised by the plugin's model: a date to text, a whole number to a float
    return (type(written) is type(compiled) and bool(written == compiled)) or (
        isinstance(written, int) and isinstance(compiled, float) and written == compiled
    )
