"""Anything at all said to the control socket, found in the locator, or answered to a client."""

from __future__ import annotations

import json
import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import Application, eventually, scaled
from harness.commands import command
from harness.control import LOCATOR, ask, frame, locator, say, session, took
from harness.faults import stop_clean
from harness.mutation import mutated
from harness.processes import descriptors, memory
from platform_worker.errors import WorkerCommunicationError, WorkerError, WorkerNotRunningError
from platform_worker.host import control_client

Make = Callable[..., Application]
MUTE = (5, "PLATFORM_WORKER_COMMUNICATION_FAILED: worker-communication-failed")


def same(data: bytes, original: bytes) -> bool:
    """Whether it still says the same, by a reading of its own: same object, no key twice, nothing after its end."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    try:
        found = json.loads(data.decode(), object_pairs_hook=once)
    except (ValueError, AssertionError, RecursionError):
        return False
    return repr(sorted(found.items())) == repr(sorted(json.loads(original).items())) if type(found) is dict else False


def garbage(chance: random.Random) -> bytes:
    """Nothing like a request."""
    kind = chance.randrange(6)
    if kind == 0:
        return bytes(chance.randrange(256) for _ in range(chance.choice([1, 10, 100, 5000])))
    if kind == 1:
        return b"[" * chance.choice([100, 2000, 4095]) + b"\n"
    if kind == 2:
        return b'{"version":' + b"9" * chance.choice([50, 4000]) + b"}\n"
    if kind == 3:
        return b"x" * chance.choice([4095, 4096, 4097, 100_000]) + b"\n"
    if kind == 4:
        return b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    return b"\n" * chance.choice([1, 2, 5000])


def test_thousands_of_frames_that_are_no_request_are_closed_silently(application: Make) -> None:
    """No answer, no stop, no line in the log, no descriptor and no memory kept, and status answers as before."""
    app = application(worker={"workers": 1})
    pool = app.start()
    chance = random.Random(4096)
    log = pool.log()
    right = {operation: frame(app.root, operation) for operation in ("status", "health", "stop")}
    kept = len(descriptors(pool.supervisor))
    at_first = memory(pool.supervisor)
    for number in range(scaled(1500)):
        original = right[chance.choice(list(right))]
        data = mutated(original, chance) if chance.random() < 0.8 else garbage(chance)
        line, newline, rest = data.partition(b"\n")
        if not newline:
            data += b"\n"
        if not rest and same(line, original):
            continue  # nothing is wrong with it
        changed = {key: value for key, value in json.loads(original).items() if key != "request_id"}
        try:
            said = {**json.loads(line.decode()), "request_id": None}
            if not rest and said == {**changed, "request_id": None}:
                continue  # another id of the request is right as well
        except (ValueError, TypeError, RecursionError):
            pass
        assert b"" == say(app.root, data), (number, data)
        if number == 500:  # what is loaded and cached at first use is there by now
            at_first = memory(pool.supervisor)
        if number % 100 == 0:
            assert "running" == ask(app.root, "status")["result"]["state"]["status"]
    assert log == pool.log()
    eventually(lambda: kept == len(descriptors(pool.supervisor)), 5, "every session's descriptor given back")
    assert memory(pool.supervisor) - at_first < 1_000_000
    stop_clean(app, pool)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": True},
        {"version": 1.0},
        {"version": "1"},
        {"operation": "start"},
        {"operation": "STOP"},
        {"operation": ["stop"]},
        {"operation": None},
        {"request_id": ""},
        {"request_id": "x" * 65},
        {"request_id": "ä"},
        {"request_id": "a b"},
        {"request_id": 1},
        {"request_id": "a\n"},
        {"more": 1},
    ],
)
def test_each_rule_of_a_request(running: Application, changes: dict[str, Any]) -> None:
    """One thing off is a silent close."""
    assert b"" == say(running.root, frame(running.root, "stop", **changes))


def test_a_request_at_its_bounds(running: Application) -> None:
    """The longest id, keys in another order, in pieces, up to 4096 bytes: answered. Doubled keys, more bytes: not."""
    fields = json.loads(frame(running.root, "status", request_id="Z.-_" * 16))
    turned = json.dumps(dict(reversed(fields.items())))
    for padding, answered in ((0, True), (4095 - len(turned), True), (4096 - len(turned), False)):
        assert answered == bool(say(running.root, turned.encode() + b" " * padding + b"\n")), padding
    assert b"" == say(running.root, turned[:-1].encode() + b',"version":1}\n')
    assert b"" == say(running.root, turned.encode() + b"\n\n")
    with session(running.root) as connection:
        for byte in turned.encode() + b"\n":
            connection.send(bytes([byte]))
        answer = json.loads(connection.recv(4096))
    assert ({"request_id", "result", "status", "version"}, "Z.-_" * 16) == (set(answer), answer["request_id"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """A pool that no test of this file may change."""
    app = Application(tmp_path_factory.mktemp("running") / "app", worker={"workers": 1})
    pool = app.start()
    yield app
    pool.stop()
    assert not app.close()


# The locator


@contextmanager
def replaced(app: Application) -> Iterator[Path]:
    """The locator's path, whatever becomes of it; put back afterwards."""
    path = app.root / LOCATOR
    kept = path.rename(path.with_name("kept"))
    try:
        yield path
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        kept.rename(path)


@pytest.mark.parametrize(
    "kind",
    [
        "missing",
        "symlink",
        "fifo",
        "folder",
        "mode 0644",
        "mode 0400",
        "empty",
        "oversized",
        "socket",
        "text",
        "tcp",
        "surrogate",
    ],
)
def test_a_locator_that_is_refused(running: Application, kind: str) -> None:
    """The pool lives, so it is 5, at once, without the file being read past its bound."""
    whole = (running.root / LOCATOR).read_bytes()
    with replaced(running) as path, socket.socket(socket.AF_UNIX) as unused:
        if kind == "symlink":
            path.symlink_to("kept")
        elif kind == "fifo":
            os.mkfifo(path, 0o600)
        elif kind == "folder":
            path.mkdir(0o600)
        elif kind == "socket":
            unused.bind(str(path))
            path.chmod(0o600)
        elif kind != "missing":
            contents = {
                "empty": b"",
                "oversized": whole[:-1] + b" " * 4096 + b"\n",
                "text": b"not JSON\n",
                "surrogate": whole.replace(b"worker.sock", b"\\ud800"),
                "tcp": json.dumps(
                    {**json.loads(whole), "control_transport": "tcp", "tcp_host": "10.0.0.1", "tcp_port": 1}
                ).encode(),
            }
            path.write_bytes(contents.get(kind, whole))
            path.chmod(int(kind.removeprefix("mode "), 8) if kind.startswith("mode") else 0o600)
        began = time.monotonic()
        for operation in ("status", "health", "stop"):
            done = command(running.root, operation)
            assert MUTE == (done.code, done.err.splitlines()[0]), operation
        assert took(began) < 3
    assert 0 == command(running.root, "status").code


def still_leads_there(data: bytes, original: dict[str, Any]) -> bool:
    """Whether a changed locator may well lead to the pool: its own way there, and times in their bounds."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return False
    own = ("control_credential", "socket_path", "control_transport", "version")
    return isinstance(found, dict) and all(found.get(key) == original[key] for key in own)


def test_thousands_of_locators_that_are_off(running: Application) -> None:
    """None leads anywhere but to 5, quickly; none raises anything else."""
    chance = random.Random(1)
    whole = (running.root / LOCATOR).read_bytes()
    original = locator(running.root)
    refused = 0
    with replaced(running) as path:
        path.touch(0o600)
        for _ in range(scaled(2000)):
            data = mutated(whole, chance)
            path.write_bytes(data)
            try:
                control_client.ask(str(running.root), "status")
            except WorkerCommunicationError:
                refused += 1
            else:
                assert still_leads_there(data, original), data
    assert refused > scaled(2000) // 2


def test_thousands_of_locators_where_nothing_runs(application: Make) -> None:
    """The fence is free: whatever the file says, and whoever answers, it is not running."""
    app = application(worker={"workers": 1})
    pool = app.start()
    whole = (app.root / LOCATOR).read_bytes()
    pool.stop()
    chance = random.Random(2)
    path = app.root / LOCATOR
    path.touch(0o600)
    for _ in range(scaled(500)):
        path.write_bytes(mutated(whole, chance))
        with pytest.raises(WorkerNotRunningError):
            control_client.ask(str(app.root), chance.choice(["status", "health", "stop"]))
    assert 3 == command(app.root, "stop").code


# What answers


@contextmanager
def impostor(root: Path, answer: bytes, close: bool) -> Iterator[str]:
    """Something at another path that says ``answer`` to each request; the path."""
    path = "var/tmp/impostor.sock"
    ends = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / path))
        listener.listen(8)

        def serve() -> None:
            while select.select([listener, ends[0]], [], [])[0] == [listener]:
                connection, _ = listener.accept()
                with connection:
                    request = json.loads(connection.recv(4096))
                    try:
                        connection.sendall(answer.replace(b"ID", request["request_id"].encode()))
                        if not close:
                            select.select([connection], [], [], 5)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            os.write(ends[1], b"x")
            thread.join(10)
            for fd in ends:
                os.close(fd)
            (root / path).unlink()


STATE = b'{"control_transport":"unix","control_transport_requested":"auto","driver":"fork","driver_requested":"auto",'
ANSWERS = {
    "nothing": b"",
    "garbage": b"\xff\x00garbage\n",
    "empty object": b"{}\n",
    "no state": b'{"request_id":"ID","result":{},"status":"ok","version":1}\n',
    "an empty state": b'{"request_id":"ID","result":{"state":{}},"status":"ok","version":1}\n',
    "part of a state": b'{"request_id":"ID","result":{"state":' + STATE + b'"pid":1}},"status":"ok","version":1}\n',
    "another id": b'{"request_id":"x","result":{"state":{}},"status":"ok","version":1}\n',
    "too long": b"x" * 20000 + b"\n",
    "endless": b"x" * 3_000_000,
    "two lines": b'{"request_id":"ID","result":{"state":{}},"status":"ok","version":1}\n{}\n',
    "nested": b'{"a":' * 800 + b"\n",
}


@pytest.mark.parametrize(
    ("answer", "close"), [*((name, True) for name in ANSWERS), ("nothing", False), ("garbage", False)]
)
def test_an_endpoint_that_is_not_the_supervisor(running: Application, answer: str, close: bool) -> None:
    """Whatever it says, or does not say, the client ends 5 within its second."""
    original = locator(running.root)
    with impostor(running.root, ANSWERS[answer], close) as path, replaced(running) as place:
        place.touch(0o600)
        place.write_text(json.dumps({**original, "socket_path": path}))
        for operation in ("status", "health"):
            began = time.monotonic()
            with pytest.raises(WorkerError) as failed:
                control_client.ask(str(running.root), operation)
            assert isinstance(failed.value, WorkerCommunicationError)
            assert took(began) < 2
