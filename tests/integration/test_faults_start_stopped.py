"""A stop at any moment of a start."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable

import pytest

from harness import Application, eventually, scaled
from harness.faults import stop_clean
from harness.processes import read

Make = Callable[..., Application]

#: What a stop of an idle pool, or of one that is starting, may take on a busy machine, in seconds.
IN_TIME = 5.0


def moments(count: int, seconds: float) -> list[float]:
    """``count`` moments of chance, evenly over ``seconds``, half of them in the first third: there most happens."""
    early = max(1, count // 2)
    late = max(1, count - early)
    third = seconds / 3
    return [
        *(third * (number + random.random()) / early for number in range(early)),
        *(third + (seconds - third) * (number + random.random()) / late for number in range(late)),
    ]


def claims(app: Application) -> bytes:
    """Changes with every claim of the fence."""
    return read(str(app.root / "var" / "tmp" / "worker.lock")) or b""


def stopped_at(
    app: Application, moment: float, number: int, *arguments: str, group: bool = False, seconds: float = IN_TIME
) -> None:
    """Starts, and sends the signal at that moment; everything a stop promises is looked at."""
    pool, before = app.pool(), claims(app)
    began = time.monotonic()
    pool.start(*arguments, wait=False, start_new_session=True)
    eventually(lambda: time.monotonic() - began >= moment, moment + 5)
    if group:
        pool.signal_group(number)
    else:
        pool.signal(number)
    code = pool.wait(seconds)
    if code != 0:
        # Before our first line has run nothing is started, and the signal does what it does to any program in Python.
        assert code in (-number, 128 + number, 1 if number == signal.SIGINT else -number), (moment, code, pool.log())
        assert before == claims(app), (moment, pool.log())
        assert "PLATFORM_WORKER" not in pool.log()
    else:
        assert "Traceback" not in pool.log(), pool.log()
    assert [] == pool.census(), moment
    assert app.fence_free(), moment
    assert [] == app.leftovers(), (moment, pool.log())
    out = pool.out.read_text()
    assert out in ("", out.split("\n")[0] + "\n"), "a summary, or nothing"
    assert not out or "running" == json.loads(out)["status"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_a_stop_at_any_moment_of_a_start_leaves_nothing(application: Make, number: int) -> None:
    """It ends in time with 0, with nobody left and only the files that stay, and the next start works."""
    app = application().build()
    for moment in moments(scaled(12 if number == signal.SIGTERM else 3), 2.0):
        stopped_at(app, moment, number)
    stop_clean(app, app.start())


def test_a_stop_at_any_moment_of_a_start_that_builds_leaves_nothing(application: Make) -> None:
    """Also while the build runs, whose half-made generation is nobody's: the next start builds and works."""
    app = application()
    for moment in moments(scaled(5), 2.0):
        stopped_at(app, moment, signal.SIGTERM, "--build")
    pool = app.pool()
    pool.start("--build")
    stop_clean(app, pool)


def test_a_group_stop_at_any_moment_of_a_start_leaves_nothing(application: Make) -> None:
    """As from a terminal: supervisor, guardian and build get the signal too."""
    app = application().build()
    for moment in moments(scaled(5), 0.8):
        stopped_at(app, moment, signal.SIGINT, group=True)
    stop_clean(app, app.start())
