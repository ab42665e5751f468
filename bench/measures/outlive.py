"""SIGKILL of the supervisor or the guardian to the last of 4 children gone: idle, busy in Python, busy in C."""

from __future__ import annotations

from support import Row, application, busy, fresh, now, pool, settle, times, wait_gone

STOP_MS, FORCE_MS = 1000, 300
#: What is in hand, and what of the budgets a child without a supervisor has before it must be gone.
STATES = {"idle": 0, "spin": STOP_MS, "hold": STOP_MS + FORCE_MS}


def once(victim: str, state: str) -> float:
    """Milliseconds."""
    settings = {"stop_timeout_ms": STOP_MS, "force_kill_timeout_ms": FORCE_MS}
    folder = application(fresh("outlive"), workers=4, **settings)
    with times(folder) as fifo, pool(folder, {"BENCH_TIMES": str(fifo.path)}) as process:
        supervisor, *others = settle(process, 5)
        guardian = next(one for one in others if one.ppid() == supervisor.pid)
        children = [one for one in others if one != guardian]
        if state != "idle":
            busy(folder, fifo, state, 4)
        began = now()
        (supervisor if victim == "supervisor" else guardian).kill()
        return 1000 * (wait_gone(children) - began)


def run(runs: int) -> list[Row]:
    """Six rows; what the children had of the budgets is taken off."""
    found = []
    for victim, state, name, most in (
        ("supervisor", "idle", "idle", 50),
        ("supervisor", "spin", "busy in Python, beyond the time to finish", 50),
        ("supervisor", "hold", "busy in C with the GIL held, beyond the budgets", 150),
        ("guardian", "idle", "idle", 20),
        ("guardian", "spin", "busy in Python", 20),
        ("guardian", "hold", "busy in C with the GIL held", 20),
    ):
        budget = STATES[state] if victim == "supervisor" else 0
        taken = [once(victim, state) - budget for _ in range(runs)]
        found.append(Row(f"SIGKILL of the {victim} to the last child gone: {name}", "ms", taken, at_most=most))
    return found
