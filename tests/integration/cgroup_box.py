"""A cgroup of one's own for a test, seen as the root of a cgroup namespace: what a container has, and what delegates.

The machine's root cgroup is never touched: the program moves itself into a fresh sub-cgroup, takes a namespace there,
and refuses to go on where it does not find itself below a root.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from pathlib import Path

_ENTER = """set -eu
echo $$ > "$1/cgroup.procs"
exec unshare --cgroup --mount --propagation private sh "$2" "$3"
"""
_INSIDE = """set -eu
mount -t cgroup2 none /sys/fs/cgroup
[ -e /sys/fs/cgroup/cgroup.events ] || exit 70
[ "$(grep ^0:: /proc/self/cgroup)" = "0::/" ] || exit 71
exec sh -c "$1"
"""


class Box:
    """``run`` runs a command in it; ``close`` kills what is in it, and removes it."""

    def __init__(self, folder: Path) -> None:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        tree = next(Path(fields[1]) for fields in mounts if fields[2] == "cgroup2")
        self.cgroup = tree / f"platform-worker-test-{secrets.token_hex(6)}"
        self.cgroup.mkdir()
        self._enter, self._inside = folder / "enter.sh", folder / "inside.sh"
        self._enter.write_text(_ENTER)
        self._inside.write_text(_INSIDE)

    def run(self, command: str, seconds: float = 100.0) -> subprocess.CompletedProcess[str]:
        """To its end; a command of the shell."""
        line = ["sh", str(self._enter), str(self.cgroup), str(self._inside), command]
        return subprocess.run(line, capture_output=True, text=True, timeout=seconds, check=False)

    def close(self) -> None:
        (self.cgroup / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + 10
        while "populated 1" in (self.cgroup / "cgroup.events").read_text():
            assert time.monotonic() < deadline, "the test's cgroup does not empty"
        for inner, _, _ in os.walk(self.cgroup, topdown=False):
            os.rmdir(inner)


def refusal() -> str | None:
    """Why there can be none here."""
    if os.geteuid() != 0:
        return "only root can make a namespace with a cgroup of its own"
    if not any(line.split()[2] == "cgroup2" for line in Path("/proc/mounts").read_text().splitlines()):
        return "no cgroup2 is mounted"
    done = subprocess.run(["unshare", "--cgroup", "--mount", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "no namespaces here"
