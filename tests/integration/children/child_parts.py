"""A task source on plain files for the tests of the child, and hooks that write down that they ran.

``todo`` has one task a line: the handler's name and its data as JSON. ``ledger`` gets one line a settlement.
"""

from __future__ import annotations

import json
import os
import select
from pathlib import Path

from platform_worker.jobs.context import JobContext
from platform_worker.tasks.contract import SourceExhausted


def note(root, line):
    fd = os.open(Path(root, "ledger"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, line.encode() + b"\n")
    os.close(fd)


class FileTask:
    def __init__(self, source, number, line):
        self.source = source
        self.number = number
        self.name, _, data = line.partition(" ")
        self.data = json.loads(data or "{}")

    def execute(self):
        context = JobContext(id=str(self.number), task=self.name, queue="default", attempt=1, max_attempts=1)
        return self.source.setup.handlers.run(self.name, self.data, context)

    def complete(self, result):
        if self.name == "cannot_settle":
            raise OSError("the store is gone")
        note(self.source.root, f"complete {self.number} {json.dumps(result)}")

    def fail(self, failure):
        note(self.source.root, f"fail {self.number} {type(failure).__name__}")

    def release(self):
        note(self.source.root, f"release {self.number}")


class FileSource:
    task_type = "queue"

    def __init__(self, setup):
        self.setup = setup
        self.root = str(setup.root)
        self.number = 0

    def assert_ready(self, context):
        if Path(self.root, "not-ready").exists():
            raise OSError("not today")

    def receive(self, context):
        lines = Path(self.root, "todo").read_text().splitlines() if Path(self.root, "todo").exists() else []
        while not context.cancellation_requested():
            if self.number < len(lines):
                self.number += 1
                line = lines[self.number - 1]
                if line == "none":
                    return None
                if line == "raise":
                    raise OSError("the store is gone")
                return FileTask(self, self.number, line)
            if self.setup.until_empty:
                raise SourceExhausted
            select.select([context.fileno()], [], [], context.max_blocking_wait_ms / 1000)
        return None

    def close(self):
        note(self.root, "close")


class Hook:
    def before(self, info):
        note(os.getcwd(), f"before {info.id}")

    def after(self, info, outcome):
        note(os.getcwd(), f"after {outcome}")


def reset():
    note(os.getcwd(), "reset")


def broken_factory(setup):
    raise OSError("no such thing")


broken_factory.task_type = "queue"


def shapeless(setup):
    return object()


shapeless.task_type = "queue"
not_a_factory = 7
