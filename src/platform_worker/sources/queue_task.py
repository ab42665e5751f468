"""One claimed job as the SPI's ``Task``: runs its handler, and says to its source how it ended."""

from __future__ import annotations

import json
import os
import time

from platform_worker.jobs import events, model
from platform_worker.jobs.context import JobContext, progress_json
from platform_worker.jobs.errors import JobCancelled, JobTimeout, Reject, Retry
from platform_worker.jobs.ids import luck
from platform_worker.tasks.errors import InvalidData, UnknownTask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from platform_worker.jobs.store import Claimed, Held
    from platform_worker.sources.queue_source import QueueSource

#: An error's message is for a person; the whole story is in the log.
MESSAGE_MAX_CHARS = 2000
#: How old the answer to "was I asked to stop?" may be, in seconds.
_CANCEL_LOOK = 0.5


class QueueTask:
    """Implements ``tasks.contract.Task``."""

    def __init__(self, source: QueueSource, claimed: Claimed) -> None:
        self._source = source
        self._claimed = claimed
        self._cancelled = False
        self._looked = 0.0
        self._context: JobContext | None = None

    @property
    def id(self) -> str:
        """The job's id, for the log and the span of the unit of work."""
        return self._claimed.id

    @property
    def name(self) -> str:
        """The task's name."""
        return self._claimed.task

    def execute(self) -> object:
        claimed = self._claimed
        context = self._context = JobContext(
            id=claimed.id,
            task=claimed.task,
            queue=claimed.queue,
            attempt=claimed.attempt,
            max_attempts=claimed.max_attempts,
            on_heartbeat=self._heartbeat,
            is_cancelled=self._is_cancelled,
            workdir_path=self._source.workdir_path(claimed.id),
        )
        data = json.loads(claimed.data)
        if not isinstance(data, dict):
            raise InvalidData("data: must be a JSON object")
        if not claimed.timeout_ms:
            return self._source.handlers.run(claimed.task, data, context)
        from platform_worker.sources.deadline import Deadline

        with Deadline(claimed.timeout_ms, claimed.id):
            return self._source.handlers.run(claimed.task, data, context)

    def complete(self, result: object) -> None:
        self._end()
        event = self._completed(result)
        self._source.settle(self._claimed, event)
        if isinstance(event, model.Fail):
            # The handler returned, so nobody else says that the job failed.
            events.emit("error", "worker.task.failed", job_id=self.id, task=self.name, cause=event.reason)

    def fail(self, failure: BaseException) -> None:
        self._end()
        self._source.settle(self._claimed, self._failed(failure))

    def release(self) -> None:
        self._end()
        self._source.settle(self._claimed, model.Release(self._claimed.token), claim_next=False)

    def _end(self) -> None:
        if self._context is not None:
            self._context.close()

    def _completed(self, result: object) -> model.Event:
        token = self._claimed.token
        if result is None:
            return model.Complete(token, "null")
        try:
            text = json.dumps(result, allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_dump_model)
            size = len(text.encode())
        except (TypeError, ValueError, RecursionError) as error:
            message = f"the result is not JSON: {error}"[:MESSAGE_MAX_CHARS]
            return model.Fail(token, "result-invalid", message, type(error).__name__, final=True)
        limit = self._source.result_max_bytes
        if size > limit:
            message = f"the result has {size} bytes of JSON, result_max_bytes is {limit}"
            return model.Fail(token, "result-too-large", message, None, final=True)
        return model.Complete(token, text)

    def _failed(self, failure: BaseException) -> model.Event:
        token = self._claimed.token
        message = _message(failure)
        name = type(failure).__name__
        reason, final, after_ms = "exception", False, None
        if isinstance(failure, UnknownTask):
            reason, final = "task-unknown", True
        elif isinstance(failure, InvalidData):
            reason, final = "data-invalid", True
        elif isinstance(failure, Reject):
            reason, final = "rejected", True
        elif isinstance(failure, JobTimeout):
            reason = "timeout"
        elif isinstance(failure, Retry):
            after_ms = None if failure.after is None else int(failure.after * 1000)
            message = message or self._asked_again()
        elif isinstance(failure, JobCancelled):
            message = "cancelled while it ran"
        return model.Fail(token, reason, message, name, final, after_ms, luck())

    def _asked_again(self) -> str:
        """What a ``Retry`` without words of its own leaves behind."""
        attempt, most = self._claimed.attempt, self._claimed.max_attempts
        last = ", which was the last" if attempt >= most else ""
        return f"the handler asked for a retry in attempt {attempt} of {most}{last}"

    def _heartbeat(self, progress: Any) -> None:
        held = self._source.renew(self._claimed, None if progress is None else progress_json(progress))
        self._learn(held)

    def _is_cancelled(self) -> bool:
        now = time.monotonic()
        if not self._cancelled and now - self._looked >= _CANCEL_LOOK:
            # Handlers ask in tight loops: most of the time the answer is from memory.
            self._learn(self._source.look(self._claimed))
        return self._cancelled

    def _learn(self, held: Held) -> None:
        """A handler whose claim is lost must stop like one that was cancelled: another worker may be at the job."""
        self._cancelled = held.cancel_requested or not held.held
        self._looked = time.monotonic()


def _message(failure: BaseException) -> str:
    try:
        text = str(failure)
    except Exception as error:  # noqa: BLE001  the application's own __str__ is a plugin boundary; its class is kept
        text = f"its message cannot be read: {type(error).__name__}"
    # A lone surrogate cannot be stored as UTF-8.
    return text[:MESSAGE_MAX_CHARS].encode("utf-8", "replace").decode("utf-8")


def _dump_model(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} is not JSON")
    return dump(mode="json")


def remove_workdirs(folder: str, slot: int) -> None:
    """Removes the work directories that older incarnations of a slot have left."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    import shutil

    for name in names:
        if name.startswith(f"{slot}."):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
