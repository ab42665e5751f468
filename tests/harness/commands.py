"""Commands in this process: the same as ``worker COMMAND``, without the cost of an interpreter each time."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from unittest import mock

from platform_worker.cli import main


class Outcome:
    """What a command returned and wrote."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def hints(self) -> list[str]:
        """The lines under the error."""
        return [line.removeprefix("hint: ") for line in self.err.splitlines() if line.startswith("hint: ")]


def command(root: Path, *arguments: str, stdin: bytes = b"") -> Outcome:
    """Runs one command; never ``start``, which makes the whole process its own."""
    assert "start" not in arguments[:1]
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), mock.patch.object(sys, "stdin", given):
        code = main(["--root", str(root), *arguments])
    return Outcome(code, out.getvalue(), err.getvalue())
