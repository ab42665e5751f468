"""What ``worker doctor`` reads of the machine: folders, mounts, limits, units. Changes nothing, starts no pool."""

from __future__ import annotations

import glob
import os
import resource
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

#: Relative to the root.
FOLDERS = (".", "var", "var/tmp", "var/artifacts")
_UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
)
#: No unit is near this.
_UNIT_MAX_CHARACTERS = 1024 * 1024


def folders(root: str) -> Iterator[tuple[str, int, bool]]:
    """Name, mode, and whether we may write there, of those that exist."""
    for name in FOLDERS:
        path = os.path.join(root, name)
        try:
            yield name, stat.S_IMODE(os.stat(path).st_mode), os.access(path, os.W_OK)
        except OSError:
            continue


def file_system(root: str) -> str:
    """The type of what ``var/tmp`` is, or will be, on; empty where it cannot be told."""
    path = os.path.realpath(os.path.join(root, "var/tmp"))
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
            lines = stream.read().splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].encode("latin-1", "surrogateescape").decode("unicode_escape", "replace")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount hides an earlier one at the same place
            best, kind = point, right.split(" ")[0]
    return kind


def limit(which: str, pid: int | None) -> int | None:
    """The soft limit ``nofile`` or ``nproc`` of a process (``None``: of ours); ``None`` where there is none."""
    number = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}[which]
    try:
        soft, _ = resource.getrlimit(number) if pid is None else resource.prlimit(pid, number)
    except OSError:
        return None
    return None if soft == resource.RLIM_INFINITY else soft


def tasks_of_user() -> int:
    """Processes and threads with our uid."""
    count = 0
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{entry}/task"))
        except OSError:
            continue
    return count


def unit_of(pid: int) -> tuple[str, bool] | None:
    """The systemd service that a process belongs to, and whether it is a user's."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as stream:
            lines = stream.read().splitlines()
    except OSError:
        return None
    for line in lines:
        number, _, rest = line.partition(":")
        controller, _, path = rest.partition(":")
        names = [name for name in path.split("/") if name.endswith(".service")]
        if (number == "0" or controller == "name=systemd") and names:
            user = len(names) > 1 and names[0].startswith("user@")
            return (names[-1], user) if user or not names[0].startswith("user@") else None
    return None


def unit_property(unit: str, user: bool, name: str) -> str | None:
    """What systemd says of a unit it has loaded; ``None`` where there is no asking."""
    import subprocess

    line = ["systemctl", *(["--user"] if user else []), "show", "--value", f"--property={name}", "--", unit]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def unit_files(root: str) -> Iterator[tuple[str, list[str]]]:
    """The services installed here that start a pool of ``root``: name, and the texts of file and drop-ins."""
    places = [*_UNIT_FOLDERS, os.path.expanduser("~/.config/systemd/user")]
    seen = set()
    for place in places:
        for path in sorted(glob.glob(os.path.join(glob.escape(place), "*.service"))):
            name = os.path.basename(path)
            text = _text(path)
            if name in seen or text is None:
                continue
            seen.add(name)
            if _starts(text, root):
                drop_ins = [file for folder in places for file in _drop_ins(folder, name)]
                parts = [_text(file) or "" for file in sorted(drop_ins, key=os.path.basename)]
                yield name, [text, *parts]


def _starts(text: str, root: str) -> bool:
    lines = [line.strip() for line in text.splitlines()]
    starts = [line for line in lines if line.startswith("ExecStart=")]
    there = [line for line in lines if line.startswith("WorkingDirectory=")]
    named = any(root in line.replace("=", " ").split() for line in starts)
    inside = any(line.partition("=")[2].lstrip("-") == root for line in there)
    return any("worker" in line for line in starts) and (named or inside)


def _drop_ins(folder: str, name: str) -> list[str]:
    return glob.glob(os.path.join(glob.escape(os.path.join(folder, f"{name}.d")), "*.conf"))


def _text(path: str) -> str | None:
    """``None`` for what is no unit: a mask (a link to /dev/null), a folder, a FIFO that would be waited for."""
    if not os.path.isfile(path):
        return None
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(_UNIT_MAX_CHARACTERS)
    except OSError:
        return None
