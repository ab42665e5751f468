"""Small files of each kind, made when they are asked for: also one with macros, and one that is cut short."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
import zlib
from pathlib import Path

CONTENT_TYPES = b'<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'


def png(width: int = 3, height: int = 2) -> bytes:
    """A PNG that viewers open."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = zlib.compress(b"".join(b"\0" + b"\x20\x60\xa0" * width for _ in range(height)))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def jpeg(width: int = 7, height: int = 5) -> bytes:
    """The headers of a JPEG: what its dimensions are read from."""
    comment = b"\xff\xfe" + struct.pack(">H", 2 + 5) + b"hello"
    frame = struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + comment + b"\xff\xff\xc0" + frame + b"\xff\xd9"


def gif(width: int = 9, height: int = 4) -> bytes:
    """A GIF without a picture."""
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b";"


def archive(*names: str, types: bytes | None = None) -> bytes:
    """A ZIP with empty entries of these names, and an Office table of contents where ``types`` is given."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        if types is not None:
            file.writestr(zipfile.ZipInfo("[Content_Types].xml"), types, zipfile.ZIP_DEFLATED)
        for name in names:
            file.writestr(zipfile.ZipInfo(name), b"")
    return buffer.getvalue()


def all_samples() -> dict[str, bytes]:
    """File name to content. The names say nothing about the types on purpose: only the content counts."""
    return {
        "picture": png(),
        "photo.txt": jpeg(),
        "animation": gif(),
        "paper": b"%PDF-1.7\n%%EOF\n",
        "letter": archive("word/document.xml", types=CONTENT_TYPES),
        "bundle.png": archive("readme.txt"),
        "packed": gzip.compress(b"hello\n", mtime=0),
        "note.bin": "Grüße aus dem Archiv\r\nzweite Zeile\r\n".encode("utf-16"),
        "noise": bytes(range(256)),
        "nothing": b"",
        "macros.docx": archive("word/document.xml", "word/vbaProject.bin", types=CONTENT_TYPES),
        "cut-short.png": png()[:20],
    }


def write(folder: Path) -> None:
    """Writes all samples into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in all_samples().items():
        (folder / name).write_bytes(data)
