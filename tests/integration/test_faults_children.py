"""Children that are killed, crash, leave by themselves or sit in C code: the others go on, and no job is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from harness import Application, eventually, scaled
from harness.faults import stop_clean, under_way

Make = Callable[..., Application]


def test_a_busy_child_that_is_killed_again_and_again_loses_no_job(application: Make) -> None:
    """Every job is settled once, and the pool is whole again within three seconds of each kill."""
    app = application(worker={"restart_intensity": 1000}, queue={"max_attempts": 1000})
    pool = app.start()
    jobs = app.enqueue("nap", scaled(120), seconds=0.02)

    for turn in range(scaled(6)):
        eventually(lambda turn=turn: app.ledger.count("finish") > turn * 2, 20, "jobs are done between the kills")
        victim = list(pool.children().values())[turn % 2]
        os.kill(victim, signal.SIGKILL)
        eventually(lambda victim=victim: victim not in pool.census(), 3)
        eventually(lambda: 2 == pool.ready(), 3, "both slots are ready again")

    eventually(lambda: {"completed": len(jobs)} == app.statuses(), 30)
    stop_clean(app, pool)


def test_a_crash_in_a_task_leaves_the_other_children_alone(application: Make) -> None:
    """They keep their pids and their tasks."""
    app = application(worker={"workers": 3})
    pool = app.start()
    long = app.enqueue("gate", 2)
    pids = {under_way(app, job) for job in long}

    crash = app.enqueue("die", how="segv", until=1)[0]
    eventually(lambda: "completed" == app.job(crash).status)
    assert pids <= set(pool.children().values())
    assert 1 == len(pool.events("worker.child.exit"))

    (app.root / "gate").touch()
    eventually(lambda: {"completed": 3} == app.statuses())
    assert [1, 1] == [app.ledger.count("start", job) for job in long]
    stop_clean(app, pool)


def test_a_job_that_kills_its_worker_is_started_max_attempts_times_across_restarts(application: Make) -> None:
    """Then it is failed, its worker lost; every other job is done."""
    app = application(worker={"workers": 1, "restart_intensity": 10}, queue={"max_attempts": 3, "backoff_ms": 1500})
    first = app.start()
    poison = app.enqueue("die", how="kill")[0]
    others = app.enqueue("nap", 10)
    eventually(lambda: 1 == app.ledger.count("start", poison))
    eventually(lambda: {"queued", "retry_wait"} & {app.job(poison).status} or app.ledger.count("start", poison) > 1)
    stop_clean(app, first)

    second = app.start()
    eventually(lambda: "failed" == app.job(poison).status, 20)
    eventually(lambda: all("completed" == app.job(job).status for job in others))
    job = app.job(poison)
    assert 3 == app.ledger.count("start", poison) == job.attempt
    assert "worker-lost" == job.error["reason"]
    app.ledger.assert_once(others)
    stop_clean(app, second)


@pytest.mark.parametrize("who", ["child", "pool"])
def test_the_job_of_a_killed_worker_is_taken_up_at_the_next_boot(application: Make, who: str) -> None:
    """Not at the end of its lease of five minutes: by the child's replacement, or by the pool's next start."""
    app = application(worker={"workers": 1, "force_kill_timeout_ms": 300}, queue={"lease_ms": 300000})
    pool = app.start()
    job = app.enqueue("gate")[0]
    child = under_way(app, job)

    if who == "child":
        os.kill(child, signal.SIGKILL)
    else:
        guardian = pool.guardian()
        assert guardian is not None
        os.kill(guardian, signal.SIGKILL)
        pool.kill()
        pool.assert_gone()
        pool = app.start()
    eventually(lambda: 2 == app.ledger.count("start", job), 2 if who == "child" else 5, "it runs again")

    (app.root / "gate").touch()
    eventually(lambda: "completed" == app.job(job).status)
    assert 2 == app.job(job).attempt
    stop_clean(app, pool)


def test_leaving_by_sys_exit_fails_the_job_and_leaving_by_os_exit_the_child(application: Make) -> None:
    """Neither is taken for a recycle: the first child goes on, the second is replaced as after a crash."""
    app = application(worker={"workers": 1}, queue={"max_attempts": 1})
    pool = app.start()
    before = pool.children()

    job = app.enqueue("die", how="sys.exit")[0]
    eventually(lambda: "failed" == app.job(job).status)
    assert ("exception", "SystemExit") == (app.job(job).error["reason"], app.job(job).error["type"])
    assert before == pool.children()

    job = app.enqueue("die", how="_exit0")[0]
    eventually(lambda: "failed" == app.job(job).status)
    assert "worker-lost" == app.job(job).error["reason"]
    eventually(lambda: 1 == pool.ready())
    assert before != pool.children()
    assert [("exited", "error")] == [(e["cause"], e["level"]) for e in pool.events("worker.child.exit")]
    assert 1 == len(pool.events("worker.child.restart"))
    assert [] == pool.events("worker.child.recycle")
    stop_clean(app, pool)


@pytest.mark.parametrize(
    ("how", "cause", "level"),
    [
        ("_exit3", "exited", "error"),
        ("segv", "crashed", "error"),
        ("kill", "killed", "error"),
        ("term", "done", "info"),
        ("recycle", "done", "info"),
        ("deadline", "terminated-at-deadline", "warning"),
        ("beyond", "killed-at-deadline", "warning"),
    ],
)
def test_every_way_to_end_is_one_event_with_its_cause(application: Make, how: str, cause: str, level: str) -> None:
    """Of level error only where something is wrong."""
    worker = {"workers": 1, "stop_timeout_ms": 300, "force_kill_timeout_ms": 300 if how == "beyond" else 5000}
    app = application(worker={**worker, "max_requests": 1} if how == "recycle" else worker)
    pool = app.start()
    if how in ("_exit3", "segv", "kill"):
        app.enqueue("die", how=how, until=1)
    elif how == "recycle":
        app.enqueue("nap")
    elif how == "term":
        os.kill(pool.children()[0], signal.SIGTERM)
    else:
        under_way(app, app.enqueue("nap", seconds=60)[0] if how == "deadline" else app.enqueue("seize", seconds=60)[0])
        pool.signal(signal.SIGTERM)
        assert 0 == pool.wait()
    events = eventually(lambda: pool.events("worker.child.exit"), 20, "the event")
    assert [(cause, level)] == [(event["cause"], event["level"]) for event in events]
    if pool.started():
        eventually(lambda: 1 == pool.ready())
        stop_clean(app, pool)


@pytest.mark.parametrize("task", ["spin", "hold"])
def test_a_jobs_hard_deadline_ends_its_child_which_is_not_counted(application: Make, task: str) -> None:
    """In Python that catches everything, and in C with the GIL held; the stacks are logged; no restart is spent."""
    app = application(worker={"workers": 1, "restart_intensity": 0}, queue={"max_attempts": 2, "timeout_ms": 300})
    pool = app.start()
    job = app.enqueue("deaf" if task == "spin" else "seize", seconds=600)[0]

    eventually(lambda: "failed" == app.job(job).status, 20)
    assert "timeout" == app.job(job).error["reason"]
    assert 2 == app.ledger.count("start", job)
    eventually(lambda: 1 == pool.ready())
    causes = eventually(lambda: len(found := pool.events("worker.child.exit")) == 2 and found, 5, "both exits")
    assert [("timeout", "warning")] * 2 == [(event["cause"], event["level"]) for event in causes]
    stacks = [e["exception"] for e in pool.events("worker.task.failed") if e.get("cause") == "timeout"]
    assert 2 == len(stacks)
    assert all("most recent call first" in stack and "tasks.py" in stack for stack in stacks)
    stop_clean(app, pool)


def test_a_task_that_holds_the_interpreter_is_neither_killed_nor_claimed_by_others(application: Make) -> None:
    """For three seconds (thirty at the full count), with a lease of twice that: no renewal comes through meanwhile."""
    seconds = min(30, scaled(3))
    app = application(queue={"lease_ms": seconds * 2000})
    pool = app.start()
    job = app.enqueue("hold", seconds=seconds)[0]
    under_way(app, job)
    assert (0, "healthy") == (pool.health()[0], pool.health()[1]["reason"])
    eventually(lambda: "completed" == app.job(job).status, 60)
    app.ledger.assert_once([job])
    assert [] == pool.events("worker.child.exit")
    stop_clean(app, pool)
