"""A pool as the first process of a container: what is asked of process 1, and how little it needs around it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from harness import Application, eventually
from harness.contained import PID_1, launch, need, supervisor_in, zombies
from harness.faults import identities, left
from harness.processes import stat

Make = Callable[..., Application]

#: Writes nothing outside of what a read-only root leaves.
TASKS = """
import os, subprocess
from platform_worker import JobContext, task

@task("look")
def look(context: JobContext) -> dict[str, object]:
    (context.workdir / "file").write_text("x")
    return {
        "uid": os.getuid(),
        "home": os.environ.get("HOME"),
        "parent of guardian": int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1]),
        "shm": os.path.isdir("/dev/shm"),
        "read-only": not os.access(".", os.W_OK),
    }

@task("orphan")
def orphan() -> None:
    subprocess.run(["sh", "-c", "(sleep 0.05; exit 3) & (setsid sleep 1000 &) ; exit 0"], check=True)
"""
#: Orphans of a process that was started beside the pool, as by ``docker exec``, each ending in its own way.
STRANGERS = """
for code in 0 1 2 3 4 5 70 127; do (sleep 0.1; exit $code) & done
sh -c 'sleep 0.1; kill -KILL $$' &
sh -c 'sleep 0.1; kill -TERM $$' &
exit 0
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGQUIT"])
def test_process_1_ends_by_every_signal_that_stops(application: Make, name: str) -> None:
    """Process 1 has no default action for them: our own handlers must be there."""
    need(*PID_1)
    app = application(worker={"workers": 1})
    pool = launch(app.build(), list(PID_1))
    people = identities(pid for pid in pool.census() if pid != pool.supervisor)
    os.kill(supervisor_in(pool), getattr(signal, name))
    assert 0 == pool.wait()
    assert [] == left(people)
    app.assert_clean()


@pytest.mark.parametrize("name", ["SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD"])
def test_process_1_is_not_disturbed_by_other_signals(application: Make, name: str) -> None:
    need(*PID_1)
    app = application(worker={"workers": 1})
    pool = launch(app.build(), list(PID_1))
    supervisor, people = supervisor_in(pool), identities(pool.census())
    os.kill(supervisor, getattr(signal, name))
    jobs = app.enqueue("nap", 3)
    eventually(lambda: {"completed": 3} == app.statuses())
    app.ledger.assert_once(jobs)
    assert len(people) == len(left(people))
    os.kill(supervisor, signal.SIGTERM)
    assert 0 == pool.wait()


def test_process_1_reaps_strangers_and_mistakes_them_for_nobody(application: Make) -> None:
    """Whatever they end with: no zombie stays, no child is replaced, and the pool stays healthy."""
    need(*PID_1)
    need("nsenter", "--pid=/proc/self/ns/pid")
    app = application(worker={"workers": 2})
    pool = launch(app.build(), list(PID_1))
    supervisor, people = supervisor_in(pool), identities(pool.census())
    for _ in range(3):
        subprocess.run(["nsenter", "-t", str(supervisor), "-p", "-m", "sh", "-c", STRANGERS], check=True)
        eventually(lambda: children_of(supervisor) == {pool.guardian()}, 10, "all strangers are reaped")
    assert [] == zombies(supervisor)
    assert len(people) == len(left(people))
    assert 0 == pool.health()[0]
    os.kill(supervisor, signal.SIGTERM)
    assert 0 == pool.wait()
    app.assert_clean()


def children_of(pid: int) -> set[int]:
    """Living and dead."""
    found = {int(entry): stat(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()}
    return {child for child, seen in found.items() if seen is not None and seen.parent == pid}


SHM = {
    "as usual": ["--dev", "/dev"],
    "a page": ["--dev", "/dev", "--size", "4096", "--tmpfs", "/dev/shm"],
    "none": [
        *("--tmpfs", "/dev", "--dev-bind", "/dev/null", "/dev/null"),
        *("--dev-bind", "/dev/urandom", "/dev/urandom"),
    ],
}


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("shm", SHM)
def test_a_pool_needs_no_more_than_its_var_to_write_into(application: Make, shm: str, built: bool) -> None:
    """Read-only root, a user without an entry, no HOME, no network, no capability, and what there is of /dev/shm."""
    line = [
        *("bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--uid", "4711", "--gid", "4711"),
        *("--ro-bind", "/", "/", "--proc", "/proc", *SHM[shm], "--ro-bind", "/dev/null", "/etc/passwd"),
        *("--unsetenv", "HOME", "--unsetenv", "USER", "--unsetenv", "LOGNAME", "--cap-drop", "ALL"),
    ]
    need(*line)
    app = application(tasks=TASKS, worker={"workers": 1})
    if built:
        app.build()
    (app.root / "var").mkdir(exist_ok=True)
    pool = launch(app, [*line, "--bind", str(app.root / "var"), str(app.root / "var")])
    supervisor = supervisor_in(pool)

    job = app.enqueue("look")[0]
    eventually(lambda: app.job(job).status == "completed")
    seen = app.job(job).result
    assert {"uid": 4711, "home": None, "parent of guardian": 1, "shm": shm != "none", "read-only": True} == seen
    orphans = app.enqueue("orphan", 3)
    eventually(lambda: app.statuses() == {"completed": 4}, 10, str(orphans))
    eventually(lambda: not zombies(supervisor) and not zombies(pool.guardian() or 0))
    assert 0 == pool.health()[0]

    people = identities(pid for pid in pool.census() if pid != pool.supervisor)
    os.kill(supervisor, signal.SIGTERM)
    assert 0 == pool.wait()
    assert [] == left(people)
    app.assert_clean()
    assert {"jobs"} >= set(app.leftovers())


def test_artifacts_that_an_image_has_may_be_read_only(application: Make) -> None:
    """Writable are ``var/tmp`` and the folder of the jobs alone; children are replaced from what the image has."""
    line = [
        *("bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--uid", "10001", "--gid", "10001"),
        *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
    ]
    need(*line)
    app = application(tasks=TASKS, worker={"workers": 1, "max_requests": 1}, sqlite={"path": "var/data/queue.sqlite3"})
    app.build()
    places = [str(app.root / "var" / name) for name in ("tmp", "data")]
    for place in places:
        os.makedirs(place, exist_ok=True)
    pool = launch(app, [*line, *(word for place in places for word in ("--bind", place, place))])
    jobs = app.enqueue("look", 3)
    eventually(lambda: app.statuses() == {"completed": 3}, 20, str(jobs))
    os.kill(supervisor_in(pool), signal.SIGTERM)
    assert 0 == pool.wait()
    app.assert_clean()
