"""The doorbell: how who enqueues wakes who waits, without polling.

Beside the database there is a folder ``<database>.bells``. Who waits has a FIFO in it; who has enqueued writes one
byte to each. A FIFO, because it is a file (no limit on its path, unlike a socket's address), because opening one that
nobody reads any more fails at once (so a dead waiter's is recognised and removed), and because waiting on it is a
plain ``poll`` beside the stop's descriptor. A busy worker hides its bell (a name that begins with a dot), so that
enqueueing while all are busy costs one listing of an empty folder.

A ring is a hint: it may be lost (the waiter looks again within a second) or come too early (a caller's transaction
that has not committed yet; the waiter looks again shortly after).
"""

from __future__ import annotations

import os
import select

#: Waits for work.
WORKER = "w"
#: Waits for one job's end; its id follows.
RESULT = "r"


def folder(database: str) -> str:
    """Where the bells of a database are."""
    return database + ".bells"


def ring(database: str, kind: str) -> None:
    """Rings every bell whose name begins with ``kind``, and removes those that nobody listens to."""
    where = folder(database)
    try:
        names = os.listdir(where)
    except OSError:
        return
    for name in names:
        if not name.startswith(kind):
            continue
        path = os.path.join(where, name)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == 6:  # ENXIO: its reader is dead
                _remove(path)
            continue
        try:
            os.write(fd, b"!")
        except OSError:
            pass  # full of rings that nobody has heard yet: one more says nothing new
        finally:
            os.close(fd)


def sweep(database: str) -> None:
    """Removes the hidden bells of dead waiters; those in sight are removed by whoever rings them."""
    where = folder(database)
    try:
        names = os.listdir(where)
    except OSError:
        return
    for name in names:
        path = os.path.join(where, name)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            if error.errno == 6:
                _remove(path)


class Bell:
    """One waiter's bell. ``show`` before the last look for work, ``wait`` after it, ``hide`` when there is work."""

    def __init__(self, database: str, kind: str) -> None:
        self._folder = folder(database)
        self._name = f"{kind}-{os.getpid()}-{os.urandom(6).hex()}"
        self._fd = -1
        self._shown = False

    def show(self) -> None:
        """From now on rings arrive. Where the file system has no FIFOs, none do, and the bounded waits remain."""
        if self._shown:
            return
        try:
            if self._fd < 0:
                self._create()
            os.rename(self._path("."), self._path(""))
            self._shown = True
        except OSError:
            # Somebody removed it, or the folder: made anew at the next wait.
            self._drop()

    def hide(self) -> None:
        """No ring is wanted; those that came are forgotten."""
        if not self._shown:
            return
        self._shown = False
        try:
            os.rename(self._path(""), self._path("."))
        except OSError:
            self._drop()
            return
        self._drain()

    def wait(self, stop_fd: int, timeout_ms: int) -> bool:
        """Waits for a ring, for ``stop_fd`` (none: -1) or the time; true where a ring was heard."""
        poll = select.poll()
        if self._fd >= 0:
            poll.register(self._fd, select.POLLIN)
        if stop_fd >= 0:
            poll.register(stop_fd, select.POLLIN)
        heard = any(fd == self._fd for fd, _ in poll.poll(max(timeout_ms, 0)))
        if heard:
            self._drain()
        return heard

    def close(self) -> None:
        """Takes the bell down."""
        if self._fd >= 0:
            _remove(self._path("" if self._shown else "."))
        self._drop()

    def _path(self, prefix: str) -> str:
        return os.path.join(self._folder, prefix + self._name)

    def _create(self) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        os.mkfifo(self._path("."), 0o600)
        # For writing too: so it never reads as ended when the last one who rang has closed it.
        self._fd = os.open(self._path("."), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def _drain(self) -> None:
        try:
            while len(os.read(self._fd, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass

    def _drop(self) -> None:
        fd, self._fd = self._fd, -1
        self._shown = False
        if fd >= 0:
            os.close(fd)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
