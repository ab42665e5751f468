"""What the commands about jobs share: arguments, durations, output."""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys

from platform_worker.errors import WorkerQueueError, WorkerUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, NoReturn

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Parser(argparse.ArgumentParser):
    """Says what is wrong as every command does, and never repeats a value."""

    def error(self, message: str) -> NoReturn:
        rule = re.sub(r"(invalid [\w ]*?)(value|choice)?:.*", r"\1\2", message)
        rule = re.sub(r"(unrecognized arguments).*", r"\1", rule)
        raise WorkerUsageError("worker-usage-invalid", hints=[rule.strip(), f"{self.prog} --help"])


def parser(command: str, about: str, example: str) -> Parser:
    """A parser with an example below its help."""
    return Parser(
        prog=f"worker {command}",
        description=about,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def duration(text: str) -> datetime.timedelta:
    """500ms, 30s, 5m, 2h, 7d."""
    match = re.fullmatch(r"(\d{1,9})(ms|s|m|h|d)", text)
    if match is None:
        raise argparse.ArgumentTypeError("invalid duration value: one of 500ms, 30s, 5m, 2h, 7d")
    return datetime.timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def say(line: str) -> None:
    """One line on stdout."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say_json(value: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    say(json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")))


def table(heads: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """Aligned columns; control characters of names are shown escaped, as they could drive the terminal."""
    rows = [[str(head) for head in heads], *[[plain(cell) for cell in line] for line in lines]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def plain(cell: object) -> str:
    """What is shown of a name or a message: on one line, and nothing that could drive the terminal."""
    text = "-" if cell is None else str(cell)
    return text if text.isprintable() else ascii(text)


def each(ids: Sequence[str], act: Callable[[str], None]) -> int:
    """Does ``act`` to each; how many. The others are named in one error afterwards."""
    refused: list[tuple[str, str]] = []
    for id in ids:
        try:
            act(id)
        except WorkerQueueError as error:
            if error.reason not in ("worker-job-unknown", "worker-job-state"):
                raise
            hint = f"{id if id.isprintable() else ascii(id)}: {error.hints[0] if error.hints else error.reason}"
            refused.append((error.reason, hint))
    if refused:
        hints = [hint for _, hint in refused]
        raise WorkerQueueError(refused[0][0], hints=[*hints, f"done: {len(ids) - len(refused)} of {len(ids)}"])
    return len(ids)
