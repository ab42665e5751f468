"""The HTTP probe of real pools: what it says at each stage, and that it is in nobody's way."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Application, eventually
from harness.processes import descriptors

Make = Callable[..., Application]

SLOW = (
    "import os, time\nfrom platform_worker import task\n"
    "while not os.path.exists('boot'):\n    time.sleep(0.005)\n"
    "@task('gate')\ndef gate() -> None:\n"
    "    open('begun', 'w').close()\n"
    "    while not os.path.exists('finish'):\n        time.sleep(0.005)\n"
)


@pytest.fixture
def port() -> int:
    """One that is free."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Status and body."""
    with connect(port) as client:
        client.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = b""
        while data := client.recv(4096):
            answer += data
    head, _, body = answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


def refuses(port: int) -> bool:
    try:
        connect(port).close()
    except ConnectionRefusedError:
        return True
    return False


def test_readiness_follows_health_from_start_to_stop_and_liveness_is_always_there(application: Make, port: int) -> None:
    """503 while starting, refilling and stopping; nothing listens once the fence is free."""
    app = application(tasks=SLOW, worker={"workers": 1}, **{"worker.probe": {"listen": f"127.0.0.1:{port}"}})
    (app.root / "boot").touch()
    app.build()
    (app.root / "boot").unlink()
    pool = app.pool()
    pool.start(wait=False)
    eventually(lambda: not refuses(port), 20)
    assert (503, "worker-pool-starting\n") == ask(port, "/readyz")
    assert (200, "ok\n") == ask(port, "/livez")

    (app.root / "boot").touch()
    pool.summary()
    assert (200, "healthy\n") == ask(port, "/readyz")
    assert (200, "") == ask(port, "/readyz", "HEAD")
    assert (404, "not found\n") == ask(port, "/")
    assert (405, "method not allowed\n") == ask(port, "/livez", "POST")

    (app.root / "boot").unlink()
    os.kill(pool.children()[0], signal.SIGKILL)
    eventually(lambda: ask(port, "/readyz") == (503, "worker-pool-not-ready\n"))
    assert (200, "ok\n") == ask(port, "/livez")
    (app.root / "boot").touch()
    eventually(lambda: ask(port, "/readyz") == (200, "healthy\n"), 20)

    app.enqueue("gate")
    eventually((app.root / "begun").exists)
    pool.signal()
    eventually(lambda: ask(port, "/readyz") == (503, "worker-pool-stopping\n"))
    assert (200, "ok\n") == ask(port, "/livez")
    (app.root / "finish").touch()
    assert 0 == pool.wait()
    assert refuses(port)
    app.assert_clean()


def test_it_is_off_unless_an_address_is_given(application: Make) -> None:
    """No process of the pool listens on anything but the control socket."""
    app = application(worker={"workers": 1})
    pool = app.start()
    listening = {
        line.split()[9]
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    held = {what for pid in pool.census() for what in descriptors(pid).values()}
    assert not {f"socket:[{inode}]" for inode in listening} & held
    pool.stop()


def test_the_setting_may_come_from_the_environment_and_is_checked_there(application: Make, port: int) -> None:
    app = application(worker={"workers": 1})
    text = (app.root / "worker.toml").read_text()
    (app.root / "worker.toml").write_text(text + '[worker.probe]\nlisten = { env = "PROBE", default = "" }\n')
    assert 0 == app.run("build").returncode
    pool = app.pool(PROBE=f"127.0.0.1:{port}")
    pool.start()
    assert (200, "healthy\n") == ask(port, "/readyz")
    pool.stop()

    pool = app.pool(PROBE="localhost:http")
    pool.start(wait=False)
    assert 2 == pool.wait()
    assert "PLATFORM_WORKER_USAGE: worker-config-invalid\nhint: worker.probe.listen: must be an address" in pool.log()
    assert "localhost" not in pool.log()
    app.assert_clean()


def test_the_build_refuses_what_is_no_address_and_names_the_line(application: Make) -> None:
    app = application(**{"worker.probe": {"listen": "8081"}})
    done = app.run("build")
    line = (app.root / "worker.toml").read_text().splitlines().index('listen = "8081"') + 1
    assert 2 == done.returncode
    assert f"hint: worker.toml line {line}: worker.probe.listen must be an address and a port" in done.stderr


def test_a_port_in_use_fails_the_start_with_the_key_and_leaves_nothing(application: Make) -> None:
    """One error that names the key, never the port; once the port is free the same start succeeds."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        app = application(worker={"workers": 1}, **{"worker.probe": {"listen": f"127.0.0.1:{port}"}})
        pool = app.build().pool()
        pool.start(wait=False)
        assert 1 == pool.wait()
        told = [line for line in pool.log().splitlines() if not line.startswith("{")]
        assert [
            "PLATFORM_WORKER_START_FAILED: worker-control-unavailable",
            "hint: worker.probe.listen: the port is in use by another process",
        ] == told
        assert str(port) not in pool.log()
        app.assert_clean()
        assert [] == app.leftovers()
    app.start().stop()
    app.start().stop()  # and at once again


def test_a_second_start_says_that_a_pool_runs_and_nothing_of_its_port(application: Make, port: int) -> None:
    app = application(worker={"workers": 1}, **{"worker.probe": {"listen": f"127.0.0.1:{port}"}})
    pool = app.start()
    second = app.run("start")
    assert 4 == second.returncode
    assert "probe" not in second.stderr
    pool.stop()


def test_a_crowd_at_the_probe_keeps_nobody_from_the_control_socket(application: Make, port: int) -> None:
    """200 clients that say nothing: ``status`` and ``health`` answer, the probe itself too, and descriptors end."""
    app = application(worker={"workers": 1}, **{"worker.probe": {"listen": f"127.0.0.1:{port}"}})
    pool = app.start()
    before = len(descriptors(pool.supervisor))
    crowd = [connect(port) for _ in range(200)]
    for number in range(5):
        assert 0 == pool.health()[0], number
        assert (200, "healthy\n") == ask(port, "/readyz")
        assert len(descriptors(pool.supervisor)) <= before + 64 + 2
        crowd += [connect(port) for _ in range(20)]
    for client in crowd:
        client.close()
    eventually(lambda: len(descriptors(pool.supervisor)) <= before)
    pool.stop()
    app.assert_clean()


def test_it_listens_on_ipv6_too(application: Make) -> None:
    try:
        with socket.socket(socket.AF_INET6) as found:
            found.bind(("::1", 0))
            port = found.getsockname()[1]
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    app = application(worker={"workers": 1}, **{"worker.probe": {"listen": f"[::1]:{port}"}})
    pool = app.start()
    with socket.create_connection(("::1", port), timeout=5) as client:
        client.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
    pool.stop()
