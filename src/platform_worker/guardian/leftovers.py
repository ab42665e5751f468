"""Whose is a process that became the guardian's when its parent died, and must it go? Pure.

Every process that a child starts inherits the child's mark and, unless it asks otherwise, its session. A task's
processes are left alone until their child ends; then they go.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from platform_worker.ports_processes import Stranger


def condemned(
    strangers: Iterable[Stranger], alive: Mapping[str, int], ended: Collection[int]
) -> tuple[list[int], list[int]]:
    """Splits what must go from what cannot be told.

    ``alive`` maps the mark of each living child to its pid; ``ended`` are the pids of those whose leftovers are being
    killed (a session keeps its number as long as anyone is in it, so the number of a reaped leader is still telling).

    Returns ``(pids to kill, pids that nothing tells whose they are)``. A process that has cleared its environment and
    left its session is nobody's: while any child lives it may be that child's, and to kill a process of a task that is
    at work is worse than to keep a stray one; it goes when no child is left, at the latest with the generation.
    """
    gone: list[int] = []
    unknown: list[int] = []
    sessions = frozenset(alive.values())
    for stranger in strangers:
        if stranger.mark is not None:
            if stranger.mark not in alive:
                gone.append(stranger.pid)
        elif stranger.session in sessions:
            continue
        elif alive and stranger.session not in ended:
            unknown.append(stranger.pid)
        else:
            gone.append(stranger.pid)
    return gone, unknown
