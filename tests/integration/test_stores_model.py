"""Random histories of several workers, crashes, ended leases and stale settlements: the SQLite store does what the
model says, to the last field, and picks the job that the order says."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from platform_worker.jobs import model
from platform_worker.jobs.job import NewJob
from platform_worker.jobs.policies import Backoff
from platform_worker.jobs.queue import Queue
from platform_worker.jobs.store import Claimed
from platform_worker.sources.sqlite import clock, factory
from platform_worker.sources.sqlite.worker_store import SqliteWorkerStore
from platform_worker.tasks.contract import WorkerIdentity

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

    def apply(self, event: model.Event, now: int) -> model.Decision:
        decision = model.decide(self.life, event, now, BACKOFF)
        for name in FIELDS:
            if name in decision.changes:
                setattr(self.life, name, decision.changes[name])
        return decision


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        # In memory where there is such a place: a history makes a file, and its commits would be the test's time.
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.root = tempfile.mkdtemp(prefix="histories-", dir=shared)
        self.wall, self.boot = 10**12, 500
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(clock, "wall_ms", lambda: self.wall)
        self.patch.setattr(clock, "boot_ms", lambda: self.boot)
        config = {"path": "q.db", "synchronous": "normal"}
        self.queue = Queue(factory.client(config, SETTINGS, self.root), SETTINGS, {})
        self.incarnations = [0] * WORKERS
        self.stores = [self.store(slot) for slot in range(WORKERS)]
        self.records: dict[str, Record] = {}
        self.paused: set[str] = set()
        #: Every claim ever made: also those that were lost are settled again and again.
        self.claims: list[tuple[int, Claimed]] = []

    def store(self, slot: int) -> SqliteWorkerStore:
        identity = WorkerIdentity("pool", 1, slot, self.incarnations[slot])
        return SqliteWorkerStore(f"{self.root}/q.db", "normal", SETTINGS, identity)

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.queue.close()
        self.patch.undo()
        shutil.rmtree(self.root)

    def expected(self) -> str | None:
        due = [
            (SETTINGS["names"].index(r.queue), r.priority, r.life.run_at, r.seq, id)
            for id, r in self.records.items()
            if r.life.status in model.WAITING and r.life.run_at <= self.wall and r.queue not in self.paused
        ]
        return min(due)[-1] if due else None

    def took(self, slot: int, claimed: Claimed | None, expected: str | None) -> None:
        assert expected == (None if claimed is None else claimed.id)
        if claimed is None:
            return
        record = self.records[claimed.id]
        record.apply(model.CLAIM, self.wall)
        record.lease_until = self.boot + LEASE
        record.deadline = self.boot + record.timeout_ms if record.timeout_ms else None
        record.owner = (slot, self.incarnations[slot])
        assert (record.life.token, record.life.attempt) == (claimed.token, claimed.attempt)
        self.claims.append((slot, claimed))

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
        slot, claimed = self.claims[-1 - which % min(len(self.claims), 8)]
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
        slot, claimed = self.claims[-1 - which % min(len(self.claims), 8)]
        record = self.records.get(claimed.id)
        holds = record is not None and (record.life.status, record.life.token) == (model.PROCESSING, claimed.token)
        held = self.stores[slot].renew(claimed, "1")
        assert holds == held.held
        if record is not None and holds:
            assert bool(record.life.cancel_requested) == held.cancel_requested
            record.lease_until = self.boot + LEASE

    def end(self, record: Record) -> None:
        token = record.life.token
        overdue = record.deadline is not None and self.boot >= record.deadline + 1000
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
        ended = [r for r in self.records.values() if r.life.status == model.PROCESSING and r.lease_until <= self.boot]
        for record in ended:
            self.end(record)
        assert len(ended) == self.stores[slot].recover_expired(time.sleep)

    @rule(milliseconds=st.sampled_from([1, 20, 100, 400, 1100]))
    def time_passes(self, milliseconds: int) -> None:
        self.wall += milliseconds
        self.boot += milliseconds

    @rule(milliseconds=st.sampled_from([-5000, 5000]))
    def the_wall_clock_steps(self, milliseconds: int) -> None:
        """No lease is lost by it."""
        self.wall += milliseconds

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
        found = self.stores[0]._main.read(
            lambda c: {
                row[0]: row[1:]
                for row in c.execute(f"SELECT id, {', '.join(FIELDS)}, finished_at IS NULL FROM platform_worker_jobs")
            },
            time.sleep,
        )
        assert {
            id: (*(getattr(r.life, name) for name in FIELDS), int(r.life.status not in model.FINISHED))
            for id, r in self.records.items()
        } == found


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
