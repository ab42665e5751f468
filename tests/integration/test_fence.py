"""The fence: one generation at a time, asked about by anyone at any time."""

import os
import signal
import threading
import time
from contextlib import closing

import pytest
from guardian_owner import Owner, alive, eventually

from platform_worker.errors import WorkerLifecycleError
from platform_worker.host.fence import fence_held, open_members
from platform_worker.protocol.ownership import Busy, Claimed, Failed, Release, Released


def test_nothing_is_there(tmp_path):
    """Asking creates nothing, and nothing means free."""
    assert not fence_held(str(tmp_path))
    assert not fence_held(str(tmp_path / "nowhere"))
    assert [] == os.listdir(tmp_path)


def test_asking_disturbs_no_start(tmp_path):
    """Twenty claims succeed while three others ask as fast as they can."""
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            fence_held(str(tmp_path))

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    try:
        for number in range(1, 21):
            with closing(Owner(tmp_path)) as owner:
                assert Claimed(number) == owner.claim()
                owner.say(Release())
                owner.until(Released)
                owner.wait()
    finally:
        stop.set()
        for asker in askers:
            asker.join()


def test_two_claims_at_the_same_instant(tmp_path):
    """Exactly one of three gets it, the others are told within two seconds, ten times."""
    for _ in range(10):
        owners = [Owner(tmp_path) for _ in range(3)]
        began = time.monotonic()
        answers = [owner.claim(lock_wait=100) for owner in owners]
        assert 1 == sum(isinstance(answer, Claimed) for answer in answers)
        assert 2 == answers.count(Busy())
        assert 2.0 > time.monotonic() - began
        for owner in owners:
            owner.close()


def test_a_process_of_the_old_generation_keeps_the_fence(tmp_path):
    """The lock is free with the guardian's death; the members are not until the last child is gone."""
    without = (
        "import sys; sys.path.insert(0, {path}); from platform_worker.host import prctl; "
        "prctl.set_parent_death_signal = lambda signum: False; "
        "from platform_worker.wiring_guardian import run_guardian; run_guardian({ownership}, {members})"
    )
    with closing(Owner(tmp_path, program=without)) as old:
        old.claim("deaf")
        pid = old.start()
        old.die()
        os.kill(old.guardian.pid, signal.SIGKILL)
        old.wait()
        assert alive(pid)
        assert fence_held(str(tmp_path))
        with closing(Owner(tmp_path)) as hasty:
            assert Busy() == hasty.claim(start=100)
            assert 0 == hasty.wait()
        assert alive(pid)
        with closing(Owner(tmp_path)) as patient:
            timer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
            timer.start()
            assert Claimed(2) == patient.claim(start=10000)
            assert not alive(pid)
            timer.join()


@pytest.mark.parametrize(
    ("content", "number"), [(b"", 1), (b"41\n", 42), (b"99\n", 100), (b"9", None), (b"x\n", None), (b"\0\0\0", None)]
)
def test_the_number_only_grows(tmp_path, content, number):
    """It goes on where it was; if that cannot be read, from a number that no count of starts has reached."""
    os.close(open_members(str(tmp_path)))
    (tmp_path / "var/tmp/worker.lock").write_bytes(content)
    with closing(Owner(tmp_path)) as owner:
        claimed = owner.claim().generation
        assert claimed == number if number else claimed > 1_700_000_000
    assert f"{claimed}\n" == (tmp_path / "var/tmp/worker.lock").read_text()


@pytest.mark.parametrize("kind", ["symlink", "directory"])
def test_a_lock_that_is_no_file(tmp_path, kind):
    """The claim fails, nothing is changed, and the supervisor keeps nothing locked."""
    os.close(open_members(str(tmp_path)))
    lock = tmp_path / "var/tmp/worker.lock"
    if kind == "symlink":
        lock.symlink_to(tmp_path / "elsewhere")
    else:
        lock.mkdir()
    with closing(Owner(tmp_path)) as owner:
        assert Failed("worker-lifecycle-lock-failed") == owner.claim()
        assert 0 == owner.wait()
        lock.unlink() if kind == "symlink" else lock.rmdir()
        assert not fence_held(str(tmp_path))
    assert ["worker.members"] == os.listdir(tmp_path / "var/tmp")
    assert ["var"] == os.listdir(tmp_path)


def test_a_root_that_cannot_be_written(tmp_path):
    """The one error of the contract, with a hint that names the folder by its place in the root."""
    (tmp_path / "var").write_text("a file")
    with pytest.raises(WorkerLifecycleError, match="worker-lifecycle-lock-failed") as caught:
        open_members(str(tmp_path))
    assert ("var/tmp must be writable",) == caught.value.hints


def test_modes(tmp_path):
    """Nobody else reads or writes the fence's files."""
    old = os.umask(0)
    try:
        with closing(Owner(tmp_path)) as owner:
            owner.claim()
    finally:
        os.umask(old)
    assert 0o700 == (tmp_path / "var/tmp").stat().st_mode & 0o777
    for name in ("worker.lock", "worker.members"):
        assert 0o600 == (tmp_path / "var/tmp" / name).stat().st_mode & 0o777
    eventually(lambda: not fence_held(str(tmp_path)))
