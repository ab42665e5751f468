"""From the arguments of ``enqueue`` to a row for the store: every rule checked, every default filled in. Pure.

The call wins over the decorator (as the build recorded it), the decorator over ``[queue]``; 0 means none, not "not
given".
"""

from __future__ import annotations

import datetime
import json
import re

from platform_worker.errors import WorkerUsageError
from platform_worker.jobs.ids import new_id
from platform_worker.jobs.store import Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from platform_worker.jobs.job import NewJob

QUEUE_NAME = re.compile(r"[a-z0-9._-]{1,64}")
DEFAULT_PRIORITY = 5
DEFAULT_QUEUE = "default"
_LONGEST_MS = 366 * 100 * 86_400_000
_MAX_INT = 2**31 - 1


def invalid(*rules: str) -> WorkerUsageError:
    """The error for arguments off the rules; each rule names its field."""
    return WorkerUsageError("worker-job-invalid", hints=rules)


def row_of(job: NewJob, tasks: Mapping[str, Mapping[str, Any]], queue: Mapping[str, Any], now: int) -> Row:
    """The row for ``job``; ``tasks`` are the recorded handlers' options, ``queue`` is ``[queue]``."""
    name = task_name(job.task, tasks)
    options = tasks.get(name)
    if options is None:
        if not job.allow_unknown:
            raise WorkerUsageError("worker-task-unknown", hints=_known(name, tasks))
        options = {}
    return Row(
        id=new_id(now),
        task=name,
        queue=_queue(_first(job.queue, options.get("queue"), _default_queue(queue["names"]))),
        priority=_integer("priority", _first(job.priority, options.get("priority"), DEFAULT_PRIORITY), 1, 10),
        enqueued_at=now,
        run_at=_run_at(job, now),
        max_attempts=_integer(
            "max_attempts", _first(job.max_attempts, options.get("max_attempts"), queue["max_attempts"]), 1, _MAX_INT
        ),
        timeout_ms=_integer(
            "timeout_ms", _first(job.timeout_ms, options.get("timeout_ms"), queue["timeout_ms"]), 0, _MAX_INT
        ),
        backoff_ms=_integer(
            "backoff_ms", _first(job.backoff_ms, options.get("backoff_ms"), queue["backoff_ms"]), 0, _MAX_INT
        ),
        unique=_unique(job.unique),
        data=_data(job.data, int(queue["data_max_bytes"])),
    )


def task_name(task: object, tasks: Mapping[str, Mapping[str, Any]]) -> str:
    """The name of a task: given, or of the decorated function."""
    if isinstance(task, str):
        name = task
    elif callable(task):
        module, qualname = getattr(task, "__module__", None), getattr(task, "__qualname__", None)
        for known, options in tasks.items():
            if (options.get("module"), options.get("qualname")) == (module, qualname):
                return known
        name = f"{module}.{qualname}"
    else:
        raise invalid("task: must be a name or a task function")
    if not name or len(name) > 255 or not name.isprintable():
        raise invalid("task: must be 1 to 255 printable characters")
    return name


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _default_queue(names: Sequence[str]) -> str:
    # The first is the most urgent one: not where a job belongs that says nothing, if there is a better place.
    return DEFAULT_QUEUE if DEFAULT_QUEUE in names else names[0]


def _queue(name: object) -> str:
    if not isinstance(name, str) or QUEUE_NAME.fullmatch(name) is None:
        raise invalid("queue: must match [a-z0-9._-]{1,64}")
    return name


def _integer(field: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise invalid(f"{field}: must be a whole number from {least} to {most}")
    return value


def _unique(key: object) -> str | None:
    if key is None:
        return None
    if not isinstance(key, str) or not 1 <= len(key) <= 255 or not _encodable(key):
        raise invalid("unique: must be 1 to 255 characters")
    return key


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _run_at(job: NewJob, now: int) -> int:
    if job.delay is not None and job.run_at is not None:
        raise invalid("delay, run_at: give one of them")
    if job.delay is not None:
        return now + _delay_ms(job.delay)
    if job.run_at is None:
        return now
    if not isinstance(job.run_at, datetime.datetime) or job.run_at.utcoffset() is None:
        raise invalid("run_at: must be a datetime with a time zone")
    since = job.run_at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    milliseconds = -((-since) // datetime.timedelta(milliseconds=1))
    if not 0 <= milliseconds <= now + _LONGEST_MS:
        raise invalid("run_at: must be between 1970 and a hundred years from now")
    return milliseconds


def _delay_ms(delay: object) -> int:
    if isinstance(delay, datetime.timedelta):
        delay = delay.total_seconds()
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay <= _LONGEST_MS / 1000:
        raise invalid("delay: must be seconds or a timedelta, 0 or more, a hundred years at most")
    # Up to the next millisecond: a job never starts before its time.
    return -int(-delay * 1000 // 1)


def _data(data: object, limit: int) -> str:
    if data is None:
        return "{}"
    try:
        text = json.dumps(_object(data), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid("data: must be JSON, without NaN and Infinity") from error
    if size > limit:
        raise invalid(f"data: has {size} bytes of JSON, data_max_bytes is {limit}")
    return text


def _object(data: object) -> dict[str, Any]:
    from collections.abc import Mapping

    if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
        raise invalid("data: must be an object with names as keys")
    return dict(data)


def _known(name: str, tasks: Mapping[str, object]) -> list[str]:
    import difflib

    # ``@task`` without a name gives module.qualname, where a person thinks of the function.
    near = [known for known in sorted(tasks) if known.endswith(f".{name}")]
    near = near or difflib.get_close_matches(name, tasks, 1)
    hints = [f"task: did you mean {' or '.join(near[:3])}?"] if near else []
    rule = "no recorded handler has this name; run worker build after adding one, or pass --allow-unknown"
    return [*hints, f"task: {rule} (in Python: allow_unknown=True)"]
