"""Channels over inherited descriptors: newline-framed, never blocking, bounded both ways."""

from __future__ import annotations

import os

from platform_worker.ports_processes import StreamGarbled
from platform_worker.protocol.lines import LineBuffer, LineTooLong

#: What one call of ``receive`` takes at most: a peer that never stops talking delays nobody else for long.
_READS = 4
_CHUNK = 65536


class LineStream:
    """A ``Stream`` on ``fd``, which it owns. ``max_line`` counts the newline; ``max_pending`` bounds what is unsent."""

    def __init__(self, fd: int, max_line: int, max_pending: int) -> None:
        self.fd = fd
        self._max_pending = max_pending
        self._buffer = LineBuffer(max_line)
        self._unsent = bytearray()
        self._deaf = False
        os.set_blocking(fd, False)

    @property
    def pending(self) -> int:
        """How many bytes are kept unsent."""
        return len(self._unsent)

    def receive(self) -> tuple[list[str], bool]:
        """The whole lines that are there, and whether the end was reached; a line cut off by the end is none."""
        lines: list[str] = []
        for _ in range(_READS):
            try:
                data = os.read(self.fd, _CHUNK)
            except BlockingIOError:
                break
            except OSError:  # the peer is gone and had not read everything: an end like any other
                return lines, True
            if not data:
                return lines, True
            lines += self._split(data)
            if len(data) < _CHUNK:
                break
        return lines, False

    def send(self, data: bytes) -> None:
        """Writes now what fits and keeps the rest."""
        self._unsent += data
        self.flush()
        if len(self._unsent) > self._max_pending:
            raise StreamGarbled("the peer does not read")

    def flush(self) -> bool:
        """Writes what was kept, as far as it fits."""
        while self._unsent and not self._deaf:
            try:
                sent = os.write(self.fd, self._unsent)
            except BlockingIOError:
                return False
            except OSError:  # nobody reads any more; whether the peer is dead is told by the end of what it says
                self._deaf = True
                break
            del self._unsent[:sent]
        if self._deaf:
            self._unsent.clear()
        return not self._unsent

    def close(self) -> None:
        """Gives the descriptor back."""
        os.close(self.fd)

    def _split(self, data: bytes) -> list[str]:
        try:
            return [line.decode() for line in self._buffer.feed(data)]
        except (LineTooLong, UnicodeDecodeError) as error:
            raise StreamGarbled("no lines") from error
