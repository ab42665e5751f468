"""The 99th percentile of `status` by one client while 200 others send one byte a second."""

from __future__ import annotations

import statistics

from support import PEERS, PYTHON, Row, application, fresh, now, pool, running

ASKED = 500


def once(slow: int) -> float:
    """Milliseconds."""
    from platform_worker.host import control_client

    folder = application(fresh("slow-clients"), workers=1)
    with pool(folder), running([PYTHON, PEERS / "slow_clients.py", folder, str(slow)], folder, stdout=-1) as clients:
        assert clients.stdout is not None
        clients.stdout.readline()  # all of them are connected
        taken = []
        for _ in range(ASKED):
            began = now()
            control_client.ask(str(folder), "status")
            taken.append(1000 * (now() - began))
        return statistics.quantiles(taken, n=100)[98]


def run(runs: int) -> list[Row]:
    """One row."""
    ours, alone = [], []
    for _ in range(runs):
        ours.append(once(200))
        alone.append(once(0))
    name = "status beside 200 clients that send one byte a second, 99th percentile"
    return [Row(name, "ms", ours, at_most=20), Row("the same", "ms", ours, alone, "without them")]
