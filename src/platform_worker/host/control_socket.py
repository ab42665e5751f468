"""The control socket on disk, and its sessions."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct

from platform_worker.errors import WorkerAlreadyRunningError, WorkerError, WorkerStartError

#: Of either listener.
BACKLOG = 128
#: The longest address of a unix socket on Linux, in bytes, without the zero at its end.
_ADDRESS_MAX = 107
#: Out of reach of 0, 1 and 2, whatever was closed at the start.
_LOWEST = 10


def address(directory: int, name: str) -> bytes:
    """A short address for a socket of any path: through the directory's descriptor."""
    return b"/proc/self/fd/%d/" % directory + os.fsencode(name)


def open_directory(root: str, path: str) -> tuple[int, str]:
    """The descriptor of the folder of ``path`` (relative to ``root``), and the last segment."""
    folder, name = os.path.split(path)
    return os.open(os.path.join(root, folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), name


class SocketConnection:
    """One session."""

    def __init__(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        self._socket = accepted
        self.fd = accepted.fileno()

    def receive(self) -> bytes | None:
        try:
            return self._socket.recv(8192)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def send(self, data: bytes) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return -1

    def close(self) -> None:
        self._socket.close()


class UnixListener:
    """The listening socket; ``remove`` unlinks it only while it is the one that we bound."""

    def __init__(self, root: str, path: str) -> None:
        try:
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        except OSError as error:
            raise unavailable("worker.socket_path: no such folder") from error
        try:
            self._directory, self._name = open_directory(root, path)
        except OSError as error:
            raise unavailable() from error
        try:
            _clear(self._directory, self._name)
            bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._bind(bound)
            bound.listen(BACKLOG)
            bound.setblocking(False)
        except WorkerError:
            os.close(self._directory)
            raise
        except OSError as error:
            os.close(self._directory)
            raise unavailable() from error
        self._socket = bound
        self.fd = bound.fileno()
        status = os.stat(self._name, dir_fd=self._directory, follow_symlinks=False)
        self._identity = (status.st_dev, status.st_ino)

    def accept(self) -> SocketConnection | None:
        try:
            accepted, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError):
            return None
        credentials = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] not in (0, os.geteuid()):
            accepted.close()
            return None
        return SocketConnection(accepted)

    def remove(self) -> None:
        try:
            status = os.stat(self._name, dir_fd=self._directory, follow_symlinks=False)
            if (status.st_dev, status.st_ino) == self._identity:
                os.unlink(self._name, dir_fd=self._directory)
        except FileNotFoundError:
            pass
        finally:
            self._socket.close()
            os.close(self._directory)

    def _bind(self, bound: socket.socket) -> None:
        """A name that is too long for an address gets the socket from a short one, made beside it."""
        name = self._name
        if len(address(self._directory, name)) > _ADDRESS_MAX:
            name = "." + hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
            _clear(self._directory, name)
        before = os.umask(0o177)
        try:
            bound.bind(address(self._directory, name))
        finally:
            os.umask(before)
        if name != self._name:
            try:
                os.link(name, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            finally:
                os.unlink(name, dir_fd=self._directory)


def _clear(directory: int, name: str) -> None:
    """Removes a stale socket; the fence is ours, so a live one belongs to somebody else, and stays."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise unavailable("worker.socket_path: something that is no socket is at this place")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            probe.connect(b"/proc/self/fd/%d" % place)
        except ConnectionRefusedError:
            os.unlink(name, dir_fd=directory)
            return
        except BlockingIOError:
            pass  # its backlog is full: somebody listens
        finally:
            os.close(place)
    raise WorkerAlreadyRunningError("worker-already-running")


def remove_stale(root: str, path: str) -> None:
    """A socket that a killed generation left, for a transport that has none; whatever else is there is not ours."""
    try:
        directory, name = open_directory(root, path)
    except OSError:
        return
    try:
        _clear(directory, name)
    except (OSError, WorkerError):
        return
    finally:
        os.close(directory)


def unavailable(hint: str = "worker.socket_path: the socket cannot be made there") -> WorkerStartError:
    """The control channel could not be opened."""
    return WorkerStartError("worker-control-unavailable", hints=[hint])
