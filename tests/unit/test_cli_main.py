"""The command line's frame: where options may stand, and what a person is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from platform_worker.cli import COMMANDS, main
from platform_worker.errors import (
    WorkerAlreadyRunningError,
    WorkerCommunicationError,
    WorkerError,
    WorkerNotRunningError,
)


@pytest.mark.parametrize("before", [True, False])
def test_root_and_json_stand_before_or_after_the_command(
    before: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--root", str(tmp_path), "--json"]
    assert main([*options, "status"] if before else ["status", *options]) == 3
    out, err = capsys.readouterr()
    assert {"code": "PLATFORM_WORKER_NOT_RUNNING", "reason": "worker-not-running", "status": "error"} == json.loads(out)
    line, hint = err.splitlines()
    assert "PLATFORM_WORKER_NOT_RUNNING: worker-not-running" == line
    assert "hint: there is no worker.toml in the root; give --root DIR, or set WORKER_ROOT" == hint


STATE = {
    "status": "stopping", "pid": 1, "worker_count": 4, "ready_worker_count": 0, "driver": "fork",
    "control_transport": "unix", "endpoint_hash": "0",
}  # fmt: skip


def test_a_stop_says_that_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform_worker.cli.ask.ask", lambda _root, _operation: dict(STATE))
    assert main(["--root", str(tmp_path), "stop"]) == 0
    assert "stopped\n" == capsys.readouterr().out
    assert main(["--root", str(tmp_path), "status"]) == 0
    assert "stopping: 0 of 4 workers ready\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "hint"),
    [
        (WorkerNotRunningError("worker-not-running"), 3, "`worker start` runs a pool"),
        (WorkerCommunicationError("worker-communication-failed"), 5, "ends by itself"),
    ],
)
def test_who_cannot_be_asked_has_a_hint(
    error: WorkerError,
    code: int,
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ask(_root: str, _operation: str) -> None:
        raise error

    monkeypatch.setattr("platform_worker.cli.ask.ask", ask)
    (tmp_path / "worker.toml").touch()
    for command in ("status", "health", "stop"):
        assert main(["--root", str(tmp_path), command]) == code
        assert hint in capsys.readouterr().err


def test_a_start_beside_a_pool_has_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_root: str, **_: object) -> None:
        raise WorkerAlreadyRunningError("worker-already-running")

    monkeypatch.setattr("platform_worker.cli.start.run_start", refuse)
    assert main(["--root", str(tmp_path), "start"]) == 4
    assert "hint: a pool runs on this root" in capsys.readouterr().err


def test_jobs_in_a_folder_without_an_application_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(tmp_path), "jobs"]) == 1
    assert "hint: there is no worker.toml in the root" in capsys.readouterr().err
    (tmp_path / "worker.toml").touch()
    assert main(["--root", str(tmp_path), "jobs"]) == 1
    assert "hint: run worker build first" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "health", "stop"])
def test_nothing_runs_in_an_empty_folder_and_nothing_is_created(command: str, tmp_path: Path) -> None:
    assert main(["--root", str(tmp_path), command]) == 3
    assert [] == os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["statsu"], "did you mean status?"),
        (["--rot"], "unknown option --rot"),
        (["--json"], "a command is missing"),
        (["status", "more"], "status takes no arguments"),
        (["start", "--now"], "start takes --build"),
        (["start", "--once", "--until-empty"], "exclude each other"),
        (["status", "--root"], "--root needs a directory"),
        (["--root", "/nowhere/at/all", "status"], "no such directory"),
        (["start", "--workers", "3"], "are set in worker.toml, under [worker]"),
        (["build", "--chek"], "worker build --help"),
        (["build", "--chek=secret"], "unknown option --chek; did you mean --check?"),
        (["build", "secret"], "takes no further argument"),
        (["jobs", "shwo"], "did you mean show?"),
        (["jobs", "secret"], "known are show, retry, cancel, purge, recover"),
        (
            ["jobs", "--status", "secret"],
            "--status: must be one of queued, retry_wait, processing, completed, failed, ",
        ),
        (["jobs", "--status", "complete"], "did you mean completed?"),
        (["jobs", "--limit", "secret"], "--limit: must be a whole number"),
        (["jobs", "--limit"], "--limit: expected one argument"),
        (["jobs", "show"], "required: ID"),
        (["jobs", "purge", "--older-than", "secret"], "--older-than: must be a number with a unit, as 500ms"),
        (["queues", "pasue", "default"], "must be one of pause, resume; did you mean pause?"),
        (["enqueue", "hello", "name=secret"], "--data, as '{"),
        (["enqueue", "hello", "--delay", "secret"], "--delay: must be a number"),
    ],
)
def test_what_is_off_is_a_usage_error_with_a_hint(
    argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert "PLATFORM_WORKER_USAGE: worker-usage-invalid" in err
    assert hint in err
    assert "/nowhere" not in err
    assert "secret" not in err
    assert (out != "") == ("--json" in argv)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    usage, _, rest = capsys.readouterr().out.partition("\n\n")
    assert usage.startswith(f"usage: worker {command} ")
    assert "--root DIR" in usage
    assert "--json" in usage
    assert "example:" in rest
    assert f"worker {command}" in rest or f"worker --root my-app {command}" in rest or "worker --root /srv/app" in rest


def test_the_package_itself_is_the_command() -> None:
    run = [sys.executable, "-m", "platform_worker", "--version"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("worker ")


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {command} " in text for command in COMMANDS)
