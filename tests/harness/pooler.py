"""A pooler between clients and a PostgreSQL: each transaction gets the session that has been idle longest.

Clients may rely on what PgBouncer gives in its transaction mode, and less: hardly two transactions in a row have
the same session. Only for a server that trusts who comes.
"""

from __future__ import annotations

import queue
import select
import socket
import struct
import threading

_SSL, _GSS = 80877103, 80877104
_FAKE_PID = 1


class Pooler:
    """Listens on a port of the loopback; ``with`` starts and ends it."""

    def __init__(self, port: int, sessions: int = 3) -> None:
        self._sessions: queue.Queue[_Peer] = queue.Queue()
        for _ in range(sessions):
            peer, self._greeting = _session(port)
            self._sessions.put(peer)
        self._all = list(self._sessions.queue)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._clients: list[_Peer] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"postgresql://postgres@127.0.0.1:{self._listener.getsockname()[1]}/postgres"

    def __enter__(self) -> Pooler:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for client in self._clients:
            client.shut()
        for thread in self._threads[1:]:
            thread.join()
        for peer in self._all:
            peer.socket.close()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client = _Peer(self._listener.accept()[0])
            except OSError:
                return
            self._clients.append(client)
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: _Peer) -> None:
        try:
            while client.startup() in (_SSL, _GSS):
                client.socket.sendall(b"N")
            client.socket.sendall(self._greeting)
            while True:
                first = client.message()
                if first[:1] == b"X":
                    return
                session = self._sessions.get()
                try:
                    _transaction(client, session, first)
                finally:
                    self._sessions.put(session)
        except (OSError, EOFError):
            return
        finally:
            client.socket.close()


class _Peer:
    """A socket, and what has come of it that is not yet a whole message."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._data = b""

    def message(self) -> bytes:
        """The next one, whole."""
        while (found := self.whole()) is None:
            self.read()
        return found

    def read(self) -> None:
        """Takes what has come."""
        data = self.socket.recv(65536)
        if not data:
            raise EOFError
        self._data += data

    def whole(self) -> bytes | None:
        """The next one, where it is whole."""
        if len(self._data) < 5:
            return None
        size = 1 + struct.unpack("!I", self._data[1:5])[0]
        if len(self._data) < size:
            return None
        found, self._data = self._data[:size], self._data[size:]
        return found

    def startup(self) -> int:
        """The first message, which has no type; its code."""
        head = self.socket.recv(8, socket.MSG_WAITALL)
        if len(head) < 8:
            raise EOFError
        size, code = struct.unpack("!II", head)
        if size > 8:
            self.socket.recv(size - 8, socket.MSG_WAITALL)
        return int(code)

    def shut(self) -> None:
        """Whoever waits for it is woken."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


def _transaction(client: _Peer, session: _Peer, message: bytes | None) -> None:
    """Passes on until the server is ready for the next transaction; a client that goes away is served to its end."""
    expected = 0
    while True:
        while message is not None:
            expected += message[:1] in (b"Q", b"S")
            session.socket.sendall(message)
            message = client.whole()
        ready, _, _ = select.select([client.socket, session.socket], [], [])
        if client.socket in ready:
            client.read()
            message = client.whole()
        if session.socket in ready:
            session.read()
            while (answer := session.whole()) is not None:
                client.socket.sendall(answer)
                expected -= answer[:1] == b"Z"
                if answer[:1] == b"Z" and answer[5:] == b"I" and not expected and message is None:
                    return


def _session(port: int) -> tuple[_Peer, bytes]:
    """A session with the server, and what the server greets with, under another pid."""
    peer = _Peer(socket.create_connection(("127.0.0.1", port)))
    parameters = b"user\0postgres\0database\0postgres\0client_encoding\0utf8\0application_name\0pooler\0\0"
    peer.socket.sendall(struct.pack("!II", 8 + len(parameters), 196608) + parameters)
    greeting = b""
    while (message := peer.message())[:1] != b"Z":
        assert message[:1] != b"E", message
        if message[:1] == b"K":
            message = struct.pack("!cIII", b"K", 12, _FAKE_PID, 0)
        greeting += message
    return peer, greeting + message
