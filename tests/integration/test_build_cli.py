"""``worker build`` and ``worker init`` as a person meets them: real processes, applications that misbehave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from platform_worker.artifacts.boot import load_current
from platform_worker.artifacts.generation import is_id

CHILDREN = Path(__file__).parent / "children"
#: The command's own module, with what the command line does around it.
CODE = """\
import sys
from platform_worker.errors import WorkerError
from importlib import import_module
command, root, as_json, *args = sys.argv[1:]
try:
    sys.exit(import_module("platform_worker.cli." + command).run(root, args, as_json == "1"))
except WorkerError as error:
    print(error, *("hint: " + hint for hint in error.hints), sep="\\n", file=sys.stderr)
    sys.exit(error.exit_code)
"""


def command(
    name: str, root: Path, *args: str, as_json: bool = False, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end."""
    argv = [sys.executable, "-c", CODE, name, str(root), str(int(as_json)), *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, env={**os.environ, **environ}, check=False)


def application(root: Path, tasks: str = "", toml: str = '[app]\nhandlers = ["tasks"]\n') -> Path:
    """A folder with these two files."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "worker.toml").write_text(toml)
    (root / "tasks.py").write_text("from platform_worker import task\n" + tasks)
    return root


def tree(root: Path) -> dict[str, bytes]:
    """Every file below the artifacts, by name."""
    base = root / "var/artifacts"
    return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}


def test_init_writes_an_application_that_builds_and_overwrites_nothing(tmp_path: Path) -> None:
    root = tmp_path / "app"
    first = command("init", root)
    assert (0, "") == (first.returncode, first.stderr)
    wrote, _, after = first.stdout.partition("next:\n")
    assert "wrote worker.toml\nwrote tasks.py\n" == wrote
    assert ["build", "start", "enqueue", "jobs"] == [line.split()[3] for line in after.splitlines()]
    assert all(line.startswith(f"  worker --root {os.path.relpath(root)} ") for line in after.splitlines())

    built = command("build", root)
    assert (0, "") == (built.returncode, built.stderr)
    assert is_id(built.stdout.removesuffix("\n"))
    assert ["hello"] == list(load_current(str(root)).container["tasks"])

    (root / "worker.toml").write_text("mine")
    again = command("init", root)
    assert 2 == again.returncode
    hint = "hint: worker.toml and tasks.py are there already; nothing was written"
    assert f"PLATFORM_WORKER_USAGE: worker-usage-invalid\n{hint}\n" == again.stderr
    (root / "tasks.py").unlink()
    assert "wrote tasks.py\n" == command("init", root).stdout.partition("next:")[0]
    assert "mine" == (root / "worker.toml").read_text()


def test_the_same_input_is_the_same_bytes_in_any_folder(tmp_path: Path) -> None:
    tasks = "@task('b', queue='q')\ndef b(): ...\n@task\ndef a(): ...\n"
    one, other = application(tmp_path / "one", tasks), application(tmp_path / "deep/er/other", tasks)
    ids = {
        command("build", one, PYTHONHASHSEED="1").stdout,
        command("build", other, PYTHONHASHSEED="2", LANG="C", TZ="Asia/Tokyo").stdout,
    }
    assert 1 == len(ids)
    assert tree(one) == tree(other)
    assert not any(str(tmp_path).encode() in data for data in tree(one).values())


def test_json_says_whether_it_was_there_already_and_check_whether_it_is_selected(tmp_path: Path) -> None:
    root = application(tmp_path)
    check = command("build", root, "--check", as_json=True)
    expected = json.loads(check.stdout)
    assert (1, "stale") == (check.returncode, expected["status"])
    assert not (root / "var").exists()

    first, second = (json.loads(command("build", root, as_json=True).stdout) for _ in range(2))
    assert {"generation": expected["generation"], "reused": False, "status": "ok"} == first
    assert {**first, "reused": True} == second
    fresh = command("build", root, "--check", as_json=True)
    assert (0, {"generation": first["generation"], "status": "ok"}) == (fresh.returncode, json.loads(fresh.stdout))

    (root / "tasks.py").write_text("from platform_worker import task\n@task\ndef more(): ...\n")
    stale = command("build", root, "--check")
    assert (1, "stale\n") == (stale.returncode, stale.stdout)


@pytest.mark.parametrize(
    ("tasks", "shown", "hint"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero", "importing tasks raised ZeroDivisionError"),
        ("import sys; sys.exit(0)", "SystemExit: 0", "importing tasks raised SystemExit"),
        ("import os; os._exit(0)", "", "the process that imports them ended without an answer"),
        ("import os; os.kill(os.getpid(), 9)", "", "the process that imports them ended without an answer"),
        ("import os; os.closerange(3, 99)", "", "the process that imports them ended without an answer"),
        ("import no_such", "No module named 'no_such'", "importing tasks raised ModuleNotFoundError"),
        ("def broken(", "SyntaxError", "importing tasks raised SyntaxError"),
        (
            "@task('x')\ndef a(): ...\n@task('x')\ndef b(): ...",
            "is taken twice",
            "the task x is registered twice, in tasks and in tasks; rename one",
        ),
        ("@task(priority=11)\ndef a(): ...", "priority of a task must be 1 to 10", "importing tasks raised ValueError"),
    ],
)
def test_handlers_that_cannot_be_imported_show_their_own_error(
    tmp_path: Path, tasks: str, shown: str, hint: str
) -> None:
    result = command("build", application(tmp_path, tasks))
    assert (2, "") == (result.returncode, result.stdout)
    assert result.stderr.endswith(
        f"PLATFORM_WORKER_BUILD_FAILED: worker-handlers-unimportable\nhint: app.handlers: {hint}\n"
    )
    assert shown in result.stderr
    assert not (tmp_path / "var").exists()


@pytest.mark.parametrize(
    ("tasks", "rule"),
    [
        ("@task('x')\ndef a(b, /): ...", "none of them may be positional only"),
        ("@task('x')\ndef a(*args): ...", "*args stays empty"),
        ("@task('x')\nclass A: ...", "not a class"),
        ("@task('x')\ndef a():\n    yield 1", "must not be a generator"),
        ("@task('x')\nasync def a():\n    yield 1", "must not be a generator"),
        ("class T: ...\n@task('x')\ndef a(b: T | list[T], c: 'int' = 1, *args): ...", "*args stays empty"),
    ],
)
def test_a_handler_that_no_child_would_take_is_refused_by_the_build(tmp_path: Path, tasks: str, rule: str) -> None:
    result = command("build", application(tmp_path, tasks))
    code, hint = result.stderr.splitlines()
    assert (2, "PLATFORM_WORKER_BUILD_FAILED: worker-handlers-unimportable") == (result.returncode, code)
    assert hint.startswith("hint: app.handlers: the task x cannot be called: ")
    assert rule in hint
    assert not (tmp_path / "var").exists()


def test_without_log_exceptions_the_traceback_stays_out(tmp_path: Path) -> None:
    toml = '[app]\nhandlers = ["tasks"]\nlog_exceptions = false\n'
    result = command("build", application(tmp_path, "raise ValueError('sesame')", toml))
    assert 2 == result.returncode
    assert "sesame" not in result.stderr


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    result = command("build", application(tmp_path, toml='[app]\nhandlers = ["task"]\n'))
    assert "hint: app.handlers: there is no module task in app.path\n" in result.stderr


def test_what_handlers_do_while_they_are_imported_does_not_disturb_the_build(tmp_path: Path) -> None:
    tasks = """
import atexit, os, subprocess, sys, threading
print("printed"); os.write(1, b"written\\n"); sys.stdout.flush()
os.chdir("/")
subprocess.Popen(["sleep", "1000"])
threading.Thread(target=threading.Event().wait).start()
atexit.register(threading.Event().wait)
@task("a")
def a(): ...
"""
    result = command("build", application(tmp_path, tasks))
    assert (0, 65) == (result.returncode, len(result.stdout))
    assert "printed" in result.stderr
    assert ["a"] == list(load_current(str(tmp_path)).container["tasks"])


def test_ctrl_c_ends_an_import_that_hangs_and_what_it_started(tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    tasks = f"""
import os, threading, subprocess
held = os.open({str(fifo)!r}, os.O_WRONLY)
os.set_inheritable(held, True)
subprocess.Popen(["sleep", "1000"], close_fds=False)
os.write(held, b"x")
threading.Event().wait()
"""
    application(tmp_path, tasks)
    build = subprocess.Popen(
        [sys.executable, "-c", CODE, "build", str(tmp_path), "0"], stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        with fifo.open("rb", buffering=0) as alive:
            assert b"x" == alive.read(1)
            os.kill(build.pid, signal.SIGINT)
            assert b"" == alive.read(1)  # the end of the file: every process that had it is gone
        assert build.wait(10) != 0
    finally:
        build.kill()
        build.wait()


def test_a_build_that_is_killed_takes_the_import_with_it(tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    tasks = f"""
import os, threading
held = os.open({str(fifo)!r}, os.O_WRONLY)
os.write(held, b"x")
threading.Event().wait()
"""
    application(tmp_path, tasks)
    build = subprocess.Popen([sys.executable, "-c", CODE, "build", str(tmp_path), "0"], start_new_session=True)
    try:
        with fifo.open("rb", buffering=0) as alive:
            assert b"x" == alive.read(1)
            began = time.monotonic()
            build.kill()
            assert b"" == alive.read(1)
            assert time.monotonic() - began < 5
    finally:
        build.kill()
        build.wait()


@pytest.mark.parametrize(
    ("toml", "line"),
    [
        ("[worker]\nworkers = 0\n", "PLATFORM_WORKER_USAGE: worker-config-invalid"),
        ('[app]\nmodules = ["none"]\n', "PLATFORM_WORKER_BUILD_FAILED: worker-module-unknown"),
        ("[app]\nmodules = []\n", "PLATFORM_WORKER_BUILD_FAILED: worker-task-source-missing"),
        ('[worker]\ntask_type = "http"\n', "PLATFORM_WORKER_BUILD_FAILED: worker-task-source-missing"),
        ('[worker]\ntask_type = { env = "PW_UNSET" }\n', "PLATFORM_WORKER_USAGE: worker-environment-missing"),
    ],
)
def test_a_build_that_is_refused_changes_nothing(tmp_path: Path, toml: str, line: str) -> None:
    before = command("build", application(tmp_path)).stdout
    (tmp_path / "worker.toml").write_text(toml)
    result = command("build", tmp_path)
    assert (2, "", line) == (result.returncode, result.stdout, result.stderr.splitlines()[0])
    assert before == (tmp_path / "var/artifacts/current").read_text()


def test_without_a_worker_toml_it_says_how_to_begin(tmp_path: Path) -> None:
    result = command("build", tmp_path)
    assert (2, "PLATFORM_WORKER_USAGE: worker-config-missing") == (result.returncode, result.stderr.splitlines()[0])
    assert "worker init" in result.stderr
    assert [] == list(tmp_path.iterdir())


def test_help_has_an_example_and_an_unknown_option_is_a_usage_error(tmp_path: Path) -> None:
    for name in ("build", "init"):
        helped = command(name, tmp_path, "--help")
        assert 0 == helped.returncode
        assert "example" in helped.stdout
        assert 2 == command(name, tmp_path, "--no-such").returncode


def test_killed_at_any_step_of_publishing_the_old_or_the_new_one_is_there_whole(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(CHILDREN / "publish_steps.py"), str(tmp_path / "root")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (0, "") == (result.returncode, result.stderr)
    assert int(result.stdout) > 30
