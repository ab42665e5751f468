"""The handler: one file in, one JSON result out, under a key derived from the content.

Running it twice on the same content changes nothing, so a job that is delivered twice does no harm. A file that cannot
be right is tried again, because it may still be being written; a file that must not be taken is rejected at once.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import content

from platform_worker import JobContext, Reject, task

CHUNK_BYTES = 1024 * 1024
HEARTBEAT_BYTES = 64 * 1024 * 1024


class ChangedError(Exception):
    """The file changed while it was read; the next attempt sees the new content."""


@task("inspect", queue="documents", max_attempts=2, backoff_ms=500)
def inspect(path: str, context: JobContext, quoted: bool = False) -> dict[str, Any]:
    """Finds out what the file at ``path`` is and stores the result; says ``gone`` where there is no file any more."""
    if quoted:
        path = os.fsdecode(unquote_to_bytes(path))
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return {"type": "gone"}
    try:
        result = examine(descriptor, context)
    except content.MacrosError as error:
        raise Reject(str(error)) from error
    finally:
        os.close(descriptor)
    store(result, results_folder(), f"{context.id}-{context.attempt}")
    return result


def open_regular(path: str) -> int:
    """A descriptor of the regular file at ``path``; links are not followed, in none of the folders above either."""
    if not Path(path).is_absolute() or os.path.realpath(Path(path).parent) != str(Path(path).parent):
        raise Reject("the path is not absolute or leads through a link")
    try:
        # O_NONBLOCK: opening a pipe that took the file's place must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Reject("not a regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Reject("not a regular file")
    return descriptor


def examine(descriptor: int, context: JobContext) -> dict[str, Any]:
    """Reads the file once from end to end, and looks up what its type has to tell."""
    before = os.fstat(descriptor)

    def read_at(offset: int, length: int) -> bytes:
        parts = []
        while length > 0 and (part := os.pread(descriptor, length, offset)):
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    head = read_at(0, content.HEAD_BYTES)
    kind = content.signature(head)
    text = content.TextCounter(head)
    digest, size = hashlib.sha256(), 0
    overlap = b""
    while chunk := os.pread(descriptor, CHUNK_BYTES, size):
        digest.update(chunk)
        size += len(chunk)
        if kind is None:
            text.feed(chunk)
        elif kind == "ole2":
            if content.OLE2_MACRO_MARK in overlap + chunk:
                raise content.MacrosError("an Office file with macros")
            overlap = chunk[-len(content.OLE2_MACRO_MARK) :]
        if size // HEARTBEAT_BYTES > (size - len(chunk)) // HEARTBEAT_BYTES:
            context.heartbeat({"bytes": size})
    text.feed(b"", final=True)

    def assert_unchanged() -> None:
        after = os.fstat(descriptor)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size != after.st_size:
            raise ChangedError("the file changed while it was read")

    try:
        particulars = describe(kind, text, read_at, size)
    except (content.DamagedError, content.MacrosError):
        assert_unchanged()  # if somebody was writing, that is the reason
        raise
    assert_unchanged()
    return {"sha256": digest.hexdigest(), "size": size, **particulars}


def describe(kind: str | None, text: content.TextCounter, read_at: content.ReadAt, size: int) -> dict[str, Any]:
    """The part of the result that depends on the type."""
    sizes = {"png": content.png_size, "jpeg": content.jpeg_size, "gif": content.gif_size}
    if kind in sizes:
        width, height = sizes[kind](read_at)
        return {"type": kind, "width": width, "height": height}
    if kind == "zip":
        return {"type": content.zip_type(read_at, size)}
    if kind is not None:
        return {"type": kind}
    if size == 0:
        return {"type": "empty"}
    if not text.is_text:
        return {"type": "binary"}
    return {"type": "text", "encoding": text.encoding, "lines": text.lines, "words": text.words}


def results_folder() -> Path:
    """Where results go: ``$DOCUMENTS_RESULTS``, else ``var/results`` beside this file."""
    return Path(os.environ.get("DOCUMENTS_RESULTS") or Path(__file__).resolve().parent / "var" / "results")


def store(result: dict[str, Any], folder: Path, writer: str) -> None:
    """Writes the result under its content's SHA-256: whole or not at all, and not again where it is already."""
    document = (json.dumps(result, sort_keys=True, separators=(",", ":")) + "\n").encode()
    target = folder / f"{result['sha256']}.json"
    try:
        if target.read_bytes() == document:
            return
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{writer}.tmp"
    try:
        with temporary.open("wb") as file:
            file.write(document)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
