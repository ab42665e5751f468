"""Starts that race, starts that are killed half way, and what lies about from before."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from harness import Application, Pool, alive, eventually, scaled
from harness.faults import identities, left, stop_clean
from harness.processes import MARK, read
from harness.variants import listens

Make = Callable[..., Application]


def generation(app: Application) -> int:
    """The number of the newest worker generation; 0 before the first."""
    text = read(str(app.root / "var" / "tmp" / "worker.lock"))
    return int(text) if text else 0


def guardian_of(pool: Pool) -> int | None:
    """The supervisor's child, which is there before it can be told by its command line."""
    children = (read(f"/proc/{pool.supervisor}/task/{pool.supervisor}/children") or b"").split()
    return int(children[0]) if children else None


def kill(*pids: int | None) -> None:
    """SIGKILL to those that are there."""
    for pid in pids:
        if pid is not None:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def race(app: Application) -> tuple[Pool, Pool, float]:
    """Two starts at the same instant: who runs, who does not, and after how long it said so."""
    pools = [app.pool(), app.pool()]
    began = time.monotonic()
    for pool in pools:
        pool.start(wait=False)
    loser = eventually(lambda: next((pool for pool in pools if pool.process.poll() is not None), None), 15, "a loser")
    took = time.monotonic() - began
    winner = pools[0] if loser is pools[1] else pools[1]
    return winner, loser, took


def test_of_two_starts_at_once_exactly_one_runs(application: Make) -> None:
    """The other refuses within two seconds and has touched nothing; half of the races run over a crash's leftovers."""
    app = application(worker={"workers": 1}).build()
    times = []
    for number in range(scaled(8)):
        before = generation(app)
        winner, loser, took = race(app)
        times.append(took)

        assert 4 == loser.process.returncode, (number, loser.log())
        assert winner.summary()["pid"] == winner.supervisor == winner.status()["pid"]
        assert before + 1 == generation(app)
        assert "PLATFORM_WORKER_ALREADY_RUNNING: worker-already-running" == loser.log().splitlines()[0]
        assert "already-running" in json.loads(loser.out.read_text())["reason"]
        assert [] == loser.census()
        if number % 2:
            stop_clean(app, winner)
        else:  # everybody dies in the same instant, and all files stay
            kill(winner.supervisor, winner.guardian())
            winner.process.wait()
    slow = max(times)
    assert slow < 2.0 or slow < 2.0 + ordinary(app), times
    stop_clean(app, app.start())


def ordinary(app: Application) -> float:
    """What a start with nothing in its way takes just now: a machine in a crowd is given that much more."""
    began = time.monotonic()
    pool = app.start()
    took = time.monotonic() - began
    stop_clean(app, pool)
    return took


def exists(name: str) -> Callable[[Application, Pool], object]:
    """The step that leaves this file of ``var/tmp``."""
    return lambda app, pool: (app.root / "var" / "tmp" / name).exists()


STEPS: dict[str, Callable[[Application, Pool], object]] = {
    "guardian": lambda app, pool: guardian_of(pool),
    "lock": exists("worker.lock"),
    "claim": lambda app, pool: generation(app) > 0,
    "child": lambda app, pool: pool.children(),
    "socket": lambda app, pool: listens(app.root),
    "locator": exists("worker.lifecycle.json"),
    "state": exists("worker.state.json"),
    "ready": lambda app, pool: pool.out.read_bytes(),
}
VICTIMS = ("supervisor", "guardian", "both")


def strike(pool: Pool, victim: str) -> None:
    """Kills, and waits until the supervisor is over; alone it must end by itself and say why."""
    guardian = guardian_of(pool)
    if victim != "guardian" or guardian is None:
        kill(pool.supervisor)
    if victim != "supervisor":
        kill(guardian)
    assert pool.wait(10) in (-9, 1), pool.log()


def starts_within_five_seconds(app: Application, why: object) -> Pool:
    """The next start, at once and by itself."""
    pool = app.pool()
    began = time.monotonic()
    pool.start(seconds=30)
    took = time.monotonic() - began
    if took >= 5.0:
        stop_clean(app, pool)
        assert took < 5.0 + ordinary(app), (why, pool.log())
        pool = app.start()
    return pool


@pytest.mark.parametrize("step", STEPS)
def test_a_start_killed_after_any_of_its_steps_is_no_obstacle(application: Make, step: str) -> None:
    """Supervisor, guardian or both are killed there: the next start succeeds within five seconds, nobody is left."""
    victims = VICTIMS if scaled(2) > 2 else (VICTIMS[list(STEPS).index(step) % 3],)
    for victim in victims:
        app = application(f"app-{victim}", worker={"workers": 1}).build()
        pool = app.pool()
        pool.start(wait=False)
        eventually(lambda app=app, pool=pool: STEPS[step](app, pool), 20, step)
        strike(pool, victim)

        after = starts_within_five_seconds(app, (step, victim))
        assert [] == pool.census()
        stop_clean(app, after)


def test_a_start_killed_at_any_moment_is_no_obstacle(application: Make) -> None:
    """The same, at moments of chance."""
    app = application(worker={"workers": 1}).build()
    for _ in range(scaled(6)):
        victim, after = random.choice(VICTIMS), random.uniform(0.0, 0.5)
        pool = app.pool()
        pool.start(wait=False)
        pause(after)
        strike(pool, victim)

        following = starts_within_five_seconds(app, (victim, after))
        assert [] == pool.census(), (victim, after)
        stop_clean(app, following)


def pause(seconds: float) -> None:
    """Until a moment of chance; nothing is waited for."""
    deadline = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= deadline, seconds + 1)


@pytest.fixture
def innocents() -> object:
    """Starts processes that have nothing to do with any pool; they end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**environ: str) -> subprocess.Popen[bytes]:
        env = {name: value for name, value in os.environ.items() if name != MARK} | environ
        started.append(subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_what_a_file_says_is_never_signalled(application: Make, innocents: Callable[..., object]) -> None:
    """Files of a dead generation that name an innocent process, which even carries the next one's mark: it lives on."""
    app = application(worker={"workers": 1})
    crashed = app.start()
    named = [
        innocents(),
        innocents(PLATFORM_WORKER_CHILD=f"{generation(app) + 1}.0.1", PLATFORM_WORKER_ROOT=str(app.root)),
    ]
    kill(crashed.supervisor, crashed.guardian())
    crashed.process.wait()
    crashed.assert_gone()
    tmp = app.root / "var" / "tmp"
    state = json.loads((tmp / "worker.state.json").read_text())
    for process in named:
        for name in ("worker.state.json", "worker.state.json.tmp"):
            (tmp / name).write_text(json.dumps({**state, "pid": process.pid}))
        (tmp / "worker.stop").write_text(f"{process.pid}\n")
        (tmp / "worker.pid").write_text(f"{process.pid}\n")

        assert [3, 3, 3] == [app.run(command).returncode for command in ("status", "health", "stop")]
        pool = app.start()
        assert pool.supervisor == pool.status()["pid"]
        if process is named[0]:
            (tmp / "worker.pid").unlink()
            stop_clean(app, pool)
        else:
            kill(pool.guardian())
            assert 1 == pool.wait(5)
            pool.assert_gone()
    assert all(process.poll() is None and alive(process.pid) for process in named)


@pytest.mark.parametrize("way", ["stop", "guardian", "supervisor"])
def test_children_that_the_supervisor_was_given_are_left_alone(application: Make, way: str) -> None:
    """Who executes ``worker start`` may have started processes before: whatever ends the pool, they live on."""
    app = application(worker={"workers": 1}).build()
    pool = app.pool()
    line = f'sleep 1000 & echo $! >innocent; exec "{pool._worker}" --root "{app.root}" start --json'
    with open(pool.out, "wb") as out, open(pool.err, "wb") as err:
        pool._process = subprocess.Popen(["sh", "-c", line], stdout=out, stderr=err, env=pool.environ, cwd=app.root)
    pool.summary()
    innocent = int((app.root / "innocent").read_text())
    guardian = pool.guardian()
    try:
        assert innocent in pool.others()
        people = identities([guardian, *pool.children().values()])
        if way == "stop":
            pool.stop()
        else:
            kill(guardian if way == "guardian" else pool.supervisor)
            assert {"guardian": 1, "supervisor": -9}[way] == pool.wait(5)
        eventually(lambda: [innocent] == pool.census(), 5, "only the innocent is left")
        eventually(lambda: not left(people), 5, "nobody of ours is a zombie")
        assert alive(innocent)
    finally:
        kill(innocent)
    app.assert_clean()
