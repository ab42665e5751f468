"""The table ``[postgres]`` of ``worker.toml``; only the build imports this."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field


class PostgresSettings(BaseModel):
    """Where the database is, and in which schema of it the queue lives."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())
    #: Read from the environment where ``worker.toml`` says nothing.
    environment: ClassVar[dict[str, str]] = {"url": "DATABASE_URL"}

    url: Annotated[str, Field(max_length=2048, pattern=r"^[^\x00-\x1f]+$")] = "postgresql://127.0.0.1/postgres"
    #: With room for what channels and locks are named after it.
    schema_: Annotated[str, Field(alias="schema", max_length=40, pattern=r"^[a-z_][a-z0-9_]*$")] = "platform_worker"
