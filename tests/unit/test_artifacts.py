"""An artifact generation is whole, or it is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from platform_worker.artifacts import boot
from platform_worker.artifacts.boot import load_current
from platform_worker.artifacts.canonical import canonical, parse_canonical, sha256_hex
from platform_worker.artifacts.generation import compile_generation, is_id
from platform_worker.errors import WorkerStartError

CONFIG: dict[str, Any] = {"app": {"name": "é"}, "plugins": {}, "queue": {}, "worker": {"workers": 1}}
CONTAINER: dict[str, Any] = {"hooks": [], "resetters": [], "task_source": {}, "tasks": {}}
MODULES: dict[str, Any] = {"modules": []}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def write(root: Path, generation_id: str, files: dict[str, bytes]) -> Path:
    """A generation on the disk as a reader finds it; its folder."""
    folder = root / "var/artifacts/generations" / generation_id
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (root / "var/artifacts/current").write_text(generation_id + "\n")
    return folder


def refused(root: Path) -> bool:
    """True where the child would not boot, with the contract's reason."""
    with pytest.raises(WorkerStartError, match="worker-generation-invalid"):
        load_current(str(root))
    return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole generation, selected."""
    return write(tmp_path, *compile_generation(CONFIG, CONTAINER, MODULES))


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_canonical_bytes_come_back_as_they_went(value: dict[str, Any]) -> None:
    try:
        data = canonical(value)
    except (ValueError, UnicodeEncodeError):
        return
    assert canonical(parse_canonical(data)) == data
    assert data.endswith(b"\n")
    assert 1 == data.count(b"\n")


def test_canonical_is_sorted_compact_and_raw() -> None:
    assert '{"a":[1,2.5,null],"é":"ü\\n"}\n'.encode() == canonical({"é": "ü\n", "a": [1, 2.5, None]})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object(), {1, 2}])
def test_what_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  any of its kind
        canonical({"a": value})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"{}\n\n",
        b" {}\n",
        b'{"a":1,"a":1}\n',
        b'{"b":1,"a":1}\n',
        b'{"a": 1}\n',
        b'{"a":NaN}\n',
        b"[]\n",
        b'{"a":"\\u00e9"}\n',
        b"\xff\n",
        b'{"a":' + b"[" * 100000,
        b'{"a":1.0e2}\n',
        b"null\n",
        b"{}\n\x00",
    ],
)
def test_bytes_that_are_not_canonical_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  any of its kind
        parse_canonical(data)


def test_the_hash_is_the_usual_one() -> None:
    assert "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" == sha256_hex(b"abc")


def test_the_same_content_is_the_same_id_whatever_the_order_of_keys() -> None:
    one = compile_generation(CONFIG, CONTAINER, MODULES)
    other = compile_generation(dict(reversed(CONFIG.items())), dict(reversed(CONTAINER.items())), MODULES)
    assert one == other
    assert is_id(one[0])


def test_a_whole_generation_is_read_back(tmp_path: Path, folder: Path) -> None:
    generation = load_current(str(tmp_path))
    assert folder.name == generation.id
    assert (CONFIG, CONTAINER, MODULES) == (generation.config, generation.container, generation.modules)


@pytest.mark.parametrize("name", ["config.json", "container.json", "modules.json", "generation.json"])
def test_any_bit_flipped_anywhere_is_refused(tmp_path: Path, folder: Path, name: str) -> None:
    path = folder / name
    data = path.read_bytes()
    for position in range(len(data)):
        for bit in range(8):
            path.write_bytes(data[:position] + bytes([data[position] ^ (1 << bit)]) + data[position + 1 :])
            try:
                load_current(str(tmp_path))
            except WorkerStartError as error:
                assert error.reason == "worker-generation-invalid"  # noqa: PT017  raises() would cost a second for thousands of bits
            else:
                pytest.fail(f"{name}: bit {bit} of byte {position} was not seen")
    path.write_bytes(data)
    load_current(str(tmp_path))


@pytest.mark.parametrize("name", ["config.json", "container.json", "modules.json", "generation.json"])
@pytest.mark.parametrize("harm", ["gone", "empty", "longer", "symlink", "folder", "fifo", "huge"])
def test_a_file_that_is_not_as_it_was_is_refused(tmp_path: Path, folder: Path, name: str, harm: str) -> None:
    path = folder / name
    data = path.read_bytes()
    path.unlink()
    if harm == "empty":
        path.write_bytes(b"")
    elif harm == "longer":
        path.write_bytes(data + b"\n")
    elif harm == "symlink":
        (tmp_path / "elsewhere").write_bytes(data)
        path.symlink_to(tmp_path / "elsewhere")
    elif harm == "folder":
        path.mkdir()
    elif harm == "fifo":
        os.mkfifo(path)
    elif harm == "huge":
        with path.open("wb") as stream:
            stream.truncate(1 << 40)
    assert refused(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "\n", "0" * 64, "0" * 64 + "\n", "A" * 64 + "\n", "../" * 21 + "a\n", "0" * 63 + "\n\n", "é" * 32 + "\n"],
)
def test_a_current_that_names_no_generation_is_refused(tmp_path: Path, folder: Path, text: str) -> None:
    (tmp_path / "var/artifacts/current").write_text(text)
    assert folder.is_dir()
    assert refused(tmp_path)


def test_a_current_that_is_missing_or_a_symlink_is_refused(tmp_path: Path, folder: Path) -> None:
    current = tmp_path / "var/artifacts/current"
    current.rename(tmp_path / "elsewhere")
    assert folder.is_dir()
    assert refused(tmp_path)
    current.symlink_to(tmp_path / "elsewhere")
    assert refused(tmp_path)


def test_a_folder_that_is_a_symlink_is_refused(tmp_path: Path, folder: Path) -> None:
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert refused(tmp_path)


@pytest.mark.parametrize(
    "manifest",
    [
        {"version": 2, "files": {}},
        {"version": 1, "files": {}},
        {"version": 1, "files": {"config.json": {}, "container.json": {}, "modules.json": {}}},
        {"version": 1, "files": [], "more": 1},
        {"version": True, "files": {}},
    ],
)
def test_a_manifest_of_another_form_is_refused_though_its_hash_is_right(
    tmp_path: Path, manifest: dict[str, Any]
) -> None:
    data = canonical(manifest)
    write(tmp_path, sha256_hex(data), {"generation.json": data})
    assert refused(tmp_path)


@pytest.mark.parametrize(
    ("config", "container", "modules"),
    [
        ({**CONFIG, "more": 1}, CONTAINER, MODULES),
        ({**CONFIG, "app": []}, CONTAINER, MODULES),
        (CONFIG, {}, MODULES),
        (CONFIG, CONTAINER, {"modules": {}}),
    ],
)
def test_other_keys_than_this_versions_are_refused_though_every_hash_is_right(
    tmp_path: Path, config: dict[str, Any], container: dict[str, Any], modules: dict[str, Any]
) -> None:
    write(tmp_path, *compile_generation(config, container, modules))
    assert refused(tmp_path)


def test_a_generation_taken_away_between_the_two_reads_is_looked_for_again(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = write(tmp_path, *compile_generation({**CONFIG, "app": {}}, CONTAINER, MODULES))
    answers = ["0" * 64, folder.name]
    read = boot.read_selected
    monkeypatch.setattr(boot, "read_selected", lambda root: answers.pop(0) if answers else read(root))

    assert folder.name == load_current(str(tmp_path)).id
    assert newer.name == load_current(str(tmp_path)).id
