"""Environment references: what an artifact keeps in a value's place, and how a process turns it into the value.

As the artifact has it::

    {"env":"DATABASE_POOL","default":4,"type":"integer","minimum":1,"maximum":64}

``type`` is ``integer``, ``number``, ``boolean``, ``string``, ``array`` (the variable holds a JSON array; ``items`` is
the rule of each element) or ``model``: rules that only the plugin's own pydantic model can tell, loaded from the entry
point in ``model`` by whoever resolves it. Constraints: ``minimum``, ``maximum``, ``above``, ``below``, ``min_length``,
``max_length``, ``pattern``, ``enum``. The value never goes into the artifact, nor into an error.
"""

from __future__ import annotations

from platform_worker.errors import WorkerUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_DIGITS = frozenset("0123456789")
_NUMBER = frozenset("0123456789+-.eE")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
#: TOML's own bound, and the bound of an integer in most stores.
INTEGER_BITS = 63


def is_reference(value: object) -> bool:
    """True for a compiled environment reference."""
    return type(value) is dict and type(value.get("env")) is str and type(value.get("type")) is str


def resolve_settings(table: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """``table`` with every reference replaced by its value, converted and validated.

    Raises ``WorkerUsageError`` for everything that is wrong at once: ``worker-environment-missing`` naming the
    variables, else ``worker-config-invalid`` naming variable, key and rule.
    """
    resolver = _Resolver(environ)
    result = {key: resolver.walk(value, (key,)) for key, value in table.items()}
    if resolver.missing:
        raise WorkerUsageError("worker-environment-missing", hints=resolver.missing)
    if resolver.models and not resolver.invalid:
        from platform_worker.artifacts.model_references import check_models

        result = check_models(result, resolver.models, resolver.invalid)
    if resolver.invalid:
        raise WorkerUsageError("worker-config-invalid", hints=resolver.invalid)
    return result


class _Resolver:
    """Walks a table and collects what is wrong with it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.missing: list[str] = []
        self.invalid: list[str] = []
        #: The entry point of a model -> the variable and the path of each reference that it must judge.
        self.models: dict[str, list[tuple[str, ...]]] = {}

    def walk(self, value: Any, path: tuple[str, ...]) -> Any:
        if type(value) is list:
            return [self.walk(item, (*path, str(i))) for i, item in enumerate(value)]
        if type(value) is not dict:
            return value
        if is_reference(value):
            return self._resolve(value, path)
        return {key: self.walk(item, (*path, key)) for key, item in value.items()}

    def _resolve(self, rule: dict[str, Any], path: tuple[str, ...]) -> object:
        name, where = rule["env"], ".".join(path)
        text = self._environ.get(name)
        if text is None:
            if "default" not in rule:
                self.missing.append(f"the environment variable {name} is not set (key {where})")
            return rule.get("default")
        if rule["type"] == "model":
            self.models.setdefault(rule["model"], []).append((name, *path))
        try:
            return convert(text, rule)
        except ValueError as problem:
            self.invalid.append(f"the environment variable {name} (key {where}): {problem}")
            return None


def convert(text: str, rule: Mapping[str, Any]) -> object:
    """The value in ``text`` by ``rule``; ``ValueError`` whose text is the rule that was broken, never the value."""
    kind = rule["type"]
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("must be UTF-8") from None
    if kind == "integer":
        return _bounded(_integer(text), rule)
    if kind == "number":
        return _bounded(_number(text), rule)
    if kind == "boolean":
        if text not in _BOOLEANS:
            raise ValueError("must be true, false, 1 or 0")
        return _BOOLEANS[text]
    if kind == "array":
        return _array(text, rule)
    return text if kind == "model" else _string(text, rule)


def _integer(text: str) -> int:
    digits = text.removeprefix("-")
    strict = _DIGITS.issuperset(digits) and 0 < len(digits) <= 19 and (digits == text == "0" or digits[0] != "0")
    if not strict or not -(2**INTEGER_BITS) <= int(text) < 2**INTEGER_BITS:
        raise ValueError("must be a whole decimal number")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text) if _NUMBER.issuperset(text) else None
    except ValueError:
        value = None
    if value is None or value - value != 0:  # infinite: too many digits in the exponent
        raise ValueError("must be a decimal number")
    return value


def _bounded(value: float, rule: Mapping[str, Any]) -> object:
    low, high, above, below = (rule.get(key) for key in ("minimum", "maximum", "above", "below"))
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(range_rule(low, high))
    if (above is not None and value <= above) or (below is not None and value >= below):
        raise ValueError(
            f"must be less than {below}" if above is None or value > above else f"must be greater than {above}"
        )
    return _listed(value, rule)


def _string(text: str, rule: Mapping[str, Any]) -> object:
    shortest, longest = rule.get("min_length", 0), rule.get("max_length")
    if len(text) < shortest:
        raise ValueError("must not be empty" if shortest == 1 else f"must have {shortest} or more characters")
    if longest is not None and len(text) > longest:
        raise ValueError(f"must have at most {longest} characters")
    if "pattern" in rule:
        import re

        # To pydantic `$` is the end; to `re` it is also the place before a final newline.
        pattern = rule["pattern"]
        if re.search(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern, text) is None:
            raise ValueError(f"must match {rule['pattern']}")
    return _listed(text, rule)


def _array(text: str, rule: Mapping[str, Any]) -> list[Any]:
    import json

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if type(value) is not list:
        raise ValueError("must be a JSON array")
    shortest, longest = rule.get("min_length", 0), rule.get("max_length")
    if len(value) < shortest or (longest is not None and len(value) > longest):
        raise ValueError(f"must have {shortest} or more elements" if longest is None else "has too many elements")
    for item in value:
        check_json(item, rule.get("items", {}))
    return value


def check_json(value: object, rule: Mapping[str, Any]) -> None:
    """Checks a value that is typed already; ``ValueError`` as in ``convert``."""
    kind = rule.get("type")
    if kind == "string":
        if type(value) is not str:
            raise ValueError("each element must be a string")
        _string(value, rule)
    elif kind == "integer":
        if type(value) is not int:
            raise ValueError("each element must be a whole number")
        _bounded(value, rule)
    elif kind == "number":
        if type(value) not in (int, float):
            raise ValueError("each element must be a number")
        _bounded(value, rule)  # type: ignore[arg-type]  # one of the two, said above
    elif kind == "boolean" and type(value) is not bool:
        raise ValueError("each element must be true or false")


def _listed(value: object, rule: Mapping[str, Any]) -> object:
    if "enum" in rule and value not in rule["enum"]:
        raise ValueError("must be one of " + ", ".join(map(str, rule["enum"])))
    return value


def range_rule(low: float | None, high: float | None) -> str:
    """The sentence for a bound."""
    if high is None:
        return f"must be {low} or more"
    return f"must be at most {high}" if low is None else f"must be {low} to {high}"
