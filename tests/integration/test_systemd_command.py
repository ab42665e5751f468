"""``worker systemd`` on real roots, and its units before systemd's own checker."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Application

Make = Callable[..., Application]
DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "systemd"


def verify(unit: Path) -> None:
    """systemd has nothing to say against it."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    line = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    ours = [said for said in done.stderr.splitlines() if unit.name.partition("@")[0] in said]
    assert (0, []) == (done.returncode, ours), done.stderr


@pytest.mark.parametrize("options", [(), ("--instance",), ("--user", "daemon")])
def test_systemd_takes_the_unit(application: Make, tmp_path: Path, options: tuple[str, ...]) -> None:
    app = application(name="my app 100%")
    done = app.run("systemd", *options)
    assert (0, "") == (done.returncode, done.stderr)
    unit = tmp_path / ("worker@.service" if "--instance" in options else "worker.service")
    unit.write_text(done.stdout)
    assert [] == [name for name in os.listdir(app.root) if name not in ("worker.toml", "tasks.py")]
    verify(unit if "--instance" not in options else unit.rename(tmp_path / "worker@my.service"))


@pytest.mark.parametrize("name", ["worker.service", "worker@.service"])
def test_systemd_takes_the_units_in_deploy(tmp_path: Path, name: str) -> None:
    """But for the program, which is not installed here."""
    unit = tmp_path / name.replace("@", "@app")
    text = (DEPLOY / name).read_text()
    for program in ("/srv/app/.venv/bin/worker", "/srv/%i/.venv/bin/worker"):
        text = text.replace(f"ExecStart={program}", "ExecStart=/bin/true")
    unit.write_text(text)
    verify(unit)


def test_the_budgets_are_those_of_the_file_and_of_this_environment(
    application: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application(worker={"stop_timeout_ms": 90_000, "force_kill_timeout_ms": 2_000})
    code, told = app.json("systemd")
    assert (0, {"name", "status", "unit"}, "worker.service", "ok") == (code, set(told), told["name"], told["status"])
    assert "\nTimeoutStopSec=99\n" in told["unit"]

    (app.root / "worker.toml").write_text('[worker]\nstop_timeout_ms = { env = "STOP_MS" }\n')
    done = app.run("systemd")
    assert (2, "") == (done.returncode, done.stdout)
    assert "worker-environment-missing" in done.stderr
    monkeypatch.setenv("STOP_MS", "30000")
    assert "\nTimeoutStopSec=37\n" in app.run("systemd").stdout


def test_a_wrong_file_or_none_gets_no_unit(application: Make) -> None:
    app = application(worker={"workers": 0})
    done = app.run("systemd")
    assert (2, "") == (done.returncode, done.stdout)
    assert "worker.workers must be 1 or more" in done.stderr
    (app.root / "worker.toml").unlink()
    assert "worker-config-missing" in app.run("systemd").stderr


def test_a_root_that_a_unit_cannot_name_gets_none(application: Make) -> None:
    done = application(name='quo"te').run("systemd")
    assert (2, "") == (done.returncode, done.stdout)
    assert "PLATFORM_WORKER_USAGE: worker-usage-invalid\nhint: the root's path" in done.stderr
