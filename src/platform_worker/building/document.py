"""Reads ``worker.toml`` and knows the line of each key; what is wrong is collected and reported at once."""

from __future__ import annotations

import difflib
import tomllib
from typing import TYPE_CHECKING, Any

from platform_worker.errors import WorkerUsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

Path = tuple[str | int, ...]

#: No settings file is near this; a device or a log put in its place is.
MAX_BYTES = 1024 * 1024


class Document:
    """The parsed file and the problems found in it so far."""

    def __init__(self, data: bytes) -> None:
        """Raises ``WorkerUsageError("worker-config-invalid")`` where the bytes are no TOML."""
        self.problems: list[tuple[Path, str]] = []
        self.tables: dict[str, Any] = {}
        self._text = ""
        if len(data) > MAX_BYTES:
            self._refuse(f"must have at most {MAX_BYTES} bytes")
        try:
            self._text = data.decode("utf-8")
            self.tables = tomllib.loads(self._text)
            self._check_integers(self.tables, ())
        except UnicodeDecodeError:
            self._refuse("must be UTF-8")
        except RecursionError:
            self._refuse("is nested too deeply")
        except ValueError as error:  # TOMLDecodeError among them; its text has a place and a rule, no value
            self._refuse(str(error))

    def problem(self, path: Path, rule: str) -> None:
        """Notes that the key at ``path`` breaks ``rule``, once."""
        if (path, rule) not in self.problems:
            self.problems.append((path, rule))

    def unknown(self, path: Path, known: Iterable[str], rule: str = "is not a known key") -> None:
        """Notes an unknown key, with the nearest one that is known."""
        near = difflib.get_close_matches(str(path[-1]), sorted(known), n=1)
        self.problem(path, f"{rule}; did you mean {near[0]}?" if near else rule)

    def raise_problems(self) -> None:
        """Raises ``WorkerUsageError`` with every problem, in the order of the file, if there is one."""
        if self.problems:
            lines = sorted(
                ((line_of(self._text, path) or 0, path, rule) for path, rule in self.problems), key=lambda p: p[0]
            )
            hints = [
                f"worker.toml{f' line {line}' if line else ''}: {dotted(path)} {rule}" for line, path, rule in lines
            ]
            raise WorkerUsageError("worker-config-invalid", hints=hints)

    def _refuse(self, rule: str) -> None:
        raise WorkerUsageError("worker-config-invalid", hints=[f"worker.toml: {rule}"])

    def _check_integers(self, value: Any, path: Path) -> None:
        """TOML's integers have 64 bits; Python's parser takes any, which JSON and the stores do not."""
        if isinstance(value, dict):
            for key, item in value.items():
                self._check_integers(item, (*path, key))
        elif isinstance(value, list):
            for i, item in enumerate(value):
                self._check_integers(item, (*path, i))
        elif type(value) is int and not -(2**63) <= value < 2**63:
            raise ValueError(f"{dotted(path)} must fit in 64 bits")


def dotted(path: Path) -> str:
    """A key as a person writes it: ``worker.tcp.port``, ``app.handlers[0]``; what is no plain key is quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part.isprintable() and part and not any(c.isspace() or c == "." for c in part)
            text += ("." if text else "") + (part[:80] if plain else ascii(part[:80]))
    return text


def line_of(text: str, path: Path) -> int | None:
    """The line of the key at ``path``, or of the nearest table around it; None where the file has neither.

    A scan, not a parser: ``tomllib`` keeps no places. It reads headers and the keys at the beginning of lines, and
    skips multi-line strings.
    """
    wanted = tuple(part for part in path if isinstance(part, str))
    table: tuple[str, ...] = ()
    best: tuple[int, int | None] = (0, None)
    closing = ""
    for number, line in enumerate(text.splitlines(), 1):
        if closing:
            closing = "" if closing in line else closing
            continue
        head = line.strip()
        if head.startswith("["):
            table = _keys(head.strip("[").partition("]")[0])
            found = table
        elif "=" in head and not head.startswith("#"):
            key, _, value = head.partition("=")
            found = table + _keys(key)
            closing = next((q for q in ('"""', "'''") if value.count(q) == 1), "")
        else:
            continue
        depth = len(found)
        if best[0] < depth <= len(wanted) and found == wanted[:depth]:
            best = (depth, number)
    return best[1]


def _keys(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))
