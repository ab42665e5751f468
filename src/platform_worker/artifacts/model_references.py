"""References whose rule only a plugin's pydantic model can tell; imported where an artifact has one, nowhere else."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ValidationError

from platform_worker.artifacts.entry_points import load


def check_models(table: dict[str, Any], models: dict[str, list[tuple[str, ...]]], invalid: list[str]) -> dict[str, Any]:
    """``table`` with each such variable taken as a string where the model takes it so, else as JSON.

    ``models`` has, for each entry point, the variable's name and the path of each of its references.
    """
    for entry_point, references in models.items():
        model = getattr(load(entry_point), "settings", None)
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            invalid.append(f"the module of {'.'.join(references[0][1:])} has no settings of its own any more")
            continue
        for _, *path in references:
            if tuple(path) in refused(model, table):
                _read_as_json(table, path)
        wrong = refused(model, table)
        for name, *path in references:
            if tuple(path) in wrong:
                invalid.append(f"the environment variable {name} (key {'.'.join(path)}): its module refuses it")
        if wrong and not invalid:
            invalid.append(f"the table of {'.'.join(references[0][1:])}: its module refuses it")
    return table


def refused(model: type[BaseModel], table: dict[str, Any]) -> set[tuple[str, ...]]:
    """Where ``model`` refuses ``table``, as paths of keys; the empty path is the table as a whole."""
    try:
        model.model_validate_json(json.dumps(table), strict=True)
    except ValidationError as error:
        return {tuple(map(str, problem["loc"])) for problem in error.errors(include_url=False)}
    return set()


def _read_as_json(table: Any, path: list[str]) -> None:
    for part in path[:-1]:
        table = table[int(part)] if isinstance(table, list) else table[part]
    key: Any = int(path[-1]) if isinstance(table, list) else path[-1]
    try:
        table[key] = json.loads(table[key])
    except (ValueError, RecursionError):
        return  # not JSON either: the string stays, and is what the model refuses
