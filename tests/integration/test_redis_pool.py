"""Whole pools on Redis: a child that dies in a job, a server that is killed, silent or read-only under work."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable

import pytest

from harness import Application, Pool, eventually
from harness.servers import RedisServer

Make = Callable[..., Application]
#: How long after a server is back a pool may take to work again.
BACK_SECONDS = 10.0


@pytest.fixture
def app(application: Make, redis_server: RedisServer) -> Application:
    return application(app={"modules": ["redis"]}, redis={"url": redis_server.url})


def test_a_pool_works_off_its_queue_and_stops_clean(app: Application) -> None:
    pool = app.start()
    ids = app.enqueue("nap", 50)
    eventually(lambda: app.statuses() == {"completed": 50})
    app.ledger.assert_once(ids)
    pool.stop()
    app.assert_clean()


def test_a_child_that_is_killed_in_a_job_is_replaced_and_the_job_runs_again_at_once(app: Application) -> None:
    """The lease of a minute has nothing to do with it: the replacement knows that its predecessor is gone."""
    pool = app.start()
    (id,) = app.enqueue("gate")
    eventually(lambda: app.ledger.count("start", id) == 1)
    os.kill(app.ledger.pids()[0], signal.SIGKILL)
    eventually(lambda: app.ledger.count("start", id) == 2, 10)
    (app.root / "gate").touch()
    eventually(lambda: app.job(id).status == "completed")
    assert (2, 1) == (app.job(id).attempt, app.ledger.count("finish", id))
    pool.stop()


def test_a_pool_that_is_killed_whole_finds_its_claims_when_it_starts_again(app: Application) -> None:
    first = app.start()
    ids = app.enqueue("gate", 2)
    eventually(lambda: app.ledger.count("start") == 2)
    first.close()
    eventually(app.fence_free)
    (app.root / "gate").touch()
    second = app.start()
    eventually(lambda: app.statuses() == {"completed": 2})
    assert [2, 2] == [app.job(id).attempt for id in ids]
    second.stop()


def consumes(app: Application, pool: Pool, children: dict[int, int]) -> None:
    """Within the time that is promised jobs are done again, by the same children."""
    with app.queue() as queue:
        assert isinstance(queue.result(queue.enqueue("nap"), timeout=BACK_SECONDS), int)
    assert children == pool.children()


def test_a_server_that_is_killed_under_work_costs_no_job_and_no_child(
    app: Application, redis_server: RedisServer
) -> None:
    """Twice, with jobs in hand and jobs waiting; a job whose end was being told as the server died may run again."""
    pool = app.start()
    children = pool.children()
    ids = app.enqueue("nap", 400, seconds=0.005)
    for part in (50, 150):
        eventually(lambda part=part: app.ledger.count("finish") >= part)
        redis_server.kill()
        eventually(lambda: pool.events("worker.queue.unavailable"))
        redis_server.start()
    consumes(app, pool, children)
    eventually(lambda: app.statuses() == {"completed": 401}, 30)
    assert set(ids) <= {job for event, job, *_ in app.ledger.lines() if event == "finish"}
    assert app.ledger.count("finish") == 401
    pool.stop()


def test_a_job_that_ends_while_the_server_is_away_is_settled_when_it_is_back(
    app: Application, redis_server: RedisServer
) -> None:
    pool = app.start()
    children = pool.children()
    (id,) = app.enqueue("gate")
    eventually(lambda: app.ledger.count("start", id) == 1)
    redis_server.kill()
    (app.root / "gate").touch()
    eventually(lambda: app.ledger.count("finish", id) == 1)
    eventually(lambda: pool.events("worker.queue.unavailable"))
    redis_server.start()
    eventually(lambda: app.job(id).status == "completed", BACK_SECONDS)
    assert (1, 1) == (app.job(id).attempt, app.ledger.count("start", id))
    consumes(app, pool, children)
    pool.stop()


def test_a_server_that_says_nothing_is_noticed_and_a_stop_does_not_wait_for_it(
    app: Application, redis_server: RedisServer
) -> None:
    pool = app.start()
    children = pool.children()
    redis_server.pause()
    eventually(lambda: len(pool.events("worker.queue.unavailable")) == 2, 15)
    redis_server.resume()
    eventually(lambda: len(pool.events("worker.queue.available")) == 2, BACK_SECONDS)
    consumes(app, pool, children)
    redis_server.pause()
    eventually(lambda: len(pool.events("worker.queue.unavailable")) == 4, 15)
    pool.stop(seconds=15)
    redis_server.resume()


def test_a_replica_that_takes_no_writes_is_waited_out(app: Application, redis_server: RedisServer) -> None:
    pool = app.start()
    children = pool.children()
    (id,) = app.enqueue("gate")
    eventually(lambda: app.ledger.count("start", id) == 1)
    redis_server.call("REPLICAOF", "127.0.0.1", 1)
    (app.root / "gate").touch()
    eventually(lambda: pool.events("worker.queue.unavailable"))
    redis_server.call("REPLICAOF", "NO", "ONE")
    eventually(lambda: app.job(id).status == "completed", BACK_SECONDS)
    consumes(app, pool, children)
    assert 1 == app.job(id).attempt
    pool.stop()


def test_connections_that_are_cut_and_scripts_that_are_forgotten_are_not_noticed(
    app: Application, redis_server: RedisServer
) -> None:
    pool = app.start()
    children = pool.children()
    ids = app.enqueue("nap", 300, seconds=0.002)
    stop = threading.Event()

    def harm() -> None:
        while not stop.wait(0.05):
            redis_server.call("SCRIPT", "FLUSH")
            redis_server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    harmer = threading.Thread(target=harm)
    harmer.start()
    try:
        eventually(lambda: app.ledger.count("finish") >= 300, 60)
    finally:
        stop.set()
        harmer.join()
    eventually(lambda: app.statuses() == {"completed": 300})
    app.ledger.assert_once(ids)
    assert children == pool.children(), pool.log()
    assert [] == pool.events("worker.task.lease_lost")
    pool.stop()


def test_two_pools_on_one_server_share_the_work_and_not_their_fate(
    application: Make, redis_server: RedisServer
) -> None:
    settings = {"app": {"modules": ["redis"]}, "redis": {"url": redis_server.url}}
    one, other = application("one", **settings), application("other", **settings)
    first, second = one.start(), other.start()
    one.enqueue("gate", 4)
    eventually(lambda: one.ledger.count("start") == other.ledger.count("start") == 2)
    first.close()
    eventually(one.fence_free)
    (other.root / "gate").touch()
    eventually(lambda: other.ledger.count("finish") == 2)
    assert {"processing": 2, "completed": 2} == other.statuses()
    (one.root / "gate").touch()
    again = one.start()
    eventually(lambda: one.statuses() == {"completed": 4})
    second.stop()
    again.stop()


def test_the_commands_for_jobs(app: Application) -> None:
    app.build()
    code, added = app.json("enqueue", "nap", "--data", '{"seconds": 0}')
    assert (0, 1) == (code, added["created"])
    (id,) = added["ids"]  # type: ignore[misc]
    assert [id] == [job["id"] for job in app.json("jobs", "--status", "queued")[1]["jobs"]]  # type: ignore[attr-defined]
    app.run("queues", "pause", "default")
    assert (True, 1) == tuple(app.json("queues")[1]["queues"][0][key] for key in ("paused", "queued"))  # type: ignore[index]
    app.run("queues", "resume", "default")
    assert 0 == app.run("start", "--until-empty").returncode
    shown = json.loads(app.run("jobs", "show", str(id), "--json").stdout)["job"]
    assert ("completed", 1) == (shown["status"], shown["attempt"])
    assert "removed: 1\n" == app.run("jobs", "purge", "--older-than", "0s").stdout


def test_a_start_without_the_server_fails_and_names_the_setting(app: Application, redis_server: RedisServer) -> None:
    app.build()
    redis_server.kill()
    for command, code in ((["start"], 1), (["enqueue", "nap"], 1)):
        done = app.run(*command)
        assert code == done.returncode, done.stderr
        assert "redis.url" in done.stderr
        assert redis_server.url.rpartition(":")[2] not in done.stderr
