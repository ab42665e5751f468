"""The listening socket of the HTTP probe."""

from __future__ import annotations

import errno
import socket

from platform_worker.errors import WorkerStartError
from platform_worker.host.control_socket import SocketConnection

_BACKLOG = 64
_RULES = {
    errno.EADDRINUSE: "the port is in use by another process",
    errno.EADDRNOTAVAIL: "this machine does not have the address",
    errno.EACCES: "this user may not listen on the port",
    errno.EPERM: "this user may not listen on the port",
}


class ProbeListener:
    """Implements ``Listener``. Nothing here asks who the client is: what it can learn is no secret."""

    def __init__(self, host: str, port: int) -> None:
        bound = None
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            bound = socket.socket(family, socket.SOCK_STREAM)
            # Closed sessions of the last generation must not refuse a restart. A listener still does.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # [::] is everybody, as it says
            bound.bind((host, port))
            bound.listen(_BACKLOG)
            bound.setblocking(False)
        except OSError as error:
            if bound is not None:
                bound.close()
            rule = _RULES.get(error.errno or 0, "the address cannot be listened on")
            raise WorkerStartError("worker-control-unavailable", hints=[f"worker.probe.listen: {rule}"]) from error
        self._socket = bound
        self.fd = bound.fileno()

    def accept(self) -> SocketConnection | None:
        try:
            accepted, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError):
            return None
        return SocketConnection(accepted)

    def remove(self) -> None:
        self._socket.close()
