"""Publishing: one rename, the newest few kept, a reader never robbed, a conflict never overwritten."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from platform_worker.artifacts.boot import load_current
from platform_worker.artifacts.generation import compile_generation
from platform_worker.errors import WorkerBuildError
from platform_worker.host import publish as module
from platform_worker.host.publish import publish

CONTAINER: dict[str, Any] = {"hooks": [], "resetters": [], "task_source": {}, "tasks": {}}


def generation(number: int) -> tuple[str, dict[str, bytes]]:
    """One of many."""
    config: dict[str, Any] = {"app": {"name": str(number)}, "plugins": {}, "queue": {}, "worker": {}}
    return compile_generation(config, CONTAINER, {"modules": []})


def there(root: Path) -> set[str]:
    """What the folder of generations has."""
    return set(os.listdir(root / "var/artifacts/generations"))


def published(root: Path, *numbers: int) -> list[str]:
    """Publishes; the ids. Each folder gets a time of its own, which two builds in one tick would not have."""
    ids = []
    for age, number in enumerate(numbers):
        generation_id, files = generation(number)
        publish(str(root), generation_id, files)
        when = 1_000_000 + age
        os.utime(root / "var/artifacts/generations" / generation_id, (when, when))
        ids.append(generation_id)
    return ids


def test_what_is_published_is_selected_and_whole(tmp_path: Path) -> None:
    generation_id, files = generation(1)
    assert publish(str(tmp_path), generation_id, files) is False
    assert publish(str(tmp_path), generation_id, files) is True
    assert generation_id == load_current(str(tmp_path)).id
    assert {"current", "generation.lock", "generations"} == set(os.listdir(tmp_path / "var/artifacts"))
    assert 65 == (tmp_path / "var/artifacts/current").stat().st_size


def test_the_selected_one_and_the_four_newest_others_are_kept(tmp_path: Path) -> None:
    ids = published(tmp_path, *range(8))
    assert set(ids[-5:]) == there(tmp_path)


def test_a_generation_selected_again_is_the_newest_again(tmp_path: Path) -> None:
    ids = published(tmp_path, 0, 1, 2, 3, 4)
    publish(str(tmp_path), *generation(0))
    publish(str(tmp_path), *generation(5))
    publish(str(tmp_path), *generation(6))
    assert ids[0] in there(tmp_path)
    assert ids[1] not in there(tmp_path)


def test_a_generation_that_a_reader_reads_is_not_removed(tmp_path: Path) -> None:
    ids = published(tmp_path, 0, 1, 2, 3, 4)
    folder = os.open(tmp_path / "var/artifacts/generations" / ids[0], os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_SH)
        published(tmp_path, 5)
        assert ids[0] in there(tmp_path)
    finally:
        os.close(folder)
    published(tmp_path, 6)
    assert ids[0] not in there(tmp_path)


def test_dead_staging_folders_go_and_strangers_stay(tmp_path: Path) -> None:
    generations = tmp_path / "var/artifacts/generations"
    for name in (".staging-x", ".removing-y", "mine"):
        (generations / name).mkdir(parents=True)
        (generations / name / "config.json").write_text("half")
    (generations / ".staging-z").symlink_to(tmp_path)
    ids = published(tmp_path, 1)
    assert {ids[0], "mine"} == there(tmp_path)
    assert tmp_path.is_dir()


@pytest.mark.parametrize("harm", ["byte", "more", "less", "symlink"])
def test_an_id_with_other_bytes_is_a_conflict_and_is_not_touched(tmp_path: Path, harm: str) -> None:
    old, new = published(tmp_path, 1)[0], generation(2)
    folder = tmp_path / "var/artifacts/generations" / new[0]
    folder.mkdir()
    for name, data in new[1].items():
        (folder / name).write_bytes(data)
    victim = folder / "config.json"
    if harm == "byte":
        victim.write_bytes(victim.read_bytes().replace(b"2", b"3"))
    elif harm == "more":
        (folder / "more").touch()
    elif harm == "less":
        victim.unlink()
    else:
        victim.rename(tmp_path / "elsewhere")
        victim.symlink_to(tmp_path / "elsewhere")
    before = sorted(os.listdir(folder))

    with pytest.raises(WorkerBuildError, match="worker-generation-conflict") as caught:
        publish(str(tmp_path), *new)
    assert "remove that folder" in caught.value.hints[0]
    assert before == sorted(os.listdir(folder))
    assert old == load_current(str(tmp_path)).id


def test_a_current_that_is_a_folder_or_garbage_is_replaced_or_refused_whole(tmp_path: Path) -> None:
    published(tmp_path, 1)
    (tmp_path / "var/artifacts/current").write_text("garbage")
    (tmp_path / "var/artifacts/current.tmp").mkdir()
    ids = published(tmp_path, 2)
    assert ids[0] == load_current(str(tmp_path)).id


@pytest.mark.parametrize("call", ["mkdir", "open", "write", "fsync", "rename"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_refuses_at_any_call_leaves_what_was_selected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    old, (new, files) = published(tmp_path, 1)[0], generation(2)
    real, left = getattr(os, call), 0

    def refusing(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    for step in range(1, 40):
        left = step
        with monkeypatch.context() as patch:
            patch.setattr(module.os, call, refusing)
            try:
                publish(str(tmp_path), new, files)
            except WorkerBuildError as error:
                assert "worker-generation-write-failed" == error.reason  # noqa: PT017  a refusal is one of two good ends
            else:
                if left > 0:
                    break
        assert load_current(str(tmp_path)).id in {old, new}
    assert new == load_current(str(tmp_path)).id
    assert {old, new} == there(tmp_path)


def test_a_var_that_is_a_file_is_a_write_failure(tmp_path: Path) -> None:
    (tmp_path / "var").touch()
    with pytest.raises(WorkerBuildError, match="worker-generation-write-failed"):
        publish(str(tmp_path), *generation(1))


def test_another_build_is_waited_for_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(tmp_path, 1)
    monkeypatch.setattr(module, "LOCK_WAIT_S", 0.0)
    lock = os.open(tmp_path / "var/artifacts/generation.lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(WorkerBuildError, match="worker-generation-write-failed") as caught:
            publish(str(tmp_path), *generation(2))
    finally:
        os.close(lock)
    assert ("another build holds var/artifacts/generation.lock",) == caught.value.hints
