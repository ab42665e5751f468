"""What the commands about jobs share: arguments, durations, output."""

from __future__ import annotations

import argparse
import datetime
import difflib
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
    """Says what is wrong as every command does: it names options, rules and choices, and never repeats a value."""

    #: What a word too many may have been meant as.
    extra = "takes no further argument"

    def parse_args(self, args: Sequence[str], namespace: None = None) -> argparse.Namespace:  # type: ignore[override]
        """As argparse's, which would repeat every word that it does not know."""
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            self.error("; ".join(self._unknown(word) for word in rest[:1]))
        return options

    def error(self, message: str) -> NoReturn:
        rule = re.sub(r"(invalid [\w ]*?)(value|choice)?:.*", r"\1\2", message.removeprefix("argument "))
        raise WorkerUsageError("worker-usage-invalid", hints=[rule.strip(), f"{self.prog} --help"])

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return self.extra
        known = [option for action in self._actions for option in action.option_strings]
        option = plain(word.partition("=")[0])
        near = difflib.get_close_matches(option, known, 1)
        return f"unknown option {option}" + (f"; did you mean {near[0]}?" if near else "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            near = difflib.get_close_matches(str(value), known, 1)
            rule = f"must be one of {', '.join(known)}" + (f"; did you mean {near[0]}?" if near else "")
            raise argparse.ArgumentError(action, rule)


def parser(command: str, about: str, example: str) -> Parser:
    """A parser with an example below its help."""
    made = Parser(
        prog=f"worker {command}",
        description=about,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    # For the help: the frame of the command line has taken them out, wherever they stood.
    made.add_argument(
        "--root", metavar="DIR", help="the application directory, else $WORKER_ROOT, else the current directory"
    )
    made.add_argument("--json", action="store_true", help="JSON objects on stdout, one a line")
    return made


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a whole number") from None


def decimal(text: str) -> float:
    """A number, whole or not."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a number") from None


def duration(text: str) -> datetime.timedelta:
    """500ms, 30s, 5m, 2h, 7d."""
    match = re.fullmatch(r"(\d{1,9})(ms|s|m|h|d)", text)
    if match is None:
        raise argparse.ArgumentTypeError("must be a number with a unit, as 500ms, 30s, 5m, 2h, 7d")
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
