"""The supervisor's files: locator, state, stop flag, pool id. Written beside, flushed, renamed."""

from __future__ import annotations

import errno
import os
import stat

from platform_worker.config import LOCATOR_PATH, POOL_PATH, WORKDIR_PATH
from platform_worker.errors import WorkerLifecycleError

_SECRET = 0o600


class FileRecords:
    """Implements ``Records`` in ``root``; the paths are relative to it."""

    def __init__(self, root: str, state_path: str, stop_flag_path: str) -> None:
        self._locator = os.path.join(root, LOCATOR_PATH)
        self._state = os.path.join(root, state_path)
        self._flag = os.path.join(root, stop_flag_path)
        self._workdirs = os.path.join(root, WORKDIR_PATH)

    def prepare(self) -> None:
        """Removes what a killed generation left; only under the claimed fence. Makes the folders."""
        try:
            for path in (self._state, self._flag):
                os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise WorkerLifecycleError("worker-lifecycle-failed", hints=[_rule(error)]) from error
        if not self.remove():
            raise WorkerLifecycleError("worker-lifecycle-failed", hints=["stale files in var/tmp cannot be removed"])

    def write_locator(self, data: bytes) -> None:
        try:
            _replace(self._locator, data, _SECRET)
        except OSError as error:
            raise WorkerLifecycleError("worker-lifecycle-locator-failed", hints=[_rule(error)]) from error

    def write_state(self, data: bytes) -> bool:
        try:
            _replace(self._state, data, 0o644)
        except OSError:
            return False
        return True

    def raise_stop_flag(self) -> None:
        try:
            _replace(self._flag, b"stop\n", 0o644)
        except OSError as error:
            raise WorkerLifecycleError("worker-lifecycle-failed", hints=[_rule(error)]) from error

    def remove(self) -> bool:
        gone = True
        for path in (self._state, self._flag, self._locator):
            for name in (path, path + ".tmp"):
                try:
                    os.unlink(name)
                except FileNotFoundError:
                    continue
                except OSError:
                    gone = False
        return gone

    def remove_workdirs(self) -> bool:
        try:
            os.rmdir(self._workdirs)  # empty, unless a child was killed in a job
        except FileNotFoundError:
            return True
        except OSError:
            import shutil

            shutil.rmtree(self._workdirs, ignore_errors=True)
        return not os.path.lexists(self._workdirs)


def pool_id(root: str, configured: str) -> str:
    """The pool's id: the configured one, else a random one, kept and bound to this machine and this root."""
    if configured:
        return configured
    path = os.path.join(root, POOL_PATH)
    here = _place(root)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        fd = -1
    except OSError as error:
        raise WorkerLifecycleError("worker-lifecycle-failed", hints=[_rule(error)]) from error
    if fd >= 0:
        with os.fdopen(fd, "rb") as stream:
            words = stream.read(512).decode("ascii", "replace").split()
        if len(words) == 2 and words[1] == here and words[0].isalnum():
            return words[0]
    new = os.urandom(16).hex()
    try:
        _replace(path, f"{new} {here}\n".encode(), _SECRET)
    except OSError as error:
        raise WorkerLifecycleError("worker-lifecycle-failed", hints=[_rule(error)]) from error
    return new


def _place(root: str) -> str:
    """This machine and this folder, as a digest: a copied root is another pool."""
    from platform_worker.artifacts.canonical import sha256_hex

    status = os.stat(root)
    machine = b""
    for name in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with open(name, "rb") as stream:
                machine = stream.read(64).strip()
            break
        except OSError:
            continue
    machine = machine or os.uname().nodename.encode()
    return sha256_hex(b"%s\0%s\0%d" % (machine, os.fsencode(os.path.realpath(root)), status.st_ino))


def _replace(path: str, data: bytes, mode: int) -> None:
    """Old content or new, never half. The temporary file is new, and of its final mode before the first byte."""
    temporary = path + ".tmp"
    try:
        os.unlink(temporary)
    except FileNotFoundError:
        pass
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        try:
            if mode == _SECRET and stat.S_IMODE(os.fstat(fd).st_mode) != _SECRET:
                os.fchmod(fd, _SECRET)
                if stat.S_IMODE(os.fstat(fd).st_mode) != _SECRET:
                    raise OSError(errno.EPERM, "the file cannot be made private")
            left = data
            while left:
                left = left[os.write(fd, left) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise


def _rule(error: OSError) -> str:
    return f"var/tmp must be writable: {os.strerror(error.errno) if error.errno else 'it is not'}"
