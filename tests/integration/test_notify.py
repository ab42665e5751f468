"""A service manager is told by the supervisor alone, over a real socket, and cannot be in its way."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Application, Pool, eventually
from harness.processes import environment

Make = Callable[..., Application]

#: Everything that a service manager gives to the process it starts.
GIVEN = {
    "WATCHDOG_USEC": "600000",
    "LISTEN_FDS": "1",
    "LISTEN_PID": "1",
    "LISTEN_PIDFDID": "1",
    "LISTEN_FDNAMES": "a",
    "FDSTORE": "5",
}


class Manager:
    """The other end of ``NOTIFY_SOCKET``: each message with the pid that the kernel says it came from, and when."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.messages: list[tuple[float, int, list[str]]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.setblocking(False)

    def lines(self) -> list[str]:
        """Every line so far."""
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(struct.calcsize("3i")))
            except BlockingIOError:
                break
            pid = struct.unpack("3i", ancillary[0][2])[0]
            self.messages.append((time.monotonic(), pid, data.decode().split("\n")))
        return [line for _, _, lines in self.messages for line in lines]

    def values(self, word: str) -> list[str]:
        """The values that it was given of one word, in order."""
        return [line.partition("=")[2] for line in self.lines() if line.startswith(f"{word}=")]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "n") if request.param == "path" else f"@platform-worker-{os.urandom(8).hex()}")
    yield made
    made.close()


def started(app: Application, manager: Manager, **environ: str) -> Pool:
    """A pool that has been told to notify, not waited for."""
    pool = app.build().pool(NOTIFY_SOCKET=manager.address, **environ)
    pool.start(wait=False)
    return pool


def test_ready_comes_when_every_child_is_and_from_the_supervisor_alone(application: Make, manager: Manager) -> None:
    """Not before a child that boots slowly is ready; each change of the status follows; then the stop."""
    app = application(
        tasks="import os, time\nfrom platform_worker import task\n"
        "while os.environ.get('SLOW') and not os.path.exists('boot'):\n    time.sleep(0.005)\n"
        "@task('nothing')\ndef nothing() -> None: ...\n",
    )
    pool = started(app, manager, SLOW="1")
    eventually(lambda: pool.children().keys() == {0, 1}, 20, "both children boot")
    eventually(lambda: pool.health()[0] == 1, 10, "it can be asked, and is not healthy")
    assert [] == manager.values("READY")
    assert ["Starting: 0 of 2 workers ready"] == manager.values("STATUS")

    (app.root / "boot").touch()
    pool.summary()
    eventually(lambda: manager.values("READY") == ["1"])
    assert [str(pool.supervisor)] == manager.values("MAINPID")
    os.kill(pool.children()[0], signal.SIGKILL)
    eventually(lambda: "Running: 1 of 2 workers ready" in manager.values("STATUS"))
    eventually(lambda: manager.values("STATUS")[-1] == "Running: 2 of 2 workers ready", 20)
    pool.stop()

    assert "Stopping" == manager.values("STATUS")[-1]
    assert ["1"] == manager.values("STOPPING")
    assert ["1"] == manager.values("READY")
    assert {pool.supervisor} == {pid for _, pid, _ in manager.messages}
    app.assert_clean()


def test_no_other_process_has_what_the_manager_gave_to_the_supervisor(application: Make, manager: Manager) -> None:
    """Neither the guardian nor a child, nor what a task starts."""
    app = application()
    pool = started(app, manager, **GIVEN)
    pool.summary()
    job = app.enqueue("shell", script="env >variables")[0]
    eventually(lambda: app.job(job).status == "completed")
    others = [pid for pid in pool.census() if pid != pool.supervisor]
    assert 3 == len(others)
    names = {*GIVEN, "NOTIFY_SOCKET", "WATCHDOG_PID"}
    assert set() == {name for pid in others for name in environment(pid)} & names
    assert set() == {line.partition("=")[0] for line in (app.root / "variables").read_text().split("\n")} & names
    pool.stop()
    app.assert_clean()


def test_a_drain_asks_for_the_time_it_needs_and_no_more_than_its_budgets(application: Make, manager: Manager) -> None:
    app = application(worker={"workers": 1, "stop_timeout_ms": 60_000, "force_kill_timeout_ms": 1_000})
    pool = started(app, manager)
    pool.summary()
    job = app.enqueue("gate")[0]
    eventually(lambda: app.ledger.count("start", job))
    before = len(manager.values("EXTEND_TIMEOUT_USEC"))
    pool.signal()
    eventually(lambda: manager.values("STOPPING"))
    stopping = next(lines for _, _, lines in manager.messages if "STOPPING=1" in lines)
    assert "EXTEND_TIMEOUT_USEC=15000000" in stopping
    eventually(lambda: len(manager.values("EXTEND_TIMEOUT_USEC")) >= before + 2, 20, "it asks again")
    (app.root / "gate").touch()
    assert 0 == pool.wait()
    assert "completed" == app.job(job).status
    app.assert_clean()


def test_signs_of_life_come_from_the_loop_at_half_the_interval(application: Make, manager: Manager) -> None:
    """As long as it turns, and not while it does not."""
    app = application(worker={"workers": 1})
    pool = started(app, manager, WATCHDOG_USEC="1000000")
    pool.summary()
    eventually(lambda: len(manager.values("WATCHDOG")) >= 5)
    at = [moment for moment, _, lines in manager.messages if "WATCHDOG=1" in lines]
    assert len(at) <= 2 * (time.monotonic() - at[0]) / 0.5 + 2

    pool.signal(signal.SIGSTOP)
    eventually(lambda: "T" == Path(f"/proc/{pool.supervisor}/stat").read_text().rsplit(")", 1)[1].split()[0])
    count, until = len(manager.values("WATCHDOG")), time.monotonic() + 1.5
    eventually(lambda: time.monotonic() >= until)
    assert count == len(manager.values("WATCHDOG"))
    pool.signal(signal.SIGCONT)
    eventually(lambda: len(manager.values("WATCHDOG")) > count)
    pool.stop()


def test_a_watchdog_that_is_meant_for_another_process_is_not_fed(application: Make, manager: Manager) -> None:
    app = application(worker={"workers": 1})
    pool = started(app, manager, WATCHDOG_USEC="20000", WATCHDOG_PID="1")
    pool.summary()
    jobs = app.enqueue("nap", 5, seconds=0.05)
    eventually(lambda: {"completed": 5} == app.statuses())
    app.ledger.assert_once(jobs)
    assert [] == manager.values("WATCHDOG")
    pool.stop()


@pytest.mark.parametrize("address", ["missing", "@nobody", "x" * 500, "vsock:2:9999", "/", "relative\udce9"])
def test_a_manager_that_is_not_there_changes_nothing(application: Make, address: str, tmp_path: Path) -> None:
    app = application(worker={"workers": 1})
    pool = app.build().pool(NOTIFY_SOCKET=str(tmp_path / address) if address == "missing" else address)
    pool.start()
    job = app.enqueue("nap")[0]
    eventually(lambda: app.job(job).status == "completed")
    pool.stop()
    app.assert_clean()


def test_a_manager_that_does_not_read_delays_nobody_and_is_told_later(application: Make, tmp_path: Path) -> None:
    """Its queue is full when the pool becomes ready: the pool works, and readiness is said when there is room."""
    manager = Manager(str(tmp_path / "n"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        full = False
        while not full:
            try:
                other.sendto(b"X=1", manager.address)
            except BlockingIOError:
                full = True
    app = application(worker={"workers": 1})
    pool = started(app, manager)
    pool.summary()
    job = app.enqueue("nap")[0]
    eventually(lambda: app.job(job).status == "completed")
    assert 0 == pool.health()[0]
    eventually(lambda: manager.values("READY") == ["1"])
    pool.stop()
    app.assert_clean()
    manager.close()
