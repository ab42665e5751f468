"""The guardian with real processes: what it starts, what it hands down, and that nothing of it is ever left."""

import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from guardian_owner import BOOT, CHILD, Owner, alive, descriptors, eventually, marked

from platform_worker.host import procfs
from platform_worker.host.fence import fence_held
from platform_worker.protocol.ownership import (
    Busy,
    Claim,
    Claimed,
    Exited,
    Hello,
    Kill,
    Release,
    Released,
    Said,
    Start,
    Started,
    StartFailed,
    Tell,
    Terminate,
)

#: The guardian's text with one mechanism of containment switched off.
WITHOUT_DEATH_SIGNAL = (
    "import sys; sys.path.insert(0, {path}); from platform_worker.host import prctl; "
    "prctl.set_parent_death_signal = lambda signum: False; "
    "from platform_worker.wiring_guardian import run_guardian; run_guardian({ownership}, {members})"
)
drivers = pytest.mark.parametrize("driver", ["fork", "spawn"])


@pytest.fixture
def mark(monkeypatch):
    """A census: everything started in a test carries the mark, and nothing that carries it may be left."""
    value = f"{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("CENSUS", value)
    before = descriptors(os.getpid())
    yield value
    eventually(lambda: marked(value) == [])
    assert before == descriptors(os.getpid())


@pytest.fixture
def owner(tmp_path, mark):
    """A guardian that has not claimed yet."""
    with closing(Owner(tmp_path)) as owner:
        yield owner


def release(owner):
    """The orderly end."""
    owner.say(Release())
    assert Released() == owner.until(Released)
    assert 0 == owner.wait()


@drivers
def test_the_whole_life(owner, driver):
    """Claim, start, words both ways, exit, release: in this order, and the fence is free afterwards."""
    assert Claimed(1) == owner.claim(driver=driver)
    assert fence_held(owner.root)
    owner.say(Start(0, 1, BOOT), Tell(0, 1, "go"), Tell(0, 1, "stop"))
    assert Exited(0, 1, 0, None) == owner.until(Exited)
    lines = [Said(0, 1, "booted"), Said(0, 1, "ready"), Said(0, 1, "done")]
    assert [Started(0, 1), *lines, Exited(0, 1, 0, None)] == owner.heard[2:]
    release(owner)
    assert fence_held(owner.root)  # the supervisor is a member, too
    os.close(owner.members)
    owner.members = -1
    assert not fence_held(owner.root)
    assert ["worker.lock", "worker.members"] == sorted(os.listdir(f"{owner.root}/var/tmp"))


@drivers
def test_a_child_has_nothing_that_is_not_its_own(owner, driver):
    """Lifeline, stderr twice, the members' file, no other descriptor; its own session; nothing of systemd's."""
    os.environ["NOTIFY_SOCKET"] = "/nowhere"
    try:
        leaked = os.open("/dev/zero", os.O_RDONLY)
        os.set_inheritable(leaked, True)
        second = Owner(f"{owner.root}/second")
    finally:
        del os.environ["NOTIFY_SOCKET"]
        os.close(leaked)
    with closing(second):
        second.claim(driver=driver)
        pids = [second.start(slot) for slot in (0, 1)]
        for slot, pid in enumerate(pids):
            held = descriptors(pid)
            assert held.pop(0).startswith("socket:")
            assert held.pop(1) == held.pop(2)
            assert [f"{second.root}/var/tmp/worker.members"] == list(held.values())
            assert pid == procfs.stat(pid).session == os.getpgid(pid)
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            assert f"PLATFORM_WORKER_CHILD=1.{slot}.1".encode() in environment
            assert not [entry for entry in environment if entry.startswith(b"NOTIFY_SOCKET")]


@drivers
def test_signals_a_child_begins_with(tmp_path, mark, driver):
    """Four are held until there are handlers, nothing is ignored; SIGTERM before that is neither lost nor fatal."""
    program = (
        "import os, time; os.write(0, open('/proc/self/status','rb').read().split(b'SigBlk:')[1].split()[0] + b' '"
    )
    program += "+ open('/proc/self/status','rb').read().split(b'SigIgn:')[1].split()[0] + b'\\n'); time.sleep(3)"
    with closing(Owner(tmp_path)) as owner:
        owner.claim(driver=driver, command=("@python", "-S", "-c", program))
        owner.say(Start(0, 1, BOOT), Terminate(0, 1))
        blocked, ignored = (int(word, 16) for word in owner.until(Said).line.split())
        held = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP}
        assert held == {s for s in signal.valid_signals() if blocked >> (s - 1) & 1}
        python_ignores = (1 << (signal.SIGPIPE - 1)) | (1 << (signal.SIGXFSZ - 1))
        assert set() == {s for s in signal.valid_signals() if (ignored & ~python_ignores) >> (s - 1) & 1}
        owner.say(Kill(0, 1))
        assert Exited(0, 1, None, 9) == owner.until(Exited)


@drivers
def test_a_program_that_is_not_there(owner, driver):
    """The start fails with its reason, nothing is left of it, and the guardian goes on."""
    owner.claim(driver=driver, command=("/nowhere/python",))
    owner.say(Start(0, 1, BOOT))
    assert StartFailed(0, 1, "worker-child-start-failed") == owner.until(StartFailed)
    eventually(lambda: owner.children() == [])
    release(owner)
    assert not [event for event in owner.heard if isinstance(event, Exited | Started)]


def test_the_machine_refuses_a_process(tmp_path, mark):
    """``worker-fork-failed``, and the guardian goes on."""
    program = (
        "import sys; sys.path.insert(0, {path}); import os\n"
        "def no(): raise BlockingIOError(%d, 'no')\n"
        "os.fork = no\n"
        "from platform_worker.wiring_guardian import run_guardian; run_guardian({ownership}, {members})"
    )
    with closing(Owner(tmp_path, program=program % errno.EAGAIN)) as owner:
        owner.claim()
        owner.say(Start(0, 9, BOOT))
        owner.until(StartFailed)
        before = descriptors(owner.guardian.pid)
        for incarnation in range(1, 5):
            owner.say(Start(0, incarnation, BOOT))
            assert "worker-fork-failed" == owner.until(StartFailed).reason
        assert before == descriptors(owner.guardian.pid)
        release(owner)


def test_a_boot_line_that_is_too_long(owner):
    """It is refused before anything is started."""
    owner.claim()
    owner.say(Start(0, 1, {"x": "y" * 5000}))
    assert StartFailed(0, 1, "worker-child-start-failed") == owner.until(StartFailed)


@drivers
@pytest.mark.parametrize("how", ["idle", "threads"])
def test_the_guardian_is_killed(tmp_path, mark, driver, how):
    """Every child is gone at once, also one that is stopped or reads nothing (fork); the fence is free."""
    with closing(Owner(tmp_path)) as owner:
        owner.claim(how, driver=driver)
        pids = [owner.start(slot) for slot in range(3)]
        if driver == "fork":
            os.kill(pids[0], signal.SIGSTOP)
        os.kill(owner.guardian.pid, signal.SIGKILL)
        eventually(lambda: not any(map(alive, pids)), 2.0)
        assert -9 == owner.wait()


def test_the_end_of_the_lifeline_alone_ends_a_child(tmp_path, mark):
    """With the parent-death signal off, a killed guardian's children end all the same."""
    with closing(Owner(tmp_path, program=WITHOUT_DEATH_SIGNAL)) as owner:
        owner.claim()
        pids = [owner.start(slot) for slot in range(3)]
        os.kill(owner.guardian.pid, signal.SIGKILL)
        eventually(lambda: not any(map(alive, pids)), 2.0)


def test_the_death_signal_alone_ends_a_child(tmp_path, mark):
    """A child that ignores SIGTERM and the end of its lifeline is gone with the guardian."""
    with closing(Owner(tmp_path)) as owner:
        owner.claim("deaf")
        pid = owner.start()
        os.kill(owner.guardian.pid, signal.SIGKILL)
        eventually(lambda: not alive(pid), 2.0)


@drivers
def test_the_supervisor_dies_over_idle_children(owner, driver):
    """They are gone without waiting for any budget, the guardian ends 0, the fence is free."""
    owner.claim(driver=driver)
    pids = [owner.start(slot) for slot in range(4)]
    owner.die()
    assert 0 == owner.wait(3.0)
    assert not any(map(alive, pids))
    assert not fence_held(owner.root)


@drivers
@pytest.mark.parametrize("how", ["busy", "deaf", "stopped", "family"])
def test_the_supervisor_dies_over_children_that_do_not_end(owner, driver, how):
    """They are killed when the budgets are spent, and the fence is held until then."""
    owner.claim({"stopped": "idle"}.get(how, how), driver=driver, stop=300, force=200)
    pid = owner.start()
    if how == "stopped":
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    owner.die()
    if how in ("busy", "stopped"):
        assert fence_held(owner.root)
        assert alive(pid)
    assert 0 == owner.wait(5.0)
    assert not alive(pid)
    assert not fence_held(owner.root)
    if how in ("busy", "stopped"):
        assert 0.5 <= time.monotonic() - began < 3.0


@pytest.mark.parametrize("moment", ["at once", "hello", "claim", "start", "started"])
@pytest.mark.parametrize("again", range(5))
def test_the_supervisor_dies_at_any_moment(owner, moment, again):
    """The guardian ends by itself, and nothing of it is left."""
    claim = Claim(owner.root, sys.executable, ("@python", "-S", CHILD, "idle"), "fork", 1200, 10000, 10000, 1000)
    if moment != "at once":
        owner.until(Hello)
        owner.say(*{"hello": [], "claim": [claim]}.get(moment, [claim, Start(0, 1, BOOT), Start(1, 1, BOOT)]))
    if moment == "started":
        owner.until(Started)
    owner.die()
    assert 0 == owner.wait(3.0) or moment == "at once"
    assert not fence_held(owner.root)


def test_the_supervisor_breaks_the_protocol(owner):
    """It is treated as dead."""
    owner.claim()
    pid = owner.start()
    os.write(owner.channel, b'{"type":"nope"}\n')
    assert 0 == owner.wait(3.0)
    assert not alive(pid)


def test_signals_to_the_whole_group(owner):
    """The guardian ignores what is one stop, and the supervisor's business."""
    owner.claim()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP) * 3:
        os.kill(owner.guardian.pid, signum)
    owner.start()
    owner.say(Tell(0, 1, "stop"))
    assert Exited(0, 1, 0, None) == owner.until(Exited)


@drivers
def test_what_a_task_started_goes_with_its_child(owner, mark, driver):
    """In its group, in a session of its own, forked twice: gone before ``exited`` is said, and those of others stay."""
    owner.claim("family", driver=driver)
    first = owner.start(0)
    eventually(lambda: len(marked(mark)) >= 6)
    owner.say(Start(1, 1, BOOT))
    owner.until(Started)
    owner.until(Said)
    both = len(eventually(lambda: len(marked(mark)) >= 10 and marked(mark)))
    os.kill(first, signal.SIGKILL)
    assert Exited(0, 1, None, 9) == owner.until(Exited)
    left = marked(mark)
    assert {procfs.mark(pid) for pid in left} == {None, "1.1.1"}
    assert both - len(left) == 5
    owner.say(Tell(1, 1, "stop"))
    assert Exited(1, 1, 0, None) == owner.until(Exited)
    assert [owner.guardian.pid] == marked(mark)
    assert [] == owner.children()


def test_a_task_that_hides_is_gone_with_the_generation(owner, mark):
    """A descendant without mark or session is spared while others work, and gone when the fence is free."""
    program = "import os, time\nif os.fork() == 0:\n os.setsid(); os.environ.clear()\n"
    program += " if os.fork() == 0: os.execve('/bin/sleep', ['sleep', '1000'], {'CENSUS': '%s'})\n"
    program += " os._exit(0)\nos.wait(); os.write(0, b'booted\\n'); time.sleep(1000)"
    owner.claim(command=("@python", "-S", "-c", program % mark))
    owner.say(Start(0, 1, BOOT), Start(1, 1, BOOT))
    for _ in range(4):
        owner.until(Started | Said)
    eventually(lambda: len(marked(mark)) == 5)
    owner.say(Kill(0, 1))
    owner.until(Exited)
    assert 4 == len(marked(mark))
    owner.say(Kill(1, 1))
    owner.until(Exited)
    assert [owner.guardian.pid] == marked(mark)


@pytest.mark.parametrize("how", ["quit:0", "quit:3", "garble"])
def test_how_a_child_ends_is_told(owner, how):
    """Its own exit code after everything it said; a child that says no lines is killed."""
    owner.claim(how)
    for incarnation in range(1, 4):
        owner.say(Start(0, incarnation, BOOT))
        exited = owner.until(Exited)
        if how == "garble":
            assert Exited(0, incarnation, None, 9) == exited
        else:
            assert Exited(0, incarnation, int(how[5:]), None) == exited
            assert [Said(0, incarnation, "booted"), Said(0, incarnation, "done")] == owner.heard[-3:-1]
    assert [] == owner.children()


def test_a_child_that_does_not_read(owner):
    """Words are kept for it up to the bound, nobody else waits, and then it is killed."""
    owner.claim()
    pid = owner.start(0)
    os.kill(pid, signal.SIGSTOP)
    for _ in range(3):
        owner.say(*[Tell(0, 1, "x" * 4000)] * 4)
    owner.start(1)
    assert alive(pid)
    for _ in range(20):
        owner.say(*[Tell(0, 1, "x" * 4000)] * 4)
    assert Exited(0, 1, None, 9) == owner.until(Exited)


def test_a_supervisor_that_does_not_read(tmp_path, mark):
    """The children's words stay in their lifelines, the guardian stays small and goes on, nothing said is lost."""
    program = "import os\nwhile True: os.write(0, b'x' * 4000 + b'\\n')"
    with closing(Owner(tmp_path)) as owner:
        owner.claim(command=("@python", "-S", "-c", program))
        owner.say(Start(0, 1, BOOT))
        pid = eventually(owner.children)[0]
        eventually(lambda: Path(f"/proc/{pid}/wchan").read_text() not in ("0", ""))
        owner.say(Kill(0, 1))
        assert Exited(0, 1, None, 9) == owner.until(Exited)
        status = Path(f"/proc/{owner.guardian.pid}/status").read_text()
        assert 40_000 > int(status.split("VmRSS:")[1].split()[0])


def test_the_guardian_stays_small_and_clean(owner):
    """After many children it has the descriptors it began with, no zombie, and less than 12 MiB."""
    owner.claim("quit:0")
    owner.say(Start(0, 1, BOOT))
    owner.until(Exited)
    before = descriptors(owner.guardian.pid).keys()
    for incarnation in range(2, 40):
        owner.say(Start(0, incarnation, BOOT))
        owner.until(Exited)
    assert before == descriptors(owner.guardian.pid).keys()
    assert [] == owner.children()
    rollup = Path(f"/proc/{owner.guardian.pid}/smaps_rollup").read_text()
    assert 12 * 1024 > int(rollup.split("Pss:")[1].split()[0])


def test_under_another_subreaper(tmp_path, mark):
    """Whoever else collects orphans gets none of ours while the guardian lives, and no child when it is killed."""
    program = f"""
import os, signal, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from guardian_owner import *
from platform_worker.host import prctl, procfs
assert prctl.become_subreaper()
for kill in (False, True):
    owner = Owner({str(tmp_path)!r})
    owner.claim("family", stop=300, force=200)
    pid = owner.start()
    eventually(lambda: len(marked({mark!r})) >= 7)
    if kill:
        os.kill(owner.guardian.pid, signal.SIGKILL)
        eventually(lambda: not alive(pid))
        owner.wait()
        # What the task had started is the other subreaper's now; without a cgroup none of us is left to end it.
        def orphans():
            for orphan in filter(alive, procfs.children()):
                assert procfs.mark(orphan).endswith(".0.1")
                os.kill(orphan, signal.SIGKILL)
            return not any(map(alive, procfs.children()))
        eventually(orphans)
    else:
        owner.die()
        assert owner.wait() == 0
        assert procfs.children() == [], procfs.children()
    owner.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_a_race_with_the_spawn(tmp_path, mark):
    """Killed at a random point of a spawn, guardian or supervisor, a hundred times: nothing is ever left."""
    for again in range(100):
        with closing(Owner(tmp_path)) as owner:
            owner.claim(lock_wait=5000)
            owner.say(*[Start(slot, 1, BOOT) for slot in range(2)])
            time.sleep((again % 20) / 2000)  # not to wait for anything: where the kill falls is the case
            if again % 2:
                os.kill(owner.guardian.pid, signal.SIGKILL)
            else:
                owner.die()
            owner.wait(5.0)
        eventually(lambda: marked(mark) == [])
        # A process that is just ending has no environment any more, and its descriptors for an instant longer.
        eventually(lambda: not fence_held(str(tmp_path)), 1.0)


def test_busy_leaves_no_trace(owner):
    """A second claim of the same root is told so, and the first one notices nothing."""
    owner.claim()
    with closing(Owner(owner.root)) as second:
        assert Busy() == second.claim(lock_wait=100)
        assert 0 == second.wait()
    assert "1\n" == Path(f"{owner.root}/var/tmp/worker.lock").read_text()
    owner.start()
