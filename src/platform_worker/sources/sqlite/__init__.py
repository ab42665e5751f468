"""The embedded queue: jobs in one SQLite file. Entry point ``sqlite`` of ``platform_worker.task_sources``."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    from pydantic import BaseModel

    from platform_worker.jobs.store import ClientStore
    from platform_worker.tasks.contract import SourceSetup, TaskSource


class SqliteFactory:
    """Makes a child's source, and the store for ``Queue``."""

    task_type: Literal["queue"] = "queue"

    @property
    def settings(self) -> type[BaseModel]:
        """The model of the table ``[sqlite]``; made when asked for, since only the build has a use for pydantic."""
        from platform_worker.sources.sqlite.settings import SqliteSettings

        return SqliteSettings

    def __call__(self, setup: SourceSetup) -> TaskSource:
        from platform_worker.sources.queue_source import QueueSource
        from platform_worker.sources.sqlite.worker_store import SqliteWorkerStore

        path = database_path(setup.config, os.fspath(vars(setup)["root"]))  # a Path would be made on demand
        return QueueSource(setup, SqliteWorkerStore(path, setup.config["synchronous"], setup.queue, setup.identity))

    def client(self, config: Mapping[str, Any], queue: Mapping[str, Any], root: str) -> ClientStore:
        """The store for ``Queue``; creates the file where it is missing."""
        from platform_worker.sources.sqlite.client_store import SqliteClientStore

        return SqliteClientStore(database_path(config, root), config["synchronous"], queue)


def database_path(config: Mapping[str, Any], root: str) -> str:
    """The database's absolute path: a task may change the working directory."""
    return os.path.join(os.path.abspath(root), config["path"])


factory = SqliteFactory()
