"""The composition root of ``worker systemd``: where the root and this command are, and what ``worker.toml`` says."""

from __future__ import annotations

import os
import sys

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.config import WorkerSettings


class Place(Value):
    """``owner``: whom the root belongs to, by name where there is one; empty for root."""

    root: str
    command: tuple[str, ...]
    owner: str


def place(root: str) -> Place:
    """Where everything is. The command is the one beside this interpreter, as it was called: a link may be meant."""
    root = os.path.realpath(root)
    beside = os.path.join(os.path.dirname(sys.executable), "worker")
    command = (beside,) if os.access(beside, os.X_OK) else (sys.executable, "-P", "-m", "platform_worker.cli")
    return Place(root, command, _owner(root))


def _owner(root: str) -> str:
    import pwd

    uid = os.stat(root).st_uid
    if uid == 0:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def worker_settings_of(root: str) -> WorkerSettings:
    """``[worker]`` of the root's ``worker.toml`` as this environment has it; ``WorkerUsageError`` where it is wrong."""
    from platform_worker.building.document import Document
    from platform_worker.building.models import TABLES
    from platform_worker.building.tables import Table
    from platform_worker.config import worker_settings
    from platform_worker.wiring_build import read_worker_toml

    document = Document(read_worker_toml(root))
    table = Table(document, "worker", TABLES["worker"])
    document.raise_problems()
    return worker_settings({"worker": table.compiled}, os.environ)
