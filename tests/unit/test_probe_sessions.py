"""The sessions of the HTTP probe on a fake listener: answered, bounded, in nobody's way."""

from __future__ import annotations

import pytest

from harness.connections import FakeConnection, FakeListener
from platform_worker.protocol.probe import MAX_REQUEST
from platform_worker.supervisor.probe import ProbeSessions

LIVE = b"GET /livez HTTP/1.1\r\n\r\n"
READY = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"


class Door:
    """The sessions and what they say of the pool."""

    def __init__(self, reason: str = "healthy") -> None:
        self.listener = FakeListener()
        self.reason = reason
        self.sessions = ProbeSessions(self.listener, lambda: self.reason)

    def open(self, *incoming: bytes, now: float = 0.0, takes: int = 1_000_000) -> FakeConnection:
        connection = FakeConnection(*incoming, takes=takes)
        self.listener.queue.append(connection)
        self.sessions.ready(self.listener.fd, now)
        for _ in incoming:
            self.sessions.ready(connection.fd, now)
        return connection


@pytest.mark.parametrize(
    ("reason", "status"), [("healthy", b"200"), ("worker-pool-starting", b"503"), ("worker-child-failure", b"503")]
)
def test_readiness_is_health_and_liveness_is_the_answer_itself(reason: str, status: bytes) -> None:
    ready = Door(reason).open(READY)
    assert ready.sent.startswith(b"HTTP/1.1 " + status)
    assert ready.sent.endswith(b"\r\n\r\n" + reason.encode() + b"\n")
    assert ready.closed
    live = Door(reason).open(LIVE)
    assert live.sent.startswith(b"HTTP/1.1 200 OK\r\n")
    assert live.sent.endswith(b"\r\n\r\nok\n")


def test_a_question_in_pieces_is_one_question() -> None:
    asked = Door().open(READY[:5], READY[5:-1], READY[-1:])
    assert asked.sent.startswith(b"HTTP/1.1 200")


def test_a_client_that_goes_away_and_one_that_says_nothing_are_closed_without_a_word() -> None:
    door = Door()
    gone, silent = door.open(READY[:5], b""), door.open()
    door.sessions.expire(0.99)
    assert (True, False) == (gone.closed, silent.closed)
    door.sessions.expire(1.0)
    assert (True, b"", b"") == (silent.closed, gone.sent, silent.sent)


def test_what_is_too_large_is_refused_as_soon_as_it_is() -> None:
    door = Door()
    large = door.open(READY[:-2] + b"A: " + b"b" * MAX_REQUEST)
    assert large.sent.startswith(b"HTTP/1.1 431 ")
    assert large.closed


def test_a_client_that_does_not_read_its_answer_is_given_a_second() -> None:
    door = Door()
    slow = door.open(READY, takes=5)
    assert not slow.closed
    door.sessions.expire(1.0)
    assert slow.closed


def test_the_oldest_goes_first_and_few_are_let_in_at_once() -> None:
    door = Door()
    crowd = [FakeConnection() for _ in range(70)]
    door.listener.queue.extend(crowd)
    door.sessions.ready(door.listener.fd, 0.0)
    assert 70 - 16 == len(door.listener.queue)
    while door.listener.queue:
        door.sessions.ready(door.listener.fd, 0.0)
    assert [True] * 6 + [False] * 64 == [one.closed for one in crowd]
