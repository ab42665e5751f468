"""Every command in every situation: its exit code, its one line of JSON, its error, and nothing more."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Application, Pool, eventually
from harness.application import WORKER
from harness.commands import Outcome, command
from harness.control import HEALTH_KEYS, LOCATOR, SUMMARY_KEYS
from harness.variants import of_the_defaults

Make = Callable[..., Application]

JOB_KEYS = {
    "id", "task", "queue", "priority", "status", "attempt", "max_attempts", "interruptions", "cancel_requested",
    "enqueued_at", "run_at", "started_at", "finished_at", "data", "result", "error", "progress", "unique",
}  # fmt: skip
QUEUE_KEYS = {
    "name", "paused", "queued", "processing", "retry_wait", "completed", "failed", "cancelled",
    "oldest_queued_seconds",
}  # fmt: skip
NOT_RUNNING = (3, "PLATFORM_WORKER_NOT_RUNNING", "worker-not-running")
RUNNING = (4, "PLATFORM_WORKER_ALREADY_RUNNING", "worker-already-running")
MUTE = (5, "PLATFORM_WORKER_COMMUNICATION_FAILED", "worker-communication-failed")
NO_CONFIG = (2, "PLATFORM_WORKER_USAGE", "worker-config-missing")
NO_QUEUE = (1, "PLATFORM_WORKER_QUEUE_FAILED", "worker-generation-missing")
ASKING = ("status", "health", "stop")


def said(app: Application, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the only line on stdout; stderr must be empty."""
    done = command(app.root, *arguments, "--json")
    assert "" == done.err
    (line,) = done.out.splitlines(keepends=True)
    assert line == json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    return done.code, json.loads(line)


def refused(app: Application, expected: tuple[int, str, str], *arguments: str) -> list[str]:
    """The command fails as ``expected``, with ``--json`` and without; its hints."""
    code, name, reason = expected
    for as_json in (True,) if arguments[0] == "start" else (False, True):
        words = [*arguments, *(["--json"] if as_json else [])]
        if arguments[0] == "start":  # which makes the whole process its own
            run = app.run(*words)
            done = Outcome(run.returncode, run.stdout, run.stderr)
        else:
            done = command(app.root, *words)
        assert (code, f"{name}: {reason}") == (done.code, done.err.partition("\n")[0]), (arguments, done.err)
        assert done.err.count("\n") == 1 + len(done.hints()), done.err
        assert str(app.root) not in done.err
        error = json.dumps({"code": name, "reason": reason, "status": "error"}, separators=(",", ":"))
        assert (error + "\n" if as_json else "") == done.out
    return done.hints()


def shut(app: Application, pool: Pool) -> None:
    """Ends a pool whose files the test has spoiled."""
    pool.signal(signal.SIGTERM)
    assert 0 == pool.wait(), pool.log()
    app.assert_clean()


@of_the_defaults
def test_each_command_prints_one_object_with_its_exact_keys(application: Make) -> None:
    """From build to stop, the summaries have exactly their keys, sorted, and stderr is empty."""
    app = application(worker={"workers": 2})
    code, check = said(app, "build", "--check")
    assert (1, {"generation": check["generation"], "status": "stale"}) == (code, check)
    assert (0, {"generation": check["generation"], "reused": False, "status": "ok"}) == said(app, "build")
    assert (0, {"generation": check["generation"], "reused": True, "status": "ok"}) == said(app, "build")
    assert (0, {"generation": check["generation"], "status": "ok"}) == said(app, "build", "--check")
    assert f"{check['generation']}\n" == command(app.root, "build").out

    pool = app.pool()
    summary = pool.start()
    running = {
        "control_transport": "unix",
        "driver": "fork",
        "endpoint_hash": summary["endpoint_hash"],
        "pid": pool.supervisor,
        "ready_worker_count": 2,
        "status": "running",
        "worker_count": 2,
    }
    assert set(running) == SUMMARY_KEYS
    assert running == summary
    assert (0, running) == said(app, "status")
    healthy = {**running, "healthy": True, "pool_status": "running", "reason": "healthy", "status": "healthy"}
    assert HEALTH_KEYS | {"pool_status"} == set(healthy)
    assert (0, healthy) == said(app, "health")

    code, added = said(app, "enqueue", "nap", "--data", "{}")
    assert (0, {"created": 1, "ids": added["ids"], "status": "ok"}) == (code, added)
    (id,) = added["ids"]
    eventually(lambda: "completed" == app.job(id).status)
    code, shown = said(app, "jobs", "show", id)
    assert (0, "ok", JOB_KEYS) == (code, shown["status"], set(shown["job"]))
    assert (0, {"jobs": [shown["job"]], "status": "ok"}) == said(app, "jobs")
    code, queues = said(app, "queues")
    assert (0, {"queues", "status"}, "ok") == (code, set(queues), queues["status"])
    assert [QUEUE_KEYS] == [set(queue) for queue in queues["queues"]]
    assert (1, None) == (queues["queues"][0]["completed"], queues["queues"][0]["oldest_queued_seconds"])
    assert (0, {"count": 0, "status": "ok"}) == said(app, "jobs", "recover")
    assert (0, {"count": 1, "status": "ok"}) == said(app, "jobs", "purge", "--older-than", "0s")

    assert (0, {**running, "ready_worker_count": 0, "status": "stopped"}) == said(app, "stop")
    assert 0 == pool.wait(2)
    assert 1 == pool.out.read_bytes().count(b"\n")
    app.assert_clean()


def test_in_an_empty_folder_nothing_runs_and_nothing_is_made(application: Make) -> None:
    """Each command says what is missing, and leaves the folder as it was."""
    app = application()
    for name in ("worker.toml", "tasks.py"):
        (app.root / name).unlink()
    for word in ASKING:
        assert refused(app, NOT_RUNNING, word)
    for arguments in (["build"], ["build", "--check"], ["start"]):
        assert refused(app, NO_CONFIG, *arguments)
    for arguments in (["enqueue", "nap"], ["jobs"], ["jobs", "show", "x"], ["queues"]):
        assert refused(app, NO_QUEUE, *arguments)
    assert [] == os.listdir(app.root)


def test_a_pool_that_is_not_running_is_said_with_its_own_code(application: Make) -> None:
    """A built application: asking it exits 3; its queue is open to everybody."""
    app = application().build()
    for word in ASKING:
        assert refused(app, NOT_RUNNING, word)
    assert 0 == command(app.root, "enqueue", "nap").code
    assert refused(app, (2, "PLATFORM_WORKER_USAGE", "worker-task-unknown"), "enqueue", "napp")
    refused(app, (1, "PLATFORM_WORKER_QUEUE_FAILED", "worker-job-unknown"), "jobs", "show", "none")
    assert not (app.root / "var" / "tmp").exists() or [] == app.leftovers()


def test_a_second_start_is_refused_and_a_mute_pool_is_told_from_none(application: Make) -> None:
    """Running: start exits 4. Without a locator, or frozen: asking exits 5, and start 4 still."""
    app = application(worker={"workers": 1, "start_timeout_ms": 1500}).build()
    pool = app.pool()
    pool.start()
    for arguments in (["start"], ["start", "--build"]):
        refused(app, RUNNING, *arguments)
    kept = (app.root / LOCATOR).rename(app.root / "kept")
    for word in ASKING:
        refused(app, MUTE, word)
    refused(app, RUNNING, "start")
    kept.rename(app.root / LOCATOR)

    pool.signal(signal.SIGSTOP)
    for word in ("status", "health"):
        refused(app, MUTE, word)
    refused(app, RUNNING, "start")
    pool.signal(signal.SIGCONT)
    pool.stop()
    app.assert_clean()


def test_health_is_1_while_a_pool_starts_or_stops_and_names_why(application: Make) -> None:
    """Starting and stopping are unhealthy, each with its reason; status answers all along."""
    tasks = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    app = application(worker={"workers": 1, "start_timeout_ms": 60000}).build()
    (app.root / "tasks.py").write_text(tasks + (app.root / "tasks.py").read_text().replace("from __future__", "#", 1))
    pool = app.pool()
    pool.start(wait=False)
    eventually((app.root / LOCATOR).exists, 20)

    def health() -> tuple[int, str, str, str]:
        code, told = said(app, "health")
        assert HEALTH_KEYS | {"pool_status"} == set(told)
        assert told["healthy"] is False
        return code, told["status"], told["pool_status"], told["reason"]

    assert (1, "unhealthy", "starting", "worker-pool-starting") == health()
    assert ("starting", 0) == (said(app, "status")[1]["status"], said(app, "status")[1]["ready_worker_count"])
    (app.root / "go").touch()
    pool.summary()
    app.enqueue("gate", name="open")
    eventually(lambda: app.ledger.count("start"))
    pool.signal(signal.SIGTERM)
    eventually(lambda: (1, "unhealthy", "stopping", "worker-pool-stopping") == health())
    assert "stopping" == said(app, "status")[1]["status"]
    (app.root / "open").touch()
    assert 0 == pool.wait()
    app.assert_clean()


def test_a_slot_that_waits_for_its_restart_makes_the_pool_unhealthy(application: Make) -> None:
    """Not ready is said as such, and only while it is so."""
    app = application(worker={"workers": 1, "restart_intensity": 20}).build()
    pool = app.start()
    (app.root / "tasks.py").write_text("import threading; threading.Event().wait()\n")
    os.kill(pool.children()[0], signal.SIGKILL)

    def unready() -> bool:
        code, told = said(app, "health")
        return (1, "worker-pool-not-ready", 0) == (code, told["reason"], told["ready_worker_count"])

    eventually(unready)
    assert "running" == said(app, "status")[1]["status"]
    shut(app, pool)


@pytest.mark.parametrize(
    ("tasks", "settings", "expected"),
    [
        ("import os; os._exit(3)", {}, "PLATFORM_WORKER_LIFECYCLE_FAILED: worker-child-exited"),
        ("raise ValueError('broken')", {}, "PLATFORM_WORKER_START_FAILED: worker-handlers-unimportable"),
        (
            "import threading; threading.Event().wait()",
            {"start_timeout_ms": 1500},
            "PLATFORM_WORKER_START_FAILED: worker-readiness-timeout",
        ),
    ],
)
def test_a_start_whose_children_cannot_boot_ends_1_with_their_reason(
    application: Make, tasks: str, settings: dict[str, Any], expected: str
) -> None:
    """One line of JSON, which is the error; nobody and nothing is left."""
    app = application(worker=settings).build()
    (app.root / "tasks.py").write_text(tasks)
    pool = app.pool()
    pool.start(wait=False)
    assert 1 == pool.wait(30), pool.log()
    code, reason = expected.split(": ")
    (line,) = pool.out.read_text().splitlines()
    assert {"code": code, "reason": reason, "status": "error"} == json.loads(line), pool.log()
    assert expected in pool.log().splitlines()
    app.assert_clean()
    assert [] == app.leftovers()


def test_a_pool_that_fails_later_says_so_in_a_second_line(application: Make) -> None:
    """The summary stays the first line, the error is the second, and the exit code is 1."""
    app = application(worker={"workers": 1, "restart_intensity": 0})
    pool = app.start()
    os.kill(pool.children()[0], signal.SIGKILL)
    assert 1 == pool.wait()
    summary, error = map(json.loads, pool.out.read_text().splitlines())
    assert "running" == summary["status"]
    assert {
        "code": "PLATFORM_WORKER_LIFECYCLE_FAILED",
        "reason": "worker-child-exited",
        "status": "error",
    } == error
    app.assert_clean()
    assert [] == app.leftovers()


@pytest.fixture
def anywhere(application: Make) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``worker`` with exactly these words, in some folder, with some environment."""

    def run(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [WORKER, *words], cwd=cwd, env={**os.environ, **environ}, capture_output=True, text=True, check=False
        )

    return run


def test_the_root_is_the_option_then_the_variable_then_the_folder(
    application: Make, anywhere: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """``--root`` and ``--json`` stand before or after the command; ``WORKER_ROOT`` is next, then where one stands."""
    app = application(worker={"workers": 1})
    pool = app.start()
    root = str(app.root)
    for words, cwd, environ in (
        (["--root", root, "--json", "status"], tmp_path, {}),
        (["status", "--json", "--root", root], tmp_path, {"WORKER_ROOT": "/nowhere"}),
        (["--json", "status", f"--root={root}"], tmp_path, {}),
        (["status", "--json"], tmp_path, {"WORKER_ROOT": root}),
        (["status", "--json"], app.root, {}),
        (["status", "--json", "--root", app.root.name], tmp_path, {}),
    ):
        done = anywhere(*words, cwd=cwd, **environ)
        assert (0, pool.supervisor) == (done.returncode, json.loads(done.stdout)["pid"]), words
    assert 3 == anywhere("status", cwd=tmp_path).returncode
    assert 3 == anywhere("status", cwd=tmp_path, WORKER_ROOT="").returncode
    pool.stop()


def test_what_children_print_goes_to_stderr(application: Make) -> None:
    """Stdout of a start has its summary and nothing else, whatever tasks and what they start print there."""
    app = application(worker={"workers": 1})
    pool = app.start()
    app.enqueue("chatter", lines=3, size=5)
    app.enqueue("shell", script="echo printed by a shell")
    eventually(lambda: {"completed": 2} == app.statuses())
    pool.stop()
    assert 1 == pool.out.read_bytes().count(b"\n")
    assert "2 xxxxx" in pool.log().splitlines()
    assert "printed by a shell" in pool.log().splitlines()
