"""The control sessions on a fake listener: side by side, bounded, silent."""

from __future__ import annotations

import pytest

from harness.connections import FakeConnection, FakeListener
from platform_worker.protocol.control import MAX_FRAME, Request, format_request
from platform_worker.supervisor.control import ControlSessions

CREDENTIAL = "ab" * 32
OTHER = "cd" * 32


class Desk:
    """The sessions and what they were asked."""

    def __init__(self) -> None:
        self.listener = FakeListener()
        self.stops = 0
        self.sessions = ControlSessions(
            self.listener, CREDENTIAL, lambda a, b: a == b, lambda: {"pid": 1}, lambda: {"healthy": True}, self.stop
        )

    def stop(self) -> None:
        self.stops += 1

    def open(self, *incoming: bytes, now: float = 0.0, takes: int = 1_000_000) -> FakeConnection:
        connection = FakeConnection(*incoming, takes=takes)
        self.listener.queue.append(connection)
        self.sessions.ready(self.listener.fd, now)
        for _ in incoming:
            self.sessions.ready(connection.fd, now)
        return connection


def request(operation: str, credential: str = CREDENTIAL) -> bytes:
    return format_request(Request(credential, operation, "r"))


def test_a_question_is_answered_and_the_session_closed() -> None:
    asked = Desk().open(request("status"))
    assert b'{"request_id":"r","result":{"state":{"pid":1}},"status":"ok","version":1}\n' == asked.sent
    assert asked.closed


def test_a_question_in_pieces_is_one_question() -> None:
    whole = request("health")
    asked = Desk().open(whole[:10], whole[10:-1], whole[-1:])
    assert b'"healthy":true' in asked.sent


@pytest.mark.parametrize(
    "incoming",
    [
        request("status", OTHER),
        b"{}\n",
        b"x" * MAX_FRAME,
        request("status") + b"x",
        request("status") * 2,
        b"\n",
        b"",
    ],
)
def test_every_rejection_is_the_same_silent_close(incoming: bytes) -> None:
    asked = Desk().open(incoming)
    assert (b"", True) == (asked.sent, asked.closed)


def test_a_client_that_says_nothing_delays_nobody_and_is_closed_after_a_second() -> None:
    desk = Desk()
    silent = desk.open()
    assert desk.open(request("status")).sent
    desk.sessions.expire(0.99)
    assert not silent.closed
    assert desk.sessions.next_deadline() == 1.0
    desk.sessions.expire(1.0)
    assert silent.closed


def test_the_oldest_unauthenticated_session_goes_first() -> None:
    desk = Desk()
    stopper = desk.open(request("stop"))
    silent = [desk.open() for _ in range(63)]
    newest = desk.open()
    assert [True] + [False] * 62 == [one.closed for one in silent]
    assert not stopper.closed
    assert not newest.closed


def test_stops_are_answered_together_at_the_end() -> None:
    desk = Desk()
    first, second = desk.open(request("stop")), desk.open(request("stop"))
    gone = desk.open(request("stop"))
    gone.incoming.append(b"")
    desk.sessions.ready(gone.fd, 0.0)
    desk.sessions.expire(1e6)
    assert (3, b"", b"") == (desk.stops, first.sent, second.sent)
    desk.sessions.close_listener()
    desk.sessions.answer_stops({"status": "stopping"}, 1e6)
    assert all(b'"status":"stopped"' in one.sent and one.closed for one in (first, second))
    assert (b"", 1) == (gone.sent, desk.listener.removed)


def test_a_client_that_does_not_read_its_answer_is_given_a_second() -> None:
    desk = Desk()
    slow = desk.open(request("status"), takes=5)
    assert (desk.sessions.pending, slow.closed) == (True, False)
    assert (slow.fd, False, True) in desk.sessions.interest()
    desk.sessions.expire(1.0)
    assert (desk.sessions.pending, slow.closed) == (False, True)


def test_without_descriptors_the_listener_is_left_alone_for_a_moment() -> None:
    desk = Desk()
    desk.listener.exhausted = True
    desk.sessions.ready(desk.listener.fd, 0.0)
    assert [] == desk.sessions.interest()
    desk.listener.exhausted = False
    desk.sessions.expire(0.1)
    assert [(desk.listener.fd, True, False)] == desk.sessions.interest()
