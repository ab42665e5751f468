"""The locator, version 1: where the live supervisor is, and the credential to talk to it. Pure; see ``host/records``.

::

    {"control_credential":"<64 hex>","control_transport":"unix","force_kill_timeout_ms":1000,
     "socket_path":"var/tmp/worker.sock","stop_timeout_ms":10000,"tcp_host":null,"tcp_port":null,"version":1}

With ``tcp`` the socket's path stands there as configured all the same, and host and port are set.
"""

from __future__ import annotations

from platform_worker.protocol.control import dump, is_credential, parse_object
from platform_worker.value import Value

#: Bound of the file.
MAX_BYTES = 4096
_MAX_MS = 86_400_000


class Locator(Value):
    """How to reach a supervisor. ``socket_path`` is as configured; host and port are ``None`` with ``unix``."""

    control_credential: str
    control_transport: str
    socket_path: str
    tcp_host: str | None
    tcp_port: int | None
    stop_timeout_ms: int
    force_kill_timeout_ms: int


def encode(locator: Locator) -> bytes:
    """The file's bytes."""
    return dump({**locator.__dict__, "version": 1})


def decode(data: bytes) -> Locator | None:
    """The locator in a file's bytes; ``None`` for anything off the schema."""
    fields = parse_object(data) if 0 < len(data) <= MAX_BYTES else None
    if fields is None or fields.keys() != {*Locator.__match_args__, "version"}:
        return None
    version = fields.pop("version")
    if type(version) is not int or version != 1:
        return None
    locator = Locator(**fields)
    return locator if _valid(locator) else None


def _valid(locator: Locator) -> bool:
    times = (locator.stop_timeout_ms, locator.force_kill_timeout_ms)
    if not is_credential(locator.control_credential) or any(type(t) is not int or not 1 <= t <= _MAX_MS for t in times):
        return False
    path, host, port = locator.socket_path, locator.tcp_host, locator.tcp_port
    if not isinstance(path, str) or not _relative(path):
        return False
    if locator.control_transport == "unix":
        return host is None and port is None
    if locator.control_transport == "tcp":
        return host == "127.0.0.1" and type(port) is int and 1 <= port <= 65535
    return False


def _relative(path: str) -> bool:
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))
