"""The control socket among everything that can lie at its path and everybody who can connect to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from harness import Application, eventually
from harness.application import WORKER
from harness.commands import command
from harness.control import SOCKET, ask, frame, hear, locator, say, session, took
from harness.faults import identities, left, stop_clean, under_way
from harness.processes import census, descriptors, environment
from harness.processes import command as command_line

Make = Callable[..., Application]
#: The system's limit for the path of a socket.
LIMIT = 107


@pytest.mark.parametrize(
    "path",
    [
        "var/" + "deep/" * 30 + "worker.sock",
        "var/tmp/" + "s" * 200,
        "var/größe/日本語/ворker.sock",
        "var/tmp/it's-$HOME;&(odd)'.sock",
    ],
)
def test_any_path_of_the_socket_works(application: Make, path: str) -> None:
    """Longer than an address may be, or not ASCII: the pool starts, answers, and removes its socket."""
    app = application("a root with spaces, ü and a long name " + "r" * 60, worker={"workers": 1, "socket_path": path})
    pool = app.start()
    assert len(os.fsencode(app.root / path)) > LIMIT
    assert 1 == pool.ready()
    assert (0, "healthy") == (pool.health()[0], pool.health()[1]["status"])
    assert 0o600 == (app.root / path).stat().st_mode & 0o777
    assert path == locator(app.root)["socket_path"]
    stop_clean(app, pool)
    assert not (app.root / path).exists()


# What lies at the path


@contextmanager
def listening(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens at ``path`` and accepts nobody; it is ended by its pid."""
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(1); print(flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path.name], cwd=path.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def start(app: Application) -> tuple[int, str]:
    """A start that is refused: its exit code, and the first two lines on stderr."""
    done = app.run("start", "--json")
    first, *_ = [line for line in done.stderr.splitlines() if line.startswith("PLATFORM_WORKER")]
    return done.returncode, first


def test_a_stale_socket_is_replaced(application: Make) -> None:
    """Nobody listens there any more: the start takes its place."""
    app = application(worker={"workers": 1}).build()
    (app.root / SOCKET).parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(app.root / SOCKET))
    pool = app.start()
    stop_clean(app, pool)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_live_socket_of_somebody_else_is_never_taken(application: Make, frozen: bool) -> None:
    """Also when its owner is stopped and its backlog is full: the start is refused and the socket is still theirs."""
    app = application(worker={"workers": 1}).build()
    path = app.root / SOCKET
    path.parent.mkdir(parents=True)
    with listening(path) as owner, ExitStack() as clients:
        if frozen:
            owner.send_signal(signal.SIGSTOP)
            for _ in range(2):  # more than its backlog
                one = clients.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                one.connect(str(path))
        before = path.stat().st_ino
        assert (4, "PLATFORM_WORKER_ALREADY_RUNNING: worker-already-running") == start(app)
        assert before == path.stat().st_ino
        assert owner.poll() is None
    assert [path.name] == app.leftovers()
    assert app.fence_free()


@pytest.mark.parametrize("kind", ["file", "folder", "symlink", "fifo"])
def test_something_else_at_the_path_is_a_clear_error(application: Make, kind: str) -> None:
    """It is named by its key, and stays as it is."""
    app = application(worker={"workers": 1}).build()
    path = app.root / SOCKET
    path.parent.mkdir(parents=True)
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    elif kind == "symlink":
        path.symlink_to(app.root / "tasks.py")
    else:
        os.mkfifo(path)
    before = os.lstat(path)
    done = app.run("start")
    assert 1 == done.returncode
    assert "PLATFORM_WORKER_START_FAILED: worker-control-unavailable" in done.stderr.splitlines()
    assert "hint: worker.socket_path: something that is no socket is at this place" in done.stderr.splitlines()
    after = os.lstat(path)
    assert (before.st_ino, before.st_mode, before.st_size) == (after.st_ino, after.st_mode, after.st_size)
    assert [path.name] == app.leftovers()
    assert app.fence_free()


# Who connects


def test_slow_clients_delay_nobody_and_are_closed(application: Make) -> None:
    """Two hundred send a byte now and then: a question of others is answered within 100 ms all the while."""
    app = application(worker={"workers": 1})
    pool = app.start()
    with ExitStack() as stack:
        slow = [stack.enter_context(session(app.root)) for _ in range(200)]
        began = time.monotonic()
        times = []
        for number in range(20):
            for one in slow[number::20]:
                try:
                    one.send(b"{")
                except ConnectionError:  # closed already
                    continue
            asked = time.monotonic()
            assert "ok" == ask(app.root, "status")["status"]
            times.append(took(asked))
        assert statistics.median(times) < 0.1, times
        assert [b""] * 200 == [hear(one) for one in slow], "closed, without a word"
        assert took(began) < 5
    assert 1 == pool.ready()
    stop_clean(app, pool)


def test_more_clients_than_there_are_sessions_and_none_ever_speaks(application: Make) -> None:
    """They come again and again; status answers, and no descriptor is left when they have gone."""
    app = application(worker={"workers": 1})
    pool = app.start()
    assert 1 == pool.ready()
    before = descriptors(pool.supervisor)
    for _ in range(10):
        with ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(session(app.root))
            assert 1 == ask(app.root, "status")["result"]["state"]["ready_worker_count"]

    def gone() -> bool:
        now = descriptors(pool.supervisor)
        assert len(now) <= len(before), (before, now)
        return True

    eventually(gone)
    stop_clean(app, pool)


def test_a_wrong_credential_is_a_silent_close_and_changes_nothing(application: Make) -> None:
    """Of the supervisor before, none at all, nearly the right one: nothing is said, nothing is stopped."""
    app = application(worker={"workers": 1})
    first = app.start()
    old = locator(app.root)["control_credential"]
    first.stop()
    pool = app.start()
    new = locator(app.root)["control_credential"]
    assert old != new
    people = identities(pool.census())
    missing = {key: value for key, value in json.loads(frame(app.root, "stop")).items() if key != "credential"}
    for data in (
        frame(app.root, "stop", credential=old),
        frame(app.root, "stop", credential=""),
        frame(app.root, "stop", credential=None),
        frame(app.root, "stop", credential=new[:-1]),
        frame(app.root, "stop", credential=new.upper() if new != new.upper() else "A" * 64),
        frame(app.root, "stop", credential=new[:-1] + ("0" if new[-1] != "0" else "1")),
        json.dumps(missing).encode() + b"\n",
    ):
        assert b"" == say(app.root, data)
    assert people == identities(pool.census())
    assert ("running", 1) == (pool.status()["status"], pool.ready())

    for pid in pool.census():
        assert new not in command_line(pid)
        assert new not in str(environment(pid))
    pool.stop()
    assert not any(credential in pool.log() + first.log() + pool.out.read_text() for credential in (old, new))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_closed_silently_even_with_the_credential(application: Make) -> None:
    """Where folder and socket were opened up by hand, the peer's uid still decides."""
    app = application(worker={"workers": 1})
    pool = app.start()
    (app.root / SOCKET).chmod(0o666)
    (app.root / SOCKET).parent.chmod(0o755)
    code = (
        "import os, socket, sys\n"
        "os.setuid(int(sys.argv[1])); s = socket.socket(socket.AF_UNIX)\n"
        "s.connect('worker.sock')\n"
        "try: s.send(sys.argv[2].encode() + b'\\n'); print(len(s.recv(4096)))\n"
        "except ConnectionError: print(0)\n"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", code, uid, frame(app.root, "status").decode().strip()],
            cwd=(app.root / SOCKET).parent,
            capture_output=True,
            check=True,
        ).stdout.strip()
        for uid in ("0", "12345")
    ]
    assert int(answers[0]) > 100, "the way there is open"
    assert b"0" == answers[1]
    assert 1 == pool.ready()
    pool.stop()


def test_many_stops_during_a_long_drain_are_one_stop(application: Make) -> None:
    """Status is answered at once meanwhile; a client that goes away ends nothing; all are told when it is done."""
    app = application(worker={"workers": 2, "stop_timeout_ms": 60000})
    pool = app.start()
    (job,) = app.enqueue("gate")
    under_way(app, job)
    line = [WORKER, "--root", str(app.root), "stop", "--json"]
    stops = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    try:
        eventually(lambda: "stopping" == pool.status()["status"])
        stops[0].kill()
        stops[0].wait()
        people = identities(pool.census())
        for _ in range(5):
            began = time.monotonic()
            state = ask(app.root, "status")["result"]["state"]
            assert took(began) < 0.5
            assert ("stopping", pool.supervisor) == (state["status"], state["pid"])
            assert (1, "worker-pool-stopping") == (pool.health()[0], pool.health()[1]["reason"])
        assert all(stop.poll() is None for stop in stops[1:])
        with session(app.root) as late:
            late.sendall(frame(app.root, "stop", request_id="late"))
            (app.root / "gate").touch()
            told = json.loads(hear(late))
        assert ("late", "stopped") == (told["request_id"], told["status"])
        assert ("stopping", 0) == (told["result"]["state"]["status"], told["result"]["state"]["ready_worker_count"])
        for stop in stops[1:]:
            out, err = stop.communicate(timeout=10)
            assert (0, b"", "stopped") == (stop.returncode, err, json.loads(out)["status"])
    finally:
        for stop in stops:
            stop.kill()
            stop.communicate()
    assert 0 == pool.wait(2)
    assert [] == left(people)
    app.ledger.assert_once([job])
    app.assert_clean()


def test_a_stop_is_answered_when_nothing_is_left(application: Make) -> None:
    """At the instant of the answer children and guardian are reaped, the files gone, and the fence is free."""
    app = application(worker={"workers": 2})
    pool = app.start()
    people = [one for one in identities(pool.census()) if one[0] != pool.supervisor]
    assert "stopped" == json.loads(say(app.root, frame(app.root, "stop")))["status"]
    assert [] == left(people)
    assert [] == app.leftovers()
    assert app.fence_free()
    assert 0 == pool.wait(2)


def test_a_stop_of_a_pool_that_fails_meanwhile_is_answered_too(application: Make) -> None:
    """The pool ends 1, and who asked for a stop is told that it has stopped."""
    app = application(worker={"workers": 1, "restart_intensity": 0, "stop_timeout_ms": 60000})
    pool = app.start()
    (job,) = app.enqueue("gate")
    child = under_way(app, job)
    os.kill(child, signal.SIGSTOP)
    with session(app.root) as asking:
        asking.sendall(frame(app.root, "stop"))
        guardian = pool.guardian()
        assert guardian is not None
        eventually(lambda: "stopping" == pool.status()["status"])
        os.kill(guardian, signal.SIGKILL)
        assert "stopped" == json.loads(hear(asking))["status"]
    assert [] == app.leftovers()
    assert 1 == pool.wait(5)
    app.assert_clean()


def test_asking_many_at_once_whether_nothing_runs_is_always_answered_the_same(application: Make) -> None:
    """Those who look at a fence that is free do not take each other for a pool."""
    app = application(worker={"workers": 1})
    app.start().stop()
    line = [WORKER, "--root", str(app.root), "status"]
    code = (
        "import sys\nfrom platform_worker.host.fence import fence_held\n"
        "print(sum(fence_held(sys.argv[1]) for _ in range(2000)))"
    )
    lookers = [
        subprocess.Popen([sys.executable, "-c", code, str(app.root)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    found = [subprocess.run(line, capture_output=True, check=False).returncode for _ in range(5)]
    assert ["0\n"] * 4 == [one.communicate(timeout=60)[0] for one in lookers]
    assert [3] * 5 == found


def test_whoever_answers_where_the_fence_is_free_is_not_the_pool(application: Make) -> None:
    """A locator and a socket of a former life, answered by a stranger: not running."""
    app = application(worker={"workers": 1})
    pool = app.start()
    kept = (app.root / "var" / "tmp" / "worker.lifecycle.json").read_bytes()
    state = ask(app.root, "status")["result"]["state"]
    pool.stop()
    path = app.root / "var" / "tmp" / "worker.lifecycle.json"
    path.write_bytes(kept)
    path.chmod(0o600)
    server = """
import json, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind("worker.sock")
listener.listen(1)
print(flush=True)
while True:
    connection, _ = listener.accept()
    id = json.loads(connection.recv(4096))["request_id"]
    answer = {"request_id": id, "result": {"state": json.loads(sys.argv[1])}, "status": "ok", "version": 1}
    connection.send(json.dumps(answer).encode() + b"\\n")
    connection.close()
"""
    with subprocess.Popen(
        [sys.executable, "-c", server, json.dumps(state)], cwd=path.parent, stdout=subprocess.PIPE
    ) as stranger:
        assert stranger.stdout is not None
        stranger.stdout.readline()
        try:
            assert 3 == command(app.root, "status").code
        finally:
            stranger.kill()
    assert [] == census(pool.marker)
