"""Asking the live supervisor. Run by every probe: a handful of standard-library modules, nothing else."""

from __future__ import annotations

import _socket
import os
import stat
import time

from platform_worker.errors import WorkerCommunicationError, WorkerNotRunningError
from platform_worker.host.fence import fence_held
from platform_worker.protocol.control import MAX_FRAME, Request, format_request, parse_response
from platform_worker.protocol.locator import MAX_BYTES, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from platform_worker.protocol.locator import Locator

_LOCATOR = "var/tmp/worker.lifecycle.json"


def ask(root: str, operation: str) -> dict[str, Any]:
    """The supervisor's answer to ``operation``: its state, for ``health`` its health.

    Raises ``WorkerNotRunningError`` where the fence is free, ``WorkerCommunicationError`` where it is held and the
    endpoint cannot be talked to. Gives up after 1 s in all, a stop after the locator's stop budget.
    """
    began = time.monotonic()
    if not fence_held(root):  # whatever else lies about, and whoever has the socket or the port by now
        raise WorkerNotRunningError("worker-not-running")
    locator = _read_locator(root)
    if locator is not None:
        budget = 1.0
        if operation == "stop":
            budget = (locator.stop_timeout_ms + 2 * locator.force_kill_timeout_ms) / 1000 + 2
        try:
            answer = _converse(root, locator, operation, began + budget)
        except (OSError, ValueError):  # a path that no file can have is a ValueError
            answer = None
        if answer is not None:
            return answer
    if fence_held(root):
        raise WorkerCommunicationError("worker-communication-failed")
    raise WorkerNotRunningError("worker-not-running")


def _read_locator(root: str) -> Locator | None:
    try:
        fd = os.open(os.path.join(root, _LOCATOR), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode) or stat.S_IMODE(mode) != 0o600:
            return None
        return decode(os.read(fd, MAX_BYTES + 1))
    except OSError:
        return None
    finally:
        os.close(fd)


def _converse(root: str, locator: Locator, operation: str, deadline: float) -> dict[str, Any] | None:
    request = Request(locator.control_credential, operation, os.urandom(8).hex())
    with_socket = _connect(root, locator, deadline)
    try:
        with_socket.settimeout(_left(deadline))
        with_socket.sendall(format_request(request))
        data = b""
        while b"\n" not in data and len(data) <= MAX_FRAME:
            with_socket.settimeout(_left(deadline))
            chunk = with_socket.recv(MAX_FRAME)
            if not chunk:
                return None
            data += chunk
        line, newline, rest = data.partition(b"\n")
        return parse_response(line, request) if newline and not rest else None
    finally:
        with_socket.close()


def _connect(root: str, locator: Locator, deadline: float) -> _socket.socket:
    if locator.tcp_port is not None:
        return _connected(_socket.AF_INET, (locator.tcp_host, locator.tcp_port), deadline)
    # By a descriptor of the socket itself: its path may be longer than an address may be.
    place = os.open(os.path.join(root, locator.socket_path), os.O_PATH | os.O_CLOEXEC)
    try:
        return _connected(_socket.AF_UNIX, b"/proc/self/fd/%d" % place, deadline)
    finally:
        os.close(place)


def _connected(family: int, address: bytes | tuple[str | None, int], deadline: float) -> _socket.socket:
    connection = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        connection.settimeout(_left(deadline))
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
