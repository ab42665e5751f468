"""The conformance suite lets a good source through, and catches each way of being a bad one."""

from __future__ import annotations

import time

import pytest

from platform_worker.tasks.contract import SourceExhausted
from platform_worker.testing import TaskSourceConformance


class FolderTask:
    def __init__(self, source, path):
        self.source, self.path = source, path

    def execute(self):
        return self.source.setup.handlers.run("t", {}, None)

    def complete(self, result):
        self.path.unlink()

    def fail(self, failure):
        self.path.unlink()

    def release(self):
        self.path.rename(self.source.new / self.path.name)


class FolderSource:
    """A right one: a folder of files, claimed by moving them."""

    def __init__(self, setup):
        self.setup = setup
        self.new, self.mine = setup.root / "new", setup.root / "mine"
        self.new.mkdir(exist_ok=True)
        self.mine.mkdir(exist_ok=True)

    def assert_ready(self, context):
        for path in self.mine.iterdir():
            path.rename(self.new / path.name)

    def receive(self, context):
        while not context.cancellation_requested():
            for path in sorted(self.new.iterdir()):
                return FolderTask(self, path.rename(self.mine / path.name))
            if self.setup.until_empty:
                raise SourceExhausted
            self.wait(context)
        return None

    def wait(self, context):
        import select

        select.select([context.fileno()], [], [], context.max_blocking_wait_ms / 1000)

    def close(self):
        pass


def suite_of(source):
    class Suite(TaskSourceConformance):
        __test__ = False

        def config(self, root):
            return {}

        def put(self, root, count):
            (root / "new").mkdir(exist_ok=True)
            for number in range(count):
                (root / "new" / str(number)).touch()

    def factory(setup):
        return source(setup)

    factory.task_type = "queue"
    Suite.factory = staticmethod(factory)
    return Suite()


class TestARightSource(TaskSourceConformance):
    factory = staticmethod(FolderSource)

    def config(self, root):
        return {}

    def put(self, root, count):
        suite_of(FolderSource).put(root, count)


FolderSource.task_type = "queue"


class TakesInReady(FolderSource):
    def assert_ready(self, context):
        super().assert_ready(context)
        for path in self.new.iterdir():
            path.unlink()


class SaysNoneForEmpty(FolderSource):
    def wait(self, context):
        context.cancellation_requested = lambda: True


class Polls(FolderSource):
    def wait(self, context):
        pass


class Deaf(FolderSource):
    def receive(self, context):
        limit = time.monotonic() + 4
        while time.monotonic() < limit:
            for path in sorted(self.new.iterdir()):
                return FolderTask(self, path.rename(self.mine / path.name))
            if self.setup.until_empty:
                raise SourceExhausted
            time.sleep(0.1)
        return None


class Forgets(FolderSource):
    def assert_ready(self, context):
        pass


class NeverExhausted(FolderSource):
    def receive(self, context):
        try:
            return super().receive(context)
        except SourceExhausted:
            return None


class LosesReleased(FolderSource):
    def receive(self, context):
        task = super().receive(context)
        if task is not None:
            task.release = task.path.unlink
        return task


class KeepsCompleted(FolderSource):
    def receive(self, context):
        task = super().receive(context)
        if task is not None:
            task.complete = lambda _: None
        return task


@pytest.mark.parametrize(
    ("source", "test"),
    [
        (TakesInReady, "test_assert_ready_takes_no_task"),
        (SaysNoneForEmpty, "test_receive_waits_until_cancellation_and_not_much_longer"),
        (Polls, "test_receive_waits_until_cancellation_and_not_much_longer"),
        (Deaf, "test_receive_takes_nothing_once_cancellation_is_requested"),
        (Forgets, "test_what_an_older_incarnation_had_in_hand_comes_back_at_once"),
        (NeverExhausted, "test_every_task_is_received_once"),
        (LosesReleased, "test_a_released_task_comes_back"),
        (KeepsCompleted, "test_a_completed_task_does_not_come_back"),
    ],
)
def test_a_wrong_source_is_caught(source, test, tmp_path):
    with pytest.raises(AssertionError):
        getattr(suite_of(source), test)(tmp_path)
