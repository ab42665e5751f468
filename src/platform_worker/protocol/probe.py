"""The HTTP probe: two questions over HTTP/1.0 or 1.1, one to a connection, each answered with a status and one word.

::

    GET /livez HTTP/1.1                      HTTP/1.1 200 OK
    Host: 127.0.0.1:8081                     ...
                                             ok

    GET /readyz HTTP/1.1                     HTTP/1.1 503 Service Unavailable
    Host: 127.0.0.1:8081                     ...
                                             worker-pool-starting

Headers and whatever stands behind a ``?`` are passed over. Nothing that was asked is ever repeated.
"""

from __future__ import annotations

from platform_worker.value import Value

#: Bound of a request line with its headers.
MAX_REQUEST = 4096
LIVE, READY = "/livez", "/readyz"

_END = b"\r\n\r\n"
_PHRASES = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Question(Value):
    """``path`` is ``LIVE`` or ``READY``; ``body``: whether the answer has one (``HEAD`` wants none)."""

    path: str
    body: bool


class Refusal(Value):
    """The status of a request that is none of the questions."""

    status: int


def parse_question(data: bytes) -> Question | Refusal | None:
    """``data`` is all that has come so far; ``None``: there is more to come."""
    head, end, _ = data.partition(_END)
    if len(head) + len(_END) > MAX_REQUEST:
        return Refusal(431)
    if not end:
        return None
    line = head.partition(b"\r\n")[0]
    words = line.split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.0", b"HTTP/1.1") or not line.isascii():
        return Refusal(400)
    path = words[1].partition(b"?")[0].decode("ascii")
    if path not in (LIVE, READY):
        return Refusal(404)
    if words[0] not in (b"GET", b"HEAD"):
        return Refusal(405)
    return Question(path, words[0] == b"GET")


def format_answer(status: int, word: str, *, body: bool = True) -> bytes:
    """The whole response; the connection is closed behind it."""
    text = word.encode() + b"\n"
    lines = [
        f"HTTP/1.1 {status} {_PHRASES[status]}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(text)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if status == 405:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join(lines).encode() + _END + (text if body else b"")


def format_refusal(refusal: Refusal) -> bytes:
    """The status in words is all there is to say."""
    return format_answer(refusal.status, _PHRASES[refusal.status].lower())
