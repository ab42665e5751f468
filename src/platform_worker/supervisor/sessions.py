"""Sessions of one listener, served side by side by the supervisor's one loop, and bounded: in number, size and time."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from platform_worker.ports_supervisor import Connection, Listener

#: From accept to a whole request, and for an answer to be taken, in seconds.
_PATIENCE = 1.0
_MAX_SESSIONS = 64
#: How long no session is accepted after the machine refused one.
_PAUSE = 0.1


class Session:
    """One client."""

    __slots__ = ("connection", "data", "deadline", "request_id", "unsent", "waits")

    def __init__(self, connection: Connection, deadline: float) -> None:
        self.connection = connection
        self.data = b""
        self.deadline: float | None = deadline
        self.request_id = ""
        self.unsent = b""
        #: Authenticated, and waiting for something that has no deadline here.
        self.waits = False


class Sessions:
    """What every kind of session has in common. ``now`` is monotonic seconds.

    ``take(session, data, now)`` does what the kind does with what came in; without ``data`` the client went away.
    ``at_once``: how many are accepted in one turn of the loop.
    """

    def __init__(
        self, listener: Listener, take: Callable[[Session, bytes, float], None], at_once: int = _MAX_SESSIONS
    ) -> None:
        self._listener = listener
        self._take = take
        self._at_once = at_once
        self._sessions: dict[int, Session] = {}
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
            self.drop(session)

    def ready(self, fd: int, now: float) -> None:
        """Something can be done with ``fd``; one that is not ours is passed over."""
        if self._open and fd == self._listener.fd:
            self._accept(now)
        elif fd in self._sessions:
            session = self._sessions[fd]
            if session.unsent:
                self._flush(session)
            elif (data := session.connection.receive()) is not None:
                self._take(session, data, now)

    @property
    def pending(self) -> bool:
        """Whether an answer is not yet taken."""
        return any(s.unsent for s in self._sessions.values())

    def answer(self, session: Session, data: bytes, now: float) -> None:
        """The last that this client hears."""
        session.deadline = now + _PATIENCE
        session.unsent = data
        self._flush(session)

    def drop(self, session: Session) -> None:
        """Closes it without a word."""
        self._sessions.pop(session.connection.fd, None)
        session.connection.close()

    def close_listener(self) -> None:
        """Takes no more sessions, and removes what leads to them; those that are open are kept."""
        if self._open:
            self._open = False
            self._listener.remove()

    def close_all(self) -> None:
        """The end."""
        for session in list(self._sessions.values()):
            self.drop(session)

    def _accept(self, now: float) -> None:
        for _ in range(self._at_once):
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
                self.drop(victims[0])
            self._sessions[connection.fd] = Session(connection, now + _PATIENCE)

    def _flush(self, session: Session) -> None:
        sent = session.connection.send(session.unsent)
        session.unsent = session.unsent[max(sent, 0) :]
        if sent < 0 or not session.unsent:
            self.drop(session)
