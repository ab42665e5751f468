"""The control sessions: one request, one response. Every rejection is the same silent close."""

from __future__ import annotations

from platform_worker.protocol.control import MAX_FRAME, format_response, parse_request
from platform_worker.supervisor.sessions import Session, Sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from platform_worker.ports_supervisor import Listener


class ControlSessions(Sessions):
    """Those of the control channel; a stop's session stays open until the pool is gone."""

    def __init__(
        self,
        listener: Listener,
        credential: str,
        compare: Callable[[str, str], bool],
        state: Callable[[], Mapping[str, object]],
        health: Callable[[], Mapping[str, object]],
        request_stop: Callable[[], None],
    ) -> None:
        super().__init__(listener, self._hear)
        self._credential = credential
        self._compare = compare
        self._state = state
        self._health = health
        self._request_stop = request_stop

    def answer_stops(self, state: Mapping[str, object], now: float) -> None:
        """Tells everyone who asked for a stop that it is over; drops all others."""
        for session in list(self._sessions.values()):
            if session.waits:
                session.waits = False
                self._answer(session, {"state": dict(state), "stopped": True}, now)
            elif not session.unsent:
                self.drop(session)

    def _hear(self, session: Session, data: bytes, now: float) -> None:
        """A whole request, a part of one, or nothing that we know."""
        if session.waits or not data:  # a waiting client went away, or says more than one request
            self.drop(session)
            return
        session.data += data
        line, newline, rest = session.data.partition(b"\n")
        if len(line) >= MAX_FRAME or rest:
            self.drop(session)
        elif newline:
            self._request(session, line, now)

    def _request(self, session: Session, line: bytes, now: float) -> None:
        request = parse_request(line)
        if request is None or not self._compare(request.credential, self._credential):
            self.drop(session)
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

    def _answer(self, session: Session, result: Mapping[str, object], now: float) -> None:
        self.answer(session, format_response(session.request_id, result), now)
