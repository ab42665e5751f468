"""The files of a running pool: their form and modes, and a disk that refuses to take them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Application, eventually
from harness.application import KEPT, WORKER
from harness.broken_files import broken_files
from harness.control import LOCATOR, SOCKET, STATE, STATE_KEYS, ask, locator
from harness.faults import identities, left, stop_clean, under_way
from harness.variants import of_the_defaults

Make = Callable[..., Application]
TMP = Path("var/tmp")
FLAG = "var/tmp/worker.stop"
CALLS = ["open", "write", "fsync", "rename"]


def canonical(data: bytes) -> bool:
    """One object, keys sorted, compact, raw UTF-8, one final newline."""
    text = json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return data == text.encode() + b"\n"


def modes(root: Path) -> dict[str, int]:
    """The mode of each file of a pool."""
    return {path.name: path.lstat().st_mode & 0o777 for path in (root / TMP).iterdir()}


@of_the_defaults
@pytest.mark.parametrize("mask", [0o022, 0o077, 0])
def test_files_of_a_running_pool_have_exactly_their_form(application: Make, mask: int) -> None:
    """Names, modes, keys and bytes, whatever the umask; after the stop three are left."""
    app = application(worker={"workers": 1, "stop_timeout_ms": 8765, "force_kill_timeout_ms": 432})
    app.build()
    pool = app.pool()
    pool.start(umask=mask)
    data = (app.root / LOCATOR).read_bytes()
    assert canonical(data)
    assert len(data) <= 4096
    found = json.loads(data)
    credential = found.pop("control_credential")
    assert (64, set()) == (len(credential), set(credential) - set("0123456789abcdef"))
    assert {
        "control_transport": "unix",
        "force_kill_timeout_ms": 432,
        "socket_path": "var/tmp/worker.sock",
        "stop_timeout_ms": 8765,
        "tcp_host": None,
        "tcp_port": None,
        "version": 1,
    } == found
    digest = hashlib.sha256(b"unix:var/tmp/worker.sock").hexdigest()

    expected = {
        "control_transport": "unix",
        "control_transport_requested": "auto",
        "driver": "fork",
        "driver_requested": "auto",
        "endpoint_hash": digest,
        "pid": pool.supervisor,
        "ready_worker_count": 1,
        "status": "running",
        "version": 1,
        "worker_count": 1,
    }
    eventually(lambda: expected == json.loads((app.root / STATE).read_bytes()))
    assert canonical((app.root / STATE).read_bytes())
    assert STATE_KEYS == set(expected)
    assert expected == ask(app.root, "status")["result"]["state"]

    seen = modes(app.root)
    assert {*KEPT, Path(LOCATOR).name, Path(STATE).name, Path(SOCKET).name} == set(seen)
    for name in ("worker.lifecycle.json", "worker.sock", "worker.pool"):
        assert 0o600 == seen[name], seen
    assert "1\n" == (app.root / TMP / "worker.lock").read_text()

    (job,) = app.enqueue("gate")
    under_way(app, job)
    stopping = subprocess.Popen(["kill", "-TERM", str(pool.supervisor)])
    assert 0 == stopping.wait()
    eventually(lambda: "stopping" == json.loads((app.root / STATE).read_bytes())["status"])
    assert b"stop\n" == (app.root / FLAG).read_bytes()
    assert 0 == json.loads((app.root / STATE).read_bytes())["ready_worker_count"]
    (app.root / "gate").touch()
    assert 0 == pool.wait()
    assert KEPT == set(os.listdir(app.root / TMP))


def test_numbers_and_names_go_on_with_the_next_start(application: Make) -> None:
    """The generation's number grows, the credential is new, the pool's id stays; a copied root gets its own."""
    app = application(worker={"workers": 1})
    seen = []
    for _ in range(2):
        pool = app.start()
        number = int((app.root / TMP / "worker.lock").read_text())
        seen.append((number, locator(app.root)["control_credential"], (app.root / TMP / "worker.pool").read_text()))
        pool.stop()
    assert [1, 2] == [number for number, *_ in seen]
    assert seen[0][1] != seen[1][1]
    assert seen[0][2] == seen[1][2]

    copy = application("copy", worker={"workers": 1}).build()
    (copy.root / TMP).mkdir()
    for name in KEPT:
        (copy.root / TMP / name).write_bytes((app.root / TMP / name).read_bytes())
    pool = copy.start()
    assert seen[0][2] != (copy.root / TMP / "worker.pool").read_text()
    assert 0o600 == modes(copy.root)["worker.pool"]
    stop_clean(copy, pool)


def test_stale_files_of_any_kind_are_replaced(application: Make) -> None:
    """A start under its own fence takes the place of what a killed one left, temporary files and links included."""
    app = application(worker={"workers": 1}).build()
    (app.root / TMP).mkdir(parents=True)
    victim = app.root / "precious"
    victim.write_text("precious")
    for name in (STATE, FLAG, LOCATOR):
        (app.root / name).symlink_to(victim)
        (app.root / f"{name}.tmp").symlink_to(victim)
    pool = app.start()
    assert "precious" == victim.read_text()
    assert not (app.root / LOCATOR).is_symlink()
    assert canonical((app.root / LOCATOR).read_bytes())
    assert not (app.root / FLAG).exists()
    stop_clean(app, pool)
    assert "precious" == victim.read_text()


# A disk that refuses


@pytest.mark.parametrize("call", CALLS)
def test_a_state_file_that_cannot_be_written_is_logged_and_no_more(
    application: Make, tmp_path: Path, call: str
) -> None:
    """The pool starts, works and stops; the file is absent, never half."""
    app = application(worker={"workers": 1})
    environ = broken_files(tmp_path / "site", call, "worker.state.json", "ENOSPC" if call != "fsync" else "EIO")
    pool = app.start(**environ)
    assert 1 == pool.ready()
    assert [] == [name for name in app.leftovers() if "state" in name]
    causes = {(event["cause"], event["level"]) for event in pool.events("worker.process.status")}
    assert {("state-not-written", "error")} == causes
    (job,) = app.enqueue("nap")
    eventually(lambda: "completed" == app.job(job).status)
    stop_clean(app, pool)


@pytest.mark.parametrize("call", CALLS)
def test_a_state_file_keeps_its_old_content_where_the_new_one_cannot_be_written(
    application: Make, tmp_path: Path, call: str
) -> None:
    """A disk that is full from some moment on: old content, whole; the pool goes on."""
    app = application(worker={"workers": 1})
    full = tmp_path / "full"
    pool = app.start(**broken_files(tmp_path / "site", call, "worker.state.json", "ENOSPC", full))
    eventually(lambda: "running" == json.loads((app.root / STATE).read_bytes())["status"])
    before = (app.root / STATE).read_bytes()
    full.touch()
    (job,) = app.enqueue("gate")
    under_way(app, job)
    pool.signal()
    eventually(lambda: pool.events("worker.process.status"))
    assert before == (app.root / STATE).read_bytes()
    assert "stopping" == pool.status()["status"]
    (app.root / "gate").touch()
    assert 0 == pool.wait()
    app.assert_clean()
    assert [] == app.leftovers()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("worker.lifecycle.json", "PLATFORM_WORKER_LIFECYCLE_FAILED: worker-lifecycle-locator-failed"),
        ("worker.pool", "PLATFORM_WORKER_LIFECYCLE_FAILED: worker-lifecycle-failed"),
    ],
)
@pytest.mark.parametrize("call", CALLS)
def test_a_file_that_a_start_needs_and_cannot_write_ends_it_clean(
    application: Make, tmp_path: Path, call: str, name: str, expected: str
) -> None:
    """Exit 1 with the reason; when it has ended nobody lives, nothing is left, and the next start succeeds."""
    app = application(worker={"workers": 1}).build()
    pool = app.pool(**broken_files(tmp_path / "site", call, name, "ENOSPC" if call != "fsync" else "EIO"))
    pool.start(wait=False)
    assert 1 == pool.wait()
    assert [] == pool.census()
    assert app.fence_free()
    assert [] == app.leftovers()
    assert not (app.root / TMP / name).exists() or name in KEPT
    (event,) = pool.events("worker.process.stop")
    assert ("error", expected.split(": ")[1]) == (event["level"], event["reason"])
    assert expected in pool.log().splitlines()
    code, reason = expected.split(": ")
    assert {"code": code, "reason": reason, "status": "error"} == json.loads(pool.out.read_text())
    assert any(line.startswith("hint: var/tmp must be writable") for line in pool.log().splitlines())
    assert "Traceback" not in pool.log()
    stop_clean(app, app.start())


@pytest.mark.parametrize("call", CALLS)
def test_a_stop_flag_that_cannot_be_written_stops_no_stop(application: Make, tmp_path: Path, call: str) -> None:
    """It is logged, the flag is absent, and the pool stops in order."""
    app = application(worker={"workers": 1})
    pool = app.start(**broken_files(tmp_path / "site", call, "worker.stop", "EIO"))
    people = identities(pool.census())
    pool.stop()
    assert [] == left(people)
    (event,) = [event for event in pool.events("worker.process.stop") if "cause" in event]
    assert ("stop-flag-not-written", "error") == (event["cause"], event["level"])
    assert [] == app.leftovers()
    app.assert_clean()


@pytest.mark.parametrize("kind", ["a file", "read-only"])
def test_a_folder_that_cannot_be_written_is_said_before_anything_is_started(application: Make, kind: str) -> None:
    """``var/tmp`` that is a file, or on a disk that takes nothing: the lock fails, exit 1."""
    app = application(worker={"workers": 1}).build()
    if kind == "a file":
        (app.root / TMP).write_text("")
        done = app.run("start", "--json")
    else:
        (app.root / TMP).mkdir()
        if os.geteuid() != 0:
            (app.root / TMP).chmod(0o500)
            done = app.run("start", "--json")
        else:
            folder = str(app.root / TMP)
            script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
            line = [
                "unshare",
                "--mount",
                "sh",
                "-c",
                script,
                folder,
                WORKER,
                "--root",
                str(app.root),
                "start",
                "--json",
            ]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
    expected = {
        "code": "PLATFORM_WORKER_LIFECYCLE_FAILED",
        "reason": "worker-lifecycle-lock-failed",
        "status": "error",
    }
    assert (1, expected) == (done.returncode, json.loads(done.stdout)), done.stderr
    assert "hint: var/tmp must be writable" in done.stderr
    assert 3 == app.run("status").returncode


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("socket_path", "PLATFORM_WORKER_START_FAILED: worker-control-unavailable"),
        ("state_path", "PLATFORM_WORKER_LIFECYCLE_FAILED: worker-lifecycle-failed"),
        ("stop_flag_path", "PLATFORM_WORKER_LIFECYCLE_FAILED: worker-lifecycle-failed"),
    ],
)
@pytest.mark.parametrize("folder", ["tasks.py", "loop"])
def test_a_path_below_what_is_no_folder_ends_the_start_clean(
    application: Make, key: str, reason: str, folder: str
) -> None:
    """A file, or a link to itself, where a folder should be: one clear error, nobody left."""
    app = application(worker={"workers": 1, key: f"{folder}/worker.x"}).build()
    (app.root / "loop").symlink_to("loop")
    pool = app.pool()
    pool.start(wait=False)
    assert 1 == pool.wait()
    assert reason in pool.log().splitlines(), pool.log()
    assert "Traceback" not in pool.log()
    assert [] == pool.census()
    assert app.fence_free()
    assert [] == app.leftovers()
