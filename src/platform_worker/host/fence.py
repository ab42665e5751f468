"""Is anything of this pool alive? For status, health and stop: a look that creates nothing and disturbs nobody.

And ``open_members``, the first thing a start does.
"""

from __future__ import annotations

import fcntl
import os
import time

LOCK = "var/tmp/worker.lock"
MEMBERS = "var/tmp/worker.members"
#: How often, and how many seconds apart, members without a guardian are looked at: only then may it be another reader.
_LOOKS = 20
_PAUSE = 0.002


def fence_held(root: str) -> bool:
    """True while the guardian or any process of its generation lives; in doubt (no permission, no locks) true.

    Each lock is held only for the instant between two system calls; a guardian that meets it tries again.
    """
    if not _free(os.path.join(root, LOCK), fcntl.LOCK_SH):
        return True
    for _ in range(_LOOKS):
        if _free(os.path.join(root, MEMBERS), fcntl.LOCK_EX):
            return False
        time.sleep(_PAUSE)  # another who looks, in the same instant? Its look is over by now
    return True


def lock_holder(root: str) -> tuple[bool, int | None]:
    """Whether a guardian holds ``worker.lock``, in doubt true, and the last worker generation's number, if readable.

    A number that is read after that is no greater than that of a generation that lives. A file that is not there may
    have been deleted under a running pool: that is in doubt.
    """
    path = os.path.join(root, LOCK)
    held = not os.path.lexists(path) or not _free(path, fcntl.LOCK_SH)
    try:
        with open(path, "rb") as stream:
            text = stream.read(64)
    except OSError:
        return held, None
    digits = text[:-1]
    return held, int(digits) if text.endswith(b"\n") and digits.isdigit() else None


def open_members(root: str) -> int:
    """Opens, and at the very first start creates, the members file; the caller owns the descriptor.

    It is handed down, never reopened: the lock belongs to this open file. Raises ``WorkerLifecycleError`` where
    ``var/tmp`` cannot be written.
    """
    try:
        os.makedirs(os.path.join(root, "var"), exist_ok=True)
        os.makedirs(os.path.join(root, os.path.dirname(MEMBERS)), mode=0o700, exist_ok=True)
        return os.open(os.path.join(root, MEMBERS), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        from platform_worker.errors import WorkerLifecycleError

        raise WorkerLifecycleError("worker-lifecycle-lock-failed", hints=["var/tmp must be writable"]) from error


def _free(path: str, how: int) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        fcntl.flock(fd, fcntl.LOCK_UN)
        return True
    finally:
        os.close(fd)
