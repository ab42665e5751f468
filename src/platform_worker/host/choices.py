"""What differs by platform or by setting, chosen once: how children are started, what the control channel runs over."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.config import WorkerSettings
    from platform_worker.ports_supervisor import Listener


def driver(requested: str) -> str:
    """``auto`` is ``fork`` where the system has it, else ``spawn``."""
    if requested != "auto":
        return requested
    return "fork" if hasattr(os, "fork") and hasattr(os, "setsid") else "spawn"


def transport(requested: str) -> str:
    """``auto`` is ``unix`` where there are unix sockets, else ``tcp``."""
    if requested != "auto":
        return requested
    import _socket

    return "unix" if hasattr(_socket, "AF_UNIX") else "tcp"


class Endpoint:
    """The control channel's place. ``transport`` is ``unix`` or ``tcp``; ``name`` is what ``endpoint_hash`` is of."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self.transport = transport(settings.control_transport)
        over_tcp = self.transport == "tcp"
        self.tcp_host = settings.tcp_host if over_tcp else None
        self.tcp_port = settings.tcp_port if over_tcp else None
        self.name = f"tcp:{self.tcp_host}:{self.tcp_port}" if over_tcp else f"unix:{settings.socket_path}"

    def listen(self, root: str) -> Listener:
        """Opens it, under the claimed fence. Raises ``WorkerError``."""
        if self.tcp_port is not None:
            from platform_worker.host.control_tcp import TcpListener

            return TcpListener(root, self._settings.socket_path, self.tcp_port)
        from platform_worker.host.control_socket import UnixListener

        return UnixListener(root, self._settings.socket_path)
