"""What tests of faults share: who lived before, who is left after, and a task that is really under way."""

from __future__ import annotations

from collections.abc import Iterable

from harness.application import Application
from harness.pool import Pool
from harness.processes import eventually, stat


def identities(pids: Iterable[int]) -> list[tuple[int, int]]:
    """Pid and start time of each: who they are, also after a number was given to another."""
    found = ((pid, stat(pid)) for pid in pids)
    return [(pid, seen.started) for pid, seen in found if seen is not None]


def left(people: Iterable[tuple[int, int]]) -> list[str]:
    """Who of them is in the process table still, with its state: a zombie counts."""
    found = ((pid, started, stat(pid)) for pid, started in people)
    return [f"{pid} {seen.state}" for pid, started, seen in found if seen is not None and seen.started == started]


def assert_stopped_clean(app: Application, pool: Pool, people: list[tuple[int, int]]) -> None:
    """Once a supervisor has stopped as asked: nobody lives or is a zombie, the fence is free, the files are gone."""
    assert [] == left(people), pool.log()
    assert app.fence_free()
    assert [] == app.leftovers()
    app.assert_clean()


def stop_clean(app: Application, pool: Pool) -> None:
    """``worker stop``, and everything a clean stop must leave behind."""
    people = identities(pool.census())
    pool.stop()
    assert_stopped_clean(app, pool, people)


def under_way(app: Application, job: str, seconds: float = 20.0) -> int:
    """Waits until the job's handler has begun; the pid it runs in."""

    def begun() -> int:
        return next((pid for event, id, _, pid in app.ledger.lines() if (event, id) == ("start", job)), 0)

    return eventually(begun, seconds, "the handler begins")
