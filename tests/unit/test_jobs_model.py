"""The life cycle: one plain test a row of the table, and properties for what must never happen."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from platform_worker.jobs import model
from platform_worker.jobs.model import (
    CANCELLED,
    COMPLETED,
    FAILED,
    FINISHED,
    NOT_DUE,
    PROCESSING,
    QUEUED,
    RETRY_WAIT,
    STALE,
    STATUSES,
    WAITING,
    WRONG_STATE,
    Life,
    decide,
)
from platform_worker.jobs.policies import Backoff

NOW = 1_000_000
BACKOFF = Backoff(max_ms=10_000, jitter=0.0)
EVENTS = (
    model.Claim(),
    model.Complete(1, "null"),
    model.Fail(1, "exception", "it broke", "ValueError"),
    model.Release(1),
    model.Lost(1),
    model.TimedOut(1),
    model.Cancel(),
    model.Retry(),
    model.Purge(),
)


def life(status: str = PROCESSING, **changes: int) -> Life:
    fields = {
        "token": 1, "attempt": 1, "max_attempts": 3, "interruptions": 0, "losses": 0, "cancel_requested": 0,
        "run_at": NOW, "backoff_ms": 1000, **changes,
    }  # fmt: skip
    return Life(status, **fields)


def test_the_table_is_total() -> None:
    """Every status has a cell for every event, and there is no cell beside them."""
    assert {(status, type(event)) for status in STATUSES for event in EVENTS} == set(model.TABLE)


@pytest.mark.parametrize("status", sorted(WAITING))
def test_a_claim_spends_an_attempt_and_makes_a_token(status: str) -> None:
    decision = decide(life(status, token=4, attempt=1), model.CLAIM, NOW, BACKOFF)
    assert {"status": PROCESSING, "attempt": 2, "token": 5, "started_at": NOW} == decision.changes


@pytest.mark.parametrize("status", sorted(WAITING))
def test_a_job_is_not_claimed_before_its_time(status: str) -> None:
    decision = decide(life(status, run_at=NOW + 1), model.CLAIM, NOW, BACKOFF)
    assert (NOT_DUE, {}) == (decision.refusal, decision.changes)


def test_complete_keeps_the_result() -> None:
    decision = decide(life(), model.Complete(1, "[1]"), NOW, BACKOFF)
    assert {"status": COMPLETED, "finished_at": NOW, "result": "[1]", "error": None} == decision.changes


def test_complete_wins_over_a_cancel_that_was_not_seen() -> None:
    assert COMPLETED == decide(life(cancel_requested=1), model.Complete(1, "1"), NOW, BACKOFF).changes["status"]


@pytest.mark.parametrize("event", [e for e in EVENTS if hasattr(e, "token")], ids=lambda e: type(e).__name__)
def test_a_settlement_with_an_old_token_changes_nothing(event: model.Event) -> None:
    decision = decide(life(token=2), event, NOW, BACKOFF)
    assert (STALE, {}) == (decision.refusal, decision.changes)


def test_a_failure_waits_for_its_backoff() -> None:
    decision = decide(life(attempt=2), model.Fail(1, "exception", "it broke", "ValueError"), NOW, BACKOFF)
    assert {
        "status": RETRY_WAIT,
        "run_at": NOW + 2000,
        "error": {"message": "it broke", "reason": "exception", "type": "ValueError"},
    } == decision.changes


def test_retry_after_replaces_the_backoff() -> None:
    event = model.Fail(1, "exception", "", "Retry", after_ms=7)
    assert NOW + 7 == decide(life(), event, NOW, BACKOFF).changes["run_at"]


def test_the_last_attempt_fails_the_job() -> None:
    decision = decide(life(attempt=3), model.Fail(1, "exception", "m", None), NOW, BACKOFF)
    assert (FAILED, NOW) == (decision.changes["status"], decision.changes["finished_at"])


def test_a_final_failure_ends_the_job_with_attempts_left() -> None:
    event = model.Fail(1, "data-invalid", "m", None, final=True)
    assert FAILED == decide(life(), event, NOW, BACKOFF).changes["status"]


def test_release_gives_the_attempt_back() -> None:
    decision = decide(life(attempt=2, interruptions=5), model.Release(1), NOW, BACKOFF)
    assert {"status": QUEUED, "attempt": 1, "interruptions": 6} == decision.changes


@pytest.mark.parametrize("event", [model.Release(1), model.Lost(1)])
def test_what_was_claimed_is_due_again_at_once_where_the_clock_was_set_back(event: model.Event) -> None:
    changes = decide(life(run_at=NOW + 1), event, NOW, BACKOFF).changes
    assert (QUEUED, NOW) == (changes["status"], changes["run_at"])


def test_the_first_loss_queues_at_once() -> None:
    changes = decide(life(), model.Lost(1), NOW, BACKOFF).changes
    assert (QUEUED, 1, None) == (changes["status"], changes["losses"], changes.get("run_at"))


def test_a_later_loss_waits_for_its_backoff() -> None:
    changes = decide(life(attempt=2, losses=1), model.Lost(1), NOW, BACKOFF).changes
    assert (RETRY_WAIT, NOW + 2000, 2) == (changes["status"], changes["run_at"], changes["losses"])


def test_a_loss_with_no_attempts_left_is_a_dead_letter() -> None:
    changes = decide(life(attempt=3), model.Lost(1), NOW, BACKOFF).changes
    assert (FAILED, "worker-lost") == (changes["status"], changes["error"]["reason"])


def test_a_hard_timeout_is_a_failure() -> None:
    changes = decide(life(), model.TimedOut(1), NOW, BACKOFF).changes
    assert (RETRY_WAIT, "timeout") == (changes["status"], changes["error"]["reason"])


@pytest.mark.parametrize("status", sorted(WAITING))
def test_cancel_ends_a_waiting_job(status: str) -> None:
    changes = decide(life(status), model.Cancel(), NOW, BACKOFF).changes
    assert (CANCELLED, NOW, "cancelled") == (changes["status"], changes["finished_at"], changes["error"]["reason"])


def test_cancel_asks_a_running_job() -> None:
    assert {"cancel_requested": 1} == decide(life(), model.Cancel(), NOW, BACKOFF).changes
    assert {} == decide(life(cancel_requested=1), model.Cancel(), NOW, BACKOFF).changes


@pytest.mark.parametrize(
    "event",
    [model.Fail(1, "exception", "m", None), model.Release(1), model.Lost(1), model.TimedOut(1)],
    ids=lambda e: type(e).__name__,
)
def test_a_job_asked_to_stop_ends_cancelled(event: model.Event) -> None:
    assert CANCELLED == decide(life(cancel_requested=1), event, NOW, BACKOFF).changes["status"]


@pytest.mark.parametrize("status", [FAILED, CANCELLED])
def test_retry_makes_a_dead_job_new_and_keeps_its_token(status: str) -> None:
    changes = decide(life(status, token=7, attempt=3, losses=2), model.Retry(), NOW, BACKOFF).changes
    assert {
        "status": QUEUED, "attempt": 0, "losses": 0, "run_at": NOW, "cancel_requested": 0,
        "error": None, "progress": None, "finished_at": None,
    } == changes  # fmt: skip


@pytest.mark.parametrize("status", sorted(FINISHED))
def test_purge_removes_what_is_finished(status: str) -> None:
    assert decide(life(status), model.Purge(), NOW, BACKOFF).gone


@pytest.mark.parametrize(
    ("status", "event"),
    [
        *((s, model.Retry()) for s in (QUEUED, RETRY_WAIT, PROCESSING, COMPLETED)),
        *((s, model.Purge()) for s in (QUEUED, RETRY_WAIT, PROCESSING)),
        *((s, model.Cancel()) for s in sorted(FINISHED)),
        *((s, model.Claim()) for s in (PROCESSING, *sorted(FINISHED))),
    ],
    ids=str,
)
def test_anything_else_is_refused(status: str, event: model.Event) -> None:
    decision = decide(life(status), event, NOW, BACKOFF)
    assert (WRONG_STATE, {}, False) == (decision.refusal, decision.changes, decision.gone)


@pytest.mark.parametrize("status", [s for s in STATUSES if s != PROCESSING])
@pytest.mark.parametrize("event", [e for e in EVENTS if hasattr(e, "token")], ids=lambda e: type(e).__name__)
def test_a_settlement_of_a_job_that_does_not_run_is_stale(status: str, event: model.Event) -> None:
    assert STALE == decide(life(status), event, NOW, BACKOFF).refusal


def test_the_backoff_doubles_up_to_its_cap_and_jitter_comes_on_top() -> None:
    plain = Backoff(max_ms=5000, jitter=0.0)
    assert [1000, 2000, 4000, 5000, 5000] == [plain.wait_ms(1000, n, 0.9) for n in (1, 2, 3, 4, 400)]
    assert 5250 == Backoff(max_ms=5000, jitter=0.1).wait_ms(5000, 1, 0.5)
    assert 0 == plain.wait_ms(0, 9, 0.9)


lives = st.builds(
    Life,
    st.sampled_from(STATUSES),
    token=st.integers(0, 3),
    attempt=st.integers(1, 5),
    max_attempts=st.integers(1, 4),
    interruptions=st.integers(0, 3),
    losses=st.integers(0, 3),
    cancel_requested=st.integers(0, 1),
    run_at=st.integers(NOW - 2, NOW + 2),
    backoff_ms=st.integers(0, 10**6),
)


@given(lives, st.sampled_from(EVENTS))
@example(Life(PROCESSING, 1, 1, 1, 0, 0, 0, NOW + 1, 0), model.Release(1))
def test_invariants_of_every_decision(before: Life, event: model.Event) -> None:
    """No refusal changes anything; tokens never shrink; finished means a finish time; no attempt beyond the last."""
    decision = decide(before, event, NOW, BACKOFF)
    changes = decision.changes
    if decision.refusal is not None or decision.gone:
        assert {} == changes
    assert changes.get("token", before.token) >= before.token
    status = changes.get("status", before.status)
    if status in FINISHED and before.status not in FINISHED:
        assert NOW == changes["finished_at"]
    if status in WAITING and changes:
        run_at = changes.get("run_at", before.run_at)
        # Earlier only for a person's retry, or where the clock was set back after the claim: then at once.
        set_back = before.status == PROCESSING and before.run_at > NOW
        assert run_at >= before.run_at or (run_at >= NOW and (set_back or isinstance(event, model.Retry)))
    error = changes.get("error")
    assert error is None or (set(error) == {"message", "reason", "type"} and error["reason"] in model.REASONS)


def test_the_model_reads_no_clock() -> None:
    source = inspect.getsource(model)
    assert "import time" not in source
    assert "import os" not in source
