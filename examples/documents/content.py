"""What a file is, by its content alone: a type, image dimensions, text counts, and whether it carries macros.

Nothing here opens a file. Bytes come from ``read_at(offset, length)``, which gives fewer than ``length`` only at the
end of the content. Every read is bounded, nothing is unpacked except the small table of contents of an Office file, and
no number found in a file is trusted before it was compared with what is there.
"""

from __future__ import annotations

import codecs
import io
import struct
import zlib
from collections.abc import Callable, Iterator

ReadAt = Callable[[int, int], bytes]

#: Enough for every signature and header below except those that are found by following offsets.
HEAD_BYTES = 64
#: A JPEG with more segments before its dimensions than this is not one that a camera or a program wrote.
JPEG_SEGMENTS_MAX = 1000
#: Bounds of a ZIP file's list of entries; 65,535 entries with names of usual length stay far below.
ZIP_DIRECTORY_BYTES_MAX = 16 * 1024 * 1024
#: Unpacked bytes of an Office file's table of contents that are looked at.
CONTENT_TYPES_BYTES_MAX = 1024 * 1024
#: In an OLE2 file every VBA project has a stream of this name, and names are UTF-16 there.
OLE2_MACRO_MARK = "_VBA_PROJECT".encode("utf-16-le")

_SIGNATURES = (
    (b"%PDF-", "pdf"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x7fELF", "elf"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "ole2"),
)
# UTF-32's little-endian mark begins with UTF-16's, so it is asked for first.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OOXML_FOLDERS = {"word": "docx", "xl": "xlsx", "ppt": "pptx", "visio": "vsdx"}
_NOT_IN_TEXT = frozenset(chr(n) for n in range(32)) - set("\t\n\r\f\b\x1b")


class DamagedError(Exception):
    """The content says what it is and then is not: cut short, or with impossible numbers."""


class MacrosError(Exception):
    """An Office file that carries macros."""


def signature(head: bytes) -> str | None:
    """The type that the first bytes give away, or None."""
    for mark, name in _SIGNATURES:
        if head.startswith(mark):
            return name
    return None


# --- images -----------------------------------------------------------------------------------------------------------


def png_size(read_at: ReadAt) -> tuple[int, int]:
    """Width and height from the IHDR chunk, which a PNG must begin with."""
    chunk = _exactly(read_at, 8, 25, "PNG")
    length, kind, width, height = struct.unpack_from(">I4sII", chunk)
    (checksum,) = struct.unpack_from(">I", chunk, 21)
    if length != 13 or kind != b"IHDR" or checksum != zlib.crc32(chunk[4:21]):
        raise DamagedError("the PNG's header is not one")
    return _dimensions(width, height, "PNG")


def gif_size(read_at: ReadAt) -> tuple[int, int]:
    """Width and height of a GIF's logical screen."""
    width, height = struct.unpack("<HH", _exactly(read_at, 6, 4, "GIF"))
    return _dimensions(width, height, "GIF")


def jpeg_size(read_at: ReadAt) -> tuple[int, int]:
    """Width and height from the first start-of-frame segment of a JPEG."""
    offset = 2
    for _ in range(JPEG_SEGMENTS_MAX):
        marker, offset = _jpeg_marker(read_at, offset)
        if marker in (0xD8, 0x01) or 0xD0 <= marker <= 0xD7:  # these stand alone
            continue
        if marker in (0xD9, 0xDA):
            break
        (length,) = struct.unpack(">H", _exactly(read_at, offset, 2, "JPEG"))
        if length < 2:
            break
        # C4, C8 and CC lie in the range of the frames and are tables.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", _exactly(read_at, offset + 3, 4, "JPEG"))
            return _dimensions(width, height, "JPEG")
        offset += length
    raise DamagedError("the JPEG has no frame")


def _jpeg_marker(read_at: ReadAt, offset: int) -> tuple[int, int]:
    """The marker at ``offset`` and where its segment begins; any number of fill bytes may stand before it."""
    window = read_at(offset, HEAD_BYTES)
    filled = len(window) - len(window.lstrip(b"\xff"))
    if filled == 0 or filled == len(window):
        raise DamagedError("the JPEG is cut short")
    return window[filled], offset + filled + 1


def _dimensions(width: int, height: int, name: str) -> tuple[int, int]:
    if not (0 < width < 2**31 and 0 < height < 2**31):
        raise DamagedError(f"the {name} has no width or no height")
    return width, height


# --- ZIP and Office ---------------------------------------------------------------------------------------------------


class ZipEntry:
    """One entry of a ZIP file's central directory."""

    __slots__ = ("header_offset", "method", "name", "packed")

    def __init__(self, name: str, method: int, packed: int, header_offset: int) -> None:
        self.name = name
        self.method = method
        self.packed = packed
        self.header_offset = header_offset


def zip_entries(read_at: ReadAt, size: int) -> list[ZipEntry]:
    """The entries that a ZIP file lists at its end; nothing is unpacked."""
    tail_start = max(0, size - 65_557)  # 22 bytes of record and at most 65,535 of comment
    tail = read_at(tail_start, size - tail_start)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < 22:
        raise DamagedError("the ZIP has no end")
    length, offset = struct.unpack_from("<II", tail, at + 12)
    end = tail_start + at
    if 0xFFFF_FFFF in (length, offset) or struct.unpack_from("<H", tail, at + 10)[0] == 0xFFFF:
        length, offset, end = _zip64_directory(read_at, tail_start + at, length, offset)
    if length > ZIP_DIRECTORY_BYTES_MAX:
        raise DamagedError("the ZIP lists more than can be right")
    # Data may stand before the archive; then the offsets count from where it begins.
    base = end - length - offset
    if base < 0:
        raise DamagedError("the ZIP is cut short")
    return list(_directory(_exactly(read_at, end - length, length, "ZIP"), base))


def _zip64_directory(read_at: ReadAt, record_at: int, length: int, offset: int) -> tuple[int, int, int]:
    locator = read_at(max(0, record_at - 20), 20)
    if len(locator) < 20 or not locator.startswith(b"PK\x06\x07"):
        return length, offset, record_at  # really that many entries, or really that large
    (at,) = struct.unpack_from("<Q", locator, 8)
    record = _exactly(read_at, at, 56, "ZIP") if at < record_at else b""
    if not record.startswith(b"PK\x06\x06"):
        raise DamagedError("the ZIP has no end")
    length, offset = struct.unpack_from("<QQ", record, 40)
    return length, offset, at


def _directory(directory: bytes, base: int) -> Iterator[ZipEntry]:
    at = 0
    while at < len(directory):
        if directory[at : at + 4] != b"PK\x01\x02" or len(directory) - at < 46:
            raise DamagedError("the ZIP's list of entries is not one")
        (method,) = struct.unpack_from("<H", directory, at + 10)
        (packed,) = struct.unpack_from("<I", directory, at + 20)
        name_length, extra, comment = struct.unpack_from("<HHH", directory, at + 28)
        (header_offset,) = struct.unpack_from("<I", directory, at + 42)
        name = directory[at + 46 : at + 46 + name_length].decode("utf-8", "replace")
        yield ZipEntry(name.replace("\\", "/"), method, packed, base + header_offset)
        at += 46 + name_length + extra + comment


def zip_type(read_at: ReadAt, size: int) -> str:
    """``docx``, ``xlsx``, ``pptx``, ``vsdx`` for an Office file, else ``zip``. Raises ``MacrosError``."""
    entries = zip_entries(read_at, size)
    table = next((entry for entry in entries if entry.name.lower() == "[content_types].xml"), None)
    folders = (_OOXML_FOLDERS.get(entry.name.split("/")[0].lower()) for entry in entries)
    kind = next((name for name in folders if name), None)
    if table is None or kind is None:
        return "zip"
    for entry in entries:
        path = entry.name.lower()
        if path.endswith(("vbaproject.bin", "vbadata.xml")) or "/macrosheets/" in path:
            raise MacrosError("an Office file with macros")
    # The part may have any name; what makes it a macro is its declared type. UTF-16 has a zero after each letter.
    declared = _unpack(read_at, table).replace(b"\0", b"").lower()
    if b"vbaproject" in declared or b"macroenabled" in declared or b"macrosheet" in declared:
        raise MacrosError("an Office file with macros")
    return kind


def _unpack(read_at: ReadAt, entry: ZipEntry) -> bytes:
    """The first ``CONTENT_TYPES_BYTES_MAX`` bytes of an entry; more than that there is an error."""
    header = _exactly(read_at, entry.header_offset, 30, "ZIP")
    if not header.startswith(b"PK\x03\x04") or entry.packed > CONTENT_TYPES_BYTES_MAX:
        raise DamagedError("the Office file's table of contents is not one")
    name_length, extra = struct.unpack_from("<HH", header, 26)
    packed = _exactly(read_at, entry.header_offset + 30 + name_length + extra, entry.packed, "ZIP")
    if entry.method == 0:
        return packed
    if entry.method != 8:
        raise DamagedError("the Office file is packed in a way that Office does not use")
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        content = unpacker.decompress(packed, CONTENT_TYPES_BYTES_MAX)
    except zlib.error as error:
        raise DamagedError("the Office file's table of contents cannot be unpacked") from error
    if not unpacker.eof:
        raise DamagedError("the Office file's table of contents is cut short or far too long")
    return content


def _exactly(read_at: ReadAt, offset: int, length: int, name: str) -> bytes:
    content = read_at(offset, length)
    if len(content) != length:
        raise DamagedError(f"the {name} is cut short")
    return content


# --- text -------------------------------------------------------------------------------------------------------------


class TextCounter:
    """Fed with chunks, says at the end whether they were text, in which encoding, and how many lines and words."""

    def __init__(self, head: bytes) -> None:
        self.encoding = next((name for mark, name in _BYTE_ORDER_MARKS if head.startswith(mark)), "utf-8")
        decoder = codecs.getincrementaldecoder(self.encoding)("strict")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self.is_text = True
        self.words = 0
        self._newlines = 0
        self._last = "\n"

    def feed(self, chunk: bytes, *, final: bool = False) -> None:
        """Takes the next bytes; after the first that cannot be text it ignores all others."""
        if not self.is_text:
            return
        try:
            text = self._decoder.decode(chunk, final=final)
        except UnicodeError:
            self.is_text = False
            return
        if text:
            self._count(text)

    def _count(self, text: str) -> None:
        if not _NOT_IN_TEXT.isdisjoint(text):
            self.is_text = False
            return
        self._newlines += text.count("\n")
        self.words += len(text.split())
        if not self._last.isspace() and not text[0].isspace():
            self.words -= 1  # a word that began in the chunk before
        self._last = text[-1]

    @property
    def lines(self) -> int:
        """Lines, a last one without a newline included."""
        return self._newlines + (self._last != "\n")
