"""The command line's frame: where options may stand, and what a person is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from platform_worker.cli import COMMANDS, main


@pytest.mark.parametrize("before", [True, False])
def test_root_and_json_stand_before_or_after_the_command(
    before: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--root", str(tmp_path), "--json"]
    assert main([*options, "status"] if before else ["status", *options]) == 3
    out, err = capsys.readouterr()
    assert {"code": "PLATFORM_WORKER_NOT_RUNNING", "reason": "worker-not-running", "status": "error"} == json.loads(out)
    assert "PLATFORM_WORKER_NOT_RUNNING: worker-not-running\n" == err


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
        (["build", "--chek"], "worker build --help"),
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
    assert (out != "") == ("--json" in argv)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"worker {command}" in capsys.readouterr().out


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {command} " in text for command in COMMANDS)
