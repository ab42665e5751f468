"""Tasks from a directory of files, for platform_worker."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pydantic import BaseModel

    from platform_worker import SourceSetup, TaskSource


class SpoolFactory:
    """What the entry point names."""

    task_type: Literal["queue"] = "queue"

    @property
    def settings(self) -> type[BaseModel]:
        """The model of the table ``[spool]``; only the build asks for it, so that no child imports pydantic."""
        from spool_source.settings import SpoolSettings

        return SpoolSettings

    def __call__(self, setup: SourceSetup) -> TaskSource:
        from spool_source.source import SpoolSource

        return SpoolSource(setup)


factory = SpoolFactory()


def put(directory: str | os.PathLike[str], task: str, data: Mapping[str, Any] | None = None) -> str:
    """Adds a task and rings the bell; returns its id. The file appears whole, because it is renamed into its place."""
    new = os.path.join(directory, "new")
    os.makedirs(new, exist_ok=True)
    name = f"{uuid.uuid4()}.json"
    with open(os.path.join(directory, name), "x", encoding="utf-8") as file:
        json.dump({"task": task, "data": dict(data or {})}, file)
    os.rename(os.path.join(directory, name), os.path.join(new, name))
    ring(directory)
    return name.removesuffix(".json")


def ring(directory: str | os.PathLike[str]) -> None:
    """Wakes a waiting worker; without one there is nobody to wake."""
    try:
        bell = os.open(os.path.join(directory, "bell"), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        os.write(bell, b"\0")
    except BlockingIOError:
        pass
    finally:
        os.close(bell)
