"""Random histories of several workers, crashes, ended leases and stale settlements: every store does what the model
says, to the last field, and picks the job that the order says."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harness.stores import STORES
from platform_worker.jobs import model
from platform_worker.jobs.job import NewJob
from platform_worker.jobs.policies import Backoff
from platform_worker.jobs.queue import Queue
from platform_worker.jobs.store import Claimed, WorkerStore
from platform_worker.tasks.contract import WorkerIdentity

#: Many histories, and the machine may be busy.
pytestmark = pytest.mark.timeout(600)

LEASE = 1000
SETTINGS: dict[str, Any] = {
    "names": ["urgent", "default"], "lease_ms": LEASE, "max_attempts": 3, "backoff_ms": 100, "backoff_max_ms": 300,
    "backoff_jitter": 0.0, "timeout_ms": 0, "result_max_bytes": 100, "data_max_bytes": 5000, "retention_ms": 10**9,
}  # fmt: skip
BACKOFF = Backoff(300, 0.0)
WORKERS = 3
FIELDS = ("status", "token", "attempt", "max_attempts", "interruptions", "losses", "cancel_requested", "run_at")


class Record:
    """A job as the model has it."""

    def __init__(self, seq: int, queue: str, priority: int, life: model.Life, timeout_ms: int) -> None:
        self.seq, self.queue, self.priority, self.life, self.timeout_ms = seq, queue, priority, life, timeout_ms
        self.lease_until = 0
        self.deadline: int | None = None
        self.owner = (-1, -1)
        self.told: dict[str, Any] = {"error": None, "result": None}

    def apply(self, event: model.Event, now: int) -> model.Decision:
        decision = model.decide(self.life, event, now, BACKOFF)
        for name in FIELDS:
            if name in decision.changes:
                setattr(self.life, name, decision.changes[name])
        self.told |= {name: value for name, value in decision.changes.items() if name in self.told}
        return decision


class Histories(RuleBasedStateMachine):
    #: Of the store; set by each subclass.
    name = ""

    def __init__(self) -> None:
        super().__init__()
        self.kit = STORES[self.name]()
        self.kit.begin()
        self.wall, self.boot = 10**12, 500
        self.kit.set_time(self.wall, self.boot)
        self.queue = Queue(self.kit.client(SETTINGS), SETTINGS, {})
        self.incarnations = [0] * WORKERS
        self.stores = [self.store(slot) for slot in range(WORKERS)]
        self.records: dict[str, Record] = {}
        self.paused: set[str] = set()
        #: Every claim ever made: also those that were lost are settled again and again.
        self.claims: list[tuple[int, Claimed]] = []

    def store(self, slot: int) -> WorkerStore:
        return self.kit.worker(SETTINGS, WorkerIdentity("pool", 1, slot, self.incarnations[slot]))

    @property
    def lease_clock(self) -> int:
        """What leases and deadlines are measured by."""
        return self.wall if self.kit.one_clock else self.boot

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.queue.close()
        self.kit.end()

    def expected(self) -> str | None:
        due = [
            (SETTINGS["names"].index(r.queue), r.priority, r.life.run_at, r.seq, id)
            for id, r in self.records.items()
            if r.life.status in model.WAITING and r.life.run_at <= self.wall and r.queue not in self.paused
        ]
        return min(due)[-1] if due else None

    def recent(self, which: int) -> tuple[int, Claimed]:
        """The newest claim every other time, else one of those before it, most of which are lost."""
        return self.claims[-1 - (which // 2 % min(len(self.claims), 8) if which % 2 else 0)]

    def took(self, slot: int, claimed: Claimed | None, expected: str | None) -> None:
        assert expected == (None if claimed is None else claimed.id)
        if claimed is None:
            return
        record = self.records[claimed.id]
        record.apply(model.CLAIM, self.wall)
        record.lease_until = self.lease_clock + LEASE
        record.deadline = self.lease_clock + record.timeout_ms if record.timeout_ms else None
        record.owner = (slot, self.incarnations[slot])
        assert (record.life.token, record.life.attempt) == (claimed.token, claimed.attempt)
        self.claims.append((slot, claimed))

    @initialize(count=st.integers(1, 6), slot=st.integers(0, WORKERS - 1))
    def begin_with_work(self, count: int, slot: int) -> None:
        """Most histories that come of nothing are about nothing."""
        for _ in range(count):
            self.enqueue("default", 5, 0, 3, 0, 1)
        self.claim(slot)

    @rule(
        queue=st.sampled_from(["urgent", "default"]),
        priority=st.integers(4, 6),
        delay=st.sampled_from([0, 0, 0, 150]),
        attempts=st.integers(1, 3),
        timeout=st.sampled_from([0, 0, 500]),
        size=st.sampled_from([1, 2000]),
    )
    def enqueue(self, queue: str, priority: int, delay: int, attempts: int, timeout: int, size: int) -> None:
        job = NewJob(
            "t", {"x": "y" * size}, queue, priority, delay / 1000, max_attempts=attempts, timeout_ms=timeout,
            allow_unknown=True,
        )  # fmt: skip
        (id,) = self.queue.enqueue_many([job])
        life = model.enqueued(self.wall + delay, attempts, 100)
        self.records[id] = Record(len(self.records), queue, priority, life, timeout)

    @rule(slot=st.integers(0, WORKERS - 1))
    def claim(self, slot: int) -> None:
        expected = self.expected()
        self.took(slot, self.stores[slot].claim(time.sleep), expected)

    @precondition(lambda self: self.claims)
    @rule(
        which=st.integers(0, 99),
        how=st.sampled_from(["complete", "complete", "fail", "fail", "reject", "after", "release"]),
        ahead=st.booleans(),
    )
    def settle(self, which: int, how: str, ahead: bool) -> None:
        slot, claimed = self.recent(which)
        token = claimed.token
        event: model.Event = {
            "complete": model.Complete(token, "1"),
            "fail": model.Fail(token, "exception", "m", "E"),
            "reject": model.Fail(token, "rejected", "m", "Reject", final=True),
            "after": model.Fail(token, "exception", "m", "Retry", after_ms=20),
            "release": model.Release(token),
        }[how]  # type: ignore[assignment]
        record = self.records.get(claimed.id)
        refusal = model.STALE if record is None else record.apply(event, self.wall).refusal
        expected = self.expected() if ahead else None
        fits, following = self.stores[slot].settle(claimed, event, time.sleep, ahead)
        assert (refusal is None) == fits
        self.took(slot, following, expected)

    @precondition(lambda self: self.claims)
    @rule(which=st.integers(0, 99))
    def renew(self, which: int) -> None:
        slot, claimed = self.recent(which)
        record = self.records.get(claimed.id)
        holds = record is not None and (record.life.status, record.life.token) == (model.PROCESSING, claimed.token)
        held = self.stores[slot].renew(claimed, "1")
        assert holds == held.held
        if record is not None and holds:
            assert bool(record.life.cancel_requested) == held.cancel_requested
            record.lease_until = self.lease_clock + LEASE

    def end(self, record: Record) -> None:
        token = record.life.token
        overdue = record.deadline is not None and self.lease_clock >= record.deadline + 1000
        record.apply(model.TimedOut(token) if overdue else model.Lost(token), self.wall)

    @rule(slot=st.integers(0, WORKERS - 1))
    def crash(self, slot: int) -> None:
        """The worker dies; its slot's next incarnation recovers its claims, and nobody else's."""
        self.incarnations[slot] += 1
        for record in self.records.values():
            if record.life.status == model.PROCESSING and record.owner[0] == slot:
                self.end(record)
        self.stores[slot].close()
        self.stores[slot] = self.store(slot)
        self.stores[slot].recover_gone(WORKERS, time.sleep)

    @rule(slot=st.integers(0, WORKERS - 1))
    def recover(self, slot: int) -> None:
        now = self.lease_clock
        ended = [r for r in self.records.values() if r.life.status == model.PROCESSING and r.lease_until <= now]
        for record in ended:
            self.end(record)
        assert len(ended) == self.stores[slot].recover_expired(time.sleep)

    @rule(milliseconds=st.sampled_from([1, 20, 100, 400, 1100]))
    def time_passes(self, milliseconds: int) -> None:
        self.wall += milliseconds
        self.boot += milliseconds
        self.kit.set_time(self.wall, self.boot)

    @rule(milliseconds=st.sampled_from([-5000, 5000]))
    def the_wall_clock_steps(self, milliseconds: int) -> None:
        """No lease is lost by it, where leases have a clock of their own."""
        self.wall += milliseconds
        self.kit.set_time(self.wall, self.boot)

    @precondition(lambda self: self.records)
    @rule(which=st.integers(0, 99), event=st.sampled_from([model.Cancel(), model.Retry()]))
    def steer(self, which: int, event: model.Event) -> None:
        id = list(self.records)[which % len(self.records)]
        refusal = self.records[id].apply(event, self.wall).refusal
        assert refusal == self.queue._store.change(id, event)

    @rule(name=st.sampled_from(["urgent", "default"]), paused=st.booleans())
    def pause(self, name: str, paused: bool) -> None:
        (self.queue.pause if paused else self.queue.resume)(name)
        (self.paused.add if paused else self.paused.discard)(name)

    @invariant()
    def the_store_is_as_the_model(self) -> None:
        assert {
            id: (*(getattr(r.life, name) for name in FIELDS), int(r.life.status not in model.FINISHED))
            for id, r in self.records.items()
        } == self.kit.lives(FIELDS)

    @invariant()
    def everybody_can_read_it(self) -> None:
        """What the listing tells: why a job failed, what it returned; and the counts are those of the jobs."""
        jobs = self.queue.jobs(limit=1000)
        assert list(self.records)[::-1] == [job.id for job in jobs]
        assert [r.told for r in self.records.values()][::-1] == [
            {"error": job.error, "result": None if job.result is None else json.dumps(job.result)} for job in jobs
        ]
        counts = self.queue.counts()
        for name in SETTINGS["names"]:
            for status in model.STATUSES:
                wanted = sum(r.queue == name and r.life.status == status for r in self.records.values())
                assert wanted == getattr(counts[name], status)
            assert (name in self.paused) == counts[name].paused


class SqliteHistories(Histories):
    name = "sqlite"


class RedisHistories(Histories):
    name = "redis"


HISTORIES = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestSqlite = SqliteHistories.TestCase
TestSqlite.settings = HISTORIES
TestRedis = RedisHistories.TestCase
TestRedis.settings = HISTORIES
