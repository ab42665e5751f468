"""A disk that refuses: a ``sitecustomize`` for the processes of a pool, which honour it (the guardian does not).

``BROKEN_FILES`` is ``CALL:SUFFIX:ERRNO`` or ``CALL:SUFFIX:ERRNO:TRIGGER``: that call fails for each file whose path
ends with ``SUFFIX`` or ``SUFFIX.tmp``, once the file ``TRIGGER`` is there. A write takes half of its bytes before that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

SOURCE = """
import errno, os

call, suffix, number, *trigger = os.environ["BROKEN_FILES"].split(":")
real = getattr(os, call)
halves = set()

def broken(target):
    path = os.readlink("/proc/self/fd/%d" % target) if isinstance(target, int) else os.fsdecode(target)
    return path.removesuffix(".tmp").endswith(suffix) and (not trigger or os.path.exists(trigger[0]))

def refuse(target, *more, **named):
    if not broken(target):
        return real(target, *more, **named)
    if call == "open" and not more[0] & os.O_CREAT:
        return real(target, *more, **named)
    if call == "write" and target not in halves and len(more[0]) > 1:
        halves.add(target)
        return real(target, more[0][: len(more[0]) // 2])
    code = getattr(errno, number)
    raise OSError(code, os.strerror(code), "a file")

setattr(os, call, refuse)
"""


def broken_files(folder: Path, call: str, suffix: str, number: str, trigger: Path | None = None) -> dict[str, Any]:
    """The environment of a pool whose disk refuses so."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SOURCE)
    words = [call, suffix, number, *([str(trigger)] if trigger else [])]
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"BROKEN_FILES": ":".join(words), "PYTHONPATH": os.pathsep.join(paths)}
