"""The source and its tasks."""

from __future__ import annotations

import contextlib
import json
import os
import select
from pathlib import Path
from typing import Any

from platform_worker import JobContext, SourceContext, SourceExhausted, SourceSetup
from platform_worker.tasks.errors import InvalidData
from spool_source import ring


class SpoolSource:
    """One child's view of the spool."""

    #: A folder that cannot be listed for so long makes the pool unhealthy.
    contact_limit_ms = 10_000

    def __init__(self, setup: SourceSetup) -> None:
        self.handlers = setup.handlers
        self.directory = setup.root / setup.config["directory"]
        self.claimed = self.directory / "claimed" / str(setup.identity.slot)
        self._until_empty = setup.until_empty
        for folder in (self.directory / "new", self.claimed, self.directory / "done", self.directory / "failed"):
            folder.mkdir(parents=True, exist_ok=True)
        bell = self.directory / "bell"
        with contextlib.suppress(FileExistsError):
            os.mkfifo(bell)
        # Open for writing too: without a writer a FIFO would be readable, at its end, all the time.
        self._bell = os.open(bell, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def assert_ready(self, context: SourceContext) -> None:  # noqa: ARG002
        """Gives back what the slot's older incarnation had in hand: it is gone when this is called."""
        for path in self.claimed.iterdir():
            os.rename(path, self.directory / "new" / path.name)

    def receive(self, context: SourceContext) -> SpoolTask | None:
        """The oldest name first."""
        while not context.cancellation_requested():
            for name in sorted(os.listdir(self.directory / "new")):
                try:
                    os.rename(self.directory / "new" / name, self.claimed / name)
                except FileNotFoundError:  # another child was faster
                    continue
                return SpoolTask(self, name)
            context.contact()
            if self._until_empty:
                raise SourceExhausted
            ready, _, _ = select.select([context, self._bell], [], [], context.max_blocking_wait_ms / 1000)
            if self._bell in ready:
                self._unring()
        return None

    def close(self) -> None:
        os.close(self._bell)

    def _unring(self) -> None:
        try:
            os.read(self._bell, 4096)
        except BlockingIOError:  # another child took it
            return


class SpoolTask:
    """One file in our hands."""

    def __init__(self, source: SpoolSource, name: str) -> None:
        self._source = source
        self._name = name
        self._path = source.claimed / name

    def execute(self) -> object:
        try:
            record = json.loads(self._path.read_bytes())
            task, data = record["task"], dict(record["data"])
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidData("not a task file") from error
        context = JobContext(id=self._name.removesuffix(".json"), task=task, queue="spool", attempt=1, max_attempts=1)
        try:
            return self._source.handlers.run(task, data, context)
        finally:
            context.close()

    def complete(self, result: object) -> None:
        self._settle("done", {"result": result})

    def fail(self, failure: BaseException) -> None:
        self._settle("failed", {"error": {"type": type(failure).__name__, "message": str(failure)}})

    def release(self) -> None:
        os.rename(self._path, self._source.directory / "new" / self._name)
        ring(self._source.directory)

    def _settle(self, folder: str, outcome: dict[str, Any]) -> None:
        """The outcome appears whole, and before the claim is gone: a crash in between repeats the task, loses none."""
        target = Path(self._source.directory, folder, self._name)
        draft = target.with_suffix(".tmp")
        draft.write_text(json.dumps(outcome), encoding="utf-8")
        os.rename(draft, target)
        self._path.unlink()
