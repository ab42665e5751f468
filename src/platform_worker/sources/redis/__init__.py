"""The queue on Redis or Valkey: entry point ``redis`` of ``platform_worker.task_sources``, extra ``redis``."""

from __future__ import annotations

from platform_worker.tasks.errors import MissingLibrary

try:
    import hiredis  # noqa: F401  here, so that the build says at once what is not installed
except ImportError as error:
    raise MissingLibrary("platform-worker[redis]") from error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    from pydantic import BaseModel

    from platform_worker.jobs.store import ClientStore
    from platform_worker.tasks.contract import SourceSetup, TaskSource


class RedisFactory:
    """Makes a child's source, and the store for ``Queue``."""

    task_type: Literal["queue"] = "queue"

    @property
    def settings(self) -> type[BaseModel]:
        """The model of the table ``[redis]``; made when asked for, since only the build has a use for pydantic."""
        from platform_worker.sources.redis.settings import RedisSettings

        return RedisSettings

    def __call__(self, setup: SourceSetup) -> TaskSource:
        from platform_worker.sources.queue_source import QueueSource
        from platform_worker.sources.redis.worker_store import RedisWorkerStore

        config = setup.config
        return QueueSource(setup, RedisWorkerStore(config["url"], config["prefix"], setup.queue, setup.identity))

    def client(self, config: Mapping[str, Any], queue: Mapping[str, Any], root: str) -> ClientStore:  # noqa: ARG002
        """The store for ``Queue``; it needs no file of the root."""
        from platform_worker.sources.redis.client_store import RedisClientStore

        return RedisClientStore(config["url"], config["prefix"], queue)


factory = RedisFactory()
