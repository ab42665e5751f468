"""Newline framing with a bound: feed bytes, take lines. Shared by every protocol of this package.

::

    boot {"slot":0,...}\n
    go\n

A line is what stands before a newline. An end of the stream between two lines is an end, inside one it is an error:
whoever wrote it died in the middle of a message.
"""

from __future__ import annotations


class LineTooLong(ValueError):  # noqa: N818  named by what is wrong with the stream
    """A line is longer than the protocol allows; nothing that follows on this stream can be trusted."""


class LineCutOff(ValueError):  # noqa: N818  named by what is wrong with the stream
    """The stream ended inside a line."""


class LineBuffer:
    """Collects the bytes of one stream. ``limit`` bounds a line, newline included."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._partial = b""

    @property
    def pending(self) -> bytes:
        """What came after the last newline."""
        return self._partial

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes, without their newlines. Raises ``LineTooLong``, and then for good."""
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        if len(self._partial) >= self._limit or any(len(line) >= self._limit for line in lines):
            self._partial = b"\0" * self._limit
            raise LineTooLong
        return lines

    def end(self) -> None:
        """The stream has ended. Raises ``LineCutOff`` if that was inside a line."""
        if self._partial:
            raise LineCutOff
