"""How often, and how soon, a slot is refilled after an unexpected exit. Pure; ``now`` is monotonic seconds.

The budget (N unexpected exits survived in T) is OTP's restart intensity; it belongs to the whole pool. The pause
belongs to the slot: none the first time, then 100 ms, doubling up to 5 s. A child that was ready for longer than the
pause that would come next has worked: the pauses begin anew.
"""

from __future__ import annotations

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class RestartBudget:
    """``intensity`` unexpected exits are survived in any ``period`` (seconds); one more is one too many."""

    def __init__(self, intensity: int, period: float) -> None:
        self._intensity = intensity
        self._period = period
        self._exits: list[float] = []

    def spend(self, now: float) -> bool:
        """Counts one exit; false where the pool may not survive it."""
        self._exits = [at for at in self._exits if now - at < self._period]
        if len(self._exits) >= self._intensity:
            return False
        self._exits.append(now)
        return True


def pause(streak: int) -> float:
    """Seconds to wait before the refill that follows ``streak`` unexpected exits in a row before this one."""
    if streak <= 0:
        return 0.0
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(streak - 1, 16))


def next_streak(streak: int, ready_seconds: float) -> int:
    """The streak to go on with, for a child that ended after it had been ready for ``ready_seconds``."""
    return 0 if ready_seconds > max(pause(streak), FIRST_PAUSE) else streak
