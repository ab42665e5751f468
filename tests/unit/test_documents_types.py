"""The documents example decides by content, within bounds, and never trusts a number that it read."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import struct
import sys
import zipfile
import zlib
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "documents"


def _load(name: str) -> ModuleType:
    # Under a name of its own: other examples have modules of the same names.
    spec = importlib.util.spec_from_file_location(f"documents_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


content = _load("content")
samples = _load("samples")


def reader(data: bytes):
    """A ``read_at`` over bytes."""
    return lambda offset, length: data[offset : offset + length]


def count(data: bytes, size: int = 1 << 20):
    """The counter after it was fed with all of ``data`` in chunks of ``size`` bytes."""
    counter = content.TextCounter(data[: content.HEAD_BYTES])
    for at in range(0, len(data), size):
        counter.feed(data[at : at + size])
    counter.feed(b"", final=True)
    return counter


@pytest.mark.parametrize(
    ("expected", "head"),
    [
        ("pdf", b"%PDF-1.7\n"),
        ("png", b"\x89PNG\r\n\x1a\n"),
        ("jpeg", b"\xff\xd8\xff\xe0"),
        ("gif", b"GIF87a"),
        ("gif", b"GIF89a"),
        ("zip", b"PK\x03\x04"),
        ("zip", b"PK\x05\x06"),
        ("gzip", b"\x1f\x8b\x08"),
        ("elf", b"\x7fELF"),
        ("ole2", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
        (None, b"%PDF"),
        (None, b"PK"),
        (None, b""),
        (None, b"hello"),
    ],
)
def test_the_first_bytes_give_the_type_away(expected: str | None, head: bytes) -> None:
    assert expected == content.signature(head)


@pytest.mark.parametrize(
    ("expected", "size_of", "data"),
    [
        ((3, 2), content.png_size, samples.png(3, 2)),
        ((40_000, 1), content.png_size, samples.png(40_000, 1)),
        ((7, 5), content.jpeg_size, samples.jpeg(7, 5)),
        ((65_535, 65_535), content.jpeg_size, samples.jpeg(65_535, 65_535)),
        ((9, 4), content.gif_size, samples.gif(9, 4)),
    ],
)
def test_dimensions_come_from_the_header(expected: tuple[int, int], size_of, data: bytes) -> None:
    assert expected == size_of(reader(data))


def _png_header(width: int, height: int) -> bytes:
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0d" + body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize(
    ("size_of", "data"),
    [
        (content.png_size, samples.png()[:8]),
        (content.png_size, samples.png()[:32]),
        (content.png_size, samples.png().replace(b"IHDR", b"IDAT")),
        (content.png_size, samples.png()[:16] + b"\xff" + samples.png()[17:]),
        (content.png_size, _png_header(0, 2)),
        (content.png_size, _png_header(2**31, 2)),
        (content.gif_size, samples.gif()[:9]),
        (content.gif_size, samples.gif(0, 4)),
        (content.jpeg_size, b"\xff\xd8\xff"),
        (content.jpeg_size, b"\xff\xd8\xff\xd9"),
        (content.jpeg_size, b"\xff\xd8\xff\xda\x00\x02"),
        (content.jpeg_size, b"\xff\xd8\xff\xe0\x00\x01" + samples.jpeg()[2:]),
        (content.jpeg_size, b"\xff\xd8" + b"\xff" * 1000),
        (content.jpeg_size, samples.jpeg(0, 5)),
        (content.jpeg_size, samples.jpeg()[:20]),
    ],
)
def test_an_image_that_is_cut_short_or_impossible_is_damaged(size_of, data: bytes) -> None:
    with pytest.raises(content.DamagedError):
        size_of(reader(data))


def test_a_jpeg_of_endless_segments_ends_the_search() -> None:
    reads = 0

    def endless(offset: int, length: int) -> bytes:
        nonlocal reads
        reads += 1
        return (b"\xff\xe0" if offset % 2 == 0 else b"\x00\x02" * 2)[:length].ljust(length, b"\x02")

    with pytest.raises(content.DamagedError):
        content.jpeg_size(endless)
    assert reads <= 2 * content.JPEG_SEGMENTS_MAX


@pytest.mark.parametrize(
    ("expected", "data"),
    [
        ("zip", samples.archive("a.txt")),
        ("zip", samples.archive()),
        ("zip", samples.archive("word/document.xml")),
        ("zip", samples.archive("a/vbaProject.bin")),
        ("docx", samples.archive("word/document.xml", types=samples.CONTENT_TYPES)),
        ("xlsx", samples.archive("xl/workbook.xml", types=samples.CONTENT_TYPES)),
        ("pptx", samples.archive("ppt/presentation.xml", types=samples.CONTENT_TYPES)),
        ("docx", b"stub before it" + samples.archive("word/document.xml", types=samples.CONTENT_TYPES)),
    ],
)
def test_an_office_file_is_told_from_an_archive_by_what_it_lists(expected: str, data: bytes) -> None:
    assert expected == content.zip_type(reader(data), len(data))


@pytest.mark.parametrize(
    "data",
    [
        samples.archive("word/document.xml", "word/vbaProject.bin", types=samples.CONTENT_TYPES),
        samples.archive("word/document.xml", "word/VBAPROJECT.BIN", types=samples.CONTENT_TYPES),
        samples.archive("word\\vbaProject.bin", types=samples.CONTENT_TYPES),
        samples.archive("xl/workbook.xml", "xl/macrosheets/sheet1.xml", types=samples.CONTENT_TYPES),
        samples.archive("word/x.bin", types=b'<Override ContentType="application/vnd.ms-office.vbaProject"/>'),
        samples.archive("word/x.xml", types=b'<Override ContentType="application/vnd.ms-word.document.macroEnabled"/>'),
        samples.archive("word/x.bin", types='<Override ContentType="x.vbaProject"/>'.encode("utf-16")),
    ],
)
def test_an_office_file_with_macros_is_refused_under_any_name(data: bytes) -> None:
    with pytest.raises(content.MacrosError):
        content.zip_type(reader(data), len(data))


def _office(types: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("word/document.xml", b"")
        file.writestr("[Content_Types].xml", types)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        samples.archive("a.txt")[:-5],
        samples.archive("a.txt")[10:].replace(b"PK\x01\x02", b"PK\x01\x03"),
        b"PK\x05\x06" + b"\0" * 8 + struct.pack("<II", 5000, 0) + b"\0\0",
        b"PK\x05\x06" + b"\0" * 8 + struct.pack("<II", 2**31, 0) + b"\0\0",
        b"PK\x05\x06" + b"\0" * 8 + struct.pack("<II", 2**32 - 1, 0) + b"\0\0",
        _office(b"x" * (content.CONTENT_TYPES_BYTES_MAX + 1)),
    ],
)
def test_an_archive_that_is_cut_short_or_impossible_is_damaged(data: bytes) -> None:
    with pytest.raises(content.DamagedError):
        content.zip_type(reader(data), len(data))


def test_a_bomb_in_the_table_of_contents_is_unpacked_no_further_than_its_bound() -> None:
    """A thousand times its packed size, and still refused in constant memory."""
    data = _office(b"\0" * (64 * 1024 * 1024))
    assert len(data) < 100_000
    with pytest.raises(content.DamagedError):
        content.zip_type(reader(data), len(data))


@pytest.mark.parametrize(
    ("encoding", "lines", "words", "data"),
    [
        ("utf-8", 0, 0, b""),
        ("utf-8", 1, 1, b"one"),
        ("utf-8", 1, 2, b"one two\n"),
        ("utf-8", 2, 2, b"one\r\ntwo"),
        ("utf-8", 2, 2, b"one\rtwo\r"),
        ("utf-8", 3, 1, "\n\n  Grüße ".encode()),
        ("utf-8-sig", 1, 1, b"\xef\xbb\xbfone"),
        ("utf-16", 2, 3, "eins zwei\r\ndrei".encode("utf-16")),
        ("utf-16", 1, 1, b"\xfe\xff" + "eins".encode("utf-16-be")),
        ("utf-32", 1, 1, "eins".encode("utf-32")),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_text_is_counted_the_same_however_it_is_cut(
    encoding: str, lines: int, words: int, data: bytes, size: int
) -> None:
    counter = count(data, size)
    assert (True, encoding, lines, words) == (counter.is_text, counter.encoding, counter.lines, counter.words)


@pytest.mark.parametrize(
    "data", [b"\0", b"a\x01b", b"\xff", b"caf\xe9", b"\xc3", bytes(range(256)), b"\xff\xfea", b"\xff\xfe\x00\xd8"]
)
def test_what_cannot_be_decoded_or_holds_control_characters_is_not_text(data: bytes) -> None:
    assert not count(data).is_text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t ")), st.integers(1, 9))
def test_words_are_those_of_split(text: str, size: int) -> None:
    assert len(text.split()) == count(text.encode(), size).words


@given(st.binary(max_size=200), st.sampled_from([b"", b"PK\x05\x06", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a"]))
def test_no_content_breaks_the_parsers(data: bytes, prefix: bytes) -> None:
    """Whatever the bytes, the answer is a value or one of the two errors."""
    data = prefix + data
    for parse in (
        content.png_size,
        content.gif_size,
        content.jpeg_size,
        lambda read_at: content.zip_type(read_at, len(data)),
    ):
        with contextlib.suppress(content.DamagedError, content.MacrosError):
            parse(reader(data))
    count(data)
