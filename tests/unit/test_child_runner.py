"""What a child says and settles, on a memory source and without a process."""

from __future__ import annotations

import pytest

from platform_worker.child.orders import Orders, TaskContext
from platform_worker.child.progress import PERIOD, Progress
from platform_worker.child.runner import Runner
from platform_worker.errors import WorkerLifecycleError, WorkerQueueError
from platform_worker.host.telemetry import NoTelemetry
from platform_worker.protocol.lifeline import LifelineViolation
from platform_worker.tasks import unit_of_work
from platform_worker.tasks.errors import InvalidData, UnknownTask
from platform_worker.tasks.interrupt import Guard
from platform_worker.tasks.unit_of_work import UnitOfWork
from platform_worker.testing import MemorySource


class Left(BaseException):
    """The process is gone."""


class Process:
    def __init__(self):
        self.said = []
        self.interrupts = 0
        self.restored = 0

    def say(self, line):
        self.said.append(line)

    def mention(self, line):
        self.said.append(line)

    def nudge(self):
        pass

    def interrupt(self):
        self.interrupts += 1

    def leave(self):
        raise Left

    def die(self):
        raise Left

    def restore_signals(self):
        self.restored += 1


class Wake:
    readable = False

    def fileno(self):
        return -1

    def set(self):
        self.readable = True

    def clear(self):
        self.readable = False


class Log:
    def __init__(self):
        self.lines = []

    def event(self, level, event, /, **fields):
        self.lines.append((level, event, fields))

    def failure(self, level, event, error, /, **fields):
        self.lines.append((level, event, {**fields, "traceback": type(error).__name__}))


class World:
    """One child that has taken over its slot."""

    def __init__(self, bodies=(), *, limit=10, until_empty=False, source=None, quiet=(), log_exceptions=True):
        self.process, self.wake, self.log, self.guard = Process(), Wake(), Log(), Guard()
        self.orders = Orders(self.process, self.wake, self.guard)
        self.orders.booted()
        self.now = 0.0
        self.progress = Progress(self.process, lambda: self.now)
        self.context = TaskContext(self.orders, self.progress, self.wake, 0, 1, 1000)
        self.source = source or MemorySource(bodies, until_empty=until_empty)
        self.runner = Runner(
            source=self.source,
            context=self.context,
            orders=self.orders,
            progress=self.progress,
            process=self.process,
            unit=UnitOfWork(self.guard, self.log, prefix="1.0.1", operation="queue"),
            log=self.log,
            telemetry=NoTelemetry(),
            limit=limit,
            operation="queue",
            until_empty=until_empty,
            log_exceptions=log_exceptions,
            quiet=quiet,
        )

    def stop(self):
        self.orders.hear("stop")

    def ledger(self):
        return [(word, number) for word, number, _ in self.source.ledger]


def test_a_success_is_completed_and_a_failure_is_failed_and_the_child_goes_on():
    def bad():
        raise SystemExit(3)

    world = World()
    world.source = world.runner._source = MemorySource([lambda: 7, bad, world.stop])
    world.runner.run()

    assert [("complete", 1), ("fail", 2), ("complete", 3)] == world.ledger()
    assert 7 == world.source.ledger[0][2]
    assert 3 == world.process.restored


def test_at_its_limit_it_says_so_while_the_last_task_is_in_hand_and_waits():
    seen = []

    def last():
        seen.append((list(world.process.said), world.context.cancellation_requested(), world.wake.readable))
        world.stop()

    world = World([lambda: 1, last, lambda: "never"], limit=2)
    world.runner.run()

    assert [(["last"], True, True)] == seen
    assert [("complete", 1), ("complete", 2)] == world.ledger()


def test_a_stop_that_answers_its_last_at_once_is_about_the_time_after_that_task():
    world = World([lambda: 1, lambda: "never"], limit=1)
    say = world.process.say
    world.process.say = lambda line: (say(line), world.stop())
    world.runner.run()

    assert (["last"], [("complete", 1)]) == (world.process.said, world.ledger())


def test_a_stop_between_claim_and_start_gives_the_last_task_back_without_a_word():
    world = World([lambda: "never"], limit=1)
    receive = world.source.receive
    world.runner._source.receive = lambda context: (receive(context), world.stop())[0]
    world.runner.run()

    assert ([], [("release", 1)]) == (world.process.said, world.ledger())


def test_told_to_go_on_it_takes_another_limit_of_tasks():
    world = World([lambda: 1, lambda: 2, lambda: world.stop()], limit=1)  # noqa: PLW0108  there is no world yet
    world.orders.hear("go on")
    world.orders.hear("go on")
    world.runner.run()

    assert ["last"] * 3 == world.process.said
    assert 3 == len(world.ledger())


def test_a_stop_that_came_meanwhile_stands_when_the_limit_is_renewed():
    world = World()
    world.context.reach_limit()
    world.stop()
    world.context.renew_limit()

    assert world.context.cancellation_requested()
    assert world.wake.readable


def test_renewing_the_limit_withdraws_the_cancellation():
    world = World()
    world.context.reach_limit()
    world.context.renew_limit()

    assert not world.context.cancellation_requested()
    assert not world.wake.readable


def test_a_task_that_was_claimed_as_the_stop_came_is_released_and_never_entered():
    entered = []

    class Racing(MemorySource):
        def receive(self, context):
            task = super().receive(context)
            world.stop()
            return task

    world = World(source=Racing([lambda: entered.append(1)]))
    world.runner.run()

    assert [("release", 1)] == world.ledger()
    assert [] == entered


def test_a_task_that_the_terminate_phase_ends_is_released():
    import sys

    def body():
        world.orders.hear("terminate")
        world.guard.strike(sys._getframe())

    world = World([body])
    world.runner.run()

    assert [("release", 1)] == world.ledger()
    assert 1 == world.process.interrupts
    assert "worker.task.released" == world.log.lines[0][1]


def test_nothing_for_no_reason_is_a_source_that_terminated():
    class Silent(MemorySource):
        def receive(self, context):
            return None

    with pytest.raises(WorkerLifecycleError, match="worker-task-source-terminated"):
        World(source=Silent()).runner.run()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(), "worker-task-source-receive-failed"),
        (SystemExit(0), "worker-task-source-receive-failed"),
        (WorkerQueueError("worker-queue-unavailable"), "worker-task-source-receive-failed"),
        (WorkerLifecycleError("worker-invalid-state"), "worker-invalid-state"),
    ],
)
def test_a_source_that_raises_ends_the_child(error, reason):
    class Broken(MemorySource):
        def receive(self, context):
            raise error

    world = World(source=Broken())
    with pytest.raises(WorkerLifecycleError, match=reason):
        world.runner.run()
    assert ("error", "worker.child.rejected") == world.log.lines[0][:2]


def test_exhaustion_is_said_where_it_was_asked_for():
    world = World([lambda: 1], until_empty=True)
    world.runner.run()

    assert ["empty"] == world.process.said


def test_exhaustion_that_nobody_asked_for_is_a_failure():
    with pytest.raises(WorkerLifecycleError, match="receive-failed"):
        World(source=MemorySource(until_empty=True)).runner.run()


@pytest.mark.parametrize("word", ["complete", "fail", "release"])
def test_a_settlement_that_raises_ends_the_child_and_no_other_is_tried(word):
    tried = []

    class Unsettled(MemorySource):
        def receive(self, context):
            task = super().receive(context)
            for name in ("complete", "fail", "release"):
                setattr(task, name, lambda *_, name=name: self._refuse(name))
            if word == "release":
                world.stop()
            return task

        def _refuse(self, name):
            tried.append(name)
            raise OSError

    def body():
        if word == "fail":
            raise ValueError

    world = World(source=Unsettled([body]))
    with pytest.raises(WorkerLifecycleError, match="worker-task-settlement-failed"):
        world.runner.run()
    assert [word] == tried


@pytest.mark.parametrize(
    ("error", "log_exceptions", "level", "shown"),
    [
        (ValueError(), True, "error", True),
        (ValueError(), False, "error", False),
        (InvalidData(), True, "error", False),
        (LookupError(), True, "info", False),
    ],
)
def test_a_failed_task_is_one_event_with_the_traceback_where_it_helps(error, log_exceptions, level, shown):
    def body():
        raise error

    world = World([body], until_empty=True, log_exceptions=log_exceptions, quiet=(LookupError,))
    world.runner.run()

    ((found, event, fields),) = world.log.lines
    assert (level, "worker.task.failed", shown) == (found, event, "traceback" in fields)
    assert type(error).__name__ == fields["error"]


def named(task):
    """As a task of a queue has it."""
    task.id, task.name = "job-1", "crop"
    return task


class NamedSource(MemorySource):
    def receive(self, context):
        return named(super().receive(context))


@pytest.mark.parametrize(
    ("error", "cause"), [(ValueError(), None), (InvalidData(), "data-invalid"), (UnknownTask(), "task-unknown")]
)
def test_a_failure_names_its_job_and_why_the_handler_was_not_entered(error, cause):
    def body():
        raise error

    world = World(source=NamedSource([body], until_empty=True), until_empty=True)
    world.runner.run()

    ((_, _, fields),) = world.log.lines
    assert ("job-1", "crop", cause) == (fields["job_id"], fields["task"], fields.get("cause"))


def test_a_task_that_is_given_back_is_named():
    world = World(source=NamedSource([lambda: None]))
    received = world.source.receive

    def receive(context):
        task = received(context)
        world.stop()
        return task

    world.source.receive = receive
    world.runner.run()

    assert [("info", "worker.task.released", {"slot": 0, "job_id": "job-1", "task": "crop"})] == world.log.lines


def test_a_name_that_cannot_be_read_is_left_out():
    class Odd:
        id = 7

        @property
        def name(self):
            raise RuntimeError

    assert {} == unit_of_work.named(Odd())


def booting():
    process, wake = Process(), Wake()
    return process, Orders(process, wake, Guard())


def test_a_stop_while_it_boots_ends_it_at_once():
    process, orders = booting()
    with pytest.raises(Left):
        orders.stop()

    assert ["done"] == process.said


def test_the_end_of_the_lifeline_ends_it_at_once():
    _, orders = booting()
    with pytest.raises(Left):
        orders.lost()


def test_the_first_line_is_the_boot_line_and_words_follow():
    _, orders = booting()
    orders.line(b"boot {}")
    orders.line(b"go")

    assert b"boot {}" == orders.first_line()
    assert "go" == orders.wait()
    with pytest.raises(LifelineViolation):
        orders.line(b"boot {}")


def test_once_stopped_every_wait_says_stop():
    world = World()
    world.stop()

    assert ["stop", "stop"] == [world.orders.wait(), world.orders.wait()]


def test_a_signal_is_a_stop():
    world = World()
    world.orders.signalled()

    assert world.context.cancellation_requested()
    assert "stop" == world.orders.wait()


# What it says of itself


def test_a_source_that_promises_nothing_is_not_spoken_of():
    world = World()
    world.source = world.runner._source = MemorySource([lambda: 1, world.stop])
    assert world.progress.tick() is None
    world.runner.run()
    assert [] == world.process.said


def test_a_pulse_says_how_long_the_source_has_been_silent_while_it_has_the_floor():
    world = World()
    world.progress.watch(10_000)
    assert PERIOD == world.progress.tick()
    world.now += 30  # nobody has asked the source for anything
    world.progress.tick()
    world.progress.ask()
    world.now += 3
    world.progress.tick()
    world.context.contact()
    world.now += 2.5
    world.progress.tick()
    world.now += 0.5
    assert PERIOD - 0.5 == world.progress.tick(), "not due yet"
    silent = ["silent=0", "silent=0", "silent=3000", "silent=2500"]
    assert [f"pulse limit=10000 {said} task=-" for said in silent] == world.process.said


def test_the_first_task_after_an_idle_pulse_speaks_for_itself_and_the_next_ones_do_not():
    world = World()

    def work():
        world.now += 0.1

    world.source = world.runner._source = MemorySource([work, work, work, world.stop])
    world.progress.watch(10_000)
    world.progress.tick()
    world.runner.run()
    assert ["pulse limit=10000 silent=0 task=-", "pulse limit=10000 silent=0 task=0"] == world.process.said


def test_a_long_task_owes_no_contact_and_the_source_has_its_whole_limit_after_it():
    world = World()
    world.progress.watch(10_000)
    world.progress.ask()
    world.progress.begin_task()
    world.now += 3600
    world.progress.tick()
    world.progress.end_task()
    world.now += 4
    world.progress.tick()
    assert [
        "pulse limit=10000 silent=0 task=0",
        "pulse limit=10000 silent=0 task=3600000",
        "pulse limit=10000 silent=4000 task=-",
    ] == world.process.said


def test_between_two_rounds_the_source_is_not_asked_for_contact():
    world = World(limit=1)
    world.source = world.runner._source = MemorySource([lambda: 1])
    said = []

    def wait():
        world.now += 60
        world.progress.tick()
        said.append(world.process.said[-1])
        return "stop"

    world.orders.wait = wait
    world.progress.watch(10_000)
    world.runner.run()
    assert ["pulse limit=10000 silent=0 task=-"] == said


def test_after_its_last_word_a_child_has_no_pulse():
    world = World()
    world.progress.watch(10_000)
    world.progress.close()
    assert world.progress.tick() is None
    world.progress.begin_task()
    assert [] == world.process.said
