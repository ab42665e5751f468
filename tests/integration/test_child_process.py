"""The real child, driven over its lifeline as its guardian would."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from child_owner import RUN, Child, eventually, publish

TASKS = """
import os, signal, subprocess, sys, time
from pathlib import Path
from platform_worker import JobContext, task

@task("add")
def add(a: int, b: int = 2) -> int:
    return a + b

@task("bad")
def bad():
    raise RuntimeError("boom")

@task("exit")
def leave():
    sys.exit(0)

@task("os_exit")
def os_exit():
    os._exit(0)

@task("sleep")
def sleep():
    Path("started").touch()
    time.sleep(9999)

@task("stubborn")
def stubborn():
    Path("started").touch()
    try:
        time.sleep(9999)
    except BaseException:
        raise ValueError("mine")

@task("spin")
def spin():
    Path("started").touch()
    while True:
        pass

@task("async_sleep")
async def async_sleep():
    import asyncio
    Path("started").touch()
    try:
        await asyncio.sleep(9999)
    finally:
        Path("cancelled").touch()

@task("until")
def until(path: str):
    Path("started").touch()
    while not Path(path).exists():
        time.sleep(0.005)
    return "finished"

@task("mess")
def mess():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    os.close(0); os.close(1); os.close(2)
    os.chdir("/")

@task("fork")
def fork():
    pid = os.fork()
    if pid == 0:
        return "a copy"
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

@task("fork_sleeping")
def fork_sleeping():
    if os.fork() == 0:
        Path("forked").write_text(str(os.getpid()))
        time.sleep(9999)
    return None

@task("descriptors")
def descriptors():
    code = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')))"
    out = subprocess.run([sys.executable, "-c", code], close_fds=False, capture_output=True, text=True).stdout
    return out.strip()

@task("group")
def group():
    Path("sleeper").write_text(str(subprocess.Popen(["sleep", "9999"]).pid))
    Path("started").touch()
    time.sleep(9999)

@task("shout")
def shout():
    Path("started").touch()
    while True:
        print("x" * 100)
        sys.stderr.write("y" * 100 + "\\n")

@task("file")
def file():
    global kept
    kept = open("kept", "w")
    kept.write("all of it")

@task("cannot_settle")
def cannot_settle():
    return 1
"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "tasks.py").write_text(TASKS)
    publish(tmp_path, handlers=["tasks"])
    return tmp_path


def todo(root, *lines):
    (root / "todo").write_text("".join(f"{line}\n" for line in lines))


def ledger(root):
    path = root / "ledger"
    return path.read_text().splitlines() if path.exists() else []


def descriptors(pid):
    return {int(fd): os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_it_boots_works_and_stops(root):
    todo(root, 'add {"a":1}', "bad", "exit", 'add {"a":2,"b":3}')
    with Child(root).started() as child:
        eventually(lambda: len(ledger(root)) == 4)
        child.tell("stop")
        assert ["done", None] == [child.heard(), child.heard()]
        assert 0 == child.ends()
    assert ["complete 1 3", "fail 2 RuntimeError", "fail 3 SystemExit", "complete 4 5", "close"] == ledger(root)
    failed = [event for event in child.events() if event["event"] == "worker.task.failed"]
    assert ["RuntimeError", "SystemExit"] == [event["error"] for event in failed]
    assert "boom" in failed[0]["exception"]
    assert {"event", "level", "timestamp", "slot"} <= failed[0].keys()


def test_it_runs_as_a_module_too(root):
    with Child(root, command=("-m", "platform_worker.child")).started() as child:
        child.tell("stop")
        assert "done" == child.heard()
        assert 0 == child.ends()


def test_at_its_limit_it_says_last_waits_and_may_go_on(root):
    todo(root, *['add {"a":1}'] * 5)
    with Child(root, max_requests=2).started() as child:
        assert "last" == child.heard()
        eventually(lambda: len(ledger(root)) == 2)
        child.tell("go on")
        assert "last" == child.heard()
        eventually(lambda: len(ledger(root)) == 4)
        child.tell("stop")
        assert "done" == child.heard()
        assert 0 == child.ends()


def test_a_stop_lets_the_task_in_hand_finish(root):
    todo(root, 'until {"path":"release"}', 'add {"a":1}')
    with Child(root).started() as child:
        eventually((root / "started").exists)
        child.tell("stop")
        (root / "release").touch()
        assert "done" == child.heard()
        assert 0 == child.ends()
    assert ['complete 1 "finished"', "close"] == ledger(root)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_from_outside_lets_the_task_in_hand_finish(root, number):
    todo(root, 'until {"path":"release"}', 'add {"a":1}')
    with Child(root).started() as child:
        eventually((root / "started").exists)
        child.process.send_signal(number)
        child.process.send_signal(number)
        (root / "release").touch()
        assert "done" == child.heard()
        assert 0 == child.ends()
    assert ['complete 1 "finished"', "close"] == ledger(root)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_other_signals_to_the_group_change_nothing(root, number):
    todo(root, 'until {"path":"release"}')
    with Child(root).started() as child:
        eventually((root / "started").exists)
        os.killpg(child.process.pid, number)
        (root / "release").touch()
        eventually(lambda: ledger(root))
        child.tell("stop")
        assert "done" == child.heard()
        assert 0 == child.ends()


@pytest.mark.parametrize("name", ["sleep", "stubborn", "spin", "async_sleep", "shout"])
def test_the_terminate_phase_interrupts_the_task_and_it_is_released(root, name):
    todo(root, name, 'add {"a":1}')
    with Child(root).started() as child:
        eventually((root / "started").exists)
        child.tell("stop")
        child.terminate()
        assert "done" == child.heard()
        assert 0 == child.ends()
    assert ["release 1", "close"] == ledger(root)
    assert "reentrant" not in child.stderr()
    assert (root / "cancelled").exists() == (name == "async_sleep")


def test_a_sigterm_that_overtakes_the_word_is_no_matter(root):
    todo(root, "sleep")
    with Child(root).started() as child:
        eventually((root / "started").exists)
        child.process.send_signal(signal.SIGTERM)
        child.tell("terminate")
        assert "done" == child.heard()
        assert 0 == child.ends()
    assert ["release 1", "close"] == ledger(root)


def test_idle_it_stops_at_once(root):
    with Child(root).started() as child:
        child.tell("stop")
        assert "done" == child.heard()
        assert 0 == child.ends()


def test_a_stop_before_go_closes_the_source(root):
    with Child(root).start() as child:
        assert "booted" == child.heard()
        child.tell("stop")
        assert "done" == child.heard()
        assert 0 == child.ends()
    assert ["close"] == ledger(root)


@pytest.mark.parametrize("how", ["word", "signal"])
def test_a_stop_ends_a_boot_that_never_ends(root, how):
    (root / "tasks.py").write_text("import pathlib, time; pathlib.Path('booting').touch(); time.sleep(9999)")
    with Child(root).start() as child:
        eventually((root / "booting").exists)
        if how == "word":
            child.tell("stop")
        else:
            child.process.send_signal(signal.SIGTERM)
        assert "done" == child.heard()
        assert 0 == child.ends()


def test_a_sigterm_before_it_has_handlers_is_kept_for_it(root):
    with Child(root) as child:
        child.process.send_signal(signal.SIGTERM)
        assert "done" == child.heard()
        assert 0 == child.ends()


@pytest.mark.parametrize("name", ["sleep", "spin", "group"])
def test_the_end_of_the_lifeline_ends_it_and_its_group(root, name):
    todo(root, name)
    with Child(root).started() as child:
        eventually((root / "started").exists)
        child.lifeline.close()
        assert -signal.SIGKILL == child.ends()
    if name == "group":
        sleeper = int((root / "sleeper").read_text())
        eventually(lambda: gone(sleeper))


def test_nonsense_on_the_lifeline_is_a_guardian_that_is_gone(root):
    with Child(root).started() as child:
        child.tell("dance")
        assert -signal.SIGKILL == child.ends()


def test_os_exit_in_a_handler_is_a_death_without_a_word(root):
    todo(root, "os_exit")
    with Child(root).started() as child:
        assert child.heard() is None
        assert 0 == child.ends()
    assert [] == ledger(root)


def test_a_handler_that_takes_signals_and_descriptors_away_does_not_break_it(root):
    todo(root, "mess", 'until {"path":"%s"}' % (root / "release"))
    with Child(root).started() as child:
        eventually(lambda: ledger(root) == ["complete 1 null"])
        (root / "release").touch()
        eventually(lambda: len(ledger(root)) == 2)
        child.process.send_signal(signal.SIGTERM)
        assert "done" == child.heard()
        assert 0 == child.ends()


def test_a_copy_that_a_task_forks_settles_nothing_and_says_nothing(root):
    todo(root, "fork", 'add {"a":1}')
    with Child(root).started() as child:
        eventually(lambda: len(ledger(root)) >= 2)
        child.tell("stop")
        assert ["done", None] == [child.heard(), child.heard()]
    assert ["complete 1 0", "complete 2 3", "close"] == ledger(root)


def test_a_forked_process_has_none_of_our_handlers_and_descriptors(root):
    todo(root, "fork_sleeping")
    with Child(root).started() as child:
        pid = int(eventually(lambda: (root / "forked").exists() and (root / "forked").read_text()))
        ours = {link for fd, link in descriptors(child.process.pid).items() if fd >= 64 and link.startswith("socket")}
        assert 1 == len(ours), "the lifeline, moved up"
        assert not ours & set(descriptors(pid).values())
        caught = int(Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0], 16)
        # SIGINT keeps the interpreter's own handler; of ours, SIGTERM, SIGHUP and SIGQUIT, there is none.
        assert not caught & sum(1 << (n - 1) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT))
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: gone(pid))
        child.tell("stop")
        assert "done" == child.heard()


def test_what_a_task_executes_inherits_the_three_standard_descriptors_only(root):
    members = os.open(root / "members", os.O_RDWR | os.O_CREAT)
    os.close(members)
    todo(root, "descriptors")
    with Child(root).started() as child:
        eventually(lambda: ledger(root))
        child.tell("stop")
        child.heard()
    # 3 is the listing's own.
    assert ['complete 1 "[0, 1, 2, 3]"', "close"] == ledger(root)


def test_buffered_files_and_atexit_functions_have_their_end(root):
    (root / "tasks.py").write_text(TASKS + "\nimport atexit; atexit.register(lambda: Path('left').touch())\n")
    todo(root, "file")
    with Child(root).started() as child:
        eventually(lambda: ledger(root))
        child.tell("stop")
        child.heard()
        assert 0 == child.ends()
    assert "all of it" == (root / "kept").read_text()
    assert (root / "left").exists()


def test_a_batch_ends_when_nothing_is_left(root):
    todo(root, 'add {"a":1}')
    with Child(root, until_empty=True).started() as child:
        assert ["empty", "done", None] == [child.heard() for _ in range(3)]
        assert 0 == child.ends()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("none", "worker-task-source-terminated"),
        ("raise", "worker-task-source-receive-failed"),
        ("cannot_settle", "worker-task-settlement-failed"),
    ],
)
def test_a_source_that_breaks_ends_the_child_with_its_reason(root, line, reason):
    todo(root, line)
    with Child(root).started() as child:
        assert [f"failed {reason}", None] == [child.heard(), child.heard()]
        assert 1 == child.ends()
    assert ["close"] == ledger(root)


def broken_generation(root):
    (root / "var/artifacts/current").write_text("0" * 64 + "\n")


BOOT_FAILURES = {
    "generation": (broken_generation, {}, "worker-generation-invalid"),
    "import": (lambda root: (root / "tasks.py").write_text("import nowhere"), {}, "worker-handlers-unimportable"),
    "exit": (lambda root: (root / "tasks.py").write_text("raise SystemExit"), {}, "worker-handlers-unimportable"),
    "changed": (lambda root: publish(root, task_type="http"), {}, "worker-pool-changed"),
    "no plugin": (
        lambda root: publish(root, source="nowhere:factory"),
        {},
        "worker-task-source-unresolvable",
    ),
    "no factory": (lambda root: publish(root, source="child_parts:not_a_factory"), {}, "worker-task-source-invalid"),
    "raises": (lambda root: publish(root, source="child_parts:broken_factory"), {}, "worker-task-source-unresolvable"),
    "shape": (lambda root: publish(root, source="child_parts:shapeless"), {}, "worker-task-source-invalid"),
    "environment": (
        lambda root: publish(root, plugins={"parts": {"url": {"env": "NOT_THERE", "type": "string"}}}),
        {},
        "worker-environment-missing",
    ),
}


@pytest.mark.parametrize("name", sorted(BOOT_FAILURES))
def test_a_boot_that_fails_tells_its_reason(root, name):
    break_it, boot, reason = BOOT_FAILURES[name]
    break_it(root)
    with Child(root, **boot).start() as child:
        assert [f"failed {reason}", None] == [child.heard(), child.heard()]
        assert 1 == child.ends()
    (event,) = [event for event in child.events() if event["event"] == "worker.child.rejected"]
    assert reason == event["reason"]
    if name == "import":
        assert "No module named 'nowhere'" in event["exception"]
    if name == "environment":
        assert "NOT_THERE" in event["hints"][0]


@pytest.mark.parametrize("how", ["app", "boot"])
def test_the_traceback_of_a_failed_import_can_be_kept_out_of_the_log(root, how):
    (root / "tasks.py").write_text("import nowhere")
    publish(root, handlers=["tasks"], log_exceptions=how != "app")
    with Child(root, log_exceptions=how != "boot").start() as child:
        assert "failed worker-handlers-unimportable" == child.heard()
        assert 1 == child.ends()
    assert "nowhere" not in child.stderr()


def test_a_source_that_is_not_ready_says_so_after_go_and_is_closed(root):
    (root / "not-ready").touch()
    with Child(root).start() as child:
        assert "booted" == child.heard()
        child.tell("go")
        assert "failed worker-task-source-not-ready" == child.heard()
        assert 1 == child.ends()
    assert ["close"] == ledger(root)


def test_hooks_and_resetters_come_from_the_generation(root):
    publish(root, handlers=["tasks"], hooks=["child_parts:Hook"], resetters=["child_parts:reset"])
    todo(root, 'add {"a":1}')
    with Child(root, generation=4, slot=2, incarnation=3).started() as child:
        eventually(lambda: len(ledger(root)) == 4)
        child.tell("stop")
        child.heard()
    assert ["before 4.2.3.1", "after success", "reset", "complete 1 3", "close"] == ledger(root)


def test_a_child_without_handlers_imports_nothing_that_is_expensive(root):
    (root / "tasks.py").write_text(
        "import atexit, sys, json\n"
        "atexit.register(lambda: open('modules', 'w').write(json.dumps(sorted(sys.modules))))\n"
    )
    with Child(root, command=("-P", "-c", RUN)).started() as child:
        child.tell("stop")
        child.heard()
        child.ends()
    heavy = {
        "dataclasses",
        "inspect",
        "asyncio",
        "structlog",
        "pydantic",
        "logging",
        "socket",
        "subprocess",
        "argparse",
    }
    assert set() == heavy & set(json.loads((root / "modules").read_text()))


def test_its_own_standard_error_may_be_closed(root):
    with Child(root, command=("-P", "-c", f"import os; os.close(1); os.close(2); {RUN}")).started() as child:
        assert "/dev/null" == os.readlink(f"/proc/{child.process.pid}/fd/2")
        child.tell("stop")
        assert "done" == child.heard()
        assert 0 == child.ends()
