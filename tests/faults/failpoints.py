"""Named places in the product at which a test's launcher can end, freeze or delay the process that reaches them.

A failpoint wraps one function of the product, by name, in a process that was started through ``launcher.py``. The
product itself knows nothing of it: a process that was not started so cannot be made to fail.

This module runs inside the guardian as well, which has no site-packages: standard library only.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from typing import Any

#: By process: module, then the function's qualified name.
POINTS: dict[str, tuple[str, ...]] = {
    "supervisor": (
        "platform_worker.host.fence:open_members",
        "platform_worker.host.guardian_process:_spawn",
        "platform_worker.host.guardian_process:_handle",
        "platform_worker.host.records:FileRecords.prepare",
        "platform_worker.host.records:FileRecords.write_locator",
        "platform_worker.host.records:FileRecords.write_state",
        "platform_worker.host.records:FileRecords.raise_stop_flag",
        "platform_worker.host.records:FileRecords.remove",
        "platform_worker.host.control_socket:UnixListener.__init__",
        "platform_worker.host.control_socket:UnixListener.accept",
        "platform_worker.host.control_socket:UnixListener.remove",
        "platform_worker.supervisor.loop:SupervisorLoop._hear",
        "platform_worker.supervisor.loop:SupervisorLoop._send",
        "platform_worker.supervisor.loop:SupervisorLoop._set_up",
        "platform_worker.supervisor.loop:SupervisorLoop._say_stopped",
    ),
    "guardian": (
        "platform_worker.host.locks:FlockFence.try_lock",
        "platform_worker.host.locks:FlockFence.try_members",
        "platform_worker.host.locks:FlockFence.next_generation",
        "platform_worker.host.locks:FlockFence.release",
        "platform_worker.host.driver_fork:ForkDriver.start",
        "platform_worker.host.driver_fork:ForkDriver.terminate",
        "platform_worker.host.driver_fork:ForkDriver.kill",
        "platform_worker.guardian.loop:GuardianLoop._obey",
        "platform_worker.guardian.loop:GuardianLoop._emit",
        "platform_worker.guardian.loop:GuardianLoop._hear_report",
        "platform_worker.guardian.loop:GuardianLoop._reap",
        "platform_worker.guardian.loop:GuardianLoop._sweep",
        "platform_worker.guardian.loop:GuardianLoop._lose_owner",
    ),
    "child": (
        "platform_worker.host.child_process:ChildProcess.adopt_members",
        "platform_worker.host.child_process:ChildProcess.say",
        "platform_worker.host.child_process:ChildProcess.end",
        "platform_worker.child.life:Life._work",
        "platform_worker.child.life:Life._close",
        "platform_worker.child.runner:Runner._receive",
        "platform_worker.child.runner:Runner._work",
        "platform_worker.child.runner:Runner._settle",
        "platform_worker.sources.sqlite.worker_store:SqliteWorkerStore.recover_gone",
        "platform_worker.sources.sqlite.worker_store:SqliteWorkerStore.claim",
        "platform_worker.sources.sqlite.worker_store:SqliteWorkerStore.settle",
        "platform_worker.sources.sqlite.database:Database._open",
        "platform_worker.sources.sqlite.rows:complete",
        "platform_worker.sources.sqlite.bell:Bell.wait",
    ),
}

ACTIONS = ("kill", "freeze", "delay")


def arm(process: str, spec: str) -> None:
    """Arms what ``spec`` (JSON: process, point, when, action, nth) says, where it is about this kind of process."""
    wanted = json.loads(spec)
    if wanted["process"] != process:
        return
    module_name, _, qualname = wanted["point"].partition(":")
    owner: Any = importlib.import_module(module_name)
    *path, name = qualname.split(".")
    for part in path:
        owner = getattr(owner, part)
    setattr(owner, name, _wrapped(getattr(owner, name), wanted))


def _wrapped(function: Any, wanted: dict[str, Any]) -> Any:
    calls = 0

    def wrapper(*args: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        hit = calls == wanted["nth"]
        if hit and wanted["when"] == "before":
            _strike(wanted)
        result = function(*args, **keywords)
        if hit and wanted["when"] == "after":
            _strike(wanted)
        return result

    return wrapper


def _strike(wanted: dict[str, Any]) -> None:
    if wanted["action"] == "delay":
        time.sleep(0.3)
        return
    os.kill(os.getpid(), signal.SIGKILL if wanted["action"] == "kill" else signal.SIGSTOP)


def arming(process: str, spec: str) -> str:
    """Python text that arms a process before its own program runs."""
    here = os.path.dirname(os.path.abspath(__file__))
    return f"sys.path.insert(0, {here!r}); import failpoints; failpoints.arm({process!r}, {spec!r}); sys.path.pop(0); "


def launch(spec: str, arguments: list[str]) -> int:
    """The supervisor, armed, whose guardian and whose guardian's children are armed as well."""
    from platform_worker import wiring_guardian
    from platform_worker.host import guardian_process

    own = guardian_process._PROGRAM.replace("import sys; ", "", 1)
    child = wiring_guardian.CHILD_PROGRAM
    armed_child = (*child[:-1], "import sys; " + arming("child", spec) + child[-1])
    programs = f"import platform_worker.wiring_guardian as w; w.CHILD_PROGRAM = {armed_child!r}; "
    insert, _, rest = own.partition("; ")
    text = f"{insert}; {arming('guardian', spec)}{programs}".replace("{", "{{").replace("}", "}}")
    text = text.replace("{{path}}", "{path}")
    guardian_process._PROGRAM = f"import sys; {text}{rest}"
    arm("supervisor", spec)
    from platform_worker.cli import main

    sys.argv = ["worker", *arguments]
    return main()
