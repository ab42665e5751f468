"""The composition root of ``worker doctor``: looks at everything once, says what is wrong and what to do."""

from __future__ import annotations

import os

from platform_worker.doctor import findings as judge
from platform_worker.doctor.findings import Finding, note, problem
from platform_worker.errors import WorkerCommunicationError, WorkerError
from platform_worker.host import cgroup, examine_leftovers, examine_machine
from platform_worker.host.containment import mechanisms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from platform_worker.config import WorkerSettings


def examine(root: str, *, fix: bool) -> dict[str, object]:
    """Findings, leftovers and how many of those were ended; nothing else is changed."""
    root = os.path.realpath(root)
    fixed = examine_leftovers.end(root) if fix else 0
    left = examine_leftovers.leftovers(root)
    pid, found = _supervisor(root)
    settings, of_artifacts = _settings(root)
    found += [*of_artifacts, *_leftovers(left), *_folders(root), *_limits(pid, settings), *_containment(root, pid)]
    if settings is not None:
        found += _units(root, pid, settings)
    return {
        "findings": [dict(one.__dict__) for one in sorted(found, key=lambda one: one.level != "problem")],
        "leftovers": [
            {"generation": one.generation, "pid": one.pid, "start_time": examine_leftovers.started_at(one.start)}
            for one in left
        ],
        "fixed": fixed,
        "status": "problems" if any(one.level == "problem" for one in found) else "ok",
    }


def _supervisor(root: str) -> tuple[int | None, list[Finding]]:
    """The live supervisor's pid."""
    from platform_worker.host.control_client import ask

    try:
        return int(ask(root, "status")["pid"]), []
    except WorkerCommunicationError:
        text = "something of a pool lives here, and its supervisor does not answer"
        remedy = "a start or a stop may be under way: try again; else end the leftovers, or the unit"
        return None, [problem("communication", text, remedy)]
    except WorkerError:
        return None, []


def _leftovers(left: list[examine_leftovers.Leftover]) -> Iterator[Finding]:
    if left:
        text = f"{len(left)} processes of worker generations that are over still live"
        yield problem("leftovers", text, "worker doctor --fix ends them; this command runs below those that stay")


def _settings(root: str) -> tuple[WorkerSettings | None, list[Finding]]:
    """The selected generation's settings, and what is off with it."""
    from platform_worker.artifacts.boot import has_current, load_current
    from platform_worker.config import WORKER_TOML, worker_settings

    found: list[Finding] = []
    settings = None
    if not has_current(root):
        found.append(problem("artifacts", "no artifact generation is selected", "worker build"))
    else:
        try:
            settings = worker_settings(load_current(root).config, os.environ)
        except WorkerError as error:
            found.append(_told("artifacts", "the selected artifact generation cannot be used", error, "worker build"))
    if settings is not None and os.path.exists(os.path.join(root, WORKER_TOML)):
        found += _stale(root)
    return settings, found


def _stale(root: str) -> Iterator[Finding]:
    from platform_worker.wiring_build import check

    try:
        if not check(root)[1]:
            text = "worker.toml or the handlers say otherwise than the selected artifact generation"
            yield problem("artifacts", text, "worker build")
    except WorkerError as error:
        yield _told("artifacts", "worker.toml cannot be built", error, "correct it, then worker build")


def _told(check: str, text: str, error: WorkerError, remedy: str) -> Finding:
    return problem(check, "; ".join([f"{text}: {error.reason}", *error.hints]), remedy)


def _folders(root: str) -> Iterator[Finding]:
    for name, mode, writable in examine_machine.folders(root):
        yield from judge.of_mode("the root" if name == "." else name, mode)
        if not writable and name in ("var", "var/tmp"):
            yield problem("modes", f"{name} cannot be written by this user", "run as the pool's user, or chown it")
    yield from judge.of_file_system(examine_machine.file_system(root))


def _limits(pid: int | None, settings: WorkerSettings | None) -> Iterator[Finding]:
    workers = 4 if settings is None else settings.workers
    yield from judge.of_descriptors(examine_machine.limit("nofile", pid), workers)
    if os.getuid() != 0:  # root is not counted
        most = examine_machine.limit("nproc", pid)
        running = examine_machine.tasks_of_user() if most is not None else 0
        yield from judge.of_processes(most, running, workers, started=pid is not None)


def _containment(root: str, pid: int | None) -> Iterator[Finding]:
    found = mechanisms(root, None)
    if pid is not None:
        found["cgroup"] = cgroup.holds(root, pid)
    yield from judge.missing_mechanisms(found, of_the_pool=pid is not None)


def _units(root: str, pid: int | None, settings: WorkerSettings) -> Iterator[Finding]:
    """The unit of the running pool as systemd has it, else whatever unit file starts a pool of this root."""
    budgets = settings.stop_timeout_ms, settings.force_kill_timeout_ms
    unit = examine_machine.unit_of(pid) if pid is not None else None
    if unit is not None:
        told = examine_machine.unit_property(*unit, "TimeoutStopUSec")
        try:
            yield from judge.of_stop_timeout(unit[0], judge.time_span(told or ""), *budgets)
        except ValueError:
            yield note("unit", f"systemd does not say how long {unit[0]} may stop", f"systemctl show {unit[0]}")
        return
    for name, texts in examine_machine.unit_files(root):
        yield from judge.of_stop_timeout(name, judge.unit_stop_seconds(texts), *budgets)
