"""Secrets planted wherever one can be, and looked for in all that a pool and its commands say."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Application, Pool, eventually
from harness.commands import command
from harness.control import STATE, locator
from harness.processes import command as command_line
from harness.processes import environment
from harness.telemetry import points, spans, telemetry

Make = Callable[..., Application]

FOLDER = "planted-folder"
VARIABLE = "planted-variable"
SETTING = "planted-setting"
PAYLOAD = "planted-payload"
RESULT = "planted-result"
ERROR = "planted-error"
OWNERS = {PAYLOAD, RESULT, ERROR}
TASKS = f"""
import logging, os
from platform_worker import JobContext, Reject, Retry, task

class Fault(Exception):
    pass

@task("work")
def work(secret: str, how: str = "", context: JobContext = None):
    if how == "raise":
        raise Fault("{ERROR} " + secret)
    if how == "group":
        raise ExceptionGroup("{ERROR}", [Fault(secret)])
    if how == "reject":
        raise Reject("{ERROR} " + secret)
    if how == "retry":
        raise Retry(after=0)
    if how == "exit":
        raise SystemExit("{ERROR} " + secret)
    if how == "kill":
        os.kill(os.getpid(), 9)
    if how == "unserializable":
        return {{"{RESULT}": object()}}
    if how == "large":
        return "{RESULT}" * 10000
    if how == "bad-argument":
        return work(secret, how, context, 1)
    if context is not None:
        context.heartbeat({{"progress": secret}})
    return "{RESULT}" + secret
"""
HOWS = ("", "raise", "group", "reject", "retry", "exit", "kill", "unserializable", "large", "bad-argument")


def configure(app: Application) -> None:
    """Settings with a secret in each place that may have one."""
    (app.root / "worker.toml").write_text(
        f"""
[app]
name = "{SETTING}"
handlers = ["tasks"]
log_exceptions = false
[worker]
workers = 1
max_requests = 8
restart_intensity = 1000
pool_id = "{SETTING}"
state_path = "var/tmp/{SETTING}.json"
socket_path = {{ env = "PW_SOCKET" }}
[queue]
max_attempts = 2
backoff_ms = 1
[sqlite]
path = {{ env = "PW_STORE" }}
"""
    )


ENVIRON = {"PW_SOCKET": f"var/tmp/{VARIABLE}.sock", "PW_STORE": f"var/{VARIABLE}.sqlite3", "PW_OTHER": VARIABLE}


@pytest.fixture
def planted(application: Make, monkeypatch: pytest.MonkeyPatch) -> Application:
    """An application with a secret everywhere."""
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    app = application(FOLDER, tasks=TASKS)
    configure(app)
    return app


def clean(text: str, *, allowed: set[str] | frozenset[str] = frozenset(), more: tuple[str, ...] = ()) -> None:
    """None of the planted words is in ``text``, but for those ``allowed``."""
    for secret in ({FOLDER, VARIABLE, SETTING} | OWNERS) - allowed | set(more):
        assert secret not in text, (secret, text)


def what_commands_say(app: Application) -> list[str]:
    """Commands that succeed and commands that fail, with ``--json`` and without."""
    said = []
    right = (["status"], ["health"], ["queues"], ["build"], ["build", "--check"], ["jobs", "recover"])
    wrong = (
        ["jobs", "show", "none"],
        ["enqueue", "none", "--data", json.dumps({"a": PAYLOAD})],
        ["enqueue", "work", "--data", f'{{"a": "{PAYLOAD}"'],
        ["jobs", "retry", "none"],
        ["status", PAYLOAD],
        ["jobs", "--limit", PAYLOAD],
    )
    for flags in (["--json"], []):
        for words in (*right, *wrong):
            done = command(app.root, *words, *flags)
            assert (words in right) == (done.code == 0), (words, done.err)
            said.append(done.out + done.err)
    said.append(app.run("start").stderr)
    return said


def test_nothing_planted_comes_out(planted: Application, tmp_path: Path) -> None:
    """Outputs, logs, state, command lines, environments, spans and metrics; jobs of every end, a crash, recycling."""
    app, root = planted, str(planted.root)
    built = app.run("build")
    assert 0 == built.returncode, built.stderr
    pool = app.pool(**telemetry(tmp_path / "site"))
    pool.start()
    credential = locator(app.root)["control_credential"]
    with app.queue() as queue:
        for how in HOWS:
            queue.enqueue("work", {"secret": PAYLOAD, "how": how})
        queue.enqueue("work", {"other": PAYLOAD})
        queue.enqueue("unknown", {"other": PAYLOAD}, allow_unknown=True)
    waiting = ("queued", "retry_wait", "processing")
    eventually(lambda: not any(app.statuses().get(status) for status in waiting), 40)
    pids = [pid for pid in pool.census() if pid != pool.supervisor]
    for pid in pool.census():
        assert credential not in command_line(pid) + str(environment(pid))
        clean(command_line(pid), allowed={FOLDER} if pid == pool.supervisor else frozenset())
    said = [built.stdout + built.stderr, *what_commands_say(app)]
    for flags in (["--json"], []):
        owners = command(app.root, "jobs", *flags)
        clean(owners.out + owners.err, allowed=OWNERS, more=(credential, root))
    said.append((app.root / f"var/tmp/{SETTING}.json").read_text())
    os.kill(pool.children()[0], signal.SIGKILL)
    eventually(lambda: 1 == pool.ready())
    pids += [pid for pid in pool.census() if pid != pool.supervisor]
    stopped = pool.stop()
    told = (tmp_path / "site" / "told").read_text()
    said += [stopped.stdout + stopped.stderr, pool.log(), pool.out.read_text(), told]
    for text in said:
        clean(text, more=(credential, root))
    assert_no_pids(pool, pids)
    assert_telemetry(tmp_path / "site", pool)


def assert_no_pids(pool: Pool, pids: list[int]) -> None:
    """Pids of children and guardian are nobody's business."""
    for event in pool.events():
        assert not set(pids) & {value for value in event.values() if isinstance(value, int)}, event
        assert not {"pid", "data", "args", "path"} & set(event), event


def assert_telemetry(site: Path, pool: Pool) -> None:
    """Exactly the spans, metrics and labels that there are."""
    seen = spans(site)
    assert {"worker.process", "worker.task"} == {name for name, _ in seen}
    for name, attributes in seen:
        if name == "worker.process":
            assert {"outcome": attributes["outcome"], "pid": pool.supervisor} == attributes
        else:
            assert {"operation": "queue", "outcome": attributes["outcome"]} == attributes
        assert attributes["outcome"] in ("success", "failure")
    found = points(site)
    assert {"worker.process_total", "worker.task_total", "worker.task_duration_ms"} == {name for name, *_ in found}
    for name, labels, _ in found:
        assert set(labels) == ({"status"} if name == "worker.process_total" else {"operation", "outcome"}), labels
    counted = {labels["status"]: value for name, labels, value in found if name == "worker.process_total"}
    assert (1, 1) == (counted["start_success"], counted["stop_success"])
    assert counted["recycle_success"] >= 1
    assert counted["status_success"] >= 1
    assert set(counted) <= {
        "start_success", "start_failure", "stop_success", "stop_failure", "status_success", "status_failure",
        "recycle_success", "recycle_failure",
    }  # fmt: skip


def test_artifacts_hold_references_and_no_value(planted: Application) -> None:
    """What is published has the variables' names, no value of theirs and no absolute path."""
    planted.build()
    text = "".join(path.read_text() for path in (planted.root / "var/artifacts").rglob("*") if path.is_file())
    clean(text, allowed={SETTING}, more=(str(planted.root), os.uname().nodename))
    assert "PW_STORE" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [("PW_SOCKET", f"/{VARIABLE}"), ("PW_SOCKET", f"tasks.py/{VARIABLE}"), ("PW_STORE", f"tasks.py/{VARIABLE}")],
)
@pytest.mark.parametrize("flags", [["--json"], []])
def test_a_start_that_fails_shows_no_value_either(
    planted: Application, name: str, value: str, flags: list[str]
) -> None:
    """The key or the variable is named, never what it holds."""
    planted.build()
    pool = planted.pool(**{name: value})
    if flags:
        pool.start(wait=False)
        assert pool.wait() in (1, 2)
        text = pool.log() + pool.out.read_text()
    else:
        os.environ[name] = value  # taken back by the fixture
        done = planted.run("start")
        assert done.returncode in (1, 2)
        text = done.stdout + done.stderr
    assert "PLATFORM_WORKER_" in text
    clean(text, more=(str(planted.root),))


@pytest.mark.parametrize("logged", [True, False])
def test_an_import_that_fails_shows_its_text_only_where_told_to(planted: Application, logged: bool) -> None:
    """``log_exceptions`` decides, for the build and for a child; the rest is never shown."""
    text = (planted.root / "worker.toml").read_text().replace("= false", f"= {str(logged).lower()}")
    (planted.root / "worker.toml").write_text(text)
    assert 0 == planted.run("build").returncode
    (planted.root / "tasks.py").write_text(f"raise ValueError('{ERROR}')")
    pool = planted.pool()
    pool.start(wait=False)
    assert 1 == pool.wait()
    assert logged == (ERROR in pool.log())
    assert ERROR not in pool.out.read_text()
    done = command(planted.root, "build")
    assert 2 == done.code
    assert ERROR not in "".join(done.hints())
    assert STATE not in done.err
