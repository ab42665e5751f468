"""Children that cannot boot: at the first start, and after the pool was healthy once."""

from __future__ import annotations

import datetime
import json
import os
import signal
import time
from collections.abc import Callable

import pytest

from harness import Application, eventually
from harness.faults import stop_clean

Make = Callable[..., Application]


def break_import(app: Application) -> None:
    append(app, "import nowhere_to_be_found")


def leave_at_import(app: Application) -> None:
    append(app, "os._exit(3)")


def hang_at_import(app: Application) -> None:
    append(app, "threading.Event().wait()")


def lose_handler(app: Application) -> None:
    (app.root / "tasks.py").unlink()


def spoil_artifact(app: Application) -> None:
    (config,) = (app.root / "var" / "artifacts" / "generations").glob("*/config.json")
    config.write_bytes(config.read_bytes().replace(b"60000", b"70000", 1))


def block_backend(app: Application) -> None:
    (app.root / "var" / "queue.sqlite3").mkdir()


def append(app: Application, line: str) -> None:
    """Only where a child imports it: the build has seen the handlers whole."""
    with open(app.root / "tasks.py", "a") as file:
        file.write(f"\nif 'PLATFORM_WORKER_CHILD' in os.environ:\n    {line}\n")


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize(
    ("fault", "reason", "told"),
    [
        (break_import, "START_FAILED: worker-handlers-unimportable", "nowhere_to_be_found"),
        (lose_handler, "START_FAILED: worker-handlers-unimportable", "No module named 'tasks'"),
        (leave_at_import, "LIFECYCLE_FAILED: worker-child-exited", '"cause": "exited"'),
        (hang_at_import, "START_FAILED: worker-readiness-timeout", "worker-readiness-timeout"),
        (spoil_artifact, "START_FAILED: worker-generation-invalid", "worker-generation-invalid"),
        (block_backend, "START_FAILED: worker-task-source-not-ready", "sqlite.path: the file and its folder must be"),
    ],
)
def test_a_child_that_cannot_boot_ends_the_first_start_with_its_reason(
    application: Make, workers: int, fault: Callable[[Application], None], reason: str, told: str
) -> None:
    """Within the start's time, the cause in the log, exit code 1; nobody ever said that it runs."""
    app = application(worker={"workers": workers, "start_timeout_ms": 4000}).build()
    fault(app)
    pool = app.pool()
    begun = time.monotonic()
    pool.start(wait=False)
    assert 1 == pool.wait(30), pool.log()
    took = time.monotonic() - begun
    assert f"PLATFORM_WORKER_{reason}" in pool.log().splitlines()
    assert told in pool.log()
    failure = {
        "code": "PLATFORM_WORKER_" + reason.split(":", maxsplit=1)[0],
        "reason": reason.split(" ")[1],
        "status": "error",
    }
    assert [failure] == [json.loads(line) for line in pool.out.read_text().splitlines()]
    assert took < 4 + 2 + 5, "the start's time, two rungs of the ladder, and the interpreter's own"
    assert [] == pool.events("worker.child.restart")
    app.assert_clean()
    assert [] == app.leftovers()


@pytest.mark.parametrize(
    ("settings", "tasks", "reason", "hint"),
    [
        ({"worker": {"wrokers": 1}}, None, "USAGE: worker-config-invalid", "workers"),
        ({}, "import nowhere", "BUILD_FAILED: worker-handlers-unimportable", "tasks"),
    ],
)
def test_what_the_build_refuses_ends_the_start_before_anything_is_started(
    application: Make, settings: dict[str, dict[str, object]], tasks: str | None, reason: str, hint: str
) -> None:
    """Exit code 2, the cause named."""
    app = application(tasks=tasks, **settings)
    pool = app.pool()
    pool.start(wait=False)
    assert 2 == pool.wait(30)
    log = pool.log().splitlines()
    assert f"PLATFORM_WORKER_{reason}" in log
    assert any(line.startswith("hint: ") and hint in line for line in log)
    assert [] == app.leftovers()


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("table", ["worker", "sqlite"])
def test_a_variable_that_is_not_set_is_named(application: Make, workers: int, table: str) -> None:
    """Wherever the setting is needed: exit code 2."""
    app = application(worker={"workers": workers}).build()
    key = "stop_timeout_ms" if table == "worker" else "path"
    toml = (app.root / "worker.toml").read_text().replace(f"[{table}]\n", f"[{table}]\n{key} = {{ env = 'NOT_SET' }}\n")
    (app.root / "worker.toml").write_text(toml)
    assert 0 == app.run("build").returncode
    pool = app.pool()
    pool.start(wait=False)
    assert 2 == pool.wait(30), pool.log()
    assert "PLATFORM_WORKER_USAGE: worker-environment-missing" in pool.log().splitlines()
    assert "NOT_SET" in pool.log()
    assert [] == app.leftovers()


def test_a_boot_that_fails_for_ever_ends_a_pool_that_was_healthy_with_its_reason(application: Make) -> None:
    """After growing pauses, with one traceback, and a log that does not grow with the tries."""
    app = application(worker={"workers": 1, "restart_intensity": 5})
    pool = app.start()
    append(app, "import nowhere_to_be_found")
    os.kill(pool.children()[0], signal.SIGKILL)
    eventually(lambda: pool.events("worker.child.rejected"), 20)
    assert (1, "worker-pool-not-ready") == (pool.health()[0], pool.health()[1]["reason"])
    assert 1 == pool.wait(30)

    assert "PLATFORM_WORKER_START_FAILED: worker-handlers-unimportable" in pool.log().splitlines()
    assert "worker-handlers-unimportable" == json.loads(pool.out.read_text().splitlines()[1])["reason"]
    assert 6 == len(pool.events("worker.child.exit"))
    assert 5 == len(pool.events("worker.child.restart")) == len(pool.events("worker.child.rejected"))
    assert 1 == sum("exception" in event for event in pool.events())
    times = {name: [at(event) for event in pool.events(f"worker.child.{name}")] for name in ("exit", "restart")}
    pauses = [restart - end for end, restart in zip(times["exit"], times["restart"], strict=False)]
    assert pauses[0] < 0.1
    for wait, expected in zip(pauses[1:], (0.1, 0.2, 0.4, 0.8), strict=True):
        assert expected * 0.9 <= wait < expected + 1
    assert len(pool.log().splitlines()) < 60
    app.assert_clean()
    assert [] == app.leftovers()


def test_a_boot_that_succeeds_again_in_time_is_survived(application: Make) -> None:
    """The other slot works on meanwhile."""
    app = application(worker={"workers": 2, "restart_intensity": 10})
    pool = app.start()
    other = pool.children()[1]
    whole = (app.root / "tasks.py").read_text()
    append(app, "import nowhere_to_be_found")
    os.kill(pool.children()[0], signal.SIGKILL)
    eventually(lambda: 2 == len(pool.events("worker.child.rejected")), 20)
    job = app.enqueue("nap")[0]
    eventually(lambda: "completed" == app.job(job).status)
    (app.root / "tasks.py").write_text(whole)
    eventually(lambda: 2 == pool.ready(), 20)
    assert other == pool.children()[1]
    assert [other] == app.ledger.pids()
    stop_clean(app, pool)


def test_a_refill_that_never_becomes_ready_is_ended_in_time_and_tried_again(application: Make) -> None:
    """Meanwhile health says that the pool is not ready, and why that is; the next try may succeed."""
    app = application(worker={"workers": 1, "start_timeout_ms": 3000, "restart_intensity": 10}).build()
    append(app, "while os.path.exists('closed'): time.sleep(0.01)")
    pool = app.pool()
    pool.start()
    (app.root / "closed").touch()
    os.kill(pool.children()[0], signal.SIGKILL)
    exits = eventually(lambda: len(found := pool.events("worker.child.exit")) == 2 and found, 10, "it is ended")
    assert ("killed", "worker-child-exited") == (exits[0]["cause"], exits[0]["reason"])
    assert "worker-readiness-timeout" == exits[1]["reason"]
    assert (1, "worker-pool-not-ready") == (pool.health()[0], pool.health()[1]["reason"])
    (app.root / "closed").unlink()
    eventually(lambda: 1 == pool.ready(), 10)
    assert (0, "healthy") == (pool.health()[0], pool.health()[1]["reason"])
    stop_clean(app, pool)


def at(event: dict[str, str]) -> float:
    """When it was logged."""
    return datetime.datetime.fromisoformat(event["timestamp"]).timestamp()
