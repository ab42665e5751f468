"""The settings, frozen, as a running process reads them from the artifact, and the rules that bind several of them.

Validation proper happened at build time (``settings.py``, pydantic). What is left here is what the environment may
still change: references are resolved, converted and bounded, and the rules across keys are checked again.
"""

from __future__ import annotations

from platform_worker.artifacts.generation import CURRENT, CURRENT_TMP, GENERATION_LOCK, GENERATIONS
from platform_worker.artifacts.references import resolve_settings
from platform_worker.errors import WorkerUsageError
from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

#: The settings a person writes, in the root.
WORKER_TOML = "worker.toml"
#: The guardian's exclusive lock; holds the worker generation's number.
LOCK_PATH = "var/tmp/worker.lock"
#: The shared lock of every process of a generation.
MEMBERS_PATH = "var/tmp/worker.members"
#: The pool id, bound to this machine and this root.
POOL_PATH = "var/tmp/worker.pool"
#: The locator: how clients find and prove themselves to the supervisor.
LOCATOR_PATH = "var/tmp/worker.lifecycle.json"
#: Where a task's own working directories are.
WORKDIR_PATH = "var/tmp/jobs"

#: What no configured path may equal, contain or be inside of.
FIXED_PATHS = (
    LOCK_PATH,
    MEMBERS_PATH,
    POOL_PATH,
    LOCATOR_PATH,
    LOCATOR_PATH + ".tmp",
    WORKDIR_PATH,
    GENERATIONS,
    CURRENT,
    CURRENT_TMP,
    GENERATION_LOCK,
    WORKER_TOML,
)
PATH_KEYS = ("socket_path", "state_path", "stop_flag_path")
PATH_RULE = "must be relative to the root, of plain segments without `.`, `..`, `@` in front, spaces or backslashes"
LISTEN_RULE = "must be an address and a port, as in 127.0.0.1:8081 or [::1]:8081, or empty"
PORT_DIGITS, PORT_MAX = 5, 65535
PATH_MAX_BYTES = 1024
SEGMENT_MAX_BYTES = 255


class AppSettings(Value):
    """The table ``[app]``."""

    #: Used in titles and telemetry.
    name: str
    #: Put on ``sys.path`` in children, relative to the root.
    path: tuple[str, ...]
    #: Modules that register task handlers.
    handlers: tuple[str, ...]
    #: Enabled plugins, by entry-point name.
    modules: tuple[str, ...]
    #: Whether an application's own tracebacks go to the log.
    log_exceptions: bool


class WorkerSettings(Value):
    """The table ``[worker]`` and those inside of it. Times in milliseconds."""

    #: Children of the pool, 1 to 1024.
    workers: int
    #: Tasks a child takes before it is replaced, 1 or more.
    max_requests: int
    #: Each child's own limit is ``max_requests`` minus 0 to this; below ``max_requests``.
    max_requests_jitter: int
    #: ``queue`` or ``http``.
    task_type: str
    #: ``auto``, ``fork`` or ``spawn``.
    driver: str
    #: The control socket, relative to the root.
    socket_path: str
    #: The state file, relative to the root.
    state_path: str
    #: Exists while the pool is stopping, relative to the root.
    stop_flag_path: str
    #: Bounds the whole start; for a replacement, its boot.
    start_timeout_ms: int
    #: The wall-clock budget of the cooperative phase.
    stop_timeout_ms: int
    #: Bounds the terminate phase, and again the kill phase.
    force_kill_timeout_ms: int
    #: Unexpected child exits survived in ``restart_period_ms``; 0: the pool fails at the first.
    restart_intensity: int
    restart_period_ms: int
    #: Empty: random, kept in ``var/tmp/worker.pool``.
    pool_id: str
    #: ``auto``, ``unix`` or ``tcp``.
    control_transport: str
    #: 127.0.0.1, nothing else.
    tcp_host: str
    tcp_port: int
    #: The child's command of the spawn driver; ``@python`` stands for the interpreter.
    spawn_command: tuple[str, ...]
    #: Where the HTTP probe listens; empty: nowhere.
    probe_listen: str


def app_settings(config: Mapping[str, Any], environ: Mapping[str, str]) -> AppSettings:
    """``[app]`` of a generation's ``config``; ``WorkerUsageError`` where the environment does not fit."""
    table = _resolve("app", config, environ)
    return AppSettings(
        name=table["name"],
        path=tuple(table["path"]),
        handlers=tuple(table["handlers"]),
        modules=tuple(table["modules"]),
        log_exceptions=table["log_exceptions"],
    )


def worker_settings(config: Mapping[str, Any], environ: Mapping[str, str]) -> WorkerSettings:
    """``[worker]`` of a generation's ``config``; ``WorkerUsageError`` where the environment does not fit."""
    table = _resolve("worker", config, environ)
    problems = list(worker_problems(table))
    if problems:
        raise WorkerUsageError("worker-config-invalid", hints=[f"worker.{key}: {rule}" for key, rule in problems])
    control, tcp, spawn, probe = (table.pop(name) for name in ("control", "tcp", "spawn", "probe"))
    return WorkerSettings(
        **table,
        control_transport=control["transport"],
        tcp_host=tcp["host"],
        tcp_port=tcp["port"],
        spawn_command=tuple(spawn["command"]),
        probe_listen=probe["listen"],
    )


def queue_settings(config: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """``[queue]`` of a generation's ``config``, as a source gets it."""
    return _resolve("queue", config, environ)


def plugin_settings(config: Mapping[str, Any], name: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The table of the enabled module ``name``, as its factory gets it."""
    plugins: Mapping[str, Any] = config["plugins"]
    return resolve_settings(plugins.get(name, {}), environ)


def _resolve(table: str, config: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    # Under its own name, so that a hint says `worker.workers`.
    resolved: dict[str, Any] = resolve_settings({table: config[table]}, environ)[table]
    return resolved


def worker_problems(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong across the keys of ``[worker]``: (key, rule). A key that is not in ``table`` is not known yet."""
    jitter, limit = table.get("max_requests_jitter"), table.get("max_requests")
    if jitter is not None and limit is not None and jitter >= limit:
        yield "max_requests_jitter", "must be less than max_requests"
    listen = table.get("probe", {}).get("listen", "")
    if listen and listen_address(listen) is None:
        yield "probe.listen", LISTEN_RULE
    paths = [(key, table[key]) for key in PATH_KEYS if key in table]
    sound = []
    for key, path in paths:
        if path_is_plain(path):
            sound.append((key, key, path))
            if key == "state_path":
                sound.append((key, "state_path + .tmp", path + ".tmp"))
        else:
            yield key, PATH_RULE
    for i, (key, _, path) in enumerate(sound):
        for fixed in FIXED_PATHS:
            if overlap(path, fixed):
                yield key, f"must not equal, contain or be inside of {fixed}"
        for other_key, name, other in sound[:i]:
            if other_key != key and overlap(path, other):
                yield key, f"must not equal, contain or be inside of {name}"


def listen_address(text: str) -> tuple[str, int] | None:
    """Address and port of ``127.0.0.1:8081`` or ``[::1]:8081``; ``None`` where it is neither. A name is neither."""
    from _socket import AF_INET, AF_INET6, inet_pton

    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else ""
    if not (port.isascii() and port.isdigit() and len(port) <= PORT_DIGITS and 0 < int(port) <= PORT_MAX):
        return None
    try:
        inet_pton(AF_INET6 if bare else AF_INET, bare or host)
    except (OSError, ValueError):  # not an address; a zero byte, or a character beyond UTF-8
        return None
    return bare or host, int(port)


def path_is_plain(path: str) -> bool:
    """The rule for paths under ``[worker]``; a plain path stays inside the root and means one thing everywhere."""
    if not path or "\\" in path or "://" in path or any(c.isspace() or not c.isprintable() for c in path):
        return False
    segments = path.split("/")
    if any(s in {"", ".", ".."} or s.startswith("@") or len(s.encode()) > SEGMENT_MAX_BYTES for s in segments):
        return False
    return len(path.encode()) <= PATH_MAX_BYTES


def overlap(one: str, other: str) -> bool:
    """True where one path equals or contains the other."""
    return (one + "/").startswith(other + "/") or (other + "/").startswith(one + "/")
