"""Whole pools on PostgreSQL: a child that dies in a job, a server that is killed, silent or cut off under work."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from harness import Application, Pool, eventually
from harness.postgres import PostgresServer

Make = Callable[..., Application]
#: How long after a server is back a pool may take to work again.
BACK_SECONDS = 10.0

_ALL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'platform-worker'"
_LISTENING = "query LIKE 'LISTEN %'"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of the test's own, that it may hurt."""
    made = PostgresServer()
    try:
        yield made.start()
    finally:
        made.close()


@pytest.fixture
def app(application: Make, server: PostgresServer) -> Application:
    return application(app={"modules": ["postgres"]}, postgres={"url": server.url})


def test_a_pool_works_off_its_queue_and_stops_clean(app: Application, server: PostgresServer) -> None:
    pool = app.start()
    ids = app.enqueue("nap", 50)
    eventually(lambda: app.statuses() == {"completed": 50})
    app.ledger.assert_once(ids)
    pool.stop()
    app.assert_clean()
    eventually(lambda: server.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name <> ''") == [(0,)])


def test_a_child_that_is_killed_in_a_job_is_replaced_and_the_job_runs_again_at_once(app: Application) -> None:
    """The lease of a minute has nothing to do with it: the replacement knows that its predecessor is gone."""
    pool = app.start()
    (id,) = app.enqueue("gate")
    eventually(lambda: app.ledger.count("start", id) == 1)
    began = time.monotonic()
    os.kill(app.ledger.pids()[0], signal.SIGKILL)
    eventually(lambda: app.ledger.count("start", id) == 2)
    assert time.monotonic() - began < 4
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
    began = time.monotonic()
    with app.queue() as queue:
        assert isinstance(queue.result(queue.enqueue("nap"), timeout=BACK_SECONDS), int)
    assert time.monotonic() - began < BACK_SECONDS
    assert children == pool.children()


def test_a_server_that_crashes_under_work_costs_no_job_and_no_child(app: Application, server: PostgresServer) -> None:
    """Twice, with jobs in hand and jobs waiting."""
    pool = app.start()
    children = pool.children()
    ids = app.enqueue("nap", 400, seconds=0.005)
    for part in (50, 150):
        eventually(lambda part=part: app.ledger.count("finish") >= part)
        server.stop("immediate")
        eventually(lambda: pool.events("worker.queue.unavailable"))
        server.start()
    consumes(app, pool, children)
    eventually(lambda: app.statuses() == {"completed": 401}, 30)
    assert set(ids) <= {job for event, job, *_ in app.ledger.lines() if event == "finish"}
    assert 401 == app.ledger.count("finish")
    assert [] == pool.events("worker.task.lease_lost")
    pool.stop()


def test_a_job_that_ends_while_the_server_is_away_is_settled_when_it_is_back(
    app: Application, server: PostgresServer
) -> None:
    pool = app.start()
    children = pool.children()
    (id,) = app.enqueue("gate")
    eventually(lambda: app.ledger.count("start", id) == 1)
    server.stop("immediate")
    (app.root / "gate").touch()
    eventually(lambda: app.ledger.count("finish", id) == 1)
    eventually(lambda: pool.events("worker.queue.unavailable"))
    server.start()
    eventually(lambda: app.job(id).status == "completed", BACK_SECONDS)
    assert (1, 1) == (app.job(id).attempt, app.ledger.count("start", id))
    consumes(app, pool, children)
    pool.stop()


def test_a_server_that_says_nothing_is_noticed_and_a_stop_does_not_wait_for_it(
    app: Application, server: PostgresServer
) -> None:
    """Its processes are frozen, as behind a network that drops every packet."""
    pool = app.start()
    children = pool.children()
    server.pause()
    eventually(lambda: len(pool.events("worker.queue.unavailable")) == 2, 20)
    server.resume()
    eventually(lambda: len(pool.events("worker.queue.available")) == 2, BACK_SECONDS)
    consumes(app, pool, children)
    server.pause()
    eventually(lambda: len(pool.events("worker.queue.unavailable")) == 4, 20)
    pool.stop(seconds=20)
    server.resume()


def test_sessions_that_are_terminated_are_not_noticed(app: Application, server: PostgresServer) -> None:
    pool = app.start()
    children = pool.children()
    ids = app.enqueue("nap", 200, seconds=0.005)
    stop = threading.Event()

    def harm() -> None:
        with psycopg.connect(server.url, autocommit=True) as session:
            while not stop.wait(0.1):
                session.execute(_ALL.encode())

    harmer = threading.Thread(target=harm)
    harmer.start()
    try:
        eventually(lambda: app.ledger.count("finish") >= 200, 60)
    finally:
        stop.set()
        harmer.join()
    eventually(lambda: app.statuses() == {"completed": 200})
    app.ledger.assert_once(ids)
    assert children == pool.children(), pool.log()
    assert [] == pool.events("worker.task.lease_lost")
    pool.stop()


def test_the_listening_session_alone_may_die(app: Application, server: PostgresServer) -> None:
    """The worker that waits listens again with its next look, within a second, and says nothing of it."""
    pool = app.start()
    children = pool.children()
    listening = f"SELECT pid FROM pg_stat_activity WHERE {_LISTENING}"
    eventually(lambda: len(server.execute(listening)) == 2)
    before = set(server.execute(listening))
    server.execute(f"{_ALL} AND {_LISTENING}")
    eventually(lambda: len(set(server.execute(listening)) - before) == 2)
    consumes(app, pool, children)
    assert [] == pool.events("worker.queue.unavailable")
    pool.stop()


def test_a_server_that_is_in_recovery_is_waited_out(app: Application, server: PostgresServer) -> None:
    """It takes no writes, as a standby before it is promoted."""
    pool = app.start()
    children = pool.children()
    (id,) = app.enqueue("gate")
    eventually(lambda: app.ledger.count("start", id) == 1)
    server.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    server.execute("SELECT pg_reload_conf()")
    (app.root / "gate").touch()
    eventually(lambda: pool.events("worker.queue.unavailable"))
    with psycopg.connect(server.url, autocommit=True, options="-c default_transaction_read_only=off") as session:
        session.execute(b"ALTER SYSTEM RESET default_transaction_read_only")
        session.execute(b"SELECT pg_reload_conf()")
    eventually(lambda: app.job(id).status == "completed", BACK_SECONDS)
    consumes(app, pool, children)
    assert 1 == app.job(id).attempt
    pool.stop()


def test_two_pools_on_one_server_share_the_work_and_not_their_fate(application: Make, server: PostgresServer) -> None:
    settings = {"app": {"modules": ["postgres"]}, "postgres": {"url": server.url}}
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


def test_a_start_without_the_server_fails_and_names_the_setting(app: Application, server: PostgresServer) -> None:
    app.build()
    server.stop()
    for command, code in ((["start"], 1), (["enqueue", "nap"], 1)):
        done = app.run(*command)
        assert code == done.returncode, done.stderr
        assert "postgres.url" in done.stderr
        assert str(server.port) not in done.stderr


def test_the_url_comes_from_the_environment_where_nothing_is_said(application: Make, server: PostgresServer) -> None:
    app = application(app={"modules": ["postgres"]})
    pool = app.start(DATABASE_URL=server.url)
    pool.stop()
