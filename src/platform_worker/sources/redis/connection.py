"""One connection to the server: RESP by hiredis over a blocking socket, every failure as ``StoreUnavailable``.

Not redis-py: importing it costs a child several times its whole start, and each command several times its packing.
The kernel bounds every send and receive (SO_RCVTIMEO), so that a peer that vanished without a word is noticed, at the
price of one system call each way. A connection that was interrupted between a command and its reply, wherever that
was, is thrown away before the next command: the reply would be taken for the next one's.
"""

from __future__ import annotations

import os
import socket

import hiredis

from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.redis.address import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from platform_worker.sources.redis.address import Address
    from platform_worker.sources.redis.scripts import Script

#: How long a server may be silent, in seconds, before it counts as gone. Our scripts take milliseconds.
TIMEOUT = 3.0

_UNREACHABLE = "redis.url: the server cannot be reached"
_UNTRUSTED = "redis.url: TLS with the server fails; a private certificate must be named by ssl_ca_certs"
_LOST = "redis.url: the server has closed the connection"
_SILENT = "redis.url: the server does not answer"
_FOREIGN = "redis.url: what answers is not a Redis server"
_LOGIN = "redis.url: the server refuses the user or the password"

#: What a person may look at, by the first word of the server's error. All of these may pass.
_RULES = {
    "READONLY": "redis.url: the server is a replica that takes no writes",
    "LOADING": "redis.url: the server is still loading its data",
    "BUSY": "redis.url: the server is busy with a script",
    "OOM": "redis.url: the server's memory is full",
    "MISCONF": "redis.url: the server cannot write its data to the disk",
    "NOREPLICAS": "redis.url: the server has not enough replicas",
    "MASTERDOWN": "redis.url: the server is a replica without its master",
    "CLUSTERDOWN": "redis.url: the cluster is down",
    "TRYAGAIN": "redis.url: the cluster is being changed",
    "MOVED": "redis.url: the cluster has another node for these keys",
    "ASK": "redis.url: the cluster is being changed",
    "UNBLOCKED": "redis.url: the server has become a replica",
    "NOAUTH": _LOGIN,
    "WRONGPASS": _LOGIN,
    "NOPERM": "redis.url: the user may not do what the queue needs",
}
#: After these the same connection goes on; after any other error another server may be the right one by now.
_SAME_SERVER = frozenset({"LOADING", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "NOPERM"})


#: The kernel's word for its timeout, and Python's for one of TLS.
_TIMED_OUT = (BlockingIOError, TimeoutError)


class _Moved(StoreUnavailable):
    """A cluster's other node has the keys; nothing was done."""


class Connection:
    """Opens itself when it is used, and again after a failure. Not for two threads at once; a forked process gets its
    own. ``base`` is the key by which a cluster finds the node: all keys begin with it."""

    def __init__(self, url: str, base: str) -> None:
        self._url = url
        self._base = base
        #: Where a cluster has sent us; None: where the URL says.
        self._where: tuple[str, int] | None = None
        self._socket: Any = None
        self._reader: Any = None
        self._digests: dict[str, str] = {}
        self._pid = 0
        #: Whether a reply is still to come.
        self._waiting = False

    @property
    def opened(self) -> bool:
        """Whether there is a connection now."""
        return self._socket is not None and self._pid == os.getpid()

    def fileno(self) -> int:
        """The socket's descriptor, to wait on; -1 without one."""
        return -1 if self._socket is None else int(self._socket.fileno())

    def call(self, *command: str | int | float) -> Any:
        """Sends a command; its reply. An error of the server's is raised; a cluster's other node is asked instead."""
        try:
            self.send(*command)
            return self._checked(self._reply())
        except _Moved:
            self.send(*command)
            return self._checked(self._reply())

    def script(self, script: Script, *arguments: str | int | float) -> Any:
        """Runs a script by its digest, or whole where the server has forgotten it."""
        digest = self._digests.get(script.name)
        if digest is None:
            digest = self._digests[script.name] = self.call("SCRIPT", "LOAD", script.text())
        self.send("EVALSHA", digest, 1, self._base, *arguments)
        reply = self._reply()
        if isinstance(reply, hiredis.ReplyError):
            word = str(reply).partition(" ")[0]
            if word == "MOVED":
                self._refused(str(reply))
            if word in ("MOVED", "NOSCRIPT"):
                # Whole, not loaded again: it may be forgotten again before it is called. The server keeps it now.
                return self.call("EVAL", script.text(), 1, self._base, *arguments)
        return self._checked(reply)

    def send(self, *command: str | int | float) -> None:
        """Sends a command and waits for nothing."""
        words: Any = command
        if self._waiting:
            self.close()
        try:
            sock = self._open()
            self._waiting = True
            sock.sendall(hiredis.pack_command(words))
        except OSError as error:
            self.close()
            raise StoreUnavailable(_SILENT if isinstance(error, _TIMED_OUT) else _LOST) from error
        except BaseException:
            self.close()
            raise

    def received(self) -> Any:
        """A reply that has arrived in full, ``None`` where none has; ``False`` for one that says nothing was there.

        For a socket that is readable: what has arrived is read, once.
        """
        self._feed()
        reply = self._reader.gets()
        if reply is False:
            return None
        self._waiting = False
        return False if reply is None else self._checked(reply)

    def stale(self) -> bool:
        """Whether the server has closed the connection, or said something unasked, while it was idle."""
        if not self.opened:
            return False
        import select

        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Closes the connection; the next use opens a new one."""
        sock, self._socket = self._socket, None
        self._waiting = False
        if sock is not None:
            # In a forked process this closes a copy of the descriptor, and says nothing to the server.
            sock.close()

    def _reply(self) -> Any:
        try:
            reply = self._reader.gets()
            while reply is False:
                self._feed()
                reply = self._reader.gets()
        except hiredis.ProtocolError as error:
            self.close()
            raise StoreUnavailable(_FOREIGN) from error
        except BaseException:
            self.close()
            raise
        self._waiting = False
        return reply

    def _feed(self) -> None:
        try:
            data = self._socket.recv(65536)
        except OSError as error:
            self.close()
            raise StoreUnavailable(_SILENT if isinstance(error, _TIMED_OUT) else _LOST) from error
        if not data:
            self.close()
            raise StoreUnavailable(_LOST)
        self._reader.feed(data)

    def _checked(self, reply: Any) -> Any:
        if isinstance(reply, hiredis.ReplyError):
            raise self._refused(str(reply))
        return reply

    def _refused(self, message: str) -> StoreUnavailable:
        word = next((w for w in message.replace("-", " ").split() if w in _RULES), None)
        if word == "MOVED":
            host, _, port = message.rpartition(" ")[2].rpartition(":")
            self._where = (host, int(port))
            self.close()
            return _Moved(_RULES[word])
        if word not in _SAME_SERVER:
            self.close()
        if word is None:
            # A mistake of ours, or of a server that is too old: it does not pass.
            rule = f"redis.url: the server refuses a command: {message.partition(' ')[0]}"
            return StoreUnavailable(rule, transient=False)
        return StoreUnavailable(_RULES[word])

    def _open(self) -> Any:
        if self._socket is not None:
            if self._pid == os.getpid():
                return self._socket
            self.close()
        address = parse(self._url)
        where, self._where = self._where, None
        host, port = where or (address.host, address.port)
        try:
            sock = _connected(address, (host or address.host, port))
        except OSError as error:
            # By its name: the class is in a module that is only loaded for TLS.
            secure = type(error).__name__.startswith("SSL")
            raise StoreUnavailable(_UNTRUSTED if secure else _UNREACHABLE) from error
        self._socket, self._pid = sock, os.getpid()
        self._reader = hiredis.Reader(encoding="utf-8")
        self._log_in(address)
        # A cluster's node stays where we are, also for the next connection, as long as it answers.
        self._where = where
        return sock

    def _log_in(self, address: Address) -> None:
        if address.password:
            login = (address.user, address.password) if address.user else (address.password,)
            self._greet("AUTH", *login, rule=_LOGIN)
        if address.database:
            self._greet("SELECT", address.database, rule="redis.url: the server has no such database")

    def _greet(self, *command: str | int, rule: str) -> None:
        self.send(*command)
        reply = self._reply()
        if isinstance(reply, hiredis.ReplyError):
            known = self._refused(str(reply))
            self.close()
            raise known if known.transient else StoreUnavailable(rule)


def _connected(address: Address, where: tuple[str, int]) -> Any:
    """A socket that is connected to ``where``, or to the address's path, and bounded in all it does."""
    if address.path:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        sock = socket.create_connection(where, TIMEOUT)
    try:
        if address.path:
            sock.settimeout(TIMEOUT)
            sock.connect(address.path)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if address.tls:
            import ssl

            context = ssl.create_default_context(cafile=address.ca_file or None)
            return context.wrap_socket(sock, server_hostname=where[0])
        import struct

        # A timeout of Python's would poll before each receive.
        sock.settimeout(None)
        limit = struct.pack("ll", int(TIMEOUT), int(TIMEOUT % 1 * 1_000_000))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    except BaseException:
        sock.close()
        raise
    return sock
