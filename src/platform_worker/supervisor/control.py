"""The control sessions: served side by side by the supervisor's one loop. Every rejection is the same silent close."""

from __future__ import annotations

from platform_worker.protocol.control import MAX_FRAME, format_response, parse_request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from platform_worker.ports_supervisor import Connection, Listener

#: From accept to newline, and for an answer to be taken, in seconds.
_PATIENCE = 1.0
_MAX_SESSIONS = 64
#: How long no session is accepted after the machine refused one.
_PAUSE = 0.1


class _Session:
    __slots__ = ("connection", "data", "deadline", "request_id", "unsent", "waits")

    def __init__(self, connection: Connection, deadline: float) -> None:
        self.connection = connection
        self.data = b""
        self.deadline: float | None = deadline
        self.request_id = ""
        self.unsent = b""
        #: Authenticated, and waiting for the stop to be over.
        self.waits = False


class ControlSessions:
    """All sessions of one listener. ``now`` is monotonic seconds."""

    def __init__(
        self,
        listener: Listener,
        credential: str,
        compare: Callable[[str, str], bool],
        state: Callable[[], Mapping[str, object]],
        health: Callable[[], Mapping[str, object]],
        request_stop: Callable[[], None],
    ) -> None:
        self._listener = listener
        self._credential = credential
        self._compare = compare
        self._state = state
        self._health = health
        self._request_stop = request_stop
        self._sessions: dict[int, _Session] = {}
        self._paused_until: float | None = None
        self._open = True

    def interest(self) -> list[tuple[int, bool, bool]]:
        """Every descriptor to wait on: ``(fd, read, write)``."""
        wanted = [(fd, not s.unsent, bool(s.unsent)) for fd, s in self._sessions.items()]
        if self._open and self._paused_until is None:
            wanted.append((self._listener.fd, True, False))
        return wanted

    def next_deadline(self) -> float | None:
        """When ``expire`` is due."""
        due = [s.deadline for s in self._sessions.values()]
        return min((at for at in [*due, self._paused_until] if at is not None), default=None)

    def expire(self, now: float) -> None:
        """Closes who was too slow."""
        if self._paused_until is not None and now >= self._paused_until:
            self._paused_until = None
        for session in [s for s in self._sessions.values() if s.deadline is not None and now >= s.deadline]:
            self._drop(session)

    def ready(self, fd: int, now: float) -> None:
        """Something can be done with ``fd``; one that is not ours is passed over."""
        if self._open and fd == self._listener.fd:
            self._accept(now)
        elif fd in self._sessions:
            session = self._sessions[fd]
            if session.unsent:
                self._flush(session)
            else:
                self._read(session, now)

    @property
    def pending(self) -> bool:
        """Whether an answer is not yet taken."""
        return any(s.unsent for s in self._sessions.values())

    def close_listener(self) -> None:
        """Takes no more sessions, and removes the socket; those that wait for the stop are kept."""
        if self._open:
            self._open = False
            self._listener.remove()

    def answer_stops(self, state: Mapping[str, object], now: float) -> None:
        """Tells everyone who asked for a stop that it is over; drops all others."""
        for session in list(self._sessions.values()):
            if session.waits:
                session.waits = False
                self._answer(session, {"state": dict(state), "stopped": True}, now)
            elif not session.unsent:
                self._drop(session)

    def close_all(self) -> None:
        """The end."""
        for session in list(self._sessions.values()):
            self._drop(session)

    def _accept(self, now: float) -> None:
        for _ in range(_MAX_SESSIONS):
            try:
                connection = self._listener.accept()
            except OSError:  # no descriptors left: the listener stays readable, so it must not be waited on
                self._paused_until = now + _PAUSE
                return
            if connection is None:
                return
            if len(self._sessions) >= _MAX_SESSIONS:
                victims = [s for s in self._sessions.values() if not s.waits]
                if not victims:
                    connection.close()
                    return
                self._drop(victims[0])
            self._sessions[connection.fd] = _Session(connection, now + _PATIENCE)

    def _read(self, session: _Session, now: float) -> None:
        data = session.connection.receive()
        if data is None:
            return
        if session.waits or not data:  # a waiting client went away, or says more than one request
            self._drop(session)
            return
        session.data += data
        line, newline, rest = session.data.partition(b"\n")
        if len(line) >= MAX_FRAME or rest:
            self._drop(session)
        elif newline:
            self._request(session, line, now)

    def _request(self, session: _Session, line: bytes, now: float) -> None:
        request = parse_request(line)
        if request is None or not self._compare(request.credential, self._credential):
            self._drop(session)
            return
        session.request_id = request.request_id
        if request.operation == "status":
            self._answer(session, {"state": dict(self._state())}, now)
        elif request.operation == "health":
            self._answer(session, {"health": dict(self._health())}, now)
        else:
            session.waits = True
            session.deadline = None
            self._request_stop()

    def _answer(self, session: _Session, result: Mapping[str, object], now: float) -> None:
        session.deadline = now + _PATIENCE
        session.unsent = format_response(session.request_id, result)
        self._flush(session)

    def _flush(self, session: _Session) -> None:
        sent = session.connection.send(session.unsent)
        session.unsent = session.unsent[max(sent, 0) :]
        if sent < 0 or not session.unsent:
            self._drop(session)

    def _drop(self, session: _Session) -> None:
        self._sessions.pop(session.connection.fd, None)
        session.connection.close()
