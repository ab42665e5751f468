"""SIGKILL of the supervisor to the last of 4 idle children (and the guardian) gone."""

from __future__ import annotations

from support import Row, application, fresh, now, pool, settle, wait_gone


def once() -> float:
    """Seconds."""
    folder = application(fresh("kill"), workers=4)
    with pool(folder) as process:
        processes = settle(process, 5)
        began = now()
        process.kill()
        return wait_gone(processes) - began


def run(runs: int) -> list[Row]:
    """One row."""
    return [Row("SIGKILL of the supervisor to all gone", "ms", [1000 * once() for _ in range(runs)], at_most=100)]
