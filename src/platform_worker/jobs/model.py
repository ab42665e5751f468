"""The life cycle of a job: everything that moves a job's state is in this file, and nothing else moves it.

``decide(life, event, now, backoff)`` looks up one cell of a total table (every status x every event) and returns a
``Decision``: the fields that change, or a refusal that changes nothing. No I/O, no clock, no chance: the time is an
argument, luck comes with the event. A store reads a ``Life``, asks, and writes the changes in one transaction.

Times are whole milliseconds of the store's wall clock.
"""

from __future__ import annotations

from platform_worker.jobs.policies import Backoff
from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Waits to be claimed.
QUEUED = "queued"
#: Waits for its backoff to pass; then it is claimable again.
RETRY_WAIT = "retry_wait"
#: One worker has it, under a lease.
PROCESSING = "processing"
#: Its handler returned; the result is kept.
COMPLETED = "completed"
#: The dead letter: kept, listed, can be retried by hand.
FAILED = "failed"
#: Somebody cancelled it before it completed.
CANCELLED = "cancelled"

STATUSES = (QUEUED, RETRY_WAIT, PROCESSING, COMPLETED, FAILED, CANCELLED)
WAITING = frozenset({QUEUED, RETRY_WAIT})
FINISHED = frozenset({COMPLETED, FAILED, CANCELLED})

#: Refused: the job's status does not allow it (``worker-job-state``).
WRONG_STATE = "wrong-state"
#: Refused: whoever settles does not hold the current claim; a lost lease.
STALE = "stale"
#: Refused: its time has not come.
NOT_DUE = "not-due"

REASONS = frozenset(
    {
        "exception",
        "rejected",
        "timeout",
        "worker-lost",
        "data-invalid",
        "task-unknown",
        "result-invalid",
        "result-too-large",
        "cancelled",
    }
)


class Claim(Value):
    """A worker takes the job."""


class Complete(Value):
    """The handler returned; ``result`` is its JSON text."""

    token: int
    result: str


class Fail(Value):
    """The handler raised. ``final`` ends the job whatever attempts are left; ``after_ms`` replaces the backoff."""

    token: int
    reason: str
    message: str
    type: str | None
    final: bool = False
    after_ms: int | None = None
    luck: float = 0.0


class Release(Value):
    """Given back unharmed: a stop interrupted it, or it was never started."""

    token: int


class Lost(Value):
    """The lease has ended, or the worker is known to be gone."""

    token: int
    luck: float = 0.0


class TimedOut(Value):
    """The deadline passed and the worker had to be ended."""

    token: int
    luck: float = 0.0


class Cancel(Value):
    """Somebody wants the job not to run, or to stop running."""


class Retry(Value):
    """Somebody wants a dead job to run again."""


class Purge(Value):
    """The record is not needed any more."""


if TYPE_CHECKING:
    Event = Claim | Complete | Fail | Release | Lost | TimedOut | Cancel | Retry | Purge


class Life:
    """What the model knows of a job. A plain class with slots: one is made for every claim and settlement."""

    __slots__ = (
        "attempt",
        "backoff_ms",
        "cancel_requested",
        "interruptions",
        "losses",
        "max_attempts",
        "run_at",
        "status",
        "token",
    )

    def __init__(
        self,
        status: str,
        token: int,
        attempt: int,
        max_attempts: int,
        interruptions: int,
        losses: int,
        cancel_requested: int,
        run_at: int,
        backoff_ms: int,
    ) -> None:
        self.status = status
        self.token = token
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.interruptions = interruptions
        self.losses = losses
        self.cancel_requested = cancel_requested
        self.run_at = run_at
        self.backoff_ms = backoff_ms


class Decision:
    """``changes`` are the fields to write (empty: nothing to do); ``refusal`` says why not; ``gone``: delete it."""

    __slots__ = ("changes", "gone", "refusal")

    def __init__(self, changes: dict[str, Any], refusal: str | None = None, gone: bool = False) -> None:
        self.changes = changes
        self.refusal = refusal
        self.gone = gone


if TYPE_CHECKING:
    Cell = Callable[[Life, Any, int, Backoff], Decision]


def enqueued(run_at: int, max_attempts: int, backoff_ms: int) -> Life:
    """The life of a job that has just been put on the queue."""
    return Life(QUEUED, 0, 0, max_attempts, 0, 0, 0, run_at, backoff_ms)


def decide(life: Life, event: Event, now: int, backoff: Backoff) -> Decision:
    """What ``event`` does to a job, by the table at the end of this file."""
    return TABLE[life.status, type(event)](life, event, now, backoff)


def error(reason: str, message: str, type_name: str | None) -> dict[str, str | None]:
    """The error of a job: exactly these three keys."""
    return {"message": message, "reason": reason, "type": type_name}


def _refuse(_life: Life, _event: Event, _now: int, _backoff: Backoff) -> Decision:
    return Decision({}, WRONG_STATE)


def _stale(_life: Life, _event: Event, _now: int, _backoff: Backoff) -> Decision:
    return Decision({}, STALE)


def _claim(life: Life, _event: Claim, now: int, _backoff: Backoff) -> Decision:
    if life.run_at > now:
        return Decision({}, NOT_DUE)
    return Decision(
        {"status": PROCESSING, "attempt": life.attempt + 1, "token": life.token + 1, "started_at": now},
    )


def _complete(life: Life, event: Complete, now: int, _backoff: Backoff) -> Decision:
    if event.token != life.token:
        return Decision({}, STALE)
    # A cancel that came too late to be seen does not undo work that was done.
    return Decision({"status": COMPLETED, "finished_at": now, "result": event.result, "error": None})


def _fail(life: Life, event: Fail, now: int, backoff: Backoff) -> Decision:
    if event.token != life.token:
        return Decision({}, STALE)
    if life.cancel_requested:
        return _cancelled(now, event.message, event.type)
    why = error(event.reason, event.message, event.type)
    if event.final or life.attempt >= life.max_attempts:
        return Decision({"status": FAILED, "finished_at": now, "error": why})
    wait = event.after_ms
    if wait is None:
        wait = backoff.wait_ms(life.backoff_ms, life.attempt, event.luck)
    return Decision({"status": RETRY_WAIT, "run_at": now + wait, "error": why})


def _due(life: Life, now: int) -> dict[str, int]:
    """A job that was claimed was due: where the clock was set back since, it is not to wait for that time again."""
    return {"run_at": now} if life.run_at > now else {}


def _release(life: Life, event: Release, now: int, _backoff: Backoff) -> Decision:
    if event.token != life.token:
        return Decision({}, STALE)
    if life.cancel_requested:
        return _cancelled(now, "cancelled while it ran", None)
    changes = {"attempt": life.attempt - 1, "interruptions": life.interruptions + 1}
    return Decision({"status": QUEUED, **changes, **_due(life, now)})


def _lost(life: Life, event: Lost, now: int, backoff: Backoff) -> Decision:
    if event.token != life.token:
        return Decision({}, STALE)
    if life.cancel_requested:
        return _cancelled(now, "its worker was lost", None)
    why = error("worker-lost", "its worker was lost", None)
    losses = life.losses + 1
    if life.attempt >= life.max_attempts:
        return Decision({"status": FAILED, "finished_at": now, "error": why, "losses": losses})
    if not life.losses:
        # Once may be the machine's fault: no reason to make the job wait. Twice smells of the job itself.
        return Decision({"status": QUEUED, "error": why, "losses": losses, **_due(life, now)})
    wait = backoff.wait_ms(life.backoff_ms, life.attempt, event.luck)
    return Decision({"status": RETRY_WAIT, "run_at": now + wait, "error": why, "losses": losses})


def _timed_out(life: Life, event: TimedOut, now: int, backoff: Backoff) -> Decision:
    failed = Fail(event.token, "timeout", "its time was up and its worker was ended", "JobTimeout", luck=event.luck)
    return _fail(life, failed, now, backoff)


def _cancel_waiting(_life: Life, _event: Cancel, now: int, _backoff: Backoff) -> Decision:
    changes = _cancelled(now, "cancelled before it ran", None).changes
    return Decision({**changes, "cancel_requested": 1})


def _cancel_running(life: Life, _event: Cancel, _now: int, _backoff: Backoff) -> Decision:
    return Decision({} if life.cancel_requested else {"cancel_requested": 1})


def _cancelled(now: int, message: str, type_name: str | None) -> Decision:
    return Decision({"status": CANCELLED, "finished_at": now, "error": error("cancelled", message, type_name)})


def _retry(_life: Life, _event: Retry, now: int, _backoff: Backoff) -> Decision:
    # The token stays: a settlement by a claim from before must never fit a claim from after.
    return Decision(
        {
            "status": QUEUED,
            "attempt": 0,
            "losses": 0,
            "run_at": now,
            "cancel_requested": 0,
            "error": None,
            "progress": None,
            "finished_at": None,
        }
    )


def _purge(_life: Life, _event: Purge, _now: int, _backoff: Backoff) -> Decision:
    return Decision({}, gone=True)


#: status x event -> cell. Total: what cannot be is written out as refused, and a test counts the cells.
TABLE: dict[tuple[str, type], Cell] = {
    (QUEUED, Claim): _claim,
    (QUEUED, Complete): _stale,
    (QUEUED, Fail): _stale,
    (QUEUED, Release): _stale,
    (QUEUED, Lost): _stale,
    (QUEUED, TimedOut): _stale,
    (QUEUED, Cancel): _cancel_waiting,
    (QUEUED, Retry): _refuse,
    (QUEUED, Purge): _refuse,
    (RETRY_WAIT, Claim): _claim,
    (RETRY_WAIT, Complete): _stale,
    (RETRY_WAIT, Fail): _stale,
    (RETRY_WAIT, Release): _stale,
    (RETRY_WAIT, Lost): _stale,
    (RETRY_WAIT, TimedOut): _stale,
    (RETRY_WAIT, Cancel): _cancel_waiting,
    (RETRY_WAIT, Retry): _refuse,
    (RETRY_WAIT, Purge): _refuse,
    (PROCESSING, Claim): _refuse,
    (PROCESSING, Complete): _complete,
    (PROCESSING, Fail): _fail,
    (PROCESSING, Release): _release,
    (PROCESSING, Lost): _lost,
    (PROCESSING, TimedOut): _timed_out,
    (PROCESSING, Cancel): _cancel_running,
    (PROCESSING, Retry): _refuse,
    (PROCESSING, Purge): _refuse,
    (COMPLETED, Claim): _refuse,
    (COMPLETED, Complete): _stale,
    (COMPLETED, Fail): _stale,
    (COMPLETED, Release): _stale,
    (COMPLETED, Lost): _stale,
    (COMPLETED, TimedOut): _stale,
    (COMPLETED, Cancel): _refuse,
    (COMPLETED, Retry): _refuse,
    (COMPLETED, Purge): _purge,
    (FAILED, Claim): _refuse,
    (FAILED, Complete): _stale,
    (FAILED, Fail): _stale,
    (FAILED, Release): _stale,
    (FAILED, Lost): _stale,
    (FAILED, TimedOut): _stale,
    (FAILED, Cancel): _refuse,
    (FAILED, Retry): _retry,
    (FAILED, Purge): _purge,
    (CANCELLED, Claim): _refuse,
    (CANCELLED, Complete): _stale,
    (CANCELLED, Fail): _stale,
    (CANCELLED, Release): _stale,
    (CANCELLED, Lost): _stale,
    (CANCELLED, TimedOut): _stale,
    (CANCELLED, Cancel): _refuse,
    (CANCELLED, Retry): _retry,
    (CANCELLED, Purge): _purge,
}

#: The one claim there is; it carries nothing.
CLAIM = Claim()
