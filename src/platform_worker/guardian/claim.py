"""Taking the fence, a step at a time: the lock, then the members, then the number.

A reader's momentary probe or a guardian that is just dying must not make a claim fail, so each step is tried again
until its budget is spent. Nothing is left behind by a claim that fails.
"""

from __future__ import annotations

from platform_worker.protocol.ownership import Busy, Claimed, Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.ports_processes import Fence
    from platform_worker.protocol.ownership import Claim

#: Between two tries, in seconds: shorter than a person or a start notices, longer than a probe holds its lock.
RETRY = 0.002


class ClaimAttempt:
    """``step(now)`` until it returns something; ``next_deadline()`` says when to try again."""

    def __init__(self, claim: Claim, fence: Fence, now: float) -> None:
        self._fence = fence
        self._lock_until = now + claim.lock_wait_ms / 1000
        self._members_until = now + claim.start_timeout_ms / 1000
        self._locked = False
        self._next = now

    def next_deadline(self) -> float:
        """When to try again."""
        return self._next

    def step(self, now: float) -> Claimed | Busy | Failed | None:
        """Tries once more. After ``Busy`` and ``Failed`` nothing is held."""
        outcome: Claimed | Busy | Failed | None
        try:
            outcome = self._try(now)
        except OSError:
            outcome = Failed("worker-lifecycle-lock-failed")
        if isinstance(outcome, Busy | Failed):
            self._fence.abandon()
        self._next = now + RETRY
        return outcome

    def _try(self, now: float) -> Claimed | Busy | None:
        self._locked = self._locked or self._fence.try_lock()
        if self._locked and self._fence.try_members():
            return Claimed(self._fence.next_generation())
        until = self._members_until if self._locked else self._lock_until
        return Busy() if now >= until else None
