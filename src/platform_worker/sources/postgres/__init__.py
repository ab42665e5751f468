"""The queue on PostgreSQL: entry point ``postgres`` of ``platform_worker.task_sources``, extra ``postgres``."""

from __future__ import annotations

import importlib.util

from platform_worker.tasks.errors import MissingLibrary

# Looked for here, so that the build says at once what is not installed; imported by the first connection only.
if importlib.util.find_spec("psycopg") is None:
    raise MissingLibrary("platform-worker[postgres]")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    from pydantic import BaseModel

    from platform_worker.jobs.store import ClientStore
    from platform_worker.tasks.contract import SourceSetup, TaskSource


class PostgresFactory:
    """Makes a child's source, and the store for ``Queue``."""

    task_type: Literal["queue"] = "queue"

    @property
    def settings(self) -> type[BaseModel]:
        """The model of the table ``[postgres]``; made when asked for, since only the build has a use for pydantic."""
        from platform_worker.sources.postgres.settings import PostgresSettings

        return PostgresSettings

    def __call__(self, setup: SourceSetup) -> TaskSource:
        from platform_worker.sources.postgres.worker_store import PostgresWorkerStore
        from platform_worker.sources.queue_source import QueueSource

        config = setup.config
        return QueueSource(setup, PostgresWorkerStore(config["url"], config["schema"], setup.queue, setup.identity))

    def client(self, config: Mapping[str, Any], queue: Mapping[str, Any], root: str) -> ClientStore:  # noqa: ARG002
        """The store for ``Queue``; it needs no file of the root."""
        from platform_worker.sources.postgres.client_store import PostgresClientStore

        return PostgresClientStore(config["url"], config["schema"], queue)


factory = PostgresFactory()
