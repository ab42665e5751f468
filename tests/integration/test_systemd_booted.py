"""The unit that ``worker systemd`` prints, under a systemd that was really booted."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Application, alive, eventually
from harness.nspawn import Booted, boot
from harness.processes import environment

Make = Callable[..., Application]
WORKER = str(Path(sys.executable).with_name("worker"))
UNIT = "worker.service"
TASKS = """
import os, socket, time
from platform_worker import task

while os.path.exists("hold"):
    time.sleep(0.005)

@task("gate")
def gate() -> None:
    open("var/begun", "w").close()
    while not os.path.exists("open"):
        time.sleep(0.005)
    open("var/done", "w").close()

@task("pretend")
def pretend() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto(b"READY=1\\nSTATUS=pretended\\nMAINPID=%d" % os.getpid(), "/run/systemd/notify")
    open("var/pretended", "w").close()
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    booted = boot(tmp_path_factory.mktemp("booted"))
    yield booted
    booted.close()


class Installed:
    """An application at ``/srv/app`` of the machine, and its unit."""

    def __init__(self, machine: Booted, app: Application, **override: str) -> None:
        self.machine = machine
        self.root = machine.root / "srv/app"
        machine.systemctl("stop", UNIT)
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(app.root, self.root, symlinks=True)
        printed = machine.run(WORKER, "--root", "/srv/app", "systemd")
        assert 0 == printed.returncode, printed.stderr
        folder = machine.root / "etc/systemd/system"
        (folder / UNIT).write_text(printed.stdout)
        if sys.prefix.startswith("/tmp/"):
            override["PrivateTmp"] = "no"  # where the interpreter itself is below /tmp
        (folder / f"{UNIT}.d").mkdir(exist_ok=True)
        lines = "".join(f"{key}={value}\n" for key, value in override.items())
        (folder / f"{UNIT}.d/test.conf").write_text(f"[Service]\n{lines}")
        assert 0 == machine.systemctl("daemon-reload").returncode
        machine.systemctl("reset-failed", UNIT)

    def start(self) -> None:
        started = self.machine.systemctl("start", UNIT)
        assert 0 == started.returncode, self.log()

    def state(self) -> str:
        return self.machine.show(UNIT, "ActiveState")

    def status(self) -> str:
        return self.machine.show(UNIT, "StatusText")

    def members(self) -> list[int]:
        return self.machine.members(UNIT)

    def enqueue(self, task: str) -> str:
        done = self.machine.run(WORKER, "--root", "/srv/app", "enqueue", task)
        assert 0 == done.returncode, done.stderr
        return done.stdout.strip()

    def job(self, id: str) -> str:
        return self.machine.run(WORKER, "--root", "/srv/app", "jobs", "show", id, "--json").stdout

    def log(self) -> str:
        return self.machine.run("journalctl", "--no-pager", "-u", UNIT, "-n", "50").stdout

    def stop(self) -> None:
        assert 0 == self.machine.systemctl("stop", UNIT).returncode
        assert [] == self.members()


def prepared(application: Make, machine: Booted, worker: dict[str, object] | None = None, **override: str) -> Installed:
    app = application(tasks=TASKS, worker={"workers": 2, **(worker or {})})
    app.build()
    return Installed(machine, app, **override)


def test_it_is_active_only_when_every_child_is_ready_and_only_the_supervisor_is_believed(
    application: Make, machine: Booted
) -> None:
    """Children boot for as long as they are held; a task that speaks in the supervisor's place is not heard."""
    unit = prepared(application, machine)
    (unit.root / "hold").touch()
    assert 0 == machine.systemctl("start", "--no-block", UNIT).returncode
    eventually(lambda: unit.status() == "Starting: 0 of 2 workers ready", 30, "it says that it starts")
    eventually(lambda: len(unit.members()) == 4, 30, "supervisor, guardian, two children")
    assert "activating" == unit.state()
    (unit.root / "hold").unlink()
    eventually(lambda: unit.state() == "active", 30, unit.log())
    assert "Running: 2 of 2 workers ready" == unit.status()

    main = machine.show(UNIT, "MainPID")
    unit.enqueue("pretend")
    eventually((unit.root / "var/pretended").exists, 30)
    assert ("Running: 2 of 2 workers ready", main) == (unit.status(), machine.show(UNIT, "MainPID"))
    told = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}
    assert 1 == sum(bool(told & environment(pid).keys()) for pid in unit.members()), (
        "the supervisor was executed with it"
    )
    unit.stop()
    assert ("inactive", "success") == (unit.state(), machine.show(UNIT, "Result"))


def test_a_supervisor_that_hangs_is_started_anew_and_nothing_of_the_old_pool_stays(
    application: Make, machine: Booted
) -> None:
    unit = prepared(application, machine, WatchdogSec="2")
    unit.start()
    old, main = unit.members(), machine.show(UNIT, "MainPID")
    machine.run("kill", "-STOP", main)
    eventually(lambda: machine.show(UNIT, "MainPID") not in (main, "0"), 60, "another supervisor")
    eventually(lambda: unit.state() == "active" and unit.status().startswith("Running: 2 of 2"), 60, unit.log())
    assert [] == [pid for pid in old if alive(pid)]
    assert 4 == len(unit.members())
    unit.stop()


def test_a_stop_timeout_shorter_than_the_drain_does_not_end_a_task(application: Make, machine: Booted) -> None:
    """systemd would kill after one second; the task is let go on after that, and settled."""
    unit = prepared(application, machine, {"stop_timeout_ms": 60_000}, TimeoutStopSec="1")
    unit.start()
    job = unit.enqueue("gate")
    eventually((unit.root / "var/begun").exists, 30)
    assert 0 == machine.systemctl("stop", "--no-block", UNIT).returncode
    eventually(lambda: unit.status() == "Stopping", 30)
    waited = machine.run("sleep", "3")
    assert 0 == waited.returncode
    assert "deactivating" == unit.state(), unit.log()
    (unit.root / "open").touch()
    eventually(lambda: unit.state() == "inactive", 30, unit.log())
    assert "success" == machine.show(UNIT, "Result")
    assert (unit.root / "var/done").exists()
    assert '"status":"completed"' in unit.job(job)
    assert [] == unit.members()


@pytest.mark.parametrize("mode", ["mixed", "control-group"])
def test_whatever_systemctl_does_nobody_of_the_old_pool_is_left(application: Make, machine: Booted, mode: str) -> None:
    unit = prepared(application, machine, KillMode=mode)
    unit.start()
    old = unit.members()
    assert 4 == len(old)
    assert 0 == machine.systemctl("restart", UNIT).returncode, unit.log()
    assert [] == [pid for pid in old if alive(pid)]
    old, main = unit.members(), machine.show(UNIT, "MainPID")
    assert 4 == len(old)

    assert 0 == machine.systemctl("kill", "-s", "KILL", UNIT).returncode
    eventually(lambda: machine.show(UNIT, "MainPID") not in (main, "0") and unit.state() == "active", 60, unit.log())
    assert [] == [pid for pid in old if alive(pid)]
    unit.stop()
    assert ("inactive", "success") == (unit.state(), machine.show(UNIT, "Result"))
