"""Which driver and which control transport the pools of this run have, where a test does not say.

``PLATFORM_WORKER_TEST_DRIVER=spawn`` and ``PLATFORM_WORKER_TEST_TRANSPORT=tcp`` put every whole-pool test over the
other one; without them the settings are left at their defaults.
"""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

import pytest

DRIVER = os.environ.get("PLATFORM_WORKER_TEST_DRIVER", "")
TRANSPORT = os.environ.get("PLATFORM_WORKER_TEST_TRANSPORT", "")
#: For a test that says what there is where nothing was chosen.
of_the_defaults = pytest.mark.skipif(bool(DRIVER or TRANSPORT), reason="a driver or transport is chosen for this run")
_PORTS: dict[str, int] = {}


def chosen(name: str) -> dict[str, dict[str, object]]:
    """Tables of ``worker.toml`` for the application of that name."""
    tables: dict[str, dict[str, object]] = {}
    if DRIVER:
        tables["worker"] = {"driver": DRIVER}
    if TRANSPORT:
        tables["worker.control"] = {"transport": TRANSPORT}
    if TRANSPORT == "tcp":
        tables["worker.tcp"] = {"port": port_of(name)}
    return tables


def port_of(name: str) -> int:
    """The same for every application of that name in this run, so that what was built once need not be built again."""
    if name not in _PORTS:
        _PORTS[name] = free_port()
    return _PORTS[name]


def listens(root: Path) -> bool:
    """The control channel of a pool on ``root`` is open, by the transport of this run."""
    if TRANSPORT != "tcp":
        return (root / "var" / "tmp" / "worker.sock").exists()
    address = f"0100007F:{port_of(root.name):04X}"
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()]
    return any((address, "0A") == (row[1], row[3]) for row in rows)


def free_port() -> int:
    """A port that nobody listens on; below those that the system gives to clients."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
