"""The table ``[sqlite]`` of ``worker.toml``; only the build imports this."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class SqliteSettings(BaseModel):
    """Where the queue's file is, and how much a commit waits for the disk."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    path: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00]+$")] = "var/queue.sqlite3"
    synchronous: Literal["full", "normal"] = "full"
