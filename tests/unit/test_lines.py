"""Newline framing: bounded, whatever the pieces that bytes arrive in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_worker.protocol.lines import LineBuffer, LineCutOff, LineTooLong


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.integers(1, 7))
def test_lines_come_out_as_they_went_in_however_the_stream_is_cut(lines, step):
    stream = b"".join(line + b"\n" for line in lines)
    buffer = LineBuffer(64)

    found = [line for at in range(0, len(stream), step) for line in buffer.feed(stream[at : at + step])]

    assert lines == found
    buffer.end()


def test_a_line_of_exactly_the_limit_is_taken():
    assert [b"abc"] == LineBuffer(4).feed(b"abc\n")


@pytest.mark.parametrize("data", [b"abcd\n", b"abcd", b"a\nabcde\n"])
def test_a_longer_line_is_refused_even_before_it_ends(data):
    with pytest.raises(LineTooLong):
        LineBuffer(4).feed(data)


def test_nothing_is_read_after_a_line_that_was_too_long():
    buffer = LineBuffer(4)
    with pytest.raises(LineTooLong):
        buffer.feed(b"abcdef")

    with pytest.raises(LineTooLong):
        buffer.feed(b"\na\n")


def test_an_end_between_lines_is_an_end():
    buffer = LineBuffer(8)
    buffer.feed(b"a\n")
    buffer.end()


def test_an_end_inside_a_line_is_an_error():
    buffer = LineBuffer(8)
    buffer.feed(b"a\nb")

    assert buffer.pending == b"b"
    with pytest.raises(LineCutOff):
        buffer.end()
