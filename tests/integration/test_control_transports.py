"""The control channel over each of its transports: the same protocol, the same bounds, the same ends."""

from __future__ import annotations

import json
import os
import select
import socket
import stat
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from harness import Application, eventually
from harness.variants import port_of

LOCATOR = "var/tmp/worker.lifecycle.json"
KEYS = {
    "version",
    "control_credential",
    "control_transport",
    "socket_path",
    "tcp_host",
    "tcp_port",
    "stop_timeout_ms",
    "force_kill_timeout_ms",
}


class Served:
    """An application over one transport."""

    def __init__(self, application: Callable[..., Application], transport: str, **worker: object) -> None:
        self.transport = transport
        self.port = port_of("app")
        tables: dict[str, Any] = {"worker.control": {"transport": transport}, "worker.tcp": {"port": self.port}}
        self.app = application(worker={"workers": 1, **worker}, **tables)

    @property
    def locator(self) -> dict[str, Any]:
        return json.loads((self.app.root / LOCATOR).read_text())

    def connect(self) -> socket.socket:
        if self.transport == "tcp":
            client = socket.create_connection(("127.0.0.1", self.port), 5)
        else:
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(5)
            directory = os.open(self.app.root / "var/tmp", os.O_RDONLY)
            client.connect(f"/proc/self/fd/{directory}/worker.sock")
            os.close(directory)
        return client

    def request(self, **changes: object) -> bytes:
        fields = {
            "credential": self.locator["control_credential"],
            "operation": "status",
            "request_id": "a1",
            "version": 1,
            **changes,
        }
        return json.dumps(fields).encode() + b"\n"

    def ask(self, data: bytes) -> bytes:
        """Everything that is answered until the close; a reset is a close."""
        with self.connect() as client:
            answer = b""
            try:
                client.sendall(data)
                while part := client.recv(4096):
                    answer += part
            except (ConnectionResetError, BrokenPipeError):
                pass
            return answer


@pytest.fixture(params=["unix", "tcp"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def served(application: Callable[..., Application], transport: str) -> Iterator[Served]:
    """A pool that runs."""
    one = Served(application, transport)
    one.app.start()
    yield one
    assert 0 == one.app.run("stop").returncode
    one.app.assert_clean()
    assert [] == one.app.leftovers()


def test_the_locator_leads_to_it(served: Served) -> None:
    """Exactly the schema's keys, mode 0600, and what the transport does not use is null."""
    locator = served.locator
    assert KEYS == locator.keys()
    assert 0o600 == stat.S_IMODE((served.app.root / LOCATOR).stat().st_mode)
    host, port = ("127.0.0.1", served.port) if served.transport == "tcp" else (None, None)
    assert (served.transport, "var/tmp/worker.sock", host, port) == (
        locator["control_transport"],
        locator["socket_path"],
        locator["tcp_host"],
        locator["tcp_port"],
    )
    assert (served.transport == "unix") == (served.app.root / "var/tmp/worker.sock").exists()


def test_every_command_reaches_it(served: Served) -> None:
    """``status``, ``health`` and a ``start`` of a second pool; none of them shows the endpoint, but its hash."""
    name = f"tcp:127.0.0.1:{served.port}" if served.transport == "tcp" else "unix:var/tmp/worker.sock"
    for command in ("status", "health"):
        code, told = served.app.json(command)
        assert 0 == code
        assert (served.transport, sha256(name.encode()).hexdigest()) == (
            told["control_transport"],
            told["endpoint_hash"],
        )
        assert str(served.port) not in json.dumps({**told, "endpoint_hash": ""})
    assert 4 == served.app.run("start").returncode
    state = json.loads((served.app.root / "var/tmp/worker.state.json").read_text())
    assert (served.transport, served.transport) == (state["control_transport_requested"], state["control_transport"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"credential": "0" * 64},
        {"credential": None},
        {"operation": "reload"},
        {"version": 2},
        {"request_id": ""},
        {"more": 1},
    ],
)
def test_a_wrong_request_is_closed_without_a_word(served: Served, wrong: dict[str, object]) -> None:
    assert b"" == served.ask(served.request(**wrong))
    assert b'"state"' in served.ask(served.request())


@pytest.mark.parametrize("data", [b"\n", b"{}\n", b"x" * 5000, b"\0" * 4095 + b"\n", b"GET / HTTP/1.1\r\n\r\n"])
def test_what_is_no_request_is_closed_without_a_word(served: Served, data: bytes) -> None:
    assert b"" == served.ask(data)
    assert b"" == served.ask(served.request() + b"x")
    assert b'"state"' in served.ask(served.request())


def test_silent_clients_delay_nobody_and_are_closed(served: Served) -> None:
    """A hundred of them: the bound holds, others are served meanwhile, a second later all are closed."""
    silent = [served.connect() for _ in range(100)]
    assert b'"healthy":true' in served.ask(served.request(operation="health"))
    began = time.monotonic()
    for client in silent:
        ready, _, _ = select.select([client], [], [], 5)
        assert ready, "a silent client is kept"
        with client:
            try:
                assert b"" == client.recv(1)
            except ConnectionResetError:
                continue
    assert 4 > time.monotonic() - began


def test_stops_share_one_stop_and_are_answered_last(served: Served) -> None:
    """Three ask; each is told ``stopped`` when files and fence are gone; a fourth that went away ends nothing."""
    served.connect().close()
    asking = [served.connect() for _ in range(4)]
    for client in asking:
        client.sendall(served.request(operation="stop"))
    asking.pop().close()
    for client in asking:
        client.settimeout(15)
        with client, client.makefile("rb") as answers:
            frame = json.loads(answers.readline())
        assert ("stopped", "stopping", 0) == (
            frame["status"],
            frame["result"]["state"]["status"],
            frame["result"]["state"]["ready_worker_count"],
        )
        assert [] == served.app.leftovers()
        assert served.app.fence_free()
    assert 0 == served.app.pools[0].wait(5)
    served.app.start()


def test_a_restart_at_once_finds_its_place_again(application: Callable[..., Application], transport: str) -> None:
    """Closed sessions of the last generation (which the system remembers for a minute) refuse nothing."""
    served = Served(application, transport)
    for _ in range(3):
        pool = served.app.start()
        for _ in range(5):
            assert served.ask(served.request())
        pool.stop()
    served.app.assert_clean()
    assert [] == served.app.leftovers()


def test_a_killed_pool_leaves_nothing_that_stops_the_next(
    application: Callable[..., Application], transport: str
) -> None:
    """Supervisor killed: 3 once the fence is free, and the next start works, over the other transport as well."""
    served = Served(application, transport)
    pool = served.app.start()
    pool.kill()
    pool.assert_gone(15)
    eventually(served.app.fence_free, 5)
    assert 3 == served.app.run("status").returncode
    other = "unix" if transport == "tcp" else "tcp"
    served.app.configure(
        worker={"workers": 1}, **{"worker.control": {"transport": other}, "worker.tcp": {"port": port_of("other")}}
    )
    again = served.app.start()
    assert other == again.status()["control_transport"]
    again.stop()
    served.app.assert_clean()
    assert [] == served.app.leftovers()


def test_a_port_in_use_is_a_clear_error_and_undoes_the_start(application: Callable[..., Application]) -> None:
    """Exit 1, the reason, a hint that names the key and no value; nothing lives or is left; who has it keeps it."""
    served = Served(application, "tcp")
    served.app.build()
    with socket.create_server(("127.0.0.1", served.port)) as holder:
        pool = served.app.pool()
        pool.start(wait=False)
        assert 1 == pool.wait(20)
        assert "PLATFORM_WORKER_START_FAILED: worker-control-unavailable\nhint: worker.tcp.port: " in pool.log()
        assert str(served.port) not in pool.log() + pool.out.read_text()
        holder.settimeout(0)
        with pytest.raises(BlockingIOError):
            holder.accept()
    served.app.assert_clean()
    assert [] == served.app.leftovers()


def test_two_pools_on_one_port(application: Callable[..., Application]) -> None:
    """The second does not start, and the first notices nothing."""
    first = Served(application, "tcp")
    pool = first.app.start()
    second = application(
        "second", worker={"workers": 1}, **{"worker.control": {"transport": "tcp"}, "worker.tcp": {"port": first.port}}
    )
    second.build()
    refused = second.pool()
    refused.start(wait=False)
    assert 1 == refused.wait(20)
    assert 3 == second.run("status").returncode
    assert 1 == pool.ready()
    pool.stop()


def test_a_stranger_on_a_dead_pools_port_is_neither_asked_nor_believed(
    application: Callable[..., Application],
) -> None:
    """The locator that a crash left leads to a port that may be anybody's by then: 3, and nothing is connected."""
    served = Served(application, "tcp")
    pool = served.app.start()
    left = (served.app.root / LOCATOR).read_bytes()
    pool.stop()
    path = Path(served.app.root / LOCATOR)
    path.write_bytes(left)
    path.chmod(0o600)
    with socket.create_server(("127.0.0.1", served.port)) as stranger:
        for command in ("status", "health", "stop"):
            assert 3 == served.app.run(command).returncode
        stranger.settimeout(0)
        with pytest.raises(BlockingIOError):
            stranger.accept()


def test_only_the_loopback_address_is_bound(application: Callable[..., Application]) -> None:
    """Another address of this machine refuses."""
    served = Served(application, "tcp")
    pool = served.app.start()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", served.port), 2):
        pass
    rows = Path("/proc/net/tcp").read_text().splitlines() + Path("/proc/net/tcp6").read_text().splitlines()
    listening = [
        row.split()[1] for row in rows if row.split()[3] == "0A" and row.split()[1].endswith(f":{served.port:04X}")
    ]
    assert [f"0100007F:{served.port:04X}"] == listening
    pool.stop()
