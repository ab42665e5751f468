"""What makes four files one artifact generation. Pure.

``generation.json`` gives each other file's length and hash::

    {"files":{"config.json":{"length":1234,"sha256":"…"},"container.json":{…},"modules.json":{…}},"version":1}

The generation's id is the SHA-256 of these bytes, so a byte changed in any of the four shows.
"""

from __future__ import annotations

from platform_worker.artifacts.canonical import canonical, parse_canonical, sha256_hex
from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

VERSION = 1
ARTIFACTS = "var/artifacts"
GENERATIONS = "var/artifacts/generations"
CURRENT = "var/artifacts/current"
#: What ``current`` is written to before the rename.
CURRENT_TMP = "var/artifacts/current.tmp"
GENERATION_LOCK = "var/artifacts/generation.lock"

MANIFEST = "generation.json"
CONTENT_FILES = ("config.json", "container.json", "modules.json")
#: The bound of a manifest: three entries take some 400 bytes.
MANIFEST_MAX_BYTES = 4096
#: The bound of each other file, so that a damaged manifest cannot make a child read for ever.
FILE_MAX_BYTES = 16 * 1024 * 1024

_HEX = frozenset("0123456789abcdef")


class Generation(Value):
    """A verified artifact generation."""

    id: str
    config: dict[str, Any]
    container: dict[str, Any]
    modules: dict[str, Any]


def is_id(text: str) -> bool:
    """True for 64 lowercase hex digits."""
    return len(text) == 64 and _HEX.issuperset(text)


def compile_generation(
    config: Mapping[str, Any], container: Mapping[str, Any], modules: Mapping[str, Any]
) -> tuple[str, dict[str, bytes]]:
    """The id and the four files of a generation; ``ValueError`` for what JSON cannot say, or beyond the bound."""
    files = {
        "config.json": canonical(config),
        "container.json": canonical(container),
        "modules.json": canonical(modules),
    }
    if any(len(data) > FILE_MAX_BYTES for data in files.values()):
        raise ValueError("too large for an artifact generation")
    entries = {name: {"length": len(data), "sha256": sha256_hex(data)} for name, data in files.items()}
    manifest = canonical({"files": entries, "version": VERSION})
    return sha256_hex(manifest), {**files, MANIFEST: manifest}


def expected_lengths(generation_id: str, manifest: bytes) -> dict[str, tuple[int, str]]:
    """Each content file's length and hash, from a manifest that hashes to ``generation_id``; else ``ValueError``."""
    if sha256_hex(manifest) != generation_id:
        raise ValueError("generation.json is not what its folder's name says")
    value = parse_canonical(manifest)
    files = value.get("files")
    if value.keys() != {"files", "version"} or value["version"] != VERSION or type(value["version"]) is not int:
        raise ValueError("generation.json is of another version")
    if type(files) is not dict or files.keys() != set(CONTENT_FILES):
        raise ValueError("generation.json does not name the three files")
    return {name: _entry(files[name]) for name in CONTENT_FILES}


def open_files(generation_id: str, manifest: bytes, contents: Mapping[str, bytes]) -> Generation:
    """The generation in these bytes; ``ValueError`` where anything at all is off."""
    parsed: dict[str, dict[str, Any]] = {}
    for name, (length, digest) in expected_lengths(generation_id, manifest).items():
        data = contents[name]
        if len(data) != length or sha256_hex(data) != digest:
            raise ValueError(f"{name} is not what generation.json says")
        parsed[name] = parse_canonical(data)
    config, container, modules = (parsed[name] for name in CONTENT_FILES)
    for value, keys in ((config, _CONFIG), (container, _CONTAINER), (modules, _MODULES)):
        if value.keys() != keys.keys() or any(type(value[key]) is not kind for key, kind in keys.items()):
            raise ValueError("a file has other keys than this version's")
    return Generation(generation_id, config, container, modules)


_CONFIG = {"app": dict, "plugins": dict, "queue": dict, "worker": dict}
_CONTAINER = {"hooks": list, "resetters": list, "task_source": dict, "tasks": dict}
_MODULES = {"modules": list}


def _entry(value: object) -> tuple[int, str]:
    if type(value) is dict and value.keys() == {"length", "sha256"}:
        length, digest = value["length"], value["sha256"]
        if type(length) is int and 0 < length <= FILE_MAX_BYTES and type(digest) is str and is_id(digest):
            return length, digest
    raise ValueError("generation.json has a malformed entry")
