"""The doorbell: LISTEN on a session of its own, so that who enqueues wakes who waits.

Who waits for work also holds an advisory lock shared; who has enqueued asks for that lock, and says nothing where
nobody has it. A busy worker does not listen: what nobody reads would pile up in the server.

Behind a pooler that gives each transaction another session nobody can listen; there, and where the session is dead, the
waiter's bounded looks remain. A ring is a hint: it may be lost, and may come too early.
"""

from __future__ import annotations

import select
import time

from platform_worker.jobs.ids import luck
from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.postgres import schema
from platform_worker.sources.postgres.connection import Connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

#: After a failure it is not tried again for so long, and twice as long after each further one, up to the last; seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0


class Bell:
    """One waiter's bell. ``show`` before the last look, ``wait`` after it, ``hide`` when there is work."""

    def __init__(self, connection: Connection, channel: str, wanted: Callable[[str], bool], *, count: bool) -> None:
        """``count``: whether who waits is to be seen by those who ring."""
        self._connection = connection
        self._wanted = wanted
        lock = schema.lock_key(connection.schema, "waiters")
        self._show = f'LISTEN "{channel}"' + (f"; SELECT pg_advisory_lock_shared({lock})" if count else "")
        self._hide = "UNLISTEN *" + (f"; SELECT pg_advisory_unlock_shared({lock})" if count else "")
        self._shown = False
        self._pause = _FIRST_PAUSE
        self._not_before = 0.0

    def show(self) -> None:
        """From now on rings arrive, where that is possible."""
        if self._shown and self._connection.opened:
            return
        self._shown = False
        if time.monotonic() < self._not_before:
            return
        try:
            self._connection.ready()
            if self._connection.pooled:
                # Not even asked for: it would be said to a session that is somebody else's next.
                self._connection.close()
                self._pause = _LONGEST_PAUSE
                self._fail()
                return
            self._connection.script(self._show)
        except StoreUnavailable:
            self._fail()
            return
        self._shown = True
        self._pause = _FIRST_PAUSE

    def hide(self) -> None:
        """No ring is wanted; the server is told, and its answer not waited for."""
        if not self._shown:
            return
        self._shown = False
        try:
            self._connection.send(self._hide)
        except StoreUnavailable:
            return

    def wait(self, stop_fd: int, timeout_ms: int) -> bool:
        """Waits for a ring, for ``stop_fd`` (none: -1) or the time; true where a ring was heard."""
        until = time.monotonic() + timeout_ms / 1000
        while True:
            fd = self._connection.fileno() if self._shown else -1
            poll = select.poll()
            for one in (fd, stop_fd):
                if one >= 0:
                    poll.register(one, select.POLLIN)
            left = max(int((until - time.monotonic()) * 1000), 0)
            ready = [ready for ready, _ in poll.poll(left)]
            if fd not in ready:
                return False
            try:
                if any(self._wanted(said) for said in self._connection.notified()):
                    return True
            except StoreUnavailable:
                # The listening session alone is dead: the rest of this wait is only a wait.
                self._shown = False
            if stop_fd in ready:
                return False

    def close(self) -> None:
        """Ends the session."""
        self._shown = False
        self._connection.close()

    def _fail(self) -> None:
        self._not_before = time.monotonic() + self._pause * (0.5 + luck() / 2)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
