"""One unit of work: what runs, in what order, exactly once, whatever fails. And where the interrupt may strike."""

from __future__ import annotations

import pytest

from platform_worker.tasks.interrupt import Guard, Interrupted, Raised, Returned, TaskInterrupted
from platform_worker.tasks.unit_of_work import UnitOfWork, current_unit
from platform_worker.testing import MemorySource, MemoryTask


class Log:
    def __init__(self):
        self.lines = []

    def event(self, level, event, /, **fields):
        self.lines.append((level, event, fields))

    def failure(self, level, event, error, /, **fields):
        self.lines.append((level, event, {**fields, "error": error}))


class Hook:
    def __init__(self, name, seen, before=None, after=None):
        self.name, self.seen, self.before_error, self.after_error = name, seen, before, after

    def before(self, info):
        self.seen.append(f"before {self.name} {info.id}")
        if self.before_error:
            raise self.before_error

    def after(self, info, outcome):
        self.seen.append(f"after {self.name} {outcome}")
        if self.after_error:
            raise self.after_error


def unit(guard=None, **options):
    return UnitOfWork(guard or Guard(), Log(), prefix="1.0.1", operation="queue", **options)


def task(body):
    return MemoryTask(MemorySource(), 1, body)


def test_everything_runs_in_order_and_once():
    seen = []

    def body():
        seen.append(f"body {current_unit.get()}")
        return 5

    work = unit(hooks=[Hook("a", seen), Hook("b", seen)], resetters=[lambda: seen.append("reset")])
    ending = work.run(task(body))

    assert isinstance(ending, Returned)
    assert 5 == ending.value
    assert [
        "before a 1.0.1.1",
        "before b 1.0.1.1",
        "body 1.0.1.1",
        "after b success",
        "after a success",
        "reset",
    ] == seen
    assert "" == current_unit.get()


@pytest.mark.parametrize("error", [ValueError(), SystemExit(0), KeyboardInterrupt(), GeneratorExit()])
def test_whatever_a_body_raises_is_the_tasks_failure(error):
    seen = []

    def body():
        raise error

    ending = unit(hooks=[Hook("a", seen)], resetters=[lambda: seen.append("reset")]).run(task(body))

    assert isinstance(ending, Raised)
    assert error is ending.error
    assert ["before a 1.0.1.1", "after a failure", "reset"] == seen


def test_a_before_hook_that_raises_fails_the_task_and_its_body_is_not_entered():
    seen = []
    error = OSError()
    hooks = [Hook("a", seen), Hook("b", seen, before=error), Hook("c", seen)]

    ending = unit(hooks=hooks, resetters=[lambda: seen.append("reset")]).run(task(lambda: seen.append("body")))

    assert isinstance(ending, Raised)
    assert error is ending.error
    assert ["before a 1.0.1.1", "before b 1.0.1.1", "after a failure", "reset"] == seen


def test_an_after_hook_that_raises_makes_a_success_a_failure_and_the_others_see_it():
    seen = []
    error = OSError()

    ending = unit(hooks=[Hook("a", seen), Hook("b", seen, after=error)]).run(task(lambda: 1))

    assert isinstance(ending, Raised)
    assert error is ending.error
    assert ["after b success", "after a failure"] == seen[2:]


def test_an_after_hook_that_raises_changes_nothing_about_a_failure():
    seen = []
    error = ValueError()

    def body():
        raise error

    ending = unit(hooks=[Hook("a", seen, after=OSError())]).run(task(body))

    assert isinstance(ending, Raised)
    assert error is ending.error


def test_every_resetter_runs_though_one_raises_and_the_outcome_stands():
    seen = []

    def broken():
        seen.append("broken")
        raise SystemExit

    ending = unit(resetters=[broken, lambda: seen.append("other")]).run(task(lambda: 1))

    assert isinstance(ending, Returned)
    assert ["broken", "other"] == seen


def strike(guard):
    """What the signal handler does when the signal meets this very frame."""
    import sys

    guard.strike(sys._getframe())


def test_the_interrupt_ends_a_body_and_the_task_is_to_be_released():
    guard = Guard()
    seen = []

    def body():
        guard.terminating = True
        strike(guard)
        seen.append("went on")

    assert isinstance(unit(guard, hooks=[Hook("a", seen)]).run(task(body)), Interrupted)
    assert ["before a 1.0.1.1", "after a released"] == seen


def test_an_interrupt_that_the_handler_turns_into_another_error_is_an_interrupt():
    guard = Guard()

    def body():
        guard.terminating = True
        try:
            strike(guard)
        except BaseException as error:
            raise ValueError from error

    assert isinstance(guard.call(body), Interrupted)


def test_a_body_that_returns_after_the_interrupt_has_succeeded():
    guard = Guard()

    def body():
        guard.terminating = True
        try:
            strike(guard)
        except TaskInterrupted:
            return "settled what it could"

    ending = guard.call(body)

    assert isinstance(ending, Returned)
    assert "settled what it could" == ending.value


def test_it_strikes_once_so_that_the_body_may_clean_up():
    guard = Guard()

    def body():
        guard.terminating = True
        try:
            strike(guard)
        finally:
            strike(guard)
            cleaned.append(True)

    cleaned = []
    guard.call(body)

    assert [True] == cleaned


def test_it_never_strikes_outside_a_body():
    guard = Guard()
    guard.terminating = True
    strike(guard)
    entered = []

    assert isinstance(guard.call(lambda: entered.append(1)), Interrupted)
    assert [] == entered
    strike(guard)


def test_it_never_strikes_hooks_and_resetters():
    guard = Guard()
    reached = []

    class Striking:
        def before(self, info):
            guard.terminating = True
            strike(guard)
            reached.append("before")

        def after(self, info, outcome):
            strike(guard)
            reached.append(outcome)

    def reset():
        strike(guard)
        reached.append("reset")

    assert isinstance(unit(guard, hooks=[Striking()], resetters=[reset]).run(task(lambda: 1)), Interrupted)
    assert ["before", "released", "reset"] == reached


def test_a_signal_without_the_terminate_phase_strikes_nothing():
    guard = Guard()

    def body():
        strike(guard)
        return 1

    assert isinstance(guard.call(body), Returned)
