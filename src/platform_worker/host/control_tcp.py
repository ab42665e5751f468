"""The control channel on 127.0.0.1, for systems without unix sockets, and containers that share no folder.

Anybody on the machine can connect, so the credential is all that keeps others out; see docs/ssot/security.md.
"""

from __future__ import annotations

import socket

from platform_worker.host.control_socket import BACKLOG, SocketConnection, remove_stale, unavailable

#: The one address that is ever bound or connected to.
HOST = "127.0.0.1"


class TcpListener:
    """The listening socket; a stale unix socket of an older generation goes as any stale file."""

    def __init__(self, root: str, path: str, port: int) -> None:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # The last generation's closed sessions (TIME_WAIT) must not refuse a restart. A listener still does.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((HOST, port))
            bound.listen(BACKLOG)
            bound.setblocking(False)
        except OSError as error:
            bound.close()
            raise unavailable(f"worker.tcp.port: {_rule(error)}") from error
        self._socket = bound
        self.fd = bound.fileno()
        remove_stale(root, path)

    def accept(self) -> SocketConnection | None:
        try:
            accepted, _ = self._socket.accept()
        except (BlockingIOError, ConnectionError):
            return None
        return SocketConnection(accepted)

    def remove(self) -> None:
        self._socket.close()


def _rule(error: OSError) -> str:
    import errno

    if error.errno == errno.EADDRINUSE:
        return "the port is in use by another process"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "this user may not listen on the port"
    return "the port cannot be listened on"
