"""A systemd that is really booted, in namespaces and a control group of its own, over the machine's own files.

Nothing of it reaches the machine: its files are an overlay in memory, and it sees no control group but its own. The
scripts are files that check where they are before they do anything.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.processes import alive, eventually

#: Moves into the control group that was made for it, then into namespaces.
_ENTER = """#!/bin/sh
set -eu
[ -e "$1/cgroup.events" ] || exit 71
echo $$ >"$1/cgroup.procs"
exec unshare --cgroup --mount --propagation private --fork --pid --mount-proc --kill-child=KILL sh "$2" "$3" "$4"
"""
#: Sees that the control groups are its own, lays an overlay over the machine's files, boots.
_BOOT = """#!/bin/sh
set -eu
[ $$ = 1 ] || exit 72
mount -t cgroup2 none /sys/fs/cgroup
[ -e /sys/fs/cgroup/cgroup.events ] || exit 70
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" none "$1/root"
etc="$1/root/etc/systemd/system"
mkdir -p "$etc" "$1/root/srv"
# Not the machine's enabled units, and nothing that would empty folders for temporary files.
printf '[Unit]\\nRequires=basic.target dbus.socket\\nAfter=basic.target\\nAllowIsolate=yes\\n' >"$etc/test.target"
for unit in systemd-tmpfiles-setup tmp systemd-firstboot systemd-udevd; do ln -sf /dev/null "$etc/$unit.service"; done
ln -sf /dev/null "$etc/tmp.mount"
exec systemd-nspawn --quiet --boot --register=no --keep-unit --link-journal=no --machine="$2" --directory="$1/root" \\
    --console=pipe systemd.unit=test.target
"""


class Booted:
    """``run`` executes a command inside; ``root`` is its file system, seen from here."""

    def __init__(self, folder: Path) -> None:
        self._group = _own_group() / f"platform-worker-test-{secrets.token_hex(4)}"
        enter, boot, place = folder / "enter", folder / "boot", folder / "machine"
        enter.write_text(_ENTER)
        boot.write_text(_BOOT)
        place.mkdir()
        self._log = open(folder / "log", "wb")  # noqa: SIM115  as long as the process
        self._group.mkdir()
        line = ["sh", str(enter), str(self._group), str(boot), str(place), self._group.name]
        environment = {**os.environ, "SYSTEMD_NSPAWN_TMPFS_TMP": "0", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        self._process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, env=environment
        )
        try:
            self.init = eventually(self._find_init, 30, "systemd is process 1 of the machine")
            self.root = Path(f"/proc/{self.init}/root")
            eventually(lambda: "running" in self.systemctl("is-system-running").stdout, 30, "it has booted")
        except AssertionError as error:
            text = (folder / "log").read_text(errors="replace")[-2000:]
            self.close()
            pytest.skip(f"systemd-nspawn cannot boot a systemd here ({error}): {text}")

    def _find_init(self) -> int | None:
        assert self._process.poll() is None, f"ended with {self._process.returncode}"
        below = [self._process.pid]
        for pid in below:
            try:
                below += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
                if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                    return pid
            except FileNotFoundError:
                continue
        return None

    def run(self, *line: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """To its end."""
        inside = ["nsenter", "-t", str(self.init), *("-m", "-u", "-i", "-n", "-p", "-C"), "--", *line]
        return subprocess.run(inside, capture_output=True, text=True, timeout=seconds, check=False)

    def systemctl(self, *words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """``systemctl`` inside."""
        return self.run("systemctl", "--no-pager", *words, seconds=seconds)

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.systemctl("show", "--value", f"--property={name}", unit).stdout.strip()

    def members(self, unit: str) -> list[int]:
        """The pids, as seen from here, of everybody in the unit's control group and those below."""
        found = []
        for path in self._group.rglob("cgroup.procs"):
            if unit in path.parts:
                found += [int(pid) for pid in path.read_text().split()]
        return found

    def close(self) -> None:
        """Powers it off, and removes the control groups."""
        init = getattr(self, "init", None)
        if init is not None and alive(init):
            os.kill(init, signal.SIGRTMIN + 4)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            (self._group / "cgroup.kill").write_text("1")
            self._process.wait(10)
        self._log.close()
        (self._group / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + 10
        while self._group.exists() and time.monotonic() < deadline:
            for folder in sorted(filter(Path.is_dir, self._group.rglob("*")), reverse=True):
                _remove(folder)
            _remove(self._group)


def _remove(group: Path) -> None:
    try:
        group.rmdir()
    except OSError:
        return  # its last process is not reaped yet


def _own_group() -> Path:
    """This process's group in the tree of version 2."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    trees = [fields[1] for fields in mounts if fields[2] == "cgroup2"]
    own = [line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    if not trees or not own:
        pytest.skip("there is no control group of version 2 here")
    return Path(trees[0] + own[0].removeprefix("0::"))


def boot(folder: Path) -> Booted:
    """Skips where the machine has not what it takes, and says what to install."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can boot a systemd: run this test with sudo")
    for tool, package in (("systemd-nspawn", "systemd-container"), ("dbus-daemon", "dbus"), ("nsenter", "util-linux")):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: apt-get install {package}")
    if not os.access(_own_group(), os.W_OK):
        pytest.skip("the control groups are read only here")
    return Booted(folder)
