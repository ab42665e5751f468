"""What runs inside of a ``Box``, as the root of a cgroup namespace; see ``test_cgroup.py``, which runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from containment_launcher import HIDDEN, launcher
from guardian_owner import BOOT, Owner, alive, eventually, marked

from harness import Application
from harness.processes import command
from platform_worker.host import cgroup
from platform_worker.protocol.ownership import Busy, Claimed, Exited, Kill, Release, Released, Start

HERE = Path("/sys/fs/cgroup")
#: Every other mechanism that could end a process.
OTHERS = ("pdeathsig", "lifeline", "group", "subreaper", "sweep")
drivers = pytest.mark.parametrize("driver", ["fork", "spawn"])


@pytest.fixture(autouse=True)
def inside() -> Iterator[None]:
    """Refuses to run anywhere but where the box has put us."""
    assert "0::/\n" in Path("/proc/self/cgroup").read_text().splitlines(keepends=True)
    assert (HERE / "cgroup.events").exists()
    assert str(HERE) == cgroup.delegated()
    yield
    assert [] == groups()


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    value = f"{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("CENSUS", value)
    yield value
    assert [] == marked(value)


def groups() -> list[Path]:
    return sorted(HERE.glob("platform-worker.*"))


def members(group: Path) -> list[int]:
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]


def settled(mark: str, number: int) -> bool:
    """So many, and those that a task started are what they will be: in an exec a process has no environment."""
    pids = marked(mark)
    return number == len(pids) and number - 2 == ["sleep 1000 " == command(pid) for pid in pids].count(True)


def sleepers(group: Path) -> list[int]:
    """Whom the task has hidden, once it is what it will be."""
    return [pid for pid in members(group) if "sleep 1000 " == command(pid)]


@drivers
def test_children_are_in_it_and_the_guardian_is_not(tmp_path: Path, mark: str, driver: str) -> None:
    """One for the generation, with the children and what they start; none of it is left after the orderly end."""
    with closing(Owner(tmp_path)) as owner:
        owner.claim("family", driver=driver)
        pids = [owner.start(slot) for slot in range(2)]
        (group,) = groups()
        assert group.name.endswith(".1")
        assert set(pids) < set(members(group))
        assert set(marked(mark)) - {owner.guardian.pid} == set(members(group))
        owner.say(Kill(0, 1), Kill(1, 1))
        owner.until(Exited)
        owner.until(Exited)
        owner.say(Release())
        assert Released() == owner.until(Released)
        assert [] == groups()
        owner.wait()


@drivers
def test_alone_it_ends_a_killed_generation_at_the_next_start(tmp_path: Path, mark: str, driver: str) -> None:
    """All else off, guardian and supervisor killed: who is left is gone before the next start has claimed."""
    with closing(Owner(tmp_path, program=launcher(*OTHERS))) as old:
        old.claim(command=("@python", "-S", "-c", HIDDEN % mark), driver=driver)
        old.say(Start(0, 1, BOOT))
        eventually(lambda: settled(mark, 4))
        left = set(marked(mark)) - {old.guardian.pid}
        old.die()
        os.kill(old.guardian.pid, signal.SIGKILL)
        old.wait()
        assert left == {pid for pid in left if alive(pid)}
        with closing(Owner(tmp_path)) as new:
            assert Claimed(2) == new.claim()
            assert not any(map(alive, left))
            assert [2] == [int(group.suffix[1:]) for group in groups()]
            new.say(Release())
            new.until(Released)
            new.wait()


@drivers
def test_alone_it_ends_what_hides_when_the_generation_ends(tmp_path: Path, mark: str, driver: str) -> None:
    """All else off: a process that cleared its environment and left its session is gone before ``released``."""
    with closing(Owner(tmp_path, program=launcher(*OTHERS))) as owner:
        owner.claim(command=("@python", "-S", "-c", HIDDEN % mark), driver=driver)
        owner.say(Start(0, 1, BOOT))
        eventually(lambda: settled(mark, 4))
        owner.say(Kill(0, 1))
        owner.until(Exited)
        assert 3 == len(marked(mark))
        owner.say(Release())
        assert Released() == owner.until(Released)
        assert [owner.guardian.pid] == marked(mark) or [] == marked(mark)
        owner.wait()


def test_a_live_generations_cgroup_is_nobody_elses(tmp_path: Path, mark: str) -> None:
    """A second start of the same root, and one of another, kill nobody."""
    other = tmp_path / "other"
    other.mkdir()
    with closing(Owner(tmp_path)) as owner:
        owner.claim()
        pid = owner.start()
        with closing(Owner(tmp_path)) as second:
            assert Busy() == second.claim(lock_wait=100)
        with closing(Owner(other)) as third:
            assert Claimed(1) == third.claim()
            third.start()
            assert 2 == len(groups())
            third.say(Kill(0, 1), Release())
            third.until(Exited)
            third.die()
            third.wait()
        assert alive(pid)
        owner.die()
        assert 0 == owner.wait()


def test_names_that_are_not_ours_stay(tmp_path: Path, mark: str) -> None:
    """What only looks like ours is neither killed nor removed."""
    foreign = [HERE / name for name in ("platform-worker.ff-ffffffffff.1", "platform-worker.x", "other")]
    sleeper = subprocess.Popen(["sleep", "1000"])
    for folder in foreign:
        folder.mkdir()
    (foreign[0] / "cgroup.procs").write_text(str(sleeper.pid))
    with closing(Owner(tmp_path)) as owner:
        owner.claim()
        owner.say(Release())
        owner.until(Released)
        owner.wait()
    assert alive(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    for folder in foreign:
        folder.rmdir()


def test_a_cgroup_that_a_task_made_goes_with_the_generation(tmp_path: Path, mark: str) -> None:
    """Whatever is below, frozen too."""
    with closing(Owner(tmp_path)) as owner:
        owner.claim()
        pid = owner.start()
        (group,) = groups()
        (group / "a").mkdir()
        (group / "a" / "b").mkdir()
        (group / "a" / "b" / "cgroup.procs").write_text(str(pid))
        (group / "a" / "cgroup.freeze").write_text("1")
        owner.say(Kill(0, 1), Release())
        owner.until(Exited)
        owner.die()
        owner.wait()
    eventually(lambda: [] == groups())


def test_not_delegated_is_not_used(tmp_path: Path, mark: str) -> None:
    """A cgroup below the namespace's root is somebody's, who must have said that it may be divided: by the mark."""
    below = HERE / "unit"
    below.mkdir()
    program = "import sys; from platform_worker.host import cgroup; print(cgroup.delegated())"
    line = ["sh", "-c", f'echo $$ > {below}/cgroup.procs; exec {sys.executable} -c "$1"', "sh", program]

    def answer() -> str:
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()

    assert "None" == answer()
    for name in ("user.delegate", "trusted.delegate"):
        os.setxattr(below, name, b"1")
        assert str(below) == answer()
        os.setxattr(below, name, b"0")
        assert "None" == answer()
    below.rmdir()


def test_a_whole_pool(tmp_path: Path) -> None:
    """The log says that there is one; supervisor and guardian are outside; a killed guardian's hidden leftovers go."""
    app = Application(tmp_path / "app", worker={"workers": 2})
    try:
        pool = app.start()
        said = pool.events("worker.process.containment")
        assert ["cgroup"] == [name for name in said[0]["mechanisms"] if name == "cgroup"]
        assert ([], 1) == (said[0]["missing"], len(said))
        (group,) = groups()
        assert {*pool.children().values()} == set(members(group))
        app.enqueue("shell", script="env -i setsid sleep 1000 &", wait=False)
        hidden = eventually(lambda: sleepers(group))
        guardian = pool.guardian()
        assert guardian is not None
        os.kill(guardian, signal.SIGKILL)
        assert 1 == pool.wait(10)
        assert not any(map(alive, hidden))
        assert [] == groups()
    finally:
        app.close()


def test_supervisor_and_guardian_killed_under_a_whole_pool(tmp_path: Path) -> None:
    """What a task hid lives on until the next start, and is gone when that is ready."""
    app = Application(tmp_path / "app", worker={"workers": 1})
    try:
        pool = app.start()
        app.enqueue("shell", script="env -i setsid sleep 1000 &", wait=False)
        (group,) = groups()
        hidden = eventually(lambda: sleepers(group))
        guardian = pool.guardian()
        pool.process.send_signal(signal.SIGSTOP)
        assert guardian is not None
        os.kill(guardian, signal.SIGKILL)
        pool.kill()
        pool.assert_gone(5)
        assert all(map(alive, hidden))
        again = app.start()
        assert not any(map(alive, hidden))
        again.stop()
    finally:
        app.close()


_: Callable[..., Any]
