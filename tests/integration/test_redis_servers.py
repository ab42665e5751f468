"""The queue on Redis with servers that refuse, forget, fall silent, are replaced, or are a cluster."""

from __future__ import annotations

import datetime
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness import eventually
from harness.queue_fixtures import DEADLINE, TASKS, Log, perform
from harness.queue_worker import QUEUE, Context, setup
from harness.servers import RedisServer, free_port
from harness.stores import RedisKit
from platform_worker.errors import WorkerQueueError, WorkerStartError
from platform_worker.jobs.queue import Queue
from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.redis import factory


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    return redis_server


def config(server: RedisServer, login: str = "") -> dict[str, Any]:
    return {"url": server.url.replace("://", f"://{login}"), "prefix": "test"}


@pytest.fixture
def hurt(server: RedisServer, root: str) -> Iterator[Any]:
    """A source on the server of the test's own."""
    made = factory(setup(config(server), root))
    yield made
    made.close()


def client(server: RedisServer) -> Queue:
    return Queue(factory.client(config(server), QUEUE, ""), QUEUE, TASKS)


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("redis://127.0.0.1:{free}/0", "cannot be reached"),
        ("redis://nobody:wrong@127.0.0.1:{port}/0", "refuses the user or the password"),
        ("redis://127.0.0.1:{port}/9999", "no such database"),
        ("redis://127.0.0.1:{foreign}/0", "not a Redis server"),
        ("unix:///nowhere/redis.sock", "cannot be reached"),
        ("http://127.0.0.1:{port}", "must be redis://"),
    ],
    ids=["nobody", "password", "database", "foreign", "socket", "scheme"],
)
def test_a_server_that_cannot_be_used_is_said_at_the_start(root: str, context: Context, url: str, rule: str) -> None:
    """At once, and by the setting's name; never with its value."""
    with socket.create_server(("127.0.0.1", 0)) as foreign:

        def answer() -> None:
            with foreign.accept()[0] as peer:
                if peer.recv(1):
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        places = {"free": free_port(), "port": RedisKit.server().port, "foreign": foreign.getsockname()[1]}
        with pytest.raises((WorkerStartError, StoreUnavailable)) as refused:
            factory(setup({"url": url.format(**places), "prefix": "p"}, root)).assert_ready(context)
        if "foreign" not in url:
            socket.create_connection(foreign.getsockname()).close()
        answering.join()
    said = " ".join(getattr(refused.value, "hints", ()) or (str(refused.value),))
    assert said.startswith("redis.url: ")
    assert rule in said
    assert not any(str(port) in said for port in places.values())


def test_a_settlement_waits_until_the_server_takes_writes_again(
    server: RedisServer, hurt: Any, context: Context, log: Log
) -> None:
    with client(server) as queue:
        id = queue.enqueue("echo", {"a": 1})
        task = hurt.receive(context)
        server.call("REPLICAOF", "127.0.0.1", 1)
        timer = threading.Timer(0.3, server.call, ("REPLICAOF", "NO", "ONE"))
        timer.start()
        task.complete({"a": 1})
        timer.join()
        assert {"a": 1} == queue.result(id, timeout=0)
    assert ["worker.queue.unavailable", "worker.queue.available"] == [event for event, _ in log]
    assert "takes no writes" in log[0][1]["cause"]


def test_a_server_that_has_lost_everything_makes_the_settlement_stale_and_the_worker_goes_on(
    server: RedisServer, hurt: Any, context: Context, log: Log
) -> None:
    with client(server) as queue:
        queue.enqueue("echo")
        task = hurt.receive(context)
        server.call("FLUSHALL")
        server.call("SCRIPT", "FLUSH")
        task.complete(None)
        assert ["worker.task.lease_lost"] == [event for event, _ in log]
        id = queue.enqueue("echo")
        perform(hurt, context)
        assert {} == queue.result(id, timeout=0)


def test_a_stop_ends_the_wait_for_a_server_that_is_gone(server: RedisServer, hurt: Any, context: Context) -> None:
    hurt.assert_ready(context)
    server.kill()
    timer = threading.Timer(1.5, context.cancel)
    timer.start()
    began = time.monotonic()
    assert hurt.receive(context) is None
    assert time.monotonic() - began < 3.5
    timer.join()


def test_an_operation_after_the_server_was_restarted_does_not_fail(server: RedisServer) -> None:
    with client(server) as queue:
        first = queue.enqueue("echo")
        server.kill()
        server.start()
        queue.cancel(first)
        server.kill()
        server.start()
        second = queue.enqueue("echo")
        assert [second, first] == [job.id for job in queue.jobs()]


def test_a_result_is_waited_for_across_a_restart(server: RedisServer, hurt: Any, context: Context) -> None:
    with client(server) as queue, client(server) as other:
        id = queue.enqueue("echo", {"a": 1})
        found: list[object] = []
        waiting = threading.Thread(target=lambda: found.append(queue.result(id, timeout=DEADLINE)))
        waiting.start()
        eventually(lambda: server.call("PUBSUB", "NUMSUB", f"{{test}}:ended:{id}")[1] == 1)  # type: ignore[index]
        server.kill()
        server.start()
        task = hurt.receive(context)
        task.complete(task.execute())
        waiting.join(DEADLINE)
        assert [{"a": 1}] == found
        with pytest.raises(TimeoutError):
            other.result(other.enqueue("echo"), timeout=0.05)


def test_a_server_that_is_gone_is_said_to_the_caller(server: RedisServer) -> None:
    with client(server) as queue:
        server.kill()
        for ask in (lambda: queue.enqueue("echo"), queue.counts, queue.jobs, lambda: queue.pause("default")):
            with pytest.raises(WorkerQueueError, match="worker-queue-unavailable") as refused:
                ask()
            assert ("redis.url: the server cannot be reached",) == refused.value.hints


def test_every_key_has_the_hash_tag_and_a_purge_leaves_nothing_of_a_job(
    server: RedisServer, hurt: Any, context: Context
) -> None:
    """A cluster keeps all keys of a prefix on one node; a queue that is used for years does not grow."""
    with client(server) as queue:
        for n in range(20):
            queue.enqueue("echo", {"x": "y" * 50 * n}, unique=f"k{n}")
        hurt.assert_ready(context)
        for _ in range(17):
            perform(hurt, context)
        hurt.receive(context).fail(ValueError("x" * 500))
        hurt.close()
        queue.cancel(queue.jobs(status="queued")[0].id)
        keys = server.call("KEYS", "*")
        assert isinstance(keys, list)
        assert [] == [key for key in keys if not key.startswith("{test}:")]
        queue.retry(queue.jobs(status="cancelled")[0].id)
        for job in (*queue.jobs(status="queued"), *queue.jobs(status="retry_wait")):
            queue.cancel(job.id)
        assert 20 == queue.purge(older_than=datetime.timedelta(0))
        left = server.call("KEYS", "*")
        assert isinstance(left, list)
        assert set(left) <= {"{test}:seq", "{test}:queues", "{test}:bell:default"}


def test_a_unix_socket_and_a_password_serve_as_well(root: str, context: Context, tmp_path: Any) -> None:
    path = str(tmp_path / "socket")
    server = RedisServer("--unixsocket", path, "--requirepass", "p@ss")
    try:
        # PING is refused without the password: a server that says so serves.
        server.start()
        settings = {"url": f"unix://:p%40ss@{path}?db=3", "prefix": "p"}
        with Queue(factory.client(settings, QUEUE, ""), QUEUE, TASKS) as queue:
            id = queue.enqueue("echo", {"a": 1})
            source = factory(setup(settings, root))
            source.assert_ready(context)
            perform(source, context)
            source.close()
            assert {"a": 1} == queue.result(id, timeout=0)
    finally:
        server.close()


@pytest.fixture
def cluster() -> Iterator[list[RedisServer]]:
    """Two nodes that have half of the slots each."""
    nodes = [RedisServer("--cluster-enabled", "yes", "--cluster-port", str(free_port())) for _ in range(2)]
    try:
        for node, slots in zip(nodes, ((0, 8191), (8192, 16383)), strict=True):
            node.start()
            assert "OK" == node.call("CLUSTER", "ADDSLOTSRANGE", *slots)
        nodes[0].call("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, nodes[1]._options[-1])
        eventually(lambda: all("cluster_state:ok" in str(node.call("CLUSTER", "INFO")) for node in nodes), DEADLINE)
        eventually(lambda: all("cluster_known_nodes:2" in str(node.call("CLUSTER", "INFO")) for node in nodes))
        yield nodes
    finally:
        for node in nodes:
            node.close()


def test_a_cluster_serves_whichever_of_its_nodes_is_named(
    cluster: list[RedisServer], root: str, context: Context
) -> None:
    """All keys of a prefix are on one node, and the other one says which."""
    for prefix in ("a", "b", "c"):
        settings = {"url": cluster[0].url, "prefix": prefix}
        with Queue(factory.client(settings, QUEUE, ""), QUEUE, TASKS) as queue:
            id = queue.enqueue("echo", {"a": 1})
            source = factory(setup(settings, root))
            source.assert_ready(context)
            perform(source, context)
            assert {"a": 1} == queue.result(id, timeout=DEADLINE)
            timer = threading.Timer(0.2, queue.enqueue, ("echo",))
            timer.start()
            perform(source, context)
            timer.join()
            source.close()
    sizes = [node.call("DBSIZE") for node in cluster]
    assert all(sizes), sizes
