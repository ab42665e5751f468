"""The documents example on real files: links, pipes and changing files without a pool; all of it with one."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from platform_worker import JobContext, JobFailed, Queue, Reject
from platform_worker.tasks import registry

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "documents"
MODULES = ("content", "samples", "tasks", "walk")
WORKER = str(Path(sys.executable).with_name("worker"))
DEADLINE_SECONDS = 60


class Example:
    """A copy of the example, and its modules imported from there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.content, self.samples, self.tasks, self.walk = (importlib.import_module(name) for name in MODULES)
        self.content: ModuleType
        self.files = root.parent / "files"
        self.samples.write(self.files)

    def context(self) -> JobContext:
        """What a handler gets."""
        return JobContext(
            id="0", task="inspect", queue="documents", attempt=1, max_attempts=2,
            on_heartbeat=lambda progress: None, is_cancelled=lambda: False,
        )  # fmt: skip

    def inspect(self, path: Path | str) -> dict:
        """The handler, called as a function."""
        return self.tasks.inspect(str(path), self.context())

    def results(self) -> dict[str, bytes]:
        """The results that are stored."""
        return {path.name: path.read_bytes() for path in (self.root / "var" / "results").iterdir()}

    def worker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs one command of the product on the copy."""
        command = [WORKER, "--root", str(self.root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Example]:
    """A fresh copy; its modules have names that others use too, so they are forgotten afterwards."""
    root = tmp_path / "documents"
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns("var", "__pycache__"))
    monkeypatch.syspath_prepend(str(root))
    monkeypatch.setattr(registry, "REGISTRY", type(registry.REGISTRY)())
    for name in MODULES:
        sys.modules.pop(name, None)
    yield Example(root)
    for name in MODULES:
        sys.modules.pop(name, None)


def test_a_result_holds_what_the_content_says_and_no_name(example: Example) -> None:
    expected = {"type": "png", "width": 3, "height": 2, "size": len(example.samples.png())}
    result = example.inspect(example.files / "picture")
    assert expected == {key: value for key, value in result.items() if key != "sha256"}
    assert result == json.loads(example.results()[f"{result['sha256']}.json"])


def test_running_twice_changes_nothing(example: Example) -> None:
    example.inspect(example.files / "paper")
    stored = {path: path.stat().st_mtime_ns for path in (example.root / "var" / "results").iterdir()}
    example.inspect(example.files / "paper")
    assert stored == {path: path.stat().st_mtime_ns for path in (example.root / "var" / "results").iterdir()}


def test_a_damaged_result_is_replaced(example: Example) -> None:
    result = example.inspect(example.files / "paper")
    target = example.root / "var" / "results" / f"{result['sha256']}.json"
    target.write_bytes(b"{")
    example.inspect(example.files / "paper")
    assert result == json.loads(target.read_bytes())


@pytest.mark.parametrize("name", ["macros.docx", "old.doc"])
def test_an_office_file_with_macros_is_rejected_and_leaves_nothing(example: Example, name: str) -> None:
    ole2 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes((1 << 20) - 20) + example.content.OLE2_MACRO_MARK
    (example.files / "old.doc").write_bytes(ole2)  # the mark lies across two chunks
    with pytest.raises(Reject):
        example.inspect(example.files / name)
    assert not (example.root / "var" / "results").exists()


def test_links_pipes_and_relative_paths_are_rejected(example: Example) -> None:
    (example.files / "link").symlink_to("paper")
    (example.files / "folder").symlink_to(example.files)
    os.mkfifo(example.files / "pipe")
    for path in ("link", "folder/paper", "pipe", "."):
        with pytest.raises(Reject):
            example.inspect(example.files / path)
    with pytest.raises(Reject):
        example.inspect("paper")


def test_a_file_that_is_gone_is_no_failure(example: Example) -> None:
    assert {"type": "gone"} == example.inspect(example.files / "was-here")


def test_a_file_that_changes_while_it_is_read_is_not_stored(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    path = example.files / "paper"
    describe = example.tasks.describe

    def meanwhile(*arguments):
        with path.open("ab") as file:
            file.write(b"more")
        return describe(*arguments)

    monkeypatch.setattr(example.tasks, "describe", meanwhile)
    with pytest.raises(example.tasks.ChangedError):
        example.inspect(path)
    assert not (example.root / "var" / "results").exists()


def test_the_walk_follows_no_link_and_takes_any_name(example: Example) -> None:
    folder = example.files.parent / "walked"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_bytes(b"x")
    (folder / "b").write_bytes(b"x")
    (folder / "link").symlink_to("b")
    (folder / "up").symlink_to(example.files)
    Path(os.fsdecode(bytes(folder) + b"/a\xff")).write_bytes(b"odd name")
    found = list(example.walk.files_of(folder))
    assert ["a\udcff", "b"] == [Path(path).name for path in found]
    json.dumps([example.walk.data_of(path) for path in found]).encode()
    result = example.tasks.inspect(**example.walk.data_of(found[0]), context=example.context())
    assert ("text", 2) == (result["type"], result["words"])


def test_a_pool_works_off_the_samples_retries_what_is_damaged_and_rejects_macros(example: Example) -> None:
    """From `worker build` to `worker stop`, as its README says."""
    built = example.worker("build")
    assert 0 == built.returncode, built.stderr
    log = (example.root.parent / "log").open("wb")
    command = [WORKER, "--root", str(example.root), "start"]
    with log, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as pool:
        try:
            ids = example.walk.enqueue(example.walk.files_of(example.files), example.root)
            with Queue.open(root=example.root) as queue:
                deadline = time.monotonic() + DEADLINE_SECONDS
                for one in ids:
                    with contextlib.suppress(JobFailed):  # those are looked at below
                        queue.result(one, timeout=max(0.0, deadline - time.monotonic()))
                jobs = {Path(job.data["path"]).name: job for job in map(queue.get, ids)}
            stopped = example.worker("stop")
            assert (0, 0) == (stopped.returncode, pool.wait(DEADLINE_SECONDS)), stopped.stderr
        finally:
            if pool.poll() is None:
                pool.terminate()
    types = {name: job.result["type"] for name, job in jobs.items() if job.status == "completed"}
    assert {
        "picture": "png", "photo.txt": "jpeg", "animation": "gif", "paper": "pdf", "letter": "docx",
        "bundle.png": "zip", "packed": "gzip", "note.bin": "text", "noise": "binary", "nothing": "empty",
    } == types  # fmt: skip
    failed = {n: (j.attempt, j.error["reason"]) for n, j in jobs.items() if j.status == "failed"}
    assert {"macros.docx": (1, "rejected"), "cut-short.png": (2, "exception")} == failed
    assert len(types) == len(example.results())
