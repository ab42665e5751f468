"""Settings and artifact files that are off: one clear error, and nothing started, changed or half-written."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Application, Pool, eventually
from harness.commands import command
from harness.faults import stop_clean

Make = Callable[..., Application]
ARTIFACTS = "var/artifacts"
INVALID = "PLATFORM_WORKER_START_FAILED: worker-generation-invalid"


def tree(root: Path) -> dict[str, bytes | str]:
    """Every file of an application, with its content."""
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(root))] = os.readlink(path)
        elif path.is_file() and not path.name.startswith("start-"):
            found[str(path.relative_to(root))] = path.read_bytes()
    return found


def refused(app: Application, expected: str, code: int = 1, **environ: str) -> Pool:
    """A start that ends so, with nobody left and no file changed but the locks."""
    before = tree(app.root)
    pool = app.pool(**environ)
    pool.start(wait=False)
    assert code == pool.wait(), pool.log()
    assert expected in pool.log().splitlines(), pool.log()
    name, reason = expected.split(": ")
    assert {"code": name, "reason": reason, "status": "error"} == json.loads(pool.out.read_text())
    assert [] == pool.census()
    assert app.fence_free()
    assert [] == app.leftovers()
    after = {name: data for name, data in tree(app.root).items() if not name.startswith("var/tmp/")}
    assert before == {name: data for name, data in after.items() if not name.startswith("var/queue")}
    return pool


@pytest.mark.parametrize("name", ["modules.json", "config.json", "container.json", "generation.json"])
@pytest.mark.parametrize("harm", ["a byte", "shorter", "longer", "missing", "link"])
def test_a_file_of_the_generation_that_is_not_as_it_was_built(application: Make, name: str, harm: str) -> None:
    """The start ends 1 and says so; nobody repairs it, nobody takes another generation."""
    app = application().build()
    (folder,) = (app.root / ARTIFACTS / "generations").iterdir()
    path = folder / name
    data = path.read_bytes()
    path.chmod(0o644)
    if harm == "a byte":
        at = len(data) // 2
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    elif harm == "shorter":
        path.write_bytes(data[:-1])
    elif harm == "longer":
        path.write_bytes(data + b"\n")
    else:
        path.unlink()
        if harm == "link":
            (app.root / "aside").write_bytes(data)
            path.symlink_to(app.root / "aside")
    refused(app, INVALID)


@pytest.mark.parametrize(
    "content", [b"", b"garbage\n", b"0" * 64 + b"\n", b"A" * 64 + b"\n", b"../../../etc\n", None, "link", "folder"]
)
def test_a_current_that_leads_nowhere(application: Make, content: bytes | str | None) -> None:
    """The start ends 1; ``worker build`` selects anew, as a person would do."""
    app = application().build()
    current = app.root / ARTIFACTS / "current"
    whole = current.read_bytes()
    current.unlink()
    if content is None:
        current.write_bytes(whole[:-1])
    elif content == "link":
        (app.root / "aside").write_bytes(whole)
        current.symlink_to(app.root / "aside")
    elif content == "folder":
        current.mkdir()
    else:
        assert isinstance(content, bytes)
        current.write_bytes(content)
    refused(app, INVALID)
    assert 3 == command(app.root, "status").code
    done = command(app.root, "build")
    if content == "folder":
        assert (2, ["PLATFORM_WORKER_BUILD_FAILED: worker-generation-write-failed"]) == (
            done.code,
            done.err.split("\n")[:1],
        )
    else:
        assert (0, whole.decode()) == (done.code, done.out)


def test_a_build_over_a_spoiled_generation_is_a_conflict(application: Make) -> None:
    """An id with other bytes is an error, and what is selected stays selected."""
    app = application().build()
    (folder,) = (app.root / ARTIFACTS / "generations").iterdir()
    (folder / "config.json").chmod(0o644)
    (folder / "config.json").write_bytes(b"{}\n")
    before = tree(app.root)
    done = command(app.root, "build", "--json")
    expected = {
        "code": "PLATFORM_WORKER_BUILD_FAILED",
        "reason": "worker-generation-conflict",
        "status": "error",
    }
    assert (2, expected) == (done.code, json.loads(done.out))
    assert before == {name: data for name, data in tree(app.root).items() if not name.endswith(".lock")} | {
        name: data for name, data in before.items() if name.endswith(".lock")
    }


def test_files_that_come_and_go_while_it_is_asked(application: Make) -> None:
    """A hundred builds of two generations while pools start: every start has one of them, whole."""
    app = application(worker={"workers": 1}).build()
    first = (app.root / ARTIFACTS).rename(app.root / "first")
    app.configure(queue={"max_attempts": 7})
    app.build()
    for folder in (first / "generations").iterdir():
        shutil.copytree(folder, app.root / ARTIFACTS / "generations" / folder.name)
    currents = [(place / "current").read_bytes() for place in (first, app.root / ARTIFACTS)]
    over = threading.Event()

    def select() -> None:
        while not over.is_set():
            for data in currents:
                (app.root / ARTIFACTS / "new").write_bytes(data)
                (app.root / ARTIFACTS / "new").rename(app.root / ARTIFACTS / "current")

    selecting = threading.Thread(target=select)
    selecting.start()
    try:
        for _ in range(3):
            pool = app.pool()
            pool.start()
            pool.stop()
    finally:
        over.set()
        selecting.join()


# Settings


@pytest.mark.parametrize(
    ("text", "hints"),
    [
        (
            (
                '[app]\nhandlers = ["tasks"]\n[worker]\nworkers = "4"\nmax_requets = 5\nstart_timeout_ms = 0\n'
                'socket_path = "/tmp/x"\n[redis]\nurl = "hunter2"\n'
            ),
            [
                "worker.toml line 4: worker.workers must be a whole number, without quotes",
                "worker.toml line 5: worker.max_requets is not a known key; did you mean max_requests?",
                "worker.toml line 6: worker.start_timeout_ms must be 1 or more",
                "worker.toml line 7: worker.socket_path ",
                "worker.toml line 8: redis is the table of a module that app.modules does not enable",
            ],
        ),
        ("[worker\nworkers = hunter2", ["worker.toml"]),
        ('[worker]\nsocket_path = "var/tmp/worker.lock"', ["worker.toml line 2: worker.socket_path "]),
        ('[worker]\nstate_path = "a/../hunter2"', ["worker.toml line 2: worker.state_path "]),
        ('[worker]\nstop_flag_path = "var/tmp/worker.sock/x"', ["worker.toml line 2: worker.stop_flag_path "]),
        ("[worker]\nmax_requests = 5\nmax_requests_jitter = 5", ["worker.toml line 3: worker.max_requests_jitter "]),
        ('[worker.tcp]\nhost = "hunter2.example"', ["worker.toml line 2: worker.tcp.host "]),
        ("[wrker]\nworkers = 1", ["worker.toml line 1: wrker is not a known "]),
    ],
)
def test_every_mistake_in_a_file_is_said_at_once_with_its_line(application: Make, text: str, hints: list[str]) -> None:
    """Exit 2, no value in sight, what was selected stays selected, and a pool starts as before."""
    app = application().build()
    before = tree(app.root / "var")
    (app.root / "worker.toml").write_text(text)
    done = command(app.root, "build")
    assert (2, "") == (done.code, done.out)
    assert "PLATFORM_WORKER_USAGE: worker-config-invalid" == done.err.splitlines()[0]
    for hint in hints:
        assert any(line.startswith(hint) for line in done.hints()), (hint, done.hints())
    assert len(hints) == len(done.hints()), done.hints()
    assert "hunter2" not in done.err
    assert before == tree(app.root / "var")
    assert 2 == command(app.root, "build", "--check").code


@pytest.mark.parametrize("change", ["[worker]\nworkers = 3\n", "[worker\n", None])
def test_a_start_goes_by_what_is_selected_whatever_the_file_says_by_now(application: Make, change: str | None) -> None:
    """It warns once and works with the selected settings; a file that is gone is not needed."""
    app = application(worker={"workers": 1}).build()
    if change is None:
        (app.root / "worker.toml").unlink()
    else:
        (app.root / "worker.toml").write_text('[app]\nhandlers = ["tasks"]\n' + change)
    pool = app.pool()
    assert 1 == pool.start()["worker_count"]
    if change is not None:
        eventually(lambda: [e for e in pool.events() if e.get("cause") == "configuration-changed"])
    warned = [event["level"] for event in pool.events() if event.get("cause") == "configuration-changed"]
    assert (["warning"] if change is not None else []) == warned
    (job,) = app.enqueue("nap")
    eventually(lambda: "completed" == app.job(job).status)
    stop_clean(app, pool)


@pytest.mark.parametrize(
    ("key", "value", "expected", "hint"),
    [
        ("workers", None, "worker-environment-missing", "PW_SETTING"),
        ("workers", "", "worker-config-invalid", "workers"),
        ("workers", "hunter2", "worker-config-invalid", "workers"),
        ("workers", "0", "worker-config-invalid", "workers"),
        ("workers", "99999999999999999999", "worker-config-invalid", "workers"),
        ("socket_path", "/hunter2", "worker-config-invalid", "socket_path"),
        ("driver", "hunter2", "worker-config-invalid", "driver"),
    ],
)
def test_a_reference_is_resolved_at_the_start_and_named_where_it_is_off(
    application: Make, key: str, value: str | None, expected: str, hint: str
) -> None:
    """Exit 2, nothing started; the variable and the key are named, the value is not shown."""
    app = application()
    text = re.sub(r"(workers|driver) = .*", "", (app.root / "worker.toml").read_text())
    (app.root / "worker.toml").write_text(text.replace("[worker]", f'[worker]\n{key} = {{ env = "PW_SETTING" }}'))
    app.build()
    pool = refused(app, f"PLATFORM_WORKER_USAGE: {expected}", 2, **({} if value is None else {"PW_SETTING": value}))
    assert any(line.startswith("hint: ") and hint in line for line in pool.log().splitlines()), pool.log()
    assert "hunter2" not in pool.log()
    assert not (app.root / "var" / "tmp").exists(), "nothing was started"


@pytest.mark.parametrize(
    ("value", "reason"), [(None, "worker-environment-missing"), ("hunter2", "worker-config-invalid")]
)
def test_a_reference_that_only_a_child_resolves_ends_the_start_the_same(
    application: Make, value: str | None, reason: str
) -> None:
    """The child's reason becomes the start's, with its exit code 2."""
    app = application(worker={"workers": 1})
    text = (app.root / "worker.toml").read_text()
    (app.root / "worker.toml").write_text(
        text.replace('synchronous = "normal"', 'synchronous = { env = "PW_SETTING" }')
    )
    app.build()
    pool = refused(app, f"PLATFORM_WORKER_USAGE: {reason}", 2, **({} if value is None else {"PW_SETTING": value}))
    assert "PW_SETTING" in pool.log()
    assert "hunter2" not in pool.log()
