"""For the tests of who writes a task source: fakes, and the suite that every source must pass.

The suite is a class of plain assertions for pytest, which is not imported here::

    from platform_worker.testing import TaskSourceConformance
    from my_source import factory

    class TestMySource(TaskSourceConformance):
        factory = factory

        def config(self, root):            # the plugin's table, as a child gets it
            return {"directory": "spool"}

        def put(self, root, count):        # makes tasks that succeed
            for number in range(count):
                add_a_task(root / "spool", number)
"""

from __future__ import annotations

import os
import threading
import time
from types import MappingProxyType

from platform_worker.tasks.contract import SourceExhausted, SourceSetup, WorkerIdentity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from typing import Any

    from platform_worker.tasks.contract import Handlers, Task, TaskSource, TaskSourceFactory

__all__ = [
    "FakeContext",
    "FakeHandlers",
    "MemorySource",
    "MemoryTask",
    "TaskSourceConformance",
    "make_setup",
]


class FakeContext:
    """A ``SourceContext`` that a test cancels."""

    def __init__(self, worker_index: int = 0, worker_count: int = 1, max_blocking_wait_ms: int = 1000) -> None:
        self.worker_index = worker_index
        self.worker_count = worker_count
        self.max_blocking_wait_ms = max_blocking_wait_ms
        self._reading, self._writing = os.pipe()
        self._cancelled = False
        #: How often the source has said that its back end answered.
        self.contacts = 0

    def cancel(self) -> None:
        """No further task may be taken; from any thread."""
        self._cancelled = True
        os.write(self._writing, b"\0")

    def cancellation_requested(self) -> bool:
        return self._cancelled

    def fileno(self) -> int:
        return self._reading

    def contact(self) -> None:
        self.contacts += 1

    def close(self) -> None:
        """Gives the descriptors back."""
        os.close(self._reading)
        os.close(self._writing)

    def __enter__(self) -> FakeContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FakeHandlers:
    """``Handlers`` from functions of ``(data, context)``; any other name gives ``None``. ``calls`` has them all."""

    def __init__(self, functions: Mapping[str, Callable[[Mapping[str, Any], Any], object]] | None = None) -> None:
        self._functions = dict(functions or {})
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def run(self, name: str, data: Mapping[str, Any], context: Any) -> object:
        self.calls.append((name, dict(data)))
        function = self._functions.get(name)
        return None if function is None else function(data, context)


class MemoryTask:
    """A task that runs ``body``, and writes its settlement into the source's ``ledger``."""

    def __init__(self, source: MemorySource, number: int, body: Callable[[], object]) -> None:
        self._source = source
        self._body = body
        self.number = number

    def execute(self) -> object:
        return self._body()

    def complete(self, result: object) -> None:
        self._source.ledger.append(("complete", self.number, result))

    def fail(self, failure: BaseException) -> None:
        self._source.ledger.append(("fail", self.number, failure))

    def release(self) -> None:
        self._source.ledger.append(("release", self.number, None))


class MemorySource:
    """A ``TaskSource`` that gives the bodies it was made with, once each, and then waits for cancellation."""

    def __init__(self, bodies: Iterable[Callable[[], object]] = (), *, until_empty: bool = False) -> None:
        self._waiting = list(bodies)
        self._until_empty = until_empty
        self._given = 0
        self.ledger: list[tuple[str, int, object]] = []
        self.closed = 0

    def assert_ready(self, context: Any) -> None:  # noqa: ARG002  the contract's
        return

    def receive(self, context: Any) -> Task | None:
        while not context.cancellation_requested():
            if self._waiting:
                self._given += 1
                return MemoryTask(self, self._given, self._waiting.pop(0))
            if self._until_empty:
                raise SourceExhausted
            _wait(context)
        return None

    def close(self) -> None:
        self.closed += 1


def make_setup(
    root: Path,
    *,
    config: Mapping[str, Any] | None = None,
    queue: Mapping[str, Any] | None = None,
    handlers: Handlers | None = None,
    pool_id: str = "test",
    generation: int = 1,
    slot: int = 0,
    incarnation: int = 1,
    until_empty: bool = False,
) -> SourceSetup:
    """What a child would give to a factory."""
    return SourceSetup(
        config=MappingProxyType(dict(config or {})),
        queue=MappingProxyType(dict(queue or {})),
        handlers=FakeHandlers() if handlers is None else handlers,
        root=root,
        identity=WorkerIdentity(pool_id, generation, slot, incarnation),
        until_empty=until_empty,
    )


class TaskSourceConformance:
    """What the contract asks of every task source. Subclass it, and override what the module's docstring shows."""

    #: The object that the entry point names.
    factory: TaskSourceFactory
    #: False for a source whose unsettled tasks live and die with the child, as a listener's do.
    recovers = True
    #: Processor time that a second of waiting may take, in seconds: far below what a polling loop needs.
    idle_cost = 0.1

    #: How long a task that was put may take to come, in seconds.
    patience = 10.0

    def config(self, root: Path) -> Mapping[str, Any]:
        """The plugin's own table, as a child gets it."""
        raise AssertionError(f"{type(self).__name__} must say its configuration for {root.name}")

    def queue(self) -> Mapping[str, Any]:
        """The table ``[queue]``, for a source that looks at it."""
        return {}

    def put(self, root: Path, count: int) -> None:
        """Makes ``count`` tasks, each of which succeeds."""
        raise AssertionError(f"{type(self).__name__} must be able to make {count} tasks in {root.name}")

    def make(self, root: Path, *, incarnation: int = 1, until_empty: bool = False) -> TaskSource:
        """One child's source."""
        setup = make_setup(
            root, config=self.config(root), queue=self.queue(), incarnation=incarnation, until_empty=until_empty
        )
        return type(self).factory(setup)

    def take(self, source: TaskSource) -> Task:
        """The next task, of which there must be one."""
        with FakeContext() as context:
            timer = _later(self.patience, context.cancel)
            task = source.receive(context)
            in_time = not context.cancellation_requested()
            timer.cancel()
            timer.join()
        assert task is not None, "no task came" if not in_time else "None means cancellation, and nothing was cancelled"
        return task

    def test_the_factory_says_its_task_type(self) -> None:
        assert type(self).factory.task_type in ("queue", "http")

    def test_the_source_has_the_three_methods(self, tmp_path: Path) -> None:
        source = self.make(tmp_path)
        try:
            assert all(callable(getattr(source, name, None)) for name in ("assert_ready", "receive", "close"))
        finally:
            source.close()

    def test_assert_ready_takes_no_task(self, tmp_path: Path) -> None:
        self.put(tmp_path, 1)
        self._drain(tmp_path, expected=1)

    def test_a_task_has_the_four_methods(self, tmp_path: Path) -> None:
        with _Receiving(self, tmp_path, tasks=1) as (_, tasks):
            assert all(callable(getattr(tasks[0], name, None)) for name in ("execute", "complete", "fail", "release"))
            tasks[0].release()

    def test_every_task_is_received_once(self, tmp_path: Path) -> None:
        self.put(tmp_path, 5)
        self._drain(tmp_path, expected=5)
        self._drain(tmp_path, expected=0, incarnation=2)

    def test_a_completed_task_does_not_come_back(self, tmp_path: Path) -> None:
        with _Receiving(self, tmp_path, tasks=1) as (_, tasks):
            tasks[0].complete(tasks[0].execute())
        self._drain(tmp_path, expected=0, incarnation=2)

    def test_a_failure_is_settled_and_the_next_task_comes(self, tmp_path: Path) -> None:
        with _Receiving(self, tmp_path, tasks=2, receive=1) as (source, tasks):
            tasks[0].fail(RuntimeError("what the handler raised"))
            following = self.take(source)
            following.complete(following.execute())

    def test_a_released_task_comes_back(self, tmp_path: Path) -> None:
        with _Receiving(self, tmp_path, tasks=1) as (_, tasks):
            tasks[0].release()
        self._drain(tmp_path, expected=1, incarnation=2)

    def test_what_an_older_incarnation_had_in_hand_comes_back_at_once(self, tmp_path: Path) -> None:
        """The older one is gone without a word: neither settled nor closed."""
        if not self.recovers:
            return
        self.put(tmp_path, 1)
        source = self.make(tmp_path)
        with FakeContext() as context:
            source.assert_ready(context)
        self.take(source)
        self._drain(tmp_path, expected=1, incarnation=2)

    def test_exhaustion_is_said_only_where_it_is_asked_for(self, tmp_path: Path) -> None:
        self._drain(tmp_path, expected=0)
        with _Receiving(self, tmp_path, tasks=0) as (source, _), FakeContext() as context:
            timer = _later(0.2, context.cancel)
            assert source.receive(context) is None
            timer.join()

    def test_receive_takes_nothing_once_cancellation_is_requested(self, tmp_path: Path) -> None:
        self.put(tmp_path, 1)
        with _Receiving(self, tmp_path, tasks=0) as (source, _), FakeContext() as context:
            context.cancel()
            began = time.monotonic()
            assert source.receive(context) is None
            assert time.monotonic() - began < context.max_blocking_wait_ms / 1000
        self._drain(tmp_path, expected=1, incarnation=2)

    def test_receive_waits_until_cancellation_and_not_much_longer(self, tmp_path: Path) -> None:
        """It waits natively, so it costs next to nothing, and ``None`` never means empty."""
        with _Receiving(self, tmp_path, tasks=0) as (source, _), FakeContext() as context:
            began, spent = time.monotonic(), time.process_time()
            timer = _later(1.2, context.cancel)
            assert source.receive(context) is None
            waited = time.monotonic() - began
            timer.join()
            assert 1.2 <= waited < 1.2 + context.max_blocking_wait_ms / 1000 + 0.5
            assert time.process_time() - spent < self.idle_cost

    def test_a_source_that_promises_contact_has_it_while_it_waits(self, tmp_path: Path) -> None:
        """A pool whose source says nothing while there is nothing to do would be taken for one that has stalled."""
        with _Receiving(self, tmp_path, tasks=0) as (source, _), FakeContext() as context:
            limit_ms = getattr(source, "contact_limit_ms", None)
            if limit_ms is None:
                return
            assert type(limit_ms) is int, "contact_limit_ms: a whole number of milliseconds"
            timer = _later(min(2.2, limit_ms / 1000), context.cancel)
            assert source.receive(context) is None
            timer.join()
            assert context.contacts > 0, "no contact within contact_limit_ms"

    def _drain(self, root: Path, *, expected: int, incarnation: int = 1) -> None:
        """Works off all there is, and compares how many that were."""
        source = self.make(root, incarnation=incarnation, until_empty=True)
        done = 0
        try:
            with FakeContext() as context:
                source.assert_ready(context)
                while True:
                    try:
                        task = source.receive(context)
                    except SourceExhausted:
                        break
                    assert task is not None, "None means cancellation, and nothing was cancelled"
                    task.complete(task.execute())
                    done += 1
        finally:
            source.close()
        assert expected == done


class _Receiving:
    """A ready source with some tasks received from it, closed at the end."""

    def __init__(self, suite: TaskSourceConformance, root: Path, *, tasks: int, receive: int | None = None) -> None:
        if tasks:
            suite.put(root, tasks)
        self._suite = suite
        self._source = suite.make(root)
        self._count = tasks if receive is None else receive

    def __enter__(self) -> tuple[TaskSource, list[Task]]:
        with FakeContext() as context:
            self._source.assert_ready(context)
        return self._source, [self._suite.take(self._source) for _ in range(self._count)]

    def __exit__(self, *_: object) -> None:
        self._source.close()


def _later(seconds: float, call: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, call)
    timer.start()
    return timer


def _wait(context: Any) -> None:
    import select

    select.select([context.fileno()], [], [], context.max_blocking_wait_ms / 1000)
