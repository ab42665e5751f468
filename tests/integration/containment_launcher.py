"""Guardians with mechanisms of containment switched off, as only a test can: by another program's text."""

from __future__ import annotations

_PATCHES = {
    # Children are not ended by the kernel when their guardian is.
    "pdeathsig": "prctl.set_parent_death_signal = lambda signum: False",
    # The child of the test ignores the end of its lifeline; here only for the list to be complete.
    "lifeline": "pass",
    # To kill a child is to kill that process.
    "group": (
        "kill = lambda self, pid: driver_fork._signal(pid, 9); "
        "driver_fork.ForkDriver.kill = kill; driver_spawn.SpawnDriver.kill = kill"
    ),
    # Orphans go to whoever else collects them.
    "subreaper": "prctl.become_subreaper = lambda: False",
    # What has come as an orphan is left alone.
    "sweep": "processes.KernelFamily.strangers = lambda self, known: []",
    "cgroup": "cgroup.delegated = lambda: None",
}

#: Deaf to its lifeline and to SIGTERM; starts a process with neither mark nor session of its own. ``%s``: the census.
HIDDEN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.read(0, 4096)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve('/bin/sleep', ['sleep', '1000'], {'CENSUS': '%s'})
    os.execve('/bin/sleep', ['sleep', '1000'], dict(os.environ))
os.write(0, b'booted\\n')
while True:
    signal.pause()
"""


def launcher(*off: str) -> str:
    """The guardian's text without these mechanisms."""
    imports = "from platform_worker.host import cgroup, driver_fork, driver_spawn, prctl, processes"
    return (
        f"import sys; sys.path.insert(0, {{path}}); {imports}; "
        + "; ".join(_PATCHES[name] for name in off)
        + "; from platform_worker.wiring_guardian import run_guardian; run_guardian({ownership}, {members})"
    )
