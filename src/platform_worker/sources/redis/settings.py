"""The table ``[redis]`` of ``worker.toml``; only the build imports this."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field


class RedisSettings(BaseModel):
    """Where the server is, and what all keys begin with."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    #: Read from the environment where ``worker.toml`` says nothing.
    environment: ClassVar[dict[str, str]] = {"url": "REDIS_URL"}

    url: Annotated[str, Field(max_length=1024, pattern=r"^(redis|rediss|unix)://[^\x00-\x20]+$")] = (
        "redis://127.0.0.1:6379/0"
    )
    prefix: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9._:-]+$")] = "platform-worker"
