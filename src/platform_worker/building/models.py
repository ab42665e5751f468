"""The models of ``worker.toml``'s own tables; imported at build time only. Defaults as in ``config/worker.toml``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

#: The bound of every timeout: a day.
DAY_MS = 86_400_000
#: What TOML, SQLite and PostgreSQL take for an integer.
INTEGER_MAX = 2**63 - 1

Timeout = Annotated[int, Field(ge=1, le=DAY_MS)]
Milliseconds = Annotated[int, Field(ge=0, le=INTEGER_MAX)]
Positive = Annotated[int, Field(ge=1, le=INTEGER_MAX)]
ModuleName = Annotated[str, Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$", max_length=200)]
PluginName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
QueueName = Annotated[str, Field(pattern=r"^[a-z0-9._-]+$", max_length=64)]
Argument = Annotated[str, Field(pattern=r"^[^\x00]+$", max_length=4096)]
Folder = Annotated[str, Field(pattern=r"^[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]*$", max_length=1024)]


class Table(BaseModel):
    """A closed table."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class App(Table):
    """``[app]``"""

    name: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=64)] = "app"
    path: list[Folder] = ["."]
    handlers: list[ModuleName] = []
    modules: list[PluginName] = ["sqlite"]
    log_exceptions: bool = True


class Control(Table):
    """``[worker.control]``"""

    transport: Literal["auto", "unix", "tcp"] = "auto"


class Tcp(Table):
    """``[worker.tcp]``"""

    host: Literal["127.0.0.1"] = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 9327


class Spawn(Table):
    """``[worker.spawn]``"""

    command: Annotated[list[Argument], Field(min_length=1)] = ["@python", "-m", "platform_worker.child"]


class Probe(Table):
    """``[worker.probe]``"""

    listen: Annotated[str, Field(max_length=64)] = ""


class Worker(Table):
    """``[worker]``; what binds several keys is in ``config.worker_problems``."""

    workers: Annotated[int, Field(ge=1, le=1024)] = 4
    max_requests: Positive = 1000
    max_requests_jitter: Milliseconds = 0
    task_type: Literal["queue", "http"] = "queue"
    driver: Literal["auto", "fork", "spawn"] = "auto"
    socket_path: str = "var/tmp/worker.sock"
    state_path: str = "var/tmp/worker.state.json"
    stop_flag_path: str = "var/tmp/worker.stop"
    start_timeout_ms: Timeout = 10_000
    stop_timeout_ms: Timeout = 10_000
    force_kill_timeout_ms: Timeout = 1_000
    restart_intensity: Annotated[int, Field(ge=0, le=INTEGER_MAX)] = 3
    restart_period_ms: Timeout = 60_000
    pool_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*$", max_length=64)] = ""
    control: Control = Control()
    tcp: Tcp = Tcp()
    spawn: Spawn = Spawn()
    probe: Probe = Probe()


class Queue(Table):
    """``[queue]``"""

    names: Annotated[list[QueueName], Field(min_length=1)] = ["default"]
    lease_ms: Annotated[int, Field(ge=1000, le=INTEGER_MAX)] = 60_000
    max_attempts: Positive = 3
    backoff_ms: Milliseconds = 60_000
    backoff_max_ms: Milliseconds = 3_600_000
    backoff_jitter: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.1
    timeout_ms: Milliseconds = 0
    result_max_bytes: Positive = 65_536
    data_max_bytes: Positive = 1_048_576
    retention_ms: Milliseconds = 604_800_000


TABLES: dict[str, type[Table]] = {"app": App, "worker": Worker, "queue": Queue}
