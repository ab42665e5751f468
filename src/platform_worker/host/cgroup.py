"""One cgroup for each worker generation, where the cgroup that we are in was given to us (docs/adr/0020).

The guardian itself stays outside, so that ``cgroup.kill`` ends everybody but it. No controller is ever enabled, so
the rule against processes beside sub-cgroups does not bind us. Whatever the kernel refuses here is no error: this is
one layer of several.
"""

from __future__ import annotations

import os

from platform_worker.host.fence_key import fence_key
from platform_worker.host.procfs import read_whole

#: Where systems mount the second version of cgroups: alone, or beside the first.
_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
_PREFIX = "platform-worker"


def delegated() -> str | None:
    """The folder of the cgroup that this process is in, if it is ours to divide; never a machine's root cgroup."""
    path = _path_of("self")
    if path is None:
        return None
    for mount in _MOUNTS:
        folder = os.path.normpath(mount + path)
        if _is_ours(folder) and (path == "/" or _is_marked(folder)):
            return folder
    return None


class Group:
    """The cgroup of one generation; implements ``Group`` of the ports."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._procs = os.open(os.path.join(folder, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)

    def join(self, pid: int) -> None:
        """Moves ``pid`` in, 0 being the caller: one system call, which may stand between fork and exec."""
        try:
            os.write(self._procs, b"%d" % pid)
        except OSError:
            return  # it has ended, or the cgroup was taken away from outside: the other layers still hold it

    def clear(self) -> bool:
        """Kills whoever is in it; true once nobody is, and then it is removed."""
        if not _clear(self._folder):
            return False
        if self._procs >= 0:
            os.close(self._procs)
            self._procs = -1
        return True


def create(root: str, generation: int) -> Group | None:
    """A cgroup for the generation that holds the fence of ``root``; ``None`` where there is no such thing here."""
    parent = delegated()
    if parent is None:
        return None
    folder = os.path.join(parent, _name(root, str(generation)))
    try:
        os.mkdir(folder, 0o755)
    except OSError:
        return None
    try:
        return Group(folder)
    except OSError:
        _remove(folder)
        return None


def exists(root: str, generation: int) -> bool:
    """Whether the guardian has made one."""
    parent = delegated()
    return parent is not None and os.path.isdir(os.path.join(parent, _name(root, str(generation))))


def holds(root: str, pid: int) -> bool:
    """Whether a generation of ``root`` has a cgroup below the one that ``pid``, its supervisor, is in."""
    path = _path_of(str(pid))
    beginning = _name(root, "")
    for mount in _MOUNTS if path is not None else ():
        try:
            if any(name.startswith(beginning) for name in os.listdir(os.path.normpath(f"{mount}{path}"))):
                return True
        except OSError:
            continue
    return False


def clear_all(root: str) -> bool:
    """Ends what is left of every generation of ``root``. Only for a guardian that holds ``worker.lock``.

    True once nobody is left; it does not wait, so it is called again. A name with the root's key in a cgroup that is
    ours can only have been given by a guardian of the same root, and one that lives would hold the lock.
    """
    parent = delegated()
    if parent is None:
        return True
    beginning = _name(root, "")
    try:
        names = [name for name in os.listdir(parent) if name.startswith(beginning)]
    except OSError:
        return True
    left = [name for name in names if name[len(beginning) :].isdigit() and not _clear(os.path.join(parent, name))]
    return not left


def clear_one(root: str, generation: int) -> bool:
    """The same for one generation, whose guardian is dead: others may live by now."""
    parent = delegated()
    return parent is None or _clear(os.path.join(parent, _name(root, str(generation))))


def _name(root: str, generation: str) -> str:
    return f"{_PREFIX}.{fence_key(root)}.{generation}"


def _path_of(process: str) -> str | None:
    try:
        with open(f"/proc/{process}/cgroup", "rb") as stream:
            lines = stream.read().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(b"0::/"):
            path = os.fsdecode(line[3:])
            return None if "/.." in path or path.endswith(" (deleted)") else path
    return None


def _is_ours(folder: str) -> bool:
    """The proof is that the kernel lists us there. ``cgroup.events`` and a type are what a machine's root has not."""
    if not os.access(folder, os.W_OK) or not os.access(os.path.join(folder, "cgroup.procs"), os.W_OK):
        return False
    files = {name: read_whole(os.path.join(folder, name)) for name in ("cgroup.events", "cgroup.type", "cgroup.procs")}
    return (
        bool(files["cgroup.events"])
        and files["cgroup.type"] == b"domain\n"
        and b"%d" % os.getpid() in (files["cgroup.procs"] or b"").split()
        and os.path.exists(os.path.join(folder, "cgroup.kill"))
    )


def _is_marked(folder: str) -> bool:
    """systemd says so in an attribute, for ``Delegate=yes``."""
    for name in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(folder, name) == b"1":
                return True
        except OSError:
            continue
    return False


def _clear(folder: str) -> bool:
    events = read_whole(os.path.join(folder, "cgroup.events"))
    if events is None:
        return not os.path.isdir(folder)
    if b"populated 1" in events.splitlines():
        try:
            with open(os.path.join(folder, "cgroup.kill"), "wb", buffering=0) as stream:
                stream.write(b"1")
        except OSError:
            return True  # not permitted any more; nobody can do anything about it
        return False
    _remove(folder)
    return True


def _remove(folder: str) -> None:
    """With what a task may have made below it. Nobody lives there, so what cannot be removed is only a name."""
    for inner, _, _ in os.walk(folder, topdown=False, followlinks=False):
        try:
            os.rmdir(inner)
        except OSError:
            continue
