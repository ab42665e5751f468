"""Frozen value objects without the import cost of ``dataclasses``.

``dataclasses`` pulls in ``inspect``, ``ast`` and ``dis``: twice the start-up time of a bare interpreter, paid by every
probe, every child and the guardian. ``Value`` gives what those need: a frozen object with positional and keyword
fields, defaults, equality within one type, a hash, a repr and ``match`` support.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar, Never, dataclass_transform

    @dataclass_transform(frozen_default=True)
    class _Base:
        pass
else:

    class _Base:
        pass


class Value(_Base):
    """Base of the frozen values; fields are the annotations of the class body, in order, after the inherited ones."""

    if TYPE_CHECKING:
        __fields__: ClassVar[tuple[str, ...]]
    else:
        __fields__ = ()
        __match_args__ = ()

        def __init_subclass__(cls):
            super().__init_subclass__()
            # Not through inspect, whose import is what this class is there to avoid.
            annotations = cls.__dict__.get("__annotations__", {})  # noqa: RUF063
            own = tuple(name for name in annotations if not name.startswith("_"))
            cls.__fields__ = (*cls.__fields__, *(name for name in own if name not in cls.__fields__))
            cls.__match_args__ = cls.__fields__

        def __init__(self, *args, **kwargs):
            cls = type(self)
            fields = cls.__fields__
            if len(args) > len(fields):
                raise TypeError(f"{cls.__name__} takes {len(fields)} fields, got {len(args)}")
            values = dict(zip(fields, args, strict=False))
            for name, value in kwargs.items():
                if name not in fields or name in values:
                    raise TypeError(f"{cls.__name__} got an unexpected or repeated field {name!r}")
                values[name] = value
            for name in fields:
                if name not in values:
                    if not hasattr(cls, name):
                        raise TypeError(f"{cls.__name__} misses the field {name!r}")
                    values[name] = getattr(cls, name)
            self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.__fields__)
        return f"{type(self).__name__}({inner})"

    def replace(self, **changes: Any) -> Any:
        """A copy with some fields changed."""
        return type(self)(**{**self.__dict__, **changes})


def unreachable(value: Never) -> Never:
    """The end of a ``match`` over a closed union: mypy proves that it is never called."""
    raise AssertionError(f"not a member of the closed union: {value!r}")
