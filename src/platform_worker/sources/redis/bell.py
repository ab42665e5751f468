"""The wait for a ring: a blocking read of the server's, beside the stop's descriptor.

Who adds jobs pushes one token a job on the queue's bell, a list; who waits pops from its queues' bells with BLPOP, so
that a job wakes one worker, not all. A claim that finds nothing empties the bells: a token that is left says that
there may be work. One that is lost, with a worker or a connection, costs another worker's bounded wait.
"""

from __future__ import annotations

import select
import time

from platform_worker.jobs.store import StoreUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from platform_worker.sources.redis.connection import Connection

#: How long the server holds one read, in seconds; a reply that is this much later never comes.
_READ_SECONDS = 10
_LATE_SECONDS = 2


class Bell:
    """One worker's blocking read, on a connection of its own. It goes on over several waits."""

    def __init__(self, connection: Connection, bells: Sequence[str]) -> None:
        self._connection = connection
        self._bells = bells
        #: Until when the read that is under way must have an answer; 0: none is.
        self._until = 0.0

    def wait(self, stop_fd: int, timeout_ms: int, listen: bool) -> bool:
        """Waits for a ring, the stop or the time; true where a ring was heard."""
        end = time.monotonic() + timeout_ms / 1000
        while True:
            if listen:
                listen = self._begin()
            poll = select.poll()
            poll.register(stop_fd, select.POLLIN)
            if listen:
                poll.register(self._connection.fileno(), select.POLLIN)
            ready = poll.poll(max((end - time.monotonic()) * 1000, 0))
            if not ready or any(fd == stop_fd for fd, _ in ready):
                return False
            heard = self._heard()
            if heard:
                return True
            listen = heard is not None

    def withdraw(self) -> None:
        """Takes the read back, where one is under way: a busy worker must not take a ring from an idle one."""
        if self._until:
            self.close()

    def close(self) -> None:
        """Closes the connection; the next wait opens it again."""
        self._until = 0.0
        self._connection.close()

    def _begin(self) -> bool:
        """A read is under way; false where there can be none."""
        if self._until and time.monotonic() > self._until:
            self.close()
        if not self._until:
            try:
                self._connection.send("BLPOP", *self._bells, _READ_SECONDS)
            except StoreUnavailable:
                return False
            self._until = time.monotonic() + _READ_SECONDS + _LATE_SECONDS
        return True

    def _heard(self) -> bool | None:
        """What has arrived: a ring, the end of the read, or ``None`` where the connection is of no use any more."""
        try:
            reply = self._connection.received()
        except StoreUnavailable:
            # The next look for a job says what is wrong; until then the wait goes on without rings.
            self.close()
            return None
        if reply is None:
            return False
        self._until = 0.0
        return bool(reply)
