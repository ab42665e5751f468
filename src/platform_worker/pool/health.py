"""What ``worker health`` says of a pool."""

from __future__ import annotations

from platform_worker.pool.states import PoolStatus

HEALTHY = "healthy"


def health_reason(status: PoolStatus, failing: bool, ready: int, workers: int, stalled: bool) -> str:
    """``healthy``, or the first reason that applies."""
    if failing:
        return "worker-child-failure"
    if status is PoolStatus.STARTING:
        return "worker-pool-starting"
    if status is PoolStatus.STOPPING:
        return "worker-pool-stopping"
    if ready < workers:
        return "worker-pool-not-ready"
    if stalled:
        return "worker-pool-stalled"
    return HEALTHY
