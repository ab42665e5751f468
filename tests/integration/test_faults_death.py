"""``kill -9`` of the supervisor, of the guardian, of both: nobody is left, and no second generation overlaps."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

from harness import Application, Pool, eventually, scaled
from harness.faults import identities, stop_clean, under_way
from harness.processes import alive, descriptors, environment

#: Short phases, so that a child which has to be killed is killed soon.
LADDER = {"workers": 2, "stop_timeout_ms": 600, "force_kill_timeout_ms": 400}
#: What the two children do when the blow falls, and how long the ladder may take with that, in seconds.
STATES = [("idle", 0.0), ("busy", 1.4), ("beyond", 1.4), ("stopped", 1.4)]
JOBS = {
    # In Python, and in C with the GIL held.
    "busy": [("spin", {"seconds": 60}), ("hold", {"seconds": 60})],
    # Out of reach: in one call of C with every signal blocked, and deaf to all but SIGKILL.
    "beyond": [("seize", {"seconds": 60}), ("deaf", {})],
}
#: Who of the two dies first; at a larger scale each state is tried in both orders.
BOTH = [
    (state[0], order)
    for at, state in enumerate(STATES)
    for number, order in enumerate(("supervisor", "guardian"))
    if number == at % 2 or scaled(2) > 2
]
#: What a busy machine may add to any of these times, in seconds.
SLACK = 2.0

Make = Callable[..., Application]


def occupied(app: Application, what: str) -> Pool:
    """A pool whose two children are in that state."""
    pool = app.start()
    if what in JOBS:
        for task, data in JOBS[what]:
            under_way(app, app.enqueue(task, **data)[0])
    elif what == "stopped":
        for pid in pool.children().values():
            os.kill(pid, signal.SIGSTOP)
    return pool


def generation(app: Application) -> int:
    """The number of the newest worker generation that has claimed the fence."""
    return int((app.root / "var" / "tmp" / "worker.lock").read_text())


def starts_again(app: Application) -> None:
    """The next start runs by itself, and stops clean, whatever it finds to do."""
    app.configure(worker=LADDER)
    stop_clean(app, app.start())


@pytest.mark.parametrize(("what", "ladder"), STATES, ids=[name for name, _ in STATES])
def test_the_supervisors_death_ends_everybody_within_the_budgets(application: Make, what: str, ladder: float) -> None:
    """Children that are idle go at once, others at the end of the ladder; a start in that moment never overlaps."""
    app = application(worker=LADDER)
    first = occupied(app, what)
    number = generation(app)

    first.kill()
    second = app.pool()
    second.start(wait=False)

    def decided() -> bool:
        # The number grows when the fence is claimed: whoever of the old ones is seen after that overlaps.
        if generation(app) > number:
            assert [] == first.census()
            return True
        return second.process.poll() is not None

    eventually(decided, 15, "the second start runs or refuses")
    first.assert_gone(ladder + SLACK)
    if second.process.poll() is None:
        assert 2 == second.summary()["ready_worker_count"]
        stop_clean(app, second)
    else:
        assert 4 == second.process.returncode, second.log()
        third = app.start()
        stop_clean(app, third)


def test_a_second_start_waits_for_no_supervisor_that_answers(application: Make) -> None:
    """While the old generation drains, a start refuses and starts nothing; once it is over the next one runs."""
    app = application(worker={"workers": 1, "stop_timeout_ms": 4000, "force_kill_timeout_ms": 500})
    first = app.start()
    job = app.enqueue("gate", seconds=60)[0]
    under_way(app, job)
    number = generation(app)

    first.kill()
    refused = app.run("start", "--json")

    assert 4 == refused.returncode, refused.stderr
    assert {"code": "PLATFORM_WORKER_ALREADY_RUNNING", "reason": "worker-already-running", "status": "error"} == (
        json.loads(refused.stdout)
    )
    assert number == generation(app)
    (app.root / "gate").touch()
    first.assert_gone()
    assert "completed" == app.job(job).status
    app.ledger.assert_once([job])
    stop_clean(app, app.start())


@pytest.mark.parametrize("what", [name for name, _ in STATES])
def test_the_guardians_death_ends_the_children_at_once_and_fails_the_pool(application: Make, what: str) -> None:
    """Whatever the children do they are gone, the supervisor cleans up, says so, and exits 1."""
    app = application(worker={"workers": 2, "stop_timeout_ms": 60_000, "force_kill_timeout_ms": 60_000})
    pool = occupied(app, what)
    people = identities(pool.census())
    guardian = pool.guardian()
    assert guardian is not None

    os.kill(guardian, signal.SIGKILL)

    eventually(lambda: not any(alive(pid) for pid, _ in people if pid != pool.supervisor), SLACK, "children gone")
    assert 1 == pool.wait(5)
    assert "PLATFORM_WORKER_LIFECYCLE_FAILED: worker-process-guardian-failed" in pool.log()
    app.assert_clean()
    assert [] == app.leftovers()
    starts_again(app)


@pytest.mark.parametrize(("what", "first"), BOTH)
def test_no_child_survives_supervisor_and_guardian(application: Make, what: str, first: str) -> None:
    """Both killed in the same instant, in either order: no child is left, whatever it does, and the next start runs."""
    app = application(worker={"workers": 2, "stop_timeout_ms": 60_000, "force_kill_timeout_ms": 60_000})
    pool = occupied(app, what)
    guardian = pool.guardian()
    assert guardian is not None
    both = [pool.supervisor, guardian]

    for pid in both if first == "supervisor" else reversed(both):
        os.kill(pid, signal.SIGKILL)
    pool.process.wait()

    app.assert_clean(SLACK)
    starts_again(app)


def test_a_child_is_told_apart_from_the_death_of_a_thread(application: Make) -> None:
    """Each child's parent-death signal is armed by the guardian's one thread, so no thread's end can set it off."""
    app = application()
    pool = app.start()
    guardian = pool.guardian()

    assert ["1", "1"] == [threads(pid) for pid in (pool.supervisor, guardian or 0)]
    children = pool.children()
    jobs = app.enqueue("threads", scaled(20))
    eventually(lambda: {"completed": len(jobs)} == app.statuses(), 30)

    assert children == pool.children()
    app.ledger.assert_once(jobs)
    stop_clean(app, pool)


def threads(pid: int) -> str:
    """How many threads a process has."""
    with open(f"/proc/{pid}/status") as file:
        return next(line.split()[1] for line in file if line.startswith("Threads:"))


def test_nobody_holds_what_is_not_theirs(application: Make) -> None:
    """No child, and nothing that a task executes or forks, has the fence, the channels, or another child's lifeline."""
    app = application(worker={"workers": 2})
    pool = app.start()
    executed = app.enqueue("shell", script="sleep 1000")[0]
    forked = app.enqueue("fork")[0]
    under_way(app, executed)
    under_way(app, forked)
    others = eventually(lambda: pool.others() if len(pool.others()) == 3 else None, 10, "sh, its sleep, a fork")
    guardian = pool.guardian()
    assert guardian is not None

    tmp = str(app.root / "var" / "tmp")
    children = list(pool.children().values())
    fork = next(pid for pid in others if "sleep" not in command_of(pid))
    held = {pid: descriptors(pid) for pid in [pool.supervisor, guardian, *children, *others]}
    sockets = {pid: {what for what in held[pid].values() if what.startswith("socket:")} for pid in held}
    for pid in [*children, *others]:
        assert f"{tmp}/worker.lock" not in held[pid].values()
        assert not sockets[pid] & sockets[pool.supervisor], "the ownership channel, the listener"
        assert not sockets[pid] & sockets[guardian], "the guardian's end of a lifeline"
    for pid in others:
        assert f"{tmp}/worker.members" not in held[pid].values()
        assert set() == sockets[pid] & set().union(*(sockets[child] for child in children)), (pid, fork)
    for pid in children:
        assert 1 == list(held[pid].values()).count(f"{tmp}/worker.members")
        assert 1 == len(sockets[pid]), "its own lifeline"
    assert 2 == len(set().union(*(sockets[pid] for pid in children)))
    for pid in [*children, *others]:
        assert not {name for name in environment(pid) if "CREDENTIAL" in name.upper()}

    for pid in others:
        os.kill(pid, signal.SIGKILL)
    stop_clean(app, pool)


def command_of(pid: int) -> str:
    """The program's own name for itself."""
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()
