"""How often a test of chance is repeated."""

from __future__ import annotations

import os


def scaled(times: int) -> int:
    """``times``, multiplied by ``PLATFORM_WORKER_TEST_SCALE`` (1 where it is not set), and 1 at least."""
    return max(1, round(times * float(os.environ.get("PLATFORM_WORKER_TEST_SCALE", "1"))))
