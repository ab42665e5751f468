"""Validates one table of ``worker.toml`` with its model, merges the defaults in, and keeps environment references."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import SecretBytes, SecretStr, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from platform_worker.artifacts.references import is_reference
from platform_worker.building.rules import is_table, rule_at

if TYPE_CHECKING:
    from pydantic import BaseModel

    from platform_worker.building.document import Document, Path

_NAME_START = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_NAME = _NAME_START | frozenset("0123456789")


class Table:
    """One table: ``compiled`` goes into the artifact; ``known`` is the same without what only the environment knows."""

    def __init__(self, document: Document, name: str, model: type[BaseModel], entry_point: str | None = None) -> None:
        """``entry_point`` is where a process finds the model again; None for the tables of ``worker.toml`` itself."""
        self._document = document
        self._name = name
        self._model = model
        self._entry_point = entry_point
        #: Path in the table -> (variable, the default as it was written, or nothing).
        self._references: dict[Path, dict[str, Any]] = {}
        before = len(document.problems)
        given = document.tables.get(name, {})
        self.known: dict[str, Any] = {}
        self.compiled: dict[str, Any] = {}
        if not isinstance(given, dict):
            document.problem((name,), "must be a table")
            return
        plain = self._take_references({**_from_environment(model, given), **given}, ())
        self._validate(plain)
        if len(document.problems) == before:
            self.compiled = json.loads(json.dumps(self.known, default=_iso))
            for path, reference in self._references.items():
                self._put(path, reference)
        for path, reference in self._references.items():
            if "default" not in reference:
                self._forget(path)

    def _take_references(self, value: Any, path: Path) -> Any:
        """``value`` with each reference's default in its place; where there is none, without the key."""
        if isinstance(value, list):
            items = [self._take_references(item, (*path, i)) for i, item in enumerate(value)]
            if any(item is _UNSET for item in items):
                self._note(path, "must give a default with a reference inside an array")
                return []
            return items
        if not isinstance(value, dict):
            return value
        if path and isinstance(value.get("env"), str):
            if value.keys() <= {"env", "default"}:
                return self._take_reference(value, path)
            if is_reference(value) or self._entry_point is None:
                self._note(path, "must have no key but env and default, as an environment reference")
                return _UNSET
        taken = {key: self._take_references(item, (*path, key)) for key, item in value.items()}
        return {key: item for key, item in taken.items() if item is not _UNSET}

    def _take_reference(self, value: dict[str, Any], path: Path) -> Any:
        name = value["env"]
        if not name or name[0] not in _NAME_START or not _NAME.issuperset(name):
            self._note(path, "must name an environment variable: letters, digits and _")
        elif (self._name, *path) == ("app", "name"):
            self._note(path, "takes no environment reference")
        elif is_table(self._model, path):
            self._note(path, "is a table; each of its keys may be an environment reference")
        else:
            self._references[path] = {"env": name}
            if "default" in value:
                self._references[path]["default"] = value["default"]
        return value.get("default", _UNSET)

    def _validate(self, plain: dict[str, Any]) -> None:
        unset = {path for path, reference in self._references.items() if "default" not in reference}
        try:
            settings = self._model.model_validate_json(json.dumps(plain, default=_iso), strict=True)
        except ValidationError as error:
            wrong: set[str | int] = set()
            for problem in error.errors(include_url=False):
                path = tuple(problem["loc"])
                # A required key that only the environment knows, and what such a table fails as a whole.
                if not ((problem["type"] == "missing" and path in unset) or (not path and unset)):
                    self._report(path, problem)
                    wrong.update(path[:1])
            self.known = {key: value for key, value in self._filled(plain).items() if key not in wrong}
        else:
            self._check_secrets(settings)
            try:
                self.known = settings.model_dump(mode="json", by_alias=True)
            except PydanticSerializationError:
                self._note((), "has a value that its module cannot write as JSON")
        self._check_unknown(plain)

    def _filled(self, plain: dict[str, Any]) -> dict[str, Any]:
        filled = dict(plain)
        for name, field in self._model.model_fields.items():
            key = field.alias or name
            if key not in filled and not field.is_required():
                filled[key] = to_jsonable_python(field.get_default(call_default_factory=True))
        return filled

    def _report(self, path: Path, problem: Any) -> None:
        kind = problem["type"]
        if kind == "extra_forbidden":
            self._document.unknown((self._name, *path), self._keys(path[:-1]))
            return
        rule = _RULES.get(kind) or _sentence(problem)
        self._note(path, rule)

    def _check_unknown(self, plain: dict[str, Any]) -> None:
        """A plugin's model need not forbid what it does not know; ``worker.toml`` does."""
        known = self._keys(())
        if self._model.model_config.get("populate_by_name"):
            known |= self._model.model_fields.keys()
        if self._model.model_config.get("extra") != "allow":
            for key in plain.keys() - known:
                self._document.unknown((self._name, key), known)

    def _keys(self, path: Path) -> set[str]:
        model: Any = self._model
        for part in path:
            field = getattr(model, "model_fields", {}).get(part)
            model = field.annotation if field is not None else None
        fields = getattr(model, "model_fields", {})
        return {field.alias or name for name, field in fields.items()}

    def _check_secrets(self, settings: BaseModel) -> None:
        for name in settings.model_fields_set:
            if isinstance(getattr(settings, name), SecretStr | SecretBytes):
                key = type(settings).model_fields[name].alias or name
                if "default" in self._references.get((key,), {}) or (key,) not in self._references:
                    self._note((key,), "is a secret: it must be an environment reference without a default")

    def _put(self, path: Path, reference: dict[str, Any]) -> None:
        rule = rule_at(self._model, path)
        if rule is None:
            rule = {"model": self._entry_point, "type": "model"}
        place: Any = self.compiled
        for part in path[:-1]:
            place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
        place[path[-1]] = json.loads(json.dumps({**rule, **reference}, default=_iso))

    def _forget(self, path: Path) -> None:
        place: Any = self.known
        for part in path[:-1]:
            place = place.get(part, {}) if isinstance(place, dict) else place[part]
        place.pop(path[-1], None)

    def _note(self, path: Path, rule: str) -> None:
        self._document.problem((self._name, *path), rule)


def _from_environment(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    """What a plugin's model wants read from a variable where nothing is given: its own default is the variable's."""
    variables: dict[str, str] = getattr(model, "environment", {})
    return {
        key: {"env": variable, "default": model.model_fields[key].default}
        for key, variable in variables.items()
        if key not in given
    }


_UNSET = object()

_RULES = {
    "missing": "must be given",
    "int_type": "must be a whole number, without quotes",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number, without quotes",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false, without quotes",
    "string_type": "must be a string",
    "list_type": "must be an array",
    "model_type": "must be a table",
    "dict_type": "must be a table",
}


def _sentence(problem: Any) -> str:
    """pydantic's sentence for a rule, in our words where there are some, and never with the value in it."""
    context = problem.get("ctx", {})
    kind = problem["type"]
    bounds = {"greater_than_equal": "ge", "less_than_equal": "le", "greater_than": "gt", "less_than": "lt"}
    if kind in bounds:
        word = {"ge": "{} or more", "le": "at most {}", "gt": "greater than {}", "lt": "less than {}"}[bounds[kind]]
        return "must be " + word.format(context[bounds[kind]])
    if kind in {"literal_error", "enum"}:
        return f"must be one of {context['expected']}".replace("'", "")
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}"
    message = str(problem["msg"]).replace("Input should", "must", 1)
    values = _leaves(problem.get("input"))
    if any(value and value in message for value in values):
        return "is refused by its module"
    return message[:1].lower() + message[1:]


def _leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [str(value)]


def _iso(value: Any) -> str:
    """TOML's dates and times, as text; nothing else in a parsed file is foreign to JSON."""
    return str(value.isoformat())
