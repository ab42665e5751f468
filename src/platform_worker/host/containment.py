"""Which mechanisms keep a worker generation together on this machine. There is no way to switch one off."""

from __future__ import annotations

import os

from platform_worker.host import cgroup, prctl


def mechanisms(root: str, generation: int | None) -> dict[str, bool]:
    """Each mechanism, and whether it is here. Without a generation: whether a cgroup could be made."""
    return {
        "sessions": hasattr(os, "setsid"),
        "subreaper": prctl.become_subreaper(),
        "pidfd": _has_pidfds(),
        "pdeathsig": prctl.load(),
        "lifeline": True,
        "members": True,
        "cgroup": cgroup.delegated() is not None if generation is None else cgroup.exists(root, generation),
    }


def _has_pidfds() -> bool:
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True
