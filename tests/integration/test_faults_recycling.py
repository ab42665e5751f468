"""Recycles under load, recycles without end, and children that announce their end and stay."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from harness import Application, Pool, eventually, scaled
from harness.faults import stop_clean, under_way
from harness.processes import children_of, descriptors, memory

Make = Callable[..., Application]


class Watch:
    """Notes the lowest ready count that ``worker status`` gives while it is entered."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seen: list[int] = []

    def _run(self) -> None:
        while not self._end.is_set():
            self.seen.append(self._pool.ready())

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def test_with_jitter_slots_do_not_recycle_together_and_none_is_ever_missing(application: Make) -> None:
    """Each child has a limit of its own; the ready count never drops."""
    app = application(worker={"workers": 3, "max_requests": 20, "max_requests_jitter": 15})
    pool = app.start()
    jobs = app.enqueue("nap", scaled(240), seconds=0.01)
    with Watch(pool) as watch:
        eventually(lambda: {"completed": len(jobs)} == app.statuses(), 60)

    app.ledger.assert_once(jobs)
    assert {3} == set(watch.seen)
    lives = [app.ledger.pids("finish").count(pid) for pid in set(app.ledger.pids("finish"))]
    ended = sorted(lives)[-6:]
    assert max(lives) <= 20
    assert len(set(ended)) > 1, f"all children had the same limit: {ended}"
    assert len(pool.events("worker.child.recycle")) >= 6
    assert {"done"} == {event["cause"] for event in pool.events("worker.child.exit")}
    stop_clean(app, pool)


def test_a_child_for_each_job_leaves_nothing_behind_in_supervisor_and_guardian(application: Make) -> None:
    """No stall, and after hundreds of recycles with large payloads the descriptors and processes of before."""
    app = application(worker={"workers": 2, "max_requests": 1}, queue={"data_max_bytes": 2_000_000})
    pool = app.start()
    guardian = pool.guardian()
    assert guardian is not None

    def burst(count: int) -> None:
        jobs = app.enqueue("swallow", count, payload="x" * 500_000)
        eventually(lambda: all("completed" == app.job(job).status for job in jobs), 120)
        eventually(lambda: 2 == len(children_of(guardian)), 10, "the replacements alone are left")

    def sizes() -> dict[str, int]:
        return {name: len(descriptors(pid)) for name, pid in (("supervisor", pool.supervisor), ("guardian", guardian))}

    burst(10)
    before, memories = sizes(), [memory(pid) for pid in (pool.supervisor, guardian)]
    burst(scaled(40))
    assert before == eventually(lambda: sizes() == before and before, 10, "as many descriptors as before")
    grown = [now - then for now, then in zip([memory(p) for p in (pool.supervisor, guardian)], memories, strict=True)]
    assert max(grown) < 2 * 1024 * 1024, f"memory grew by {grown} bytes"
    stop_clean(app, pool)


def test_a_child_that_announces_its_end_and_stays_is_killed_and_its_slot_was_refilled(application: Make) -> None:
    """A thread that never ends keeps the interpreter; status answers all along."""
    app = application(worker={"workers": 1, "max_requests": 1, "force_kill_timeout_ms": 500})
    pool = app.start()
    clinging = under_way(app, app.enqueue("cling")[0])
    follower = app.enqueue("nap")[0]

    eventually(lambda: "completed" == app.job(follower).status, 10)
    assert clinging not in pool.census()
    assert 1 == pool.ready()
    cause = pool.events("worker.child.exit")[0]["cause"]
    assert cause in ("terminated-at-deadline", "killed-at-deadline")
    assert [] == pool.events("worker.child.restart")
    stop_clean(app, pool)


def test_a_replacement_that_never_becomes_ready_is_ended_in_time_and_the_elder_works_on(application: Make) -> None:
    """Health says nothing is missing: the elder goes on, and the next limit is tried again."""
    slow = "\nimport pathlib, threading\nif pathlib.Path('broken').exists():\n    threading.Event().wait()\n"
    app = application(
        worker={"workers": 1, "max_requests": 2, "start_timeout_ms": 3000, "force_kill_timeout_ms": 300},
    )
    tasks = app.root / "tasks.py"
    tasks.write_text(tasks.read_text() + slow)
    pool = app.start()
    elder = pool.children()[0]
    (app.root / "broken").touch()
    jobs = app.enqueue("nap", 2)
    eventually(lambda: pool.events("worker.child.exit"), 20, "the replacement is ended")
    assert (0, "healthy") == (pool.health()[0], pool.health()[1]["reason"])
    assert pool.events("worker.child.exit")[0]["cause"] in ("terminated-at-deadline", "killed-at-deadline")

    jobs += app.enqueue("nap", 1)
    eventually(lambda: {"completed": 3} == app.statuses())
    assert {elder} == set(app.ledger.pids())
    (app.root / "broken").unlink()
    jobs += app.enqueue("nap", 3)
    eventually(lambda: {"completed": 6} == app.statuses(), 30)
    eventually(lambda: elder not in pool.census(), 10, "the recycle succeeds at last")
    app.ledger.assert_once(jobs)
    stop_clean(app, pool)


def test_what_the_last_job_of_a_child_printed_is_not_lost(application: Make) -> None:
    """Its lines reach the log before its process ends."""
    app = application(worker={"workers": 2, "max_requests": 1})
    pool = app.start()
    app.enqueue("chatter", scaled(10), lines=50)
    eventually(lambda: {"completed": scaled(10)} == app.statuses(), 60)
    stop_clean(app, pool)
    printed = [line for line in pool.log().splitlines() if line.endswith("x" * 100)]
    assert 50 * scaled(10) == len(printed)


def test_a_recycled_child_runs_the_newest_generation(application: Make) -> None:
    """A deploy while the pool runs: the next child of the slot has the new code, the present one the old."""
    app = application(worker={"workers": 1, "max_requests": 3})
    pool = app.start()
    tasks = app.root / "tasks.py"
    tasks.write_text(tasks.read_text().replace("return os.getpid()", 'return "new"'))
    done = app.run("build")
    assert 0 == done.returncode, done.stderr
    old = app.enqueue("nap", 3)
    eventually(lambda: 3 == app.statuses().get("completed"), 20)
    new = app.enqueue("nap", 1)
    eventually(lambda: 4 == app.statuses().get("completed"), 20)
    assert all(isinstance(app.job(job).result, int) for job in old)
    assert "new" == app.job(new[0]).result
    assert os.getpid() != app.job(old[0]).result
    stop_clean(app, pool)
