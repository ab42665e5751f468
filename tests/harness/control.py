"""The control socket as any client may find it: with the credential, without one, with anything else to say."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOCATOR = "var/tmp/worker.lifecycle.json"
SOCKET = "var/tmp/worker.sock"
STATE = "var/tmp/worker.state.json"
#: Keys as the contract has them.
SUMMARY_KEYS = {
    "status", "pid", "worker_count", "ready_worker_count", "driver", "control_transport", "endpoint_hash",
}  # fmt: skip
STATE_KEYS = {
    "version", "pid", "status", "worker_count", "ready_worker_count", "driver_requested", "driver",
    "control_transport_requested", "control_transport", "endpoint_hash",
}  # fmt: skip
HEALTH_KEYS = {
    "pid", "status", "worker_count", "ready_worker_count", "healthy", "reason", "driver", "control_transport",
    "endpoint_hash",
}  # fmt: skip


def locator(root: Path) -> dict[str, Any]:
    """What the locator says."""
    found: dict[str, Any] = json.loads((root / LOCATOR).read_bytes())
    return found


def frame(root: Path, operation: str, **changes: Any) -> bytes:
    """A request that is right but for ``changes``."""
    fields = {
        "credential": locator(root)["control_credential"],
        "operation": operation,
        "request_id": "a1",
        "version": 1,
        **changes,
    }
    return json.dumps(fields).encode() + b"\n"


@contextmanager
def session(root: Path, path: str = SOCKET) -> Iterator[socket.socket]:
    """An open session, whatever the length of its path."""
    folder = os.open(root / os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(10)
            connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
            yield connection
    finally:
        os.close(folder)


def hear(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except ConnectionError:  # it was closed with something of ours unread: no answer either
        pass
    return data


def say(root: Path, data: bytes, path: str = SOCKET) -> bytes:
    """What is answered to ``data`` until the session is closed."""
    with session(root, path) as connection:
        try:
            connection.sendall(data)
        except ConnectionError:  # closed before all of it was said
            pass
        return hear(connection)


def ask(root: Path, operation: str, path: str = SOCKET) -> dict[str, Any]:
    """The answer to a request that is right."""
    found: dict[str, Any] = json.loads(say(root, frame(root, operation), path))
    return found


def took(began: float) -> float:
    """Seconds since ``began``, monotonic."""
    return time.monotonic() - began
