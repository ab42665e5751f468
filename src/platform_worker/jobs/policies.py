"""How long a job waits before its next attempt. Pure."""

from __future__ import annotations

from platform_worker.value import Value


class Backoff(Value):
    """The part of ``[queue]`` that bounds the wait: ``max_ms`` caps it before jitter, ``jitter`` is the share added."""

    max_ms: int = 3_600_000
    jitter: float = 0.1

    def wait_ms(self, backoff_ms: int, attempt: int, luck: float) -> int:
        """The wait after attempt ``attempt`` (1 or more); ``luck`` in [0, 1) says how much of the jitter applies."""
        # The exponent is capped: 2 ** 10000 would be exact, and useless.
        wait = min(backoff_ms << min(max(attempt - 1, 0), 60), self.max_ms)
        return wait + int(wait * self.jitter * luck)
