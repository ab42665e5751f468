"""SIGKILL of a child to its replacement ready, to what a child takes from its start to `ready`."""

from __future__ import annotations

import time

from support import Row, application, fresh, now, pool, settle

from measures.child import boot

REPEATS = 10


def once() -> float:
    """Seconds; killed once: from the second time on there is a pause on purpose."""
    folder = application(fresh("replace"), workers=1)
    with pool(folder) as process:
        *_, child = settle(process, 2)
        log = folder / "log"
        seen = log.read_text().count("worker.child.ready")
        began = now()
        child.kill()
        while log.read_text().count("worker.child.ready") == seen:
            time.sleep(0.0005)
        return now() - began


def run(runs: int) -> list[Row]:
    """One row."""
    folder = application(fresh("replace-boot"), workers=1)
    ours, first = [], []
    for one in range(runs):
        ours.append(1000 * sum(once() for _ in range(3)) / 3)
        first.append(1000 * sum(boot(folder, one * REPEATS + n + 1) for n in range(REPEATS)) / REPEATS)
    return [Row("SIGKILL of a child to its replacement ready", "ms", ours, first, "a child's start", at_most=1.3)]
