"""Publishes artifact generations on disk: staged beside, flushed, renamed, selected in one rename, cleaned up.

Everything happens under the exclusive lock on ``var/artifacts/generation.lock``, so a staging folder that is found
under it is a dead one. A process killed at any step leaves ``current`` naming the old generation or the new one, and
the folder that it names whole.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from platform_worker.artifacts.boot import read_selected
from platform_worker.artifacts.generation import ARTIFACTS, CURRENT, CURRENT_TMP, GENERATION_LOCK, GENERATIONS, is_id
from platform_worker.errors import WorkerBuildError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Generations kept beside the selected one, for readers that are about to read and for a person's way back.
KEPT = 4
#: How long a build waits for another; one takes a fraction of a second.
LOCK_WAIT_S = 30.0
_LOCK_PAUSE_S = 0.02
_STAGING = ".staging-"
_REMOVING = ".removing-"


def publish(root: str, generation_id: str, files: Mapping[str, bytes]) -> bool:
    """Makes ``generation_id`` the selected generation; True where its folder was there already.

    Raises ``WorkerBuildError``: ``worker-generation-conflict`` where that folder has other bytes,
    ``worker-generation-write-failed`` where the disk refuses. Then what was selected still is.
    """
    try:
        os.makedirs(os.path.join(root, GENERATIONS), exist_ok=True)
        lock = os.open(
            os.path.join(root, GENERATION_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
        )
        try:
            _lock(lock)
            reused = _place(root, generation_id, files)
            _select(root, generation_id)
            _clean(root, generation_id)
        finally:
            os.close(lock)
    except OSError as error:
        hint = f"{ARTIFACTS}: {os.strerror(error.errno) if error.errno else 'the disk refused'}"
        raise WorkerBuildError("worker-generation-write-failed", hints=[hint]) from error
    return reused


def _lock(fd: int) -> None:
    end = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                hint = f"another build holds {GENERATION_LOCK}"
                raise WorkerBuildError("worker-generation-write-failed", hints=[hint]) from None
        time.sleep(_LOCK_PAUSE_S)  # flock has no deadline of its own, and a build is no place for an alarm signal


def _place(root: str, generation_id: str, files: Mapping[str, bytes]) -> bool:
    """Makes the folder of ``generation_id`` be there with these files."""
    generations = os.path.join(root, GENERATIONS)
    final = os.path.join(generations, generation_id)
    if os.path.lexists(final):
        if not _same(final, files):
            hint = f"{GENERATIONS}/{generation_id} was changed by hand; remove that folder and build again"
            raise WorkerBuildError("worker-generation-conflict", hints=[hint])
        os.utime(final)  # the newest again, for the next clean-up
        return True
    staging = os.path.join(generations, _STAGING + generation_id)
    _remove_folder(staging)
    os.mkdir(staging, 0o755)
    try:
        for name, data in files.items():
            write_flushed(os.path.join(staging, name), data)
        flush_folder(staging)
        os.rename(staging, final)
    except OSError:
        _remove_folder(staging)
        raise
    flush_folder(generations)
    flush_folder(os.path.join(root, ARTIFACTS))
    return False


def _same(folder: str, files: Mapping[str, bytes]) -> bool:
    if os.path.islink(folder) or not os.path.isdir(folder) or set(os.listdir(folder)) != set(files):
        return False
    for name, data in files.items():
        path = os.path.join(folder, name)
        if os.path.islink(path) or not os.path.isfile(path):
            return False
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            if stream.read(len(data) + 1) != data:
                return False
    return True


def _select(root: str, generation_id: str) -> None:
    try:
        if read_selected(root) == generation_id:
            return
    except (OSError, ValueError):
        pass  # nothing usable is selected: select
    temporary = os.path.join(root, CURRENT_TMP)
    _remove(temporary)
    write_flushed(temporary, generation_id.encode() + b"\n")
    os.rename(temporary, os.path.join(root, CURRENT))
    flush_folder(os.path.join(root, ARTIFACTS))


def _clean(root: str, selected: str) -> None:
    """Removes dead staging folders and what is older than the newest few. What cannot go stays for the next build."""
    generations = os.path.join(root, GENERATIONS)
    others: list[tuple[int, str]] = []
    for name in os.listdir(generations):
        path = os.path.join(generations, name)
        try:
            if name.startswith((_STAGING, _REMOVING)):
                _remove_folder(path)
            elif is_id(name) and name != selected:
                others.append((os.lstat(path).st_mtime_ns, path))
        except OSError:
            continue
    others.sort(reverse=True)
    for _, path in others[KEPT:]:
        try:
            _retire(path)
        except OSError:
            continue


def _retire(path: str) -> None:
    """Removes an old generation unless a reader has it open; its name goes first, so that it is never half there."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        parent, name = os.path.split(path)
        removing = os.path.join(parent, _REMOVING + name)
        os.rename(path, removing)
        _remove_folder(removing)
    finally:
        os.close(folder)


def _remove_folder(path: str) -> None:
    """A folder of ours has files only; anything else in it was put there by hand and goes with it."""
    if os.path.islink(path) or not os.path.isdir(path):
        _remove(path)
        return
    import shutil

    shutil.rmtree(path)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM) or not os.path.isdir(path):
            raise
        _remove_folder(path)


def write_flushed(path: str, data: bytes) -> None:
    """Creates ``path`` with ``data`` and has the disk take it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def flush_folder(path: str) -> None:
    """Has the disk take what was created in, or renamed into, a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
