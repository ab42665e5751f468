"""What a handler may know of its job, and say while it runs."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

#: Progress is a few numbers for a person to look at, not a second result.
PROGRESS_MAX_BYTES = 4096


class JobContext:
    """Goes to every handler parameter annotated ``JobContext``. Its methods may be called from any thread.

    A source makes it. ``on_heartbeat(progress)`` renews the lease and keeps the progress, ``is_cancelled()`` says
    whether the job was asked to stop, ``workdir_path`` is where ``workdir`` is made (else among temporary files).
    """

    def __init__(
        self,
        *,
        id: str,
        task: str,
        queue: str,
        attempt: int,
        max_attempts: int,
        on_heartbeat: Callable[[Any], object] | None = None,
        is_cancelled: Callable[[], bool] | None = None,
        workdir_path: str | None = None,
    ) -> None:
        self.id = id
        self.task = task
        self.queue = queue
        self.attempt = attempt
        self.max_attempts = max_attempts
        self._on_heartbeat = on_heartbeat
        self._is_cancelled = is_cancelled
        self._workdir_path = workdir_path
        self._workdir: Path | None = None

    def heartbeat(self, progress: Any = None) -> None:
        """Renews the lease and keeps ``progress`` (JSON, up to 4 KiB) for who looks at the job.

        Raises ``JobCancelled`` when somebody asked the job to stop, or when its claim is lost and another worker may be
        at it; ``WorkerUsageError`` for progress off the rule.
        """
        if progress is not None:
            progress_json(progress)
        if self._on_heartbeat is not None:
            self._on_heartbeat(progress)
        if self.cancelled:
            from platform_worker.jobs.errors import JobCancelled

            raise JobCancelled()

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked the job to stop, or its claim is lost; true within two seconds."""
        return self._is_cancelled() if self._is_cancelled is not None else False

    @property
    def workdir(self) -> Path:
        """A fresh directory, mode 0700, that is gone when the job ends, however it ends."""
        if self._workdir is None:
            import tempfile
            from pathlib import Path

            if self._workdir_path is None:
                self._workdir = Path(tempfile.mkdtemp(prefix="job-"))
            else:
                os.makedirs(os.path.dirname(self._workdir_path), mode=0o700, exist_ok=True)
                os.mkdir(self._workdir_path, 0o700)
                self._workdir = Path(self._workdir_path)
        return self._workdir

    def close(self) -> None:
        """Removes the work directory; whoever made the context calls it when the job has ended."""
        if self._workdir is not None:
            import shutil

            shutil.rmtree(self._workdir, ignore_errors=True)
            self._workdir = None


def progress_json(progress: object) -> str:
    """Progress as the JSON text that a store keeps; ``WorkerUsageError`` where it is off the rule."""
    import json

    from platform_worker.errors import WorkerUsageError

    try:
        text = json.dumps(progress, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise WorkerUsageError("worker-job-invalid", hints=["progress: must be JSON, without NaN"]) from error
    if size > PROGRESS_MAX_BYTES:
        raise WorkerUsageError("worker-job-invalid", hints=[f"progress: at most {PROGRESS_MAX_BYTES} bytes of JSON"])
    return text
