"""What both drivers give a child: a lifeline, and an environment without what is not its business."""

from __future__ import annotations

import _socket
import os

from platform_worker.host.notify import SERVICE_VARIABLES
from platform_worker.host.streams import LineStream
from platform_worker.protocol.ownership import MAX_LIFELINE_LINE

#: The mark that a child's processes inherit; no secret.
CHILD_MARK = "PLATFORM_WORKER_CHILD"
#: Whose mark it is: ``host/fence_key`` of the root.
FENCE_MARK = "PLATFORM_WORKER_FENCE"
#: Words to a child that does not read: a boot line and a handful of words fit many times.
_MAX_UNREAD = 65536
#: The kernel's buffer in each direction. It bounds what a dead child's last words can be.
_KERNEL_BUFFER = 16384


def lifeline_pair() -> tuple[LineStream, int]:
    """The guardian's end as a stream, the child's as a blocking descriptor; both close on exec.

    ``_socket`` because a pair of descriptors does not need all of ``socket``, with ``selectors`` and dozens of enums.
    """
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    for end in (ours, theirs):
        end.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, _KERNEL_BUFFER)
    return LineStream(ours.detach(), MAX_LIFELINE_LINE, _MAX_UNREAD), theirs.detach()


def child_environment(mark: str, fence: str) -> dict[str, str]:
    """The guardian's environment with the child's two marks."""
    environment = {key: value for key, value in os.environ.items() if key not in SERVICE_VARIABLES}
    environment[CHILD_MARK] = mark
    environment[FENCE_MARK] = fence
    return environment
