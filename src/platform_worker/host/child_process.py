"""A child's own process: its descriptors, signals, watcher thread, and the ways out.

Descriptors of a child (docs/ssot/process-descriptors.md): the guardian gives the lifeline as 0. It moves up at once,
so that a task that closes or replaces 0, 1 or 2 takes nothing of ours away, and is closed on exec and after a fork.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from _thread import get_ident, start_new_thread

from platform_worker.protocol.lines import LineBuffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, NoReturn, Protocol

    class Listener(Protocol):
        """Who is told what is heard: by the watcher's thread, but for ``signalled``, which is the main thread's."""

        def line(self, line: bytes) -> None: ...
        def stop(self) -> None: ...
        def lost(self) -> None: ...
        def signalled(self) -> None: ...


#: The bare one, without the enums: it is asked twice a task.
getsignal: Callable[[int], object] = __import__("_signal").getsignal

#: Where our descriptors begin: out of the way of code that counts on small numbers.
_LOWEST = 64
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_TERM, _INT = map(int, _STOPPING)
#: A signal to the whole group is the guardian's matter; a handler, not SIG_IGN, which a task's programs would inherit.
_HEEDLESS = (signal.SIGHUP, signal.SIGQUIT)


def raise_descriptor(fd: int) -> int:
    """A copy of ``fd`` at a high number, closed on exec."""
    high = _LOWEST
    while True:
        try:
            os.fstat(high)
            high += 1
        except OSError:
            break
    try:
        return os.dup2(fd, high, inheritable=False)
    except OSError:  # a limit of open files below that number
        return os.dup(fd)


class WakePipe:
    """A descriptor that is readable while it is set. Never blocks."""

    def __init__(self) -> None:
        low = os.pipe()
        self.reading, self.writing = (raise_descriptor(fd) for fd in low)
        for fd in low:
            os.close(fd)
        os.set_blocking(self.reading, False)
        os.set_blocking(self.writing, False)

    def fileno(self) -> int:
        return self.reading

    def set(self) -> None:
        try:
            os.write(self.writing, b"\0")
        except BlockingIOError:  # full is readable
            return

    def clear(self) -> None:
        self.take()

    def take(self) -> bytes:
        """What was written to it, by ``set`` or by the interpreter for a signal."""
        data = b""
        try:
            while chunk := os.read(self.reading, 4096):
                data += chunk
        except BlockingIOError:
            pass
        return data


class ChildProcess:
    """The process that this code runs in, as a child of the guardian. Implements ``Self``; there is one of it."""

    def __init__(self, strike: Callable[[FrameType | None], None]) -> None:
        self._strike = strike
        self._main = get_ident()
        self._lifeline = raise_descriptor(0)
        self._members: int | None = None
        self._signals = WakePipe()
        self.wake = WakePipe()
        self.stderr = _secure_standard_streams()
        _print_whole_lines()
        #: True in a process that a task forked off: it is not this child, whatever stack it returns into.
        self.forked = False
        self._handler = self._on_stop  # one object: each look at a method makes a new one
        self._listener: Listener | None = None
        self._install_signals()
        os.register_at_fork(after_in_child=self._after_fork)

    # What a task may see of this process

    def adopt_members(self, fd: int | None) -> None:
        """The shared lock's descriptor: held until this process ends, and given to nobody."""
        if fd is not None:
            os.set_inheritable(fd, False)
            self._members = fd

    def restore_signals(self) -> None:
        if self.forked:
            self._end_forked()
        if getsignal(_TERM) is not self._handler or getsignal(_INT) is not self._handler:
            self._install_signals()

    def _install_signals(self) -> None:
        signal.set_wakeup_fd(self._signals.writing, warn_on_full_buffer=False)
        for number in _STOPPING:
            signal.signal(number, self._handler)
        for number in _HEEDLESS:
            signal.signal(number, _nothing)
        # Blocked by the guardian across the exec, so that none was lost before there was a handler.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*_STOPPING, *_HEEDLESS))

    def _on_stop(self, _number: int, frame: FrameType | None) -> None:
        """The watcher hears of it by the wake-up descriptor, unless the application has put its own there."""
        if self._listener is not None:
            self._listener.signalled()
        self._strike(frame)

    def _after_fork(self) -> None:
        self.forked = True
        signal.set_wakeup_fd(-1)
        for number in (*_STOPPING, *_HEEDLESS):
            if signal.getsignal(number) in (self._handler, _nothing):
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for fd in (self._lifeline, self._members, self._signals.reading, self._signals.writing):
            if fd is not None:
                _close(fd)
        _close(self.wake.reading)
        _close(self.wake.writing)

    def _end_forked(self) -> None:
        """A task forked and let its copy return: the copy must not settle the task once more."""
        _flush_files()
        os._exit(0)

    # What is said and heard

    @property
    def lifeline(self) -> int:
        """Its descriptor, for the last words of a process that cannot run Python any more."""
        return self._lifeline

    def say(self, line: str) -> None:
        if self.forked:
            os._exit(0)
        data = line.encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._lifeline, data) :]
        except OSError:
            self.die()

    def mention(self, line: str) -> None:
        room = select.poll()
        room.register(self._lifeline, select.POLLOUT)
        if self.forked or not room.poll(0):
            return
        try:
            os.write(self._lifeline, line.encode() + b"\n")
        except OSError:  # the guardian is gone, which the watcher is about to see
            return

    def nudge(self) -> None:
        self._signals.set()

    def watch(self, listener: Listener, limit: int, tick: Callable[[], float | None]) -> None:
        """Starts the thread that hears the guardian and the signals while the main thread is busy with a task.

        ``tick`` does what is due, and says in how many seconds to call it again at the latest.
        """
        self._listener = listener
        start_new_thread(self._watch, (listener, LineBuffer(limit), tick))

    def _watch(self, listener: Listener, lines: LineBuffer, tick: Callable[[], float | None]) -> None:
        # Signals belong to the main thread: one that this thread took would not end the main thread's system call.
        signal.pthread_sigmask(signal.SIG_BLOCK, (*_STOPPING, *_HEEDLESS))
        poll = select.poll()
        poll.register(self._lifeline, select.POLLIN)
        poll.register(self._signals.reading, select.POLLIN)
        while True:
            left = tick()
            for fd, _ in poll.poll(None if left is None else left * 1000 + 1):
                if fd == self._lifeline:
                    self._hear(listener, lines)
                elif not set(self._signals.take()).isdisjoint(_STOPPING):
                    listener.stop()

    def _hear(self, listener: Listener, lines: LineBuffer) -> None:
        try:
            data = os.read(self._lifeline, 4096)
            if data:
                for line in lines.feed(data):
                    listener.line(line)
                return
        except (OSError, ValueError):  # a guardian that talks nonsense is none: the same as one that is gone
            pass
        listener.lost()

    # The ways out

    def end(self, code: int) -> NoReturn:
        """The interpreter's own way out, as far as anybody counts on it: threads, atexit, buffers.

        What it does after that, taking every module apart, can take ten times as long as all of a stop. So
        ``multiprocessing`` ends its processes, too.
        """
        import atexit

        threading: Any = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()
        atexit._run_exitfuncs()
        _flush_files()
        os._exit(code)

    def interrupt(self) -> None:
        signal.pthread_kill(self._main, signal.SIGTERM)

    def leave(self) -> None:
        os._exit(0)

    def die(self) -> None:
        # A child leads its group, so that what its task started ends with it; a group that we do not lead is not ours.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)


def _secure_standard_streams() -> int:
    """Fills 0, and 1 and 2 if they are closed, so that no socket ever gets such a number. A copy of 2 for the log."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        try:
            closed = False
            os.fstat(fd)
        except OSError:
            closed = True
        if fd == 0 or closed:
            os.dup2(null, fd)
    if null > 2:
        os.close(null)
    return raise_descriptor(2)


def _print_whole_lines() -> None:
    """Many children write to one place, and PYTHONUNBUFFERED would have each word of a line written by itself."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, write_through=False)


def _flush_files() -> None:
    """Writes out what files that were never closed still hold, the standard streams among them."""
    import gc
    import io

    # A text layer holds back what its buffer then holds back: it comes first.
    for kinds in ((io.TextIOWrapper,), (io.BufferedWriter, io.BufferedRandom)):
        for found in gc.get_objects():
            if type(found) in kinds:
                try:
                    found.flush()
                except (OSError, ValueError):  # closed, or nobody reads any more: there is nobody left to tell
                    continue


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:  # the task closed it before it forked
        return


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """For signals that are not for a child to act on."""
