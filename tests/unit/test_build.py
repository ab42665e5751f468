"""The build as a whole, without handlers; and the cheap look at whether ``worker.toml`` says otherwise by now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from platform_worker import wiring_build
from platform_worker.artifacts.boot import load_current
from platform_worker.building.staleness import config_differs
from platform_worker.building.starter import default_settings, starter_settings
from platform_worker.errors import WorkerUsageError


def build(root: Path, text: str, environ: dict[str, str] | None = None) -> str:
    """Writes the file and builds; the id."""
    (root / "worker.toml").write_text(text)
    return wiring_build.build(str(root), environ or {}).generation


def differs(root: Path, text: str) -> bool:
    """Whether this file says otherwise than what is selected."""
    (root / "worker.toml").write_text(text)
    return config_differs(str(root), load_current(str(root)))


def test_what_is_written_as_the_default_is_the_default(tmp_path: Path) -> None:
    assert build(tmp_path, "") == build(tmp_path, default_settings())
    assert build(tmp_path, "") != build(tmp_path, "[worker]\nworkers = 3")


def test_the_environment_is_no_input_of_a_reference(tmp_path: Path) -> None:
    text = '[worker]\nworkers = { env = "N" }'
    assert build(tmp_path, text, {"N": "1"}) == build(tmp_path, text, {"N": "2"}) == build(tmp_path, text)


@pytest.mark.parametrize("same", ["", "# words\n[worker]\nworkers = 4\n", default_settings(), "[sqlite]\n"])
def test_a_file_that_says_the_same_does_not_differ(tmp_path: Path, same: str) -> None:
    build(tmp_path, "")
    assert not differs(tmp_path, same)


@pytest.mark.parametrize(
    "other",
    [
        "[worker]\nworkers = 5\n",
        "[worker.tcp]\nport = 1\n",
        '[worker]\nworkers = { env = "N" }\n',
        '[sqlite]\nsynchronous = "normal"\n',
        '[app]\nhandlers = ["tasks"]\n',
        "[other]\n",
        "[worker]\nx = 1\n",
        "[worker]\nworkers = true\n",
        "worker = 3",
        "no toml",
        starter_settings(),
    ],
)
def test_a_file_that_says_otherwise_differs(tmp_path: Path, other: str) -> None:
    build(tmp_path, "")
    assert differs(tmp_path, other)


def test_a_reference_is_compared_as_it_was_written(tmp_path: Path) -> None:
    text = '[worker]\nworkers = { env = "N", default = 3 }\n'
    build(tmp_path, text)
    assert not differs(tmp_path, text)
    assert differs(tmp_path, text.replace("3", "4"))
    assert differs(tmp_path, "")


def test_a_file_that_is_gone_differs(tmp_path: Path) -> None:
    build(tmp_path, "")
    (tmp_path / "worker.toml").unlink()
    assert config_differs(str(tmp_path), load_current(str(tmp_path)))


@contextlib.contextmanager
def refused(reason: str) -> Iterator[None]:
    """The body ends with this reason."""
    with pytest.raises(WorkerUsageError, match=reason):
        yield


def test_a_worker_toml_that_is_no_file_is_missing(tmp_path: Path) -> None:
    with refused("worker-config-missing"):
        wiring_build.build(str(tmp_path / "nowhere"), {})
    (tmp_path / "worker.toml").mkdir()
    with refused("worker-config-missing"):
        wiring_build.build(str(tmp_path), {})


def test_init_writes_what_is_missing_and_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("mine")
    assert ["worker.toml"] == wiring_build.initialize(str(tmp_path))
    assert "mine" == (tmp_path / "tasks.py").read_text()
    with refused("worker-usage-invalid"):
        wiring_build.initialize(str(tmp_path))

    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "tasks.py").symlink_to(tmp_path / "nowhere")
    assert ["worker.toml"] == wiring_build.initialize(str(linked))
    assert not (tmp_path / "nowhere").exists()

    root = tmp_path / "new"
    assert ["worker.toml", "tasks.py"] == wiring_build.initialize(str(root))
    assert {"worker.toml", "tasks.py"} == {path.name for path in root.iterdir()}


def test_init_writes_both_files_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform_worker.building.starter.TASKS", "\ud800")  # cannot be written
    with refused("worker-usage-invalid"):
        wiring_build.initialize(str(tmp_path))
    assert [] == list(tmp_path.iterdir())
