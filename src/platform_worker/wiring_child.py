"""The composition root of a child."""

from __future__ import annotations

import os

from platform_worker.child.life import Life
from platform_worker.child.orders import Orders
from platform_worker.child.progress import Progress
from platform_worker.host.child_process import ChildProcess
from platform_worker.host.logs import StderrLog
from platform_worker.protocol.lifeline import MAX_LINE, format_failed
from platform_worker.tasks.handlers import load_handlers
from platform_worker.tasks.interrupt import Guard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.ports import Log, Telemetry


def run_child(*, arm: bool = False) -> None:
    """Lives the life of a child on the lifeline that is descriptor 0. Ends the process.

    ``arm``: nobody has armed the parent-death signal for it. A guardian that died before this leaves an ended lifeline,
    which the watcher sees as its first thing, so there is no moment in which its death goes unnoticed.
    """
    if arm:
        _arm()
    guard = Guard()
    process = ChildProcess(guard.strike)
    orders = Orders(process, process.wake, guard)
    progress = Progress(process)
    process.watch(orders, MAX_LINE, progress.tick)
    log = StderrLog(process.stderr)
    _give_sources_the_log(log, process.lifeline)
    life = Life(
        process,
        orders,
        progress,
        process.wake,
        guard,
        log,
        root=os.getcwd(),
        environ=os.environ,
        adopt_members=process.adopt_members,
        import_handlers=load_handlers,
        make_telemetry=_find_telemetry,
        quiet=_quiet(),
    )
    try:
        code = life.live()
    except Exception as error:  # noqa: BLE001  the edge of the process: a bug of ours still gets a last word, and a log
        log.failure("error", "worker.child.exit", error, cause="bug")
        progress.close()
        process.say(format_failed("worker-lifecycle-failed"))
        code = 1
    process.end(code)


def _arm() -> None:
    from platform_worker.host import prctl

    if prctl.load():
        prctl.set_parent_death_signal(9)


def _find_telemetry() -> Telemetry:
    from platform_worker.host.telemetry import find_telemetry

    return find_telemetry()


def _give_sources_the_log(log: Log, lifeline: int) -> None:
    from platform_worker.jobs import events

    def sink(level: str, event: str, fields: dict[str, object]) -> None:
        log.event(level, event, **fields)  # type: ignore[arg-type]  # the levels are the same four words

    events.set_sink(sink)
    events.set_stacks(lifeline)


def _quiet() -> tuple[type[BaseException], ...]:
    """What a handler raises to say something of its job."""
    from platform_worker.jobs.errors import JobCancelled, Reject, Retry

    return (Retry, Reject, JobCancelled)
