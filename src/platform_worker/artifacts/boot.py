"""Reads the selected artifact generation, verifies all of it, and trusts nothing else.

Every child does this at its start, so it costs a handful of system calls and no import that a child has no other use
for: no pathlib, no hashlib, no pydantic.
"""

from __future__ import annotations

import fcntl
import os
import stat

from platform_worker.artifacts.entry_points import load
from platform_worker.artifacts.generation import (
    CONTENT_FILES,
    CURRENT,
    GENERATIONS,
    MANIFEST,
    MANIFEST_MAX_BYTES,
    Generation,
    expected_lengths,
    is_id,
    open_files,
)
from platform_worker.artifacts.references import resolve_settings
from platform_worker.errors import WorkerStartError

__all__ = ["Generation", "has_current", "load", "load_current", "read_selected", "resolve_settings"]

#: How often a reader looks again when the generation it was about to read was replaced and cleaned up meanwhile.
_LOOKS = 5


def load_current(root: str) -> Generation:
    """The generation that ``var/artifacts/current`` names, verified.

    Raises ``WorkerStartError("worker-generation-invalid")`` for whatever is missing, changed or of another form.
    """
    try:
        selected = read_selected(root)
        for _ in range(_LOOKS):
            try:
                return _read(root, selected)
            except (OSError, ValueError):
                # A cleaner may have taken the folder between the two reads, if as many builds went by; then `current`
                # names another one by now.
                previous, selected = selected, read_selected(root)
                if previous == selected:
                    raise
    except (OSError, ValueError) as error:
        hint = "var/artifacts holds no whole artifact generation; run `worker build`"
        raise WorkerStartError("worker-generation-invalid", hints=(hint,)) from error
    raise WorkerStartError("worker-generation-invalid", hints=("var/artifacts/current does not stand still",))


def has_current(root: str) -> bool:
    """True where something is selected, whole or not."""
    return os.path.lexists(os.path.join(root, CURRENT))


def read_selected(root: str) -> str:
    """The id in ``current``; ``OSError`` or ``ValueError`` where there is none."""
    data = _read_file(os.path.join(root, CURRENT), 65, None)
    text = data.decode()
    if text[-1:] != "\n" or not is_id(text[:-1]):
        raise ValueError("current does not hold an id and a newline")
    return text[:-1]


def _read(root: str, generation_id: str) -> Generation:
    path = os.path.join(root, GENERATIONS, generation_id)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _share(folder)
        manifest = _read_file(MANIFEST, None, folder)
        contents = {
            name: _read_file(name, length, folder)
            for name, (length, _) in expected_lengths(generation_id, manifest).items()
        }
    finally:
        os.close(folder)
    return open_files(generation_id, manifest, {name: contents[name] for name in CONTENT_FILES})


def _share(folder: int) -> None:
    """Keeps a cleaner away while we read; it takes the same lock exclusively, without waiting.

    Where the file system has no such locks the read goes on without one: it is verified, so the worst is an error.
    """
    try:
        fcntl.flock(folder, fcntl.LOCK_SH)
    except OSError:
        return


def _read_file(path: str, length: int | None, folder: int | None) -> bytes:
    """The bytes of a regular file that has exactly ``length`` bytes (a manifest: at most its bound)."""
    # O_NONBLOCK: a FIFO put in a file's place must not hang a child.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    try:
        status = os.fstat(fd)
        size = status.st_size
        if not stat.S_ISREG(status.st_mode) or (size != length if length is not None else size > MANIFEST_MAX_BYTES):
            raise ValueError("not a regular file of the expected length")
        chunks = []
        left = size + 1
        while left > 0 and (chunk := os.read(fd, left)):
            chunks.append(chunk)
            left -= len(chunk)
    finally:
        os.close(fd)
    return b"".join(chunks)
