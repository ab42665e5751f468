"""Thousands of files that are nearly right: generations, units, ``worker.toml``. Each is taken as it is or refused."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Application, scaled
from harness.mutation import mutated
from platform_worker.artifacts.boot import load_current, read_selected
from platform_worker.artifacts.canonical import sha256_hex
from platform_worker.building.compile import compile_settings
from platform_worker.doctor.findings import of_stop_timeout, unit_stop_seconds
from platform_worker.errors import WorkerStartError, WorkerUsageError
from platform_worker.host import examine_machine
from platform_worker.tasks.discovery import installed

Make = Callable[..., Application]
UNIT = b"""[Unit]
Description=A pool
[Service]
Type=notify
WorkingDirectory=/srv/a
ExecStart=/venv/bin/worker --root /srv/a start
TimeoutStopSec=1min 30s
TimeoutSec=20
[Install]
WantedBy=multi-user.target
"""


def test_a_changed_file_of_a_generation_is_refused(application: Make) -> None:
    """Whatever was changed, in whichever of the files; and no descriptor is kept."""
    app = application()
    app.build()
    chance = random.Random(3)
    folder = app.root / "var" / "artifacts"
    whole = load_current(str(app.root))
    paths = [folder / "current", *sorted((folder / "generations" / whole.id).iterdir())]
    assert 5 == len(paths)
    kept = len(os.listdir("/proc/self/fd"))
    for _ in range(scaled(1000)):
        path = chance.choice(paths)
        before = path.read_bytes()
        data = mutated(before, chance)
        rewrite(path, data)
        if data == before:
            assert whole.id == load_current(str(app.root)).id
        else:
            with pytest.raises(WorkerStartError) as caught:
                load_current(str(app.root))
            assert "worker-generation-invalid" == caught.value.reason, (path.name, data)
        rewrite(path, before)
    assert kept == len(os.listdir("/proc/self/fd"))


def test_a_manifest_that_fits_its_folder_and_is_nonsense_is_refused(application: Make) -> None:
    """As one of another version would be: its own hash is right, and nothing else need be."""
    app = application()
    app.build()
    chance = random.Random(4)
    root = str(app.root)
    folder = app.root / "var" / "artifacts"
    home = folder / "generations" / read_selected(root)
    original = (home / "generation.json").read_bytes()
    for _ in range(scaled(1000)):
        data = mutated(original, chance)
        home = home.rename(home.with_name(sha256_hex(data)))
        rewrite(home / "generation.json", data)
        rewrite(folder / "current", home.name.encode() + b"\n")
        if data != original:
            with pytest.raises(WorkerStartError) as caught:
                load_current(root)
            assert "worker-generation-invalid" == caught.value.reason, data


def test_a_unit_that_is_off_says_something_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time, for ever, or not our unit; ``worker doctor`` goes on in any case."""
    monkeypatch.setattr(examine_machine, "_UNIT_FOLDERS", (str(tmp_path),))
    monkeypatch.setenv("HOME", str(tmp_path))
    chance = random.Random(5)
    (tmp_path / "a[1].service.d").mkdir()
    unit, drop_in = tmp_path / "a[1].service", tmp_path / "a[1].service.d" / "10.conf"
    ours = 0
    for _ in range(scaled(1000)):
        unit.write_bytes(mutated(UNIT, chance))
        drop_in.write_bytes(mutated(b"[Service]\nTimeoutStopSec=infinity\n", chance))
        for name, texts in examine_machine.unit_files("/srv/a"):
            ours += 1
            assert 2 == len(texts)
            seconds = unit_stop_seconds(texts)
            assert seconds is None or seconds > 0, texts
            assert len(list(of_stop_timeout(name, seconds, 10_000, 2_000))) <= 1
    assert ours > scaled(1000) // 2


def test_what_is_no_unit_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO, a folder, a link to nowhere, a mask."""
    monkeypatch.setattr(examine_machine, "_UNIT_FOLDERS", (str(tmp_path),))
    monkeypatch.setenv("HOME", str(tmp_path))
    os.mkfifo(tmp_path / "a.service")
    (tmp_path / "b.service").mkdir()
    (tmp_path / "c.service").symlink_to("nowhere")
    (tmp_path / "d.service").symlink_to("/dev/null")
    assert [] == list(examine_machine.unit_files("/srv/a"))


def test_a_settings_file_that_is_off_is_compiled_or_every_mistake_has_a_hint(application: Make) -> None:
    """No other exception than the one that users see."""
    app = application(
        worker={"workers": 2, "max_requests": 100, "max_requests_jitter": 5},
        **{
            "worker.tcp": {"port": 15000},
            "worker.probe": {"listen": "127.0.0.1:8081"},
        },
    )
    chance = random.Random(6)
    found = installed()
    original = (app.root / "worker.toml").read_bytes()
    refused: list[tuple[bytes, WorkerUsageError]] = []
    for _ in range(scaled(500)):
        data = mutated(original, chance)
        try:
            compile_settings(data, {}, found, lambda error: None)
        except WorkerUsageError as error:
            refused.append((data, error))
    assert 0 < len(refused) < scaled(500), refused[0]
    for data, error in refused:
        assert "worker-config-invalid" == error.reason, data
        assert error.hints, data
        assert all(hint.startswith("worker.toml") for hint in error.hints), (data, error.hints)


def rewrite(path: Path, data: bytes) -> None:
    """A generation's files are read-only."""
    path.chmod(0o600)
    path.write_bytes(data)
