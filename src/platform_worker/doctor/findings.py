"""Findings, and the judgements that need no look at the machine."""

from __future__ import annotations

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: File systems where a lock of one machine is not, or not reliably, seen by another one, or that have no flock at all.
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gfs2", "ocfs2", "vboxsf",
     "beegfs", "ncpfs", "coda", "orangefs", "virtiofs", "davfs"}
)  # fmt: skip
#: systemd's own default, where a unit says nothing.
DEFAULT_STOP_SECONDS = 90.0
#: Descriptors that a process needs beside those of its children: sessions, channels, what an application opens.
_DESCRIPTORS = 128
_UNITS = {
    "us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hour": 3600.0,
    "hours": 3600.0, "d": 86400.0, "day": 86400.0, "days": 86400.0, "w": 604800.0, "week": 604800.0, "weeks": 604800.0,
}  # fmt: skip

#: What each mechanism of containment takes, for who misses it.
_REMEDIES = {
    "sessions": "run it on a POSIX system",
    "subreaper": "run it on Linux, with a Python that has ctypes",
    "pidfd": "Linux 5.3 or newer; a container's seccomp profile must allow pidfd_open",
    "pdeathsig": "run it on Linux, with a Python that has ctypes",
    "cgroup": "under systemd: Delegate=yes without ProtectControlGroups=yes; in a container: a writable /sys/fs/cgroup",
}


class Finding(Value):
    """One thing that is wrong (``problem``: exit 1) or could be better (``note``)."""

    check: str
    level: str
    text: str
    remedy: str


def problem(check: str, text: str, remedy: str) -> Finding:
    """Something that breaks, or will."""
    return Finding(check, "problem", text, remedy)


def note(check: str, text: str, remedy: str) -> Finding:
    """Something that is allowed, and could be better."""
    return Finding(check, "note", text, remedy)


def missing_mechanisms(found: Mapping[str, bool], *, of_the_pool: bool) -> Iterable[Finding]:
    """``of_the_pool``: it runs, and this is what it has; else what a start from here would have."""
    where = "the running pool" if of_the_pool else "a pool started from here"
    for name, there in found.items():
        if not there:
            level = "note" if name == "cgroup" else "problem"
            remedy = _REMEDIES.get(name, "see docs/ssot/process-descriptors.md")
            yield Finding("containment", level, f"{where} has no {name} to keep a worker generation together", remedy)


def of_mode(name: str, mode: int) -> Iterable[Finding]:
    """What is off with the permissions of a folder of the root; ``name`` is relative to it."""
    if mode & 0o002:
        yield problem("modes", f"{name} can be written by every user", f"chmod o-w {name}")
    elif mode & 0o020:
        yield note("modes", f"{name} can be written by its group", f"chmod g-w {name}, unless that is the user's alone")


def of_file_system(kind: str) -> Iterable[Finding]:
    """``kind``: the type of the file system that var/tmp is on."""
    if kind in NETWORK_FILE_SYSTEMS or kind.startswith("fuse."):
        yield problem(
            "file-system",
            f"var/tmp is on {kind}: the fence's locks are not known to hold there",
            "keep the root, or its var, on a local file system",
        )


def of_descriptors(limit: int | None, workers: int) -> Iterable[Finding]:
    """``limit``: of open files of one process; ``None``: none."""
    needed = _DESCRIPTORS + 2 * workers
    if limit is not None and limit < needed:
        yield problem(
            "limits",
            f"{limit} open files a process are too few for {workers} workers",
            f"raise the limit of open files to {needed} or more (ulimit -n; LimitNOFILE= of a unit)",
        )


def of_processes(limit: int | None, running: int, workers: int, *, started: bool) -> Iterable[Finding]:
    """``running``: processes and threads that the user has; ``started``: those of the pool are among them."""
    needed = workers if started else 2 * workers + 2  # a replacement boots beside each child
    if limit is not None and running + needed > limit:
        yield problem(
            "limits",
            f"the user may have {limit} processes and threads, and has {running}: too few are left for the pool",
            "raise the limit of processes (ulimit -u; LimitNPROC= of a unit), or lower worker.workers",
        )


def of_stop_timeout(unit: str, seconds: float | None, stop_ms: int, force_ms: int) -> Iterable[Finding]:
    """``seconds``: after which systemd kills; ``None``: never."""
    budget = (stop_ms + 2 * force_ms) / 1000
    if seconds is not None and seconds <= budget:
        yield problem(
            "unit",
            f"{unit} is killed {seconds:g} s after it was told to stop, and may take {budget:g} s",
            "TimeoutStopSec= longer than stop_timeout_ms + 2 x force_kill_timeout_ms",
        )


def time_span(text: str) -> float | None:
    """systemd's notation (``1min 30s``, ``20``, ``infinity``) in seconds; ``None``: for ever. ``ValueError`` else."""
    import re

    text = text.strip()
    if text == "infinity":
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text)
    if not parts or "".join(re.split(r"\s+", text)) != "".join(number + unit for number, unit in parts):
        raise ValueError("no time span")
    try:
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    except KeyError:
        raise ValueError("no time span") from None
    return seconds or None  # 0 switches it off


def unit_stop_seconds(texts: Iterable[str]) -> float | None:
    """Of a unit file and its drop-ins, in their order: the last word counts."""
    seconds: float | None = DEFAULT_STOP_SECONDS
    for text in texts:
        for line in text.splitlines():
            key, _, value = line.strip().partition("=")
            if key.strip() in ("TimeoutStopSec", "TimeoutSec"):
                try:
                    seconds = time_span(value) if value.strip() else DEFAULT_STOP_SECONDS
                except ValueError:
                    continue
    return seconds
