"""Each mechanism of containment alone, all others switched off: it ends what it is for, and without it nothing does.

The cgroup's tests are in ``cgroup_cases.py``, which need a place of their own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from containment_launcher import launcher
from guardian_owner import BOOT, Owner, alive, eventually, marked

from harness import Application
from harness.processes import command
from platform_worker.protocol.ownership import Busy, Exited, Kill, Start

#: Everything that a guardian can be made to do without.
ALL = ("pdeathsig", "group", "subreaper", "sweep", "cgroup")
#: Deaf to SIGTERM and to the end of its lifeline, with one process of its own. ``%s``: how that one is started.
PARENT = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.read(0, 4096)
if os.fork() == 0:
    %s
    os.execvp('sleep', ['sleep', '1000'])
os.write(0, b'booted\\n')
while True:
    signal.pause()
"""
#: The product's own child, which does not hear the end of its lifeline; ``%s``: arms the parent-death signal or not.
DEAF_CHILD = (
    "from platform_worker.host.child_process import ChildProcess; ChildProcess.die = lambda self: None; "
    "from platform_worker.child.orders import Orders; Orders.lost = lambda self: __import__('time').sleep(9999); "
    "from platform_worker.wiring_child import run_child; run_child(arm=%s)"
)
drivers = pytest.mark.parametrize("driver", ["fork", "spawn"])
there = pytest.mark.parametrize("there", [True, False], ids=["alone", "without"])


def off(*on: str) -> str:
    """A guardian with nothing but these."""
    return launcher(*(name for name in ALL if name not in on))


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Whoever is started in a test carries it; whoever is left is killed, and was expected to be left."""
    value = f"{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("CENSUS", value)
    yield value
    for pid in marked(value):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: [] == marked(value))


def outcome(there: bool, pids: list[int]) -> None:
    """Gone, if the mechanism is there; else alive a good while later: only that makes the other half mean something."""
    if there:
        eventually(lambda: not any(map(alive, pids)), 5)
        return
    until = time.monotonic() + 0.3
    eventually(lambda: time.monotonic() > until)
    assert all(map(alive, pids))


def kill_guardian(owner: Owner) -> None:
    os.kill(owner.guardian.pid, signal.SIGKILL)
    owner.wait()


@there
def test_the_parent_death_signal(tmp_path: Path, mark: str, there: bool) -> None:
    """Armed between fork and exec: a child that hears nothing is gone with its guardian."""
    with closing(Owner(tmp_path, program=off("pdeathsig") if there else off())) as owner:
        owner.claim("deaf")
        pid = owner.start()
        kill_guardian(owner)
        outcome(there, [pid])


@there
def test_the_parent_death_signal_that_a_child_arms_itself(
    application: Callable[..., Application], tmp_path: Path, there: bool
) -> None:
    """With the spawn driver: the product's child, deaf to its lifeline, is gone with its guardian."""
    app = application(
        worker={"workers": 1, "driver": "spawn"},
        **{"worker.spawn": {"command": ["@python", "-P", "-c", DEAF_CHILD % there]}},
    )
    pool = app.start()
    (pid,) = pool.children().values()
    guardian = pool.guardian()
    assert guardian is not None
    pool.signal(signal.SIGSTOP)  # who would otherwise end what its guardian left
    os.kill(guardian, signal.SIGKILL)
    outcome(there, [pid])
    if not there:
        os.kill(pid, signal.SIGKILL)
    pool.signal(signal.SIGCONT)
    assert 1 == pool.wait(10)


@drivers
def test_the_end_of_the_lifeline(tmp_path: Path, mark: str, driver: str) -> None:
    """The last words of a guardian that cannot say any: children that listen end with their process group."""
    with closing(Owner(tmp_path, program=off())) as owner:
        owner.claim("idle", driver=driver)
        pids = [owner.start(slot) for slot in range(3)]
        kill_guardian(owner)
        outcome(True, pids)


def test_the_end_of_the_lifeline_under_the_products_child(application: Callable[..., Application]) -> None:
    """Unarmed, in the middle of a task: the child and what is in its group are gone with the guardian."""
    program = ["@python", "-P", "-c", "from platform_worker.wiring_child import run_child; run_child()"]
    app = application(worker={"workers": 2, "driver": "spawn"}, **{"worker.spawn": {"command": program}})
    pool = app.start()
    app.enqueue("shell", script="sleep 1000")
    (started,) = eventually(lambda: [pid for pid in pool.others() if "sleep 1000 " == command(pid)])
    everybody = [started, *pool.children().values()]
    guardian = pool.guardian()
    assert guardian is not None
    pool.signal(signal.SIGSTOP)
    os.kill(guardian, signal.SIGKILL)
    outcome(True, everybody)
    pool.signal(signal.SIGCONT)
    assert 1 == pool.wait(10)


@there
@drivers
def test_the_process_group(tmp_path: Path, mark: str, driver: str, there: bool) -> None:
    """What a task started without leaving its session is killed with its child."""
    with closing(Owner(tmp_path, program=off("group") if there else off())) as owner:
        child, started = family(owner, driver, "pass")
        owner.say(Kill(0, 1))
        owner.until(Exited)
        assert not alive(child)
        outcome(there, [started])


@there
@drivers
def test_the_subreaper(tmp_path: Path, mark: str, driver: str, there: bool) -> None:
    """What left session and group comes to the guardian as an orphan, and is gone before ``exited`` is said."""
    on = ("subreaper", "sweep") if there else ("sweep",)
    with closing(Owner(tmp_path, program=off(*on))) as owner:
        child, started = family(owner, driver, "os.setsid()")
        owner.say(Kill(0, 1))
        owner.until(Exited)
        assert not alive(child)
        assert there != alive(started)
        outcome(there, [started])


@drivers
def test_the_members_lock(tmp_path: Path, mark: str, driver: str) -> None:
    """It ends nobody; but while anybody of an old generation lives, no new one begins."""
    with closing(Owner(tmp_path, program=off())) as old:
        old.claim("deaf", driver=driver)
        pid = old.start()
        old.die()
        kill_guardian(old)
        with closing(Owner(tmp_path)) as hasty:
            assert Busy() == hasty.claim(start=200)
            hasty.wait()
        assert alive(pid)
        os.kill(pid, signal.SIGKILL)
        with closing(Owner(tmp_path)) as patient:
            assert 2 == patient.claim().generation
            patient.die()
            patient.wait()


def family(owner: Owner, driver: str, how: str) -> tuple[int, int]:
    """A child and the process that it started."""
    owner.claim(driver=driver, command=("@python", "-S", "-c", PARENT % how))
    owner.say(Start(0, 1, BOOT))
    (child,) = eventually(owner.children)
    found: Any = eventually(
        lambda: [int(pid) for pid in Path(f"/proc/{child}/task/{child}/children").read_text().split()]
    )
    eventually(lambda: "sleep 1000 " == command(found[0]))
    return child, found[0]


def test_a_start_says_once_what_it_has(application: Callable[..., Application]) -> None:
    """One event a start, with a word for each mechanism, here or missing."""
    app = application(worker={"workers": 1, "max_requests": 1})
    pool = app.start()
    app.enqueue("nap", 3)
    eventually(lambda: {"completed": 3} == app.statuses(), 20)
    (said,) = pool.events("worker.process.containment")
    words = ["sessions", "subreaper", "pidfd", "pdeathsig", "lifeline", "members", "cgroup"]
    assert sorted(words) == sorted(said["mechanisms"] + said["missing"])
    assert words[:6] == [word for word in said["mechanisms"] if word != "cgroup"]
    pool.stop()
