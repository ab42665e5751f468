"""What the HTTP probe takes for a question, and what it answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_worker.config import listen_address, worker_problems
from platform_worker.protocol.probe import (
    MAX_REQUEST,
    Question,
    Refusal,
    format_answer,
    format_refusal,
    parse_question,
)

END = b"\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "parsed"),
    [
        (b"GET /livez HTTP/1.1\r\nHost: x" + END, Question("/livez", True)),
        (b"GET /readyz HTTP/1.0" + END, Question("/readyz", True)),
        (b"HEAD /readyz HTTP/1.1" + END, Question("/readyz", False)),
        (b"GET /readyz?verbose=1&a=%00 HTTP/1.1" + END, Question("/readyz", True)),
        (b"GET /readyz HTTP/1.1" + END + b"what follows is passed over", Question("/readyz", True)),
        (b"GET /readyz HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n", Question("/readyz", True)),
        (b"GET /readyz HTTP/1.1\r\nHost: x\r\n", None),
        (b"", None),
        (b"G", None),
        (b"GET / HTTP/1.1" + END, Refusal(404)),
        (b"GET /readyz/ HTTP/1.1" + END, Refusal(404)),
        (b"GET /livezz HTTP/1.1" + END, Refusal(404)),
        (b"GET //readyz HTTP/1.1" + END, Refusal(404)),
        (b"GET http://x/readyz HTTP/1.1" + END, Refusal(404)),
        (b"GET /metrics HTTP/1.1" + END, Refusal(404)),
        (b"POST /readyz HTTP/1.1" + END, Refusal(405)),
        (b"get /readyz HTTP/1.1" + END, Refusal(405)),
        (b"GET /readyz HTTP/2.0" + END, Refusal(400)),
        (b"GET /readyz" + END, Refusal(400)),
        (b"GET  /readyz HTTP/1.1" + END, Refusal(400)),
        (b"GET /read\xffyz HTTP/1.1" + END, Refusal(400)),
        (END, Refusal(400)),
        (b"\x16\x03\x01\x02\x00" + END, Refusal(400)),
        (b"x" * MAX_REQUEST, Refusal(431)),
        (b"GET /readyz HTTP/1.1\r\n" + b"A: b\r\n" * 1000, Refusal(431)),
    ],
)
def test_a_request_is_one_of_the_questions_or_refused(request_: bytes, parsed: Question | Refusal | None) -> None:
    assert parsed == parse_question(request_)


@given(st.binary(max_size=200) | st.binary(max_size=40).map(lambda tail: b"GET /readyz HTTP/1.1\r\n" + tail + END))
def test_whatever_comes_in_is_a_question_a_refusal_or_not_over(data: bytes) -> None:
    parsed = parse_question(data)
    assert (parsed is None) == (END not in data)
    if isinstance(parsed, Refusal):
        assert format_refusal(parsed).startswith(b"HTTP/1.1 4")


@given(st.integers(0, 60))
def test_a_question_in_pieces_is_not_over_before_its_last_byte(cut: int) -> None:
    whole = b"GET /readyz HTTP/1.1\r\nHost: example.org\r\nAccept: */*" + END
    assert (parse_question(whole[:cut]) is None) == (cut < len(whole))


def test_an_answer_says_its_length_and_that_it_is_the_last() -> None:
    assert (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 21\r\n"
        b"Cache-Control: no-store\r\nConnection: close\r\n\r\nworker-pool-starting\n"
    ) == format_answer(503, "worker-pool-starting")
    head = format_answer(200, "healthy", body=False)
    assert b"Content-Length: 8\r\n" in head
    assert head.endswith(b"\r\n\r\n")
    assert b"\r\nAllow: GET, HEAD\r\n" in format_refusal(Refusal(405))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8081", ("127.0.0.1", 8081)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("[::]:80", ("::", 80)),
        *((text, None) for text in ("", "8081", ":8081", "localhost:8081", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0")),
        *((text, None) for text in ("127.0.0.1:65536", "127.0.0.1:080801", "127.0.0.1:-1", "127.0.0.1:٣", "1.2.3:80")),
        *((text, None) for text in ("::1:80", "[127.0.0.1]:80", "[::1:80", "[::1%lo]:80", "127.0.0.1\0:80", "é:80")),
        *(
            (text, None)
            for text in ("http://127.0.0.1:80", " 127.0.0.1:80", "127.0.0.1:80 ", "127.0.0.1 :80", "\ud800:1")
        ),
    ],
)
def test_an_address_to_listen_on_is_a_number_and_a_port(text: str, address: tuple[str, int] | None) -> None:
    assert address == listen_address(text)
    rules = [key for key, _ in worker_problems({"probe": {"listen": text}})]
    assert ([] if address or not text else ["probe.listen"]) == rules
