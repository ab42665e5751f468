"""A listener and its connections, as the supervisor's sessions see them, without a socket."""

from __future__ import annotations

from collections import deque
from itertools import count

_numbers = count(100)


class FakeConnection:
    """What came in is given; of what is sent it takes up to ``takes`` bytes, once."""

    def __init__(self, *incoming: bytes, takes: int = 1_000_000) -> None:
        self.fd = next(_numbers)
        self.incoming = deque(incoming)
        self.takes = takes
        self.sent = b""
        self.closed = False

    def receive(self) -> bytes | None:
        return self.incoming.popleft() if self.incoming else None

    def send(self, data: bytes) -> int:
        taken = data[: self.takes]
        self.sent += taken
        return len(taken)

    def close(self) -> None:
        self.closed = True


class FakeListener:
    """Gives what is in ``queue``; ``exhausted``: the machine has no descriptors left."""

    fd = 99

    def __init__(self) -> None:
        self.queue: deque[FakeConnection] = deque()
        self.exhausted = False
        self.removed = 0

    def accept(self) -> FakeConnection | None:
        if self.exhausted:
            raise OSError(24, "EMFILE")
        return self.queue.popleft() if self.queue else None

    def remove(self) -> None:
        self.removed += 1
