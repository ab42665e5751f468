"""Frames and locators: what is taken, and that nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from platform_worker.protocol.control import (
    HEALTH_KEYS,
    MAX_FRAME,
    STATE_KEYS,
    Request,
    format_request,
    format_response,
    parse_request,
    parse_response,
)
from platform_worker.protocol.locator import MAX_BYTES, Locator, decode, encode

CREDENTIAL = "0123456789abcdef" * 4
GOOD: dict[str, object] = {"credential": CREDENTIAL, "operation": "status", "request_id": "a1", "version": 1}
STATE = dict.fromkeys(STATE_KEYS, 1)
LOCATOR = Locator(CREDENTIAL, "unix", "var/tmp/worker.sock", None, None, 10_000, 1_000)


def frame(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_a_request_looks_as_the_contract_says() -> None:
    expected = b'{"credential":"%s","operation":"status","request_id":"a1","version":1}\n' % CREDENTIAL.encode()
    assert expected == format_request(Request(CREDENTIAL, "status", "a1"))
    assert Request(CREDENTIAL, "status", "a1") == parse_request(expected[:-1])


def test_the_keys_may_come_in_any_order() -> None:
    assert parse_request(json.dumps(dict(reversed(GOOD.items()))).encode()) is not None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b"[" * 3000,
        frame(version=2),
        frame(version=True),
        frame(version=1.0),
        frame(version="1"),
        frame(operation="restart"),
        frame(operation=["status"]),
        frame(operation=None),
        frame(request_id=""),
        frame(request_id="a" * 65),
        frame(request_id="a b"),
        frame(request_id="ä"),
        frame(request_id=1),
        frame(credential=CREDENTIAL.upper()),
        frame(credential=CREDENTIAL[1:]),
        frame(credential=None),
        frame(more=1),
        json.dumps({key: value for key, value in GOOD.items() if key != "version"}).encode(),
        frame()[:-1] + b',"version":1}',
        frame() + b" " * MAX_FRAME,
        frame() + b"x",
    ],
)
def test_anything_else_is_no_request(line: bytes) -> None:
    assert parse_request(line) is None


@given(st.binary(max_size=MAX_FRAME + 10))
def test_no_bytes_raise(line: bytes) -> None:
    assert parse_request(line) is None
    assert decode(line) is None


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(list(GOOD)), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.none())
    )
)
def test_no_values_raise(changes: dict[str, object]) -> None:
    request = parse_request(frame(**changes))
    assert request is None or (request.operation in ("status", "health", "stop") and len(request.credential) == 64)


def test_a_stop_is_answered_as_stopped() -> None:
    request = Request(CREDENTIAL, "stop", "x")
    answer = format_response("x", {"state": {"pid": 1}, "stopped": True})
    assert b'{"request_id":"x","result":{"state":{"pid":1}},"status":"stopped","version":1}\n' == answer
    assert STATE == parse_response(format_response("x", {"state": STATE, "stopped": True})[:-1], request)


@pytest.mark.parametrize(
    "answer",
    [
        format_response("y", {"state": STATE}),
        format_response("x", {"health": dict.fromkeys(HEALTH_KEYS, 1)}),
        format_response("x", {"state": STATE, "stopped": True}),
        format_response("x", {"state": {}}),
        format_response("x", {"state": {**STATE, "more": 1}}),
        b"{}\n",
        b"no",
    ],
)
def test_an_answer_to_another_question_is_none(answer: bytes) -> None:
    assert parse_response(answer.rstrip(b"\n"), Request(CREDENTIAL, "status", "x")) is None


def test_a_locator_survives_the_file() -> None:
    assert LOCATOR == decode(encode(LOCATOR))
    tcp = Locator(CREDENTIAL, "tcp", "var/tmp/worker.sock", "127.0.0.1", 9327, 1, 1)
    assert tcp == decode(encode(tcp))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": True},
        {"control_credential": "x"},
        {"control_transport": "pipe"},
        {"control_transport": "tcp"},
        {"socket_path": None},
        {"socket_path": "/abs"},
        {"socket_path": "a/../b"},
        {"socket_path": ""},
        {"socket_path": "a\0b"},
        {"tcp_port": 1},
        {"stop_timeout_ms": 0},
        {"stop_timeout_ms": True},
        {"stop_timeout_ms": 86_400_001},
        {"force_kill_timeout_ms": "1"},
        {"more": 1},
    ],
)
def test_a_locator_off_the_schema_is_none(changes: dict[str, object]) -> None:
    assert decode(json.dumps({**json.loads(encode(LOCATOR)), **changes}).encode()) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"socket_path": None},
        {"tcp_host": "localhost"},
        {"tcp_host": "0.0.0.0"},
        {"tcp_host": None},
        {"tcp_port": None},
        {"tcp_port": 0},
        {"tcp_port": 65536},
        {"tcp_port": True},
        {"tcp_port": "9327"},
        {"control_transport": "unix"},
    ],
)
def test_a_tcp_locator_off_the_schema_is_none(changes: dict[str, object]) -> None:
    tcp = Locator(CREDENTIAL, "tcp", "var/tmp/worker.sock", "127.0.0.1", 9327, 1, 1)
    assert decode(json.dumps({**json.loads(encode(tcp)), **changes}).encode()) is None


def test_an_oversized_locator_is_none() -> None:
    assert decode(encode(LOCATOR) + b" " * MAX_BYTES) is None
