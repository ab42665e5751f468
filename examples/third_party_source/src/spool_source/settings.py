"""The table ``[spool]`` of ``worker.toml``; the build validates it, a child gets it as a mapping."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SpoolSettings(BaseModel):
    """Every key with its default."""

    model_config = ConfigDict(extra="forbid", strict=True)

    directory: str = Field(default="spool", min_length=1, description="relative to the root")
