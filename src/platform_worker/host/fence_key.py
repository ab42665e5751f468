"""A short name for one root's fence: in a child's environment, in a cgroup's name. Says nothing of the path."""

from __future__ import annotations

import os


def fence_key(root: str) -> str:
    """The folder's identity to the kernel: the same by whatever path it is reached, another one for a copy."""
    status = os.stat(root)
    return f"{status.st_dev:x}-{status.st_ino:x}"
