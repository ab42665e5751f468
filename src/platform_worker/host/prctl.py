"""The two Linux calls that Python does not wrap. Elsewhere they do nothing, and say so."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_prctl: Callable[..., int] | None = None


def load() -> bool:
    """Makes the calls available; between fork and exec nothing may be imported. False where there are none."""
    global _prctl  # noqa: PLW0603  one library, looked up once
    if _prctl is None and sys.platform == "linux":
        try:
            import ctypes

            _prctl = ctypes.CDLL(None).prctl
        except (ImportError, OSError, AttributeError):  # no ctypes, or no libc to look in
            return False
    return _prctl is not None


def set_parent_death_signal(signum: int) -> bool:
    """Asks the kernel for ``signum`` when the parent *thread* ends; kept across exec, not across fork.

    The caller must check afterwards that its parent is still the one it had: it may have died before the call.
    """
    return _prctl is not None and _prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0) == 0


def become_subreaper() -> bool:
    """From now on the orphans among the descendants become this process's children."""
    return load() and _prctl is not None and _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
