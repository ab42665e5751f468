"""The sessions of the HTTP probe. What they tell is what a health probe may know, and no more."""

from __future__ import annotations

from platform_worker.pool.health import HEALTHY
from platform_worker.protocol.probe import LIVE, Refusal, format_answer, format_refusal, parse_question
from platform_worker.supervisor.sessions import Session, Sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from platform_worker.ports_supervisor import Listener

#: Few at a time: whoever knocks here without end must not keep the loop from the control socket.
_AT_ONCE = 16


class ProbeSessions(Sessions):
    """``health`` gives the reason of the moment."""

    def __init__(self, listener: Listener, health: Callable[[], str]) -> None:
        super().__init__(listener, self._hear, _AT_ONCE)
        self._health = health

    def _hear(self, session: Session, data: bytes, now: float) -> None:
        """That an answer comes at all says that the loop turns."""
        if not data:
            self.drop(session)
            return
        session.data += data
        asked = parse_question(session.data)
        if asked is None:
            return
        if isinstance(asked, Refusal):
            answer = format_refusal(asked)
        elif asked.path == LIVE:
            answer = format_answer(200, "ok", body=asked.body)
        else:
            reason = self._health()
            answer = format_answer(200 if reason == HEALTHY else 503, reason, body=asked.body)
        self.answer(session, answer, now)
