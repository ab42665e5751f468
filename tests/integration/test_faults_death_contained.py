"""What tasks start goes with their child, and wherever a supervisor runs the guarantees are the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Application, Pool, alive, eventually, scaled
from harness.faults import identities, left, stop_clean, under_way
from harness.processes import environment

Make = Callable[..., Application]

#: What a task may leave: children in the background, orphans in a session of their own, and one without our mark.
SCRIPTS = {
    "background": "sleep 1000 & echo $! >>pids; echo $$ >>pids; exec sleep 1000",
    "daemon": "setsid sh -c 'setsid sleep 1000 & echo $! >>pids' & wait; echo $$ >>pids; exec sleep 1000",
    "unmarked": "env -i setsid sleep 1000 & echo $! >>pids; echo $$ >>pids; exec sleep 1000",
}
WAYS = ("child-killed", "stop", "supervisor-killed")
#: Each script with each way at a larger scale; else each way for one, and each script once.
TRIED = [(script, way) for script in SCRIPTS for way in WAYS if scaled(2) > 2 or script == "unmarked" or way == "stop"]


def left_by(app: Application, count: int = 2) -> list[tuple[int, int]]:
    """Who the script said it has started."""

    def written() -> list[int]:
        path = app.root / "pids"
        found = [int(line) for line in path.read_text().split()] if path.exists() else []
        return found if len(found) == count else []

    return identities(eventually(written, 10, "the script has started everything"))


@pytest.mark.parametrize(("script", "way"), TRIED)
def test_a_tasks_own_processes_go_with_their_child(application: Make, script: str, way: str) -> None:
    """On the child's kill, on a stop, on the supervisor's death: whatever they detached themselves from."""
    app = application(worker={"workers": 1, "stop_timeout_ms": 300, "force_kill_timeout_ms": 500})
    pool = app.start()
    job = app.enqueue("once", script=SCRIPTS[script])
    under_way(app, job[0])
    people = left_by(app)
    assert 2 == len(left(people))

    if way == "stop":
        stop_clean(app, pool)
        assert [] == left(people)
    elif way == "child-killed":
        os.kill(pool.children()[0], signal.SIGKILL)
        eventually(lambda: not left(people), 5, "gone with their child")
        eventually(lambda: pool.ready() == 1, 5, "the slot is refilled")
        stop_clean(app, pool)
    else:
        pool.kill()
        eventually(lambda: not any(alive(pid) for pid, _ in people), 5, "gone with the supervisor")
        app.assert_clean()


def test_processes_of_a_finished_task_are_left_alone_until_their_child_ends(application: Make) -> None:
    """Another task comes and goes beside them; when the child is recycled they go, and nobody else's do."""
    app = application(worker={"workers": 2, "max_requests": 1000})
    pool = app.start()
    gate = app.enqueue("gate")[0]
    other = under_way(app, gate)
    script = "setsid sleep 1000 & echo $! >>pids; sleep 1000 & echo $! >>pids"
    done = app.enqueue("shell", script=script, wait=True)[0]
    eventually(lambda: app.job(done).status == "completed")
    people = left_by(app)
    child = next(pid for pid in pool.children().values() if pid != other)

    jobs = app.enqueue("nap", 20)
    eventually(lambda: app.job(jobs[-1]).status == "completed")
    assert 2 == len(left(people))
    mark = environment(child)["PLATFORM_WORKER_CHILD"]
    assert [mark] * 2 == [environment(pid)["PLATFORM_WORKER_CHILD"] for pid, _ in people]

    os.kill(child, signal.SIGTERM)
    eventually(lambda: not left(people), 5, "gone with their child")
    assert alive(other)
    (app.root / "gate").touch()
    eventually(lambda: app.job(gate).status == "completed")
    stop_clean(app, pool)


def test_a_supervisor_killed_at_any_point_of_a_spawn_leaves_nobody(application: Make) -> None:
    """Children come and go all the time when it happens."""
    app = application(worker={"workers": 2, "max_requests": 1, "start_timeout_ms": 20_000}).build()
    for number in range(scaled(8)):
        app.enqueue("nap", 20)
        pool = app.pool()
        pool.start(wait=False)
        if number % 2:
            pool.summary()
        deadline = time.monotonic() + random.uniform(0.0, 0.5)
        eventually(lambda deadline=deadline: time.monotonic() >= deadline, 2)
        pool.kill()
        app.assert_clean()


#: Becomes a subreaper, starts the pool, and reaps what comes to it; the pool's own guarantees do not depend on it.
SUBREAPER = """
import ctypes, os, signal, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
while True:
    try:
        ended, status = os.waitpid(-1, 0)
    except ChildProcessError:
        break
    if ended == pid:
        code = os.waitstatus_to_exitcode(status)
os._exit(code if code >= 0 else 100 - code)
"""
PLACES = {
    "pid 1": ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child=KILL"],
    "subreaper": [sys.executable, "-c", SUBREAPER],
}


def somewhere(app: Application, place: str) -> Pool:
    """A pool started there; its pids are those of this side."""
    if place == "pid 1":
        tried = subprocess.run([*PLACES[place], "true"], capture_output=True, check=False)
        if tried.returncode:
            pytest.skip(f"no pid namespaces here: {tried.stderr.decode().strip()}")
    app.build()
    pool = app.pool()
    worker = str(Path(sys.executable).with_name("worker"))
    line = [*PLACES[place], worker, "--root", str(app.root), "start", "--json"]
    with open(pool.out, "wb") as out, open(pool.err, "wb") as err:
        pool._process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=pool.environ)
    pool.summary()
    return pool


def supervisor_in(pool: Pool) -> int:
    """The process of ``worker start`` itself, under whoever we started."""
    children = Path(f"/proc/{pool.supervisor}/task/{pool.supervisor}/children").read_text().split()
    assert 1 == len(children)
    return int(children[0])


@pytest.mark.parametrize("way", ["stop", "term", "supervisor-killed", "guardian-killed"])
@pytest.mark.parametrize("place", PLACES)
def test_the_guarantees_hold_as_pid_1_and_under_a_subreaper(application: Make, place: str, way: str) -> None:
    """Jobs are done, orphans of tasks are reaped and mistaken for nobody, and each end is as anywhere else."""
    app = application(worker={"workers": 2, "stop_timeout_ms": 500, "force_kill_timeout_ms": 500})
    pool = somewhere(app, place)
    supervisor = supervisor_in(pool)
    guardian = pool.guardian()
    children = pool.children()
    orphans = app.enqueue("shell", 5, script="(sleep 0.05 &) ; (setsid sleep 1000 &) ; exit 0")
    eventually(lambda: app.statuses() == {"completed": 5})
    app.ledger.assert_once(orphans)
    assert children == pool.children()
    assert 0 == pool.health()[0]
    people = identities(pid for pid in pool.census() if pid != pool.supervisor)

    if way == "stop":
        assert 0 == pool.run("stop").returncode
        assert 0 == pool.wait(5)
    elif way == "term":
        os.kill(supervisor, signal.SIGTERM)
        assert 0 == pool.wait(5)
    elif way == "guardian-killed":
        os.kill(guardian or 0, signal.SIGKILL)
        assert 1 == pool.wait(5)
    else:
        os.kill(supervisor, signal.SIGKILL)
        # How whoever we started tells of it is their own matter.
        assert pool.wait(10) != 0
    eventually(lambda: not left(people), 5, "everybody is gone and reaped")
    app.assert_clean()
    if way != "supervisor-killed":
        assert [] == app.leftovers()
    stop_clean(app, app.start())
