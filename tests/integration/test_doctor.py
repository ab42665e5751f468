"""``worker doctor``: what it sees of real pools, and whom ``--fix`` ends."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Application, Pool, alive, eventually
from harness.application import WORKER
from harness.processes import command
from platform_worker.doctor.findings import unit_stop_seconds
from platform_worker.host import examine_machine

KEYS = {"findings", "leftovers", "fixed", "status"}


def examine(app: Application, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and object; nothing secret or absolute is in it."""
    done = app.run("doctor", "--json", *arguments)
    assert str(app.root) not in done.stdout
    code, told = done.returncode, json.loads(done.stdout)
    assert KEYS == told.keys()
    assert ({0: "ok", 1: "problems"}[code]) == told["status"]
    for finding in told["findings"]:
        assert {"check", "level", "text", "remedy"} == finding.keys()
    return code, told


def checks(told: dict[str, Any], level: str = "problem") -> list[str]:
    return [finding["check"] for finding in told["findings"] if finding["level"] == level]


def leave_behind(app: Application, pool: Pool) -> int:
    """Kills supervisor and guardian over a task that has started a process in a session of its own; who that is."""
    app.enqueue("shell", script="exec setsid -f sleep 1000", wait=False)
    (left,) = eventually(lambda: [pid for pid in pool.others() if "sleep 1000 " == command(pid)])
    guardian = pool.guardian()
    assert guardian is not None
    pool.signal(signal.SIGSTOP)
    os.kill(guardian, signal.SIGKILL)
    pool.kill()
    eventually(lambda: [left] == pool.census())
    return left


def test_nothing_is_wrong(application: Callable[..., Application]) -> None:
    """Before, while and after a pool runs: exit 0, nothing is created or changed, and the plain text says ok."""
    app = application(worker={"workers": 1}).build()
    before = sorted(str(path) for path in app.root.rglob("*") if "__pycache__" not in str(path))
    assert (0, []) == (examine(app)[0], checks(examine(app)[1]))
    assert before == sorted(str(path) for path in app.root.rglob("*") if "__pycache__" not in str(path))
    pool = app.start()
    assert 0 == examine(app, "--fix")[0]
    assert 1 == pool.ready()
    assert "\nok\n" in "\n" + app.run("doctor").stdout
    pool.stop()
    assert 0 == examine(app)[0]


def test_leftovers_are_listed_and_ended(application: Callable[..., Application]) -> None:
    """By pid, start time and generation; a running generation is spared, whoever starts processes in it."""
    app = application(worker={"workers": 1})
    left = leave_behind(app, app.start())
    code, told = examine(app)
    assert (1, ["leftovers"]) == (code, checks(told))
    (one,) = told["leftovers"]
    assert (left, 1) == (one["pid"], one["generation"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", one["start_time"])
    assert alive(left)

    again = app.start()
    app.enqueue("shell", script="exec setsid -f sleep 1000", wait=False)
    live = eventually(lambda: [pid for pid in again.others() if "sleep 1000 " == command(pid)])
    assert [left] == [one["pid"] for one in examine(app)[1]["leftovers"]]
    assert f"leftover: pid {left}, started " in app.run("doctor").stdout
    code, told = examine(app, "--fix")
    assert (0, 1, []) == (code, told["fixed"], told["leftovers"])
    assert not alive(left)
    assert all(map(alive, live))
    assert 1 == again.ready()
    again.stop()
    app.assert_clean()


def test_another_roots_processes_are_not_ours(application: Callable[..., Application]) -> None:
    """The same generation of a copy of the root: neither listed nor ended."""
    app, other = application("one", worker={"workers": 1}), application("other", worker={"workers": 1})
    left = leave_behind(other, other.start())
    app.build()
    shutil.copytree(other.root / "var/tmp", app.root / "var/tmp", ignore=shutil.ignore_patterns("*.sock"))
    assert [] == examine(app, "--fix")[1]["leftovers"]
    assert alive(left)
    assert 1 == examine(other, "--fix")[1]["fixed"]
    other.assert_clean()


#: What a task leaves behind; later, somebody calls the doctor in it.
LOITER = """
until [ -e go ]; do sleep 0.05; done
{worker} --root . doctor --fix > told 2>&1
echo $? > code.tmp
mv code.tmp code
sleep 1000
"""


def test_who_runs_below_a_leftover_spares_it(application: Callable[..., Application]) -> None:
    """A shell that a task left behind, and in which a person calls the doctor, is told of and not ended."""
    app = application(worker={"workers": 1})
    (app.root / "loiter.sh").write_text(LOITER.format(worker=WORKER))
    pool = app.start()
    app.enqueue("shell", script="exec setsid -f sh loiter.sh", wait=False)
    (shell,) = eventually(lambda: [pid for pid in pool.others() if "sh loiter.sh " == command(pid)])
    guardian = pool.guardian()
    assert guardian is not None
    pool.signal(signal.SIGSTOP)
    os.kill(guardian, signal.SIGKILL)
    pool.kill()
    (app.root / "go").touch()
    eventually((app.root / "code").exists, 20)
    assert "1\n" == (app.root / "code").read_text()
    assert alive(shell)
    assert f"leftover: pid {shell}, " in (app.root / "told").read_text()
    assert 1 <= examine(app, "--fix")[1]["fixed"]
    assert not alive(shell)


def test_artifacts(application: Callable[..., Application]) -> None:
    """None selected, stale, broken, not to be built: each is a problem with its remedy."""
    app = application(worker={"workers": 1})
    code, told = examine(app)
    assert (1, ["artifacts"]) == (code, checks(told))
    assert "worker build" == told["findings"][0]["remedy"]
    app.build()
    app.configure(worker={"workers": 2})
    assert ["artifacts"] == checks(examine(app)[1])
    (app.root / "worker.toml").write_text("[worker]\nworkers = 0\n")
    (found,) = [one for one in examine(app)[1]["findings"] if one["level"] == "problem"]
    assert "worker-config-invalid; worker.toml line 2: worker.workers" in found["text"]
    (app.root / "worker.toml").unlink()  # a root that has only what was built elsewhere is fine
    assert 0 == examine(app)[0]
    (selected,) = (app.root / "var/artifacts/generations").iterdir()
    (selected / "config.json").write_text("{}")
    assert ["artifacts"] == checks(examine(app)[1])


def test_modes(application: Callable[..., Application]) -> None:
    app = application(worker={"workers": 1}).build()
    (app.root / "var").chmod(0o777)
    assert ["modes"] == checks(examine(app)[1])
    (app.root / "var").chmod(0o775)
    assert "modes" in checks(examine(app)[1], "note")


def test_a_pool_that_does_not_answer(application: Callable[..., Application]) -> None:
    app = application(worker={"workers": 1})
    pool = app.start()
    pool.signal(signal.SIGSTOP)
    assert ["communication"] == checks(examine(app, "--fix")[1])
    pool.signal(signal.SIGCONT)
    assert 1 == pool.ready()
    pool.stop()


def test_the_limits_are_those_of_the_running_pool(application: Callable[..., Application]) -> None:
    """Not those of the shell that the doctor is called from."""
    app = application(worker={"workers": 1})
    app.build()
    pool = app.pool()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    pool.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard)))
    assert ["limits"] == checks(examine(app)[1])
    pool.stop()
    assert 0 == examine(app)[0]


def test_units_that_start_this_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by their command or working directory; drop-ins after the file; others are not looked at."""
    monkeypatch.setattr(examine_machine, "_UNIT_FOLDERS", (str(tmp_path / "etc"), str(tmp_path / "lib")))
    monkeypatch.setenv("HOME", str(tmp_path))
    texts = {
        "etc/a.service": "[Service]\nExecStart=/venv/bin/worker --root /srv/a start\nTimeoutStopSec=5\n",
        "lib/a.service": "[Service]\nExecStart=/venv/bin/worker --root /srv/a start\nTimeoutStopSec=500\n",
        "lib/a.service.d/20.conf": "[Service]\nTimeoutStopSec=7\n",
        "etc/a.service.d/10.conf": "[Service]\nTimeoutStopSec=6\n",
        "lib/b.service": "[Service]\nWorkingDirectory=/srv/a\nExecStart=/venv/bin/worker start\n",
        "lib/c.service": "[Service]\nExecStart=/venv/bin/worker --root /srv/ab start\n",
        "lib/d.service": "[Service]\nWorkingDirectory=/srv/a\nExecStart=/bin/other\n",
        ".config/systemd/user/e.service": "[Service]\nExecStart=worker --root=/srv/a start\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {name: unit_stop_seconds(parts) for name, parts in examine_machine.unit_files("/srv/a")}
    assert {"a.service": 7.0, "b.service": 90.0, "e.service": 90.0} == found


def test_the_file_system_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert examine_machine.file_system(str(tmp_path)) == examine_machine.file_system(str(tmp_path / "no/where"))
    assert examine_machine.file_system(str(tmp_path)) != ""


def test_our_own_unit_is_told_from_the_cgroup() -> None:
    """Here there is none, or it is a name; never an error."""
    found = examine_machine.unit_of(os.getpid())
    assert found is None or found[0].endswith(".service")
