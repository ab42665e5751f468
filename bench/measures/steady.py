"""Descriptors, threads and memory of supervisor and guardian after 10,000 recycles, to after 100."""

from __future__ import annotations

import os

import psutil
from support import Row, application, enqueue, fresh, pool, settle, times

FIRST, RECYCLES = 100, int(os.environ.get("BENCH_RECYCLES", "10000"))


def sizes(process: psutil.Process) -> tuple[int, int, float]:
    """Descriptors, threads, MiB that are its own."""
    return process.num_fds(), process.num_threads(), process.memory_full_info().uss / 1024**2


def run(_runs: int) -> list[Row]:
    """Six rows, each of one long run."""
    folder = application(fresh("steady"), workers=2, max_requests=1)
    found: list[list[tuple[int, int, float]]] = []
    with times(folder) as fifo, pool(folder, {"BENCH_TIMES": str(fifo.path)}) as process:
        supervisor, guardian, *_ = settle(process, 3)
        for jobs in (FIRST, RECYCLES - FIRST):
            enqueue(folder, [("noop", {})] * (jobs - 1) + [("stamp", {"label": "last"})])
            fifo.next(3600)
            settle(process, 3)
            found.append([sizes(supervisor), sizes(guardian)])
    rows = []
    for which, process_name in enumerate(("supervisor", "guardian")):
        for at, (what, unit, most) in enumerate(
            (("descriptors", "", 1), ("threads", "", 1), ("own memory", "MiB", 1.1))
        ):
            few, many = (float(found[when][which][at]) for when in (0, 1))
            name = f"{process_name}, {what} after {RECYCLES} recycles"
            rows.append(Row(name, unit, [many], [few], f"after {FIRST}", at_most=most))
    return rows
