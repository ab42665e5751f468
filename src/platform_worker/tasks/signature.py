"""How a handler is called with a job's data: computed once a handler, a few microseconds a call.

Plain annotations (``str``, ``int``, ``float``, ``bool``, ``list``, ``dict``, ``None``, their unions, ``list[…]`` and
``dict[str, …]``) are checked here, strictly: JSON has types, so ``"1"`` is no ``int``. Whatever else a handler is
annotated with, models among them, pydantic validates and converts by its own rules; it is imported for nothing less.
"""

from __future__ import annotations

import sys

from platform_worker.tasks.errors import InvalidData, UnfitHandler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    #: The value for the handler; raises ``ValueError`` whose text names the rule, never the value.
    Check: TypeAlias = Callable[[Any], Any]

#: Flags of code objects, as ``inspect`` has them.
_VARARGS, _VARKEYWORDS, _GENERATOR, _ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x200
_POSITIONAL_ONLY = "its parameters are passed by name, so none of them may be positional only"
_VARIABLE = "its parameters are passed by name, so *args stays empty; name them, or add **kwargs"
_CONTEXT_NAME = "JobContext"


class Signature:
    """What a handler takes. ``context_type`` is the class whose annotation asks for the job's context."""

    def __init__(self, function: Callable[..., object], context_type: type | None) -> None:
        """Raises ``UnfitHandler`` for what no job can call."""
        _check_kind(function)
        parameters, self._open = _parameters(function)
        hints = _annotations(function)
        self._contexts = tuple(name for name in parameters if _is_context(hints.get(name), context_type))
        self._known = frozenset(parameters) - set(self._contexts)
        self._required = frozenset(name for name in self._known if not parameters[name])
        checks = {name: _check(hints[name], name) for name in parameters if name in hints and name in self._known}
        self._checks = tuple((name, check) for name, check in checks.items() if check is not None)

    def arguments(self, data: Mapping[str, Any], context: Any) -> dict[str, Any]:
        """The keyword arguments for one call; raises ``InvalidData``, whose text names parameters and rules."""
        arguments = dict(data)
        names = arguments.keys()
        if not self._required <= names:
            raise InvalidData("missing: " + ", ".join(sorted(self._required - names)))
        if not names <= self._known:
            extra = names - self._known
            if not self._open or not extra.isdisjoint(self._contexts):
                raise InvalidData("not a parameter: " + ", ".join(sorted(extra)))
        for name, check in self._checks:
            if name in arguments:
                try:
                    arguments[name] = check(arguments[name])
                except ValueError as error:
                    raise InvalidData(f"{name}: {error}") from None
        for name in self._contexts:
            arguments[name] = context
        return arguments


def _check_kind(function: Callable[..., object]) -> None:
    """What a call returns must be the result, or an awaitable of it."""
    if isinstance(function, type):
        raise UnfitHandler("a handler is a function, not a class")
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    if flags & (_GENERATOR | _ASYNC_GENERATOR):
        raise UnfitHandler("a handler returns its result, so it must not be a generator (yield)")


def _parameters(function: Callable[..., object]) -> tuple[dict[str, bool], bool]:
    """The names that can be passed, each with whether it has a default; and whether any other name is taken too."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__") or hasattr(function, "__signature__"):
        return _inspected(function)
    if code.co_posonlyargcount:
        raise UnfitHandler(_POSITIONAL_ONLY)
    if code.co_flags & _VARARGS and not code.co_flags & _VARKEYWORDS:
        raise UnfitHandler(_VARIABLE)
    positional = code.co_varnames[: code.co_argcount]
    keyword = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    defaults = len(getattr(function, "__defaults__", None) or ())
    result = {name: index >= len(positional) - defaults for index, name in enumerate(positional)}
    result.update((name, name in (getattr(function, "__kwdefaults__", None) or ())) for name in keyword)
    return result, bool(code.co_flags & _VARKEYWORDS)


def _inspected(function: Callable[..., object]) -> tuple[dict[str, bool], bool]:
    """The same for a callable that is not a plain function: what a decorator made, a method, an instance."""
    import inspect

    result: dict[str, bool] = {}
    unbounded = variable = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UnfitHandler(_POSITIONAL_ONLY)
        if parameter.kind is parameter.VAR_KEYWORD:
            unbounded = True
        elif parameter.kind is parameter.VAR_POSITIONAL:
            variable = True
        else:
            result[parameter.name] = parameter.default is not parameter.empty
    if variable and not unbounded:
        raise UnfitHandler(_VARIABLE)
    return result, unbounded


def _annotations(function: Any) -> dict[str, Any]:
    """The annotations, strings resolved where their names exist; where they do not, the string stays."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if not hasattr(function, "__annotations__") and hasattr(function, "__func__"):
        function = function.__func__
    if not hasattr(function, "__code__") and hasattr(type(function).__call__, "__annotations__"):
        function = type(function).__call__
    scope = getattr(function, "__globals__", {})
    return {
        name: _resolve(hint, scope) if isinstance(hint, str) else hint
        for name, hint in getattr(function, "__annotations__", {}).items()
    }


def _resolve(hint: str, scope: dict[str, Any]) -> Any:
    try:
        return eval(hint, scope)
    except Exception:  # noqa: BLE001  a name that only a type checker sees: the parameter is taken unchecked
        return hint


def _is_context(hint: Any, context_type: type | None) -> bool:
    if isinstance(hint, str):
        return hint.rpartition(".")[2] == _CONTEXT_NAME
    return hint is not None and hint is context_type


# Checks


def _string(value: Any) -> Any:
    if type(value) is not str:
        raise ValueError("must be a string")
    return value


def _integer(value: Any) -> Any:
    if type(value) is not int:
        raise ValueError("must be an integer")
    return value


def _number(value: Any) -> Any:
    if type(value) is not float and type(value) is not int:
        raise ValueError("must be a number")
    return float(value)


def _boolean(value: Any) -> Any:
    if type(value) is not bool:
        raise ValueError("must be true or false")
    return value


def _null(value: Any) -> Any:
    if value is not None:
        raise ValueError("must be null")
    return value


def _array(value: Any) -> Any:
    if type(value) is not list:
        raise ValueError("must be an array")
    return value


def _object(value: Any) -> Any:
    if type(value) is not dict:
        raise ValueError("must be an object")
    return value


def _anything(value: Any) -> Any:
    return value


_PLAIN: dict[Any, Check] = {
    str: _string,
    int: _integer,
    float: _number,
    bool: _boolean,
    list: _array,
    dict: _object,
    type(None): _null,
    None: _null,
    object: _anything,
}


def _check(hint: Any, name: str) -> Check | None:
    """The check for one annotation; ``None`` where anything goes."""
    if isinstance(hint, str) or hint is object or _is_any(hint):
        return None
    return _plain(hint) or _by_pydantic(hint, name)


def _is_any(hint: Any) -> bool:
    typing = sys.modules.get("typing")
    return typing is not None and hint is typing.Any


def _plain(hint: Any) -> Check | None:
    """The check of an annotation made of JSON's own types, ``None`` for any other."""
    try:
        known = _PLAIN.get(hint)
    except TypeError:  # not hashable, so none of these
        return None
    if known is not None:
        return known
    if _is_any(hint):
        return _anything
    arguments = getattr(hint, "__args__", None)
    if arguments is None:
        return None
    origin = getattr(hint, "__origin__", None)
    inner = [_plain(argument) for argument in arguments]
    checks = [check for check in inner if check is not None]
    if len(checks) < len(inner):
        return None
    if origin is list and len(checks) == 1:
        return lambda value: [checks[0](item) for item in _array(value)]
    if origin is dict and len(checks) == 2 and arguments[0] is str:
        return lambda value: {key: checks[1](item) for key, item in _object(value).items()}
    if type(hint).__name__ == "UnionType" or getattr(origin, "_name", None) == "Union":
        return _union(checks)
    return None


def _union(checks: list[Check]) -> Check:
    # A number that is an integer stays one where the union has both.
    ordered = sorted(checks, key=lambda check: check is _number)

    def check(value: Any) -> Any:
        problems = []
        for one in ordered:
            try:
                return one(value)
            except ValueError as error:
                problems.append(str(error))
        raise ValueError(" or ".join(problems))

    return check


def _by_pydantic(hint: Any, name: str) -> Check:
    from pydantic import ConfigDict, TypeAdapter, ValidationError
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

    try:
        adapter: Any = TypeAdapter(hint)
    except PydanticSchemaGenerationError:
        try:
            # A class that pydantic does not know can only be an instance already: nothing that JSON can say.
            adapter = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
        except PydanticUserError as error:
            raise UnfitHandler(f"the annotation of the parameter {name} cannot be used for validation") from error

    def check(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            raise ValueError(_problems(error)) from None

    return check


def _problems(error: Any) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}".removeprefix(": ") for item in found[:8])
