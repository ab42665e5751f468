"""Derives from a pydantic model the rule that an environment reference carries into the artifact.

A rule is what a process without pydantic can check (``artifacts/references.py``). Whatever is not exactly that, a
validator of the plugin's own, a union, a pattern in another dialect, becomes ``model``: the process that resolves the
reference then asks the model itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel

    from platform_worker.building.document import Path

#: Keys of a core schema that change nothing about which values are taken.
_NEUTRAL = {"type", "strict", "metadata", "ref", "serialization"}
_BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "above", "lt": "below"}
_LENGTHS = {"min_length": "min_length", "max_length": "max_length"}
_SCALARS: dict[str, tuple[str, dict[str, str]]] = {
    "int": ("integer", _BOUNDS),
    "float": ("number", {**_BOUNDS, "allow_inf_nan": ""}),
    "bool": ("boolean", {}),
    "str": ("string", {**_LENGTHS, "pattern": "pattern"}),
}


def rule_at(model: type[BaseModel], path: Path) -> dict[str, Any] | None:
    """The rule of the value at ``path`` in ``model``; None where only the model can tell."""
    model.model_rebuild()
    schema: Any = model.__pydantic_core_schema__
    for part in path:
        schema = _inside(_unwrapped(schema), part)
        if schema is None:
            return None
    return _rule(_unwrapped(schema))


def is_table(model: type[BaseModel], path: Path) -> bool:
    """True where the value at ``path`` is a table of its own, which no single variable can hold."""
    schema: Any = model.__pydantic_core_schema__
    for part in path:
        schema = _inside(_unwrapped(schema), part)
        if schema is None:
            return False
    return bool(_unwrapped(schema).get("type") == "model")


def _inside(schema: Any, part: str | int) -> Any:
    if schema.get("type") == "model" and schema["schema"].get("type") == "model-fields":
        field = schema["schema"]["fields"].get(part)
        # An alias or a validator around the field is the model's own matter.
        return field.get("schema") if field is not None and "validation_alias" not in field else None
    if schema.get("type") == "list" and isinstance(part, int):
        return schema.get("items_schema")
    return None


def _unwrapped(schema: Any) -> Any:
    while schema.get("type") in {"default", "nullable"} and "schema" in schema:
        schema = schema["schema"]
    return schema


def _rule(schema: Any) -> dict[str, Any] | None:
    kind = schema.get("type")
    if kind in _SCALARS:
        name, constraints = _SCALARS[kind]
        return _constrained({"type": name}, schema, constraints)
    if kind == "literal":
        expected = schema["expected"]
        for python, name in ((str, "string"), (int, "integer")):
            if all(type(value) is python for value in expected):
                return {"type": name, "enum": sorted(expected)}
        return None
    if kind == "list":
        items = _rule(_unwrapped(schema.get("items_schema", {"type": "any"})))
        if items is None or items["type"] == "array":
            return None
        return _constrained({"type": "array", "items": items}, schema, {**_LENGTHS, "items_schema": ""})
    return None


def _constrained(rule: dict[str, Any], schema: Any, constraints: dict[str, str]) -> dict[str, Any] | None:
    for key, value in schema.items():
        if key in _NEUTRAL:
            continue
        if key not in constraints or not isinstance(value, (bool, int, float, str, dict)):
            return None
        if constraints[key]:
            rule[constraints[key]] = value
    if "pattern" in rule:
        try:
            re.compile(rule["pattern"])
        except re.error:
            return None
    return rule
