"""The service manager's notification socket, and the variables that it gives to the one process it started.

See ``sd_notify(3)``, ``sd_watchdog_enabled(3)``, ``sd_listen_fds(3)``.
"""

from __future__ import annotations

import _socket
import errno

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

#: Meant for the process that the service manager started, and for no other.
SERVICE_VARIABLES = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_PIDFDID",
    "LISTEN_FDNAMES",
    "FDSTORE",
)
_MAX_DIGITS = 18


class Service(Value):
    """What the manager wants. ``socket``: ``None`` where it wants to be told nothing; ``watchdog`` in seconds."""

    socket: str | None
    watchdog: float | None


def take_service(environ: MutableMapping[str, str], pid: int) -> Service:
    """Reads the variables and takes all of them out, so that no process of ours can speak for the supervisor."""
    given = {name: environ.pop(name, "") for name in SERVICE_VARIABLES}
    usec, whose = given["WATCHDOG_USEC"], given["WATCHDOG_PID"]
    meant = whose in ("", str(pid))
    sound = usec.isascii() and usec.isdigit() and len(usec) <= _MAX_DIGITS and int(usec) > 0
    return Service(given["NOTIFY_SOCKET"] or None, int(usec) / 1_000_000 if meant and sound else None)


class NotifySocket:
    """Implements ``Notify``. ``address``: a path, or a name in the abstract namespace with ``@`` in front."""

    def __init__(self, address: str) -> None:
        self._address = ("\0" + address[1:] if address.startswith("@") else address).encode("utf-8", "surrogateescape")
        self._socket: _socket.socket | None = None

    def send(self, text: str) -> bool:
        """Never blocks. Where nobody is there the message is void: a manager that is gone changes nothing."""
        try:
            if self._socket is None:
                kind = _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK
                self._socket = _socket.socket(_socket.AF_UNIX, kind)
            self._socket.sendto(text.encode(), self._address)
        except OSError as error:
            return error.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.EMFILE, errno.ENFILE)
        return True
