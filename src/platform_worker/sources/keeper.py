"""Renews the lease of the job in hand, from a thread, so that it holds while the handler loops or computes.

One thread for the life of a child, not one a job: starting a thread costs as much as a small job. It wakes at a third
of the lease, whatever was claimed in between. Even a handler that holds the interpreter's lock for half the lease
loses nothing, since two thirds of it are always left.
"""

from __future__ import annotations

import _thread
import signal

from platform_worker.jobs import events
from platform_worker.jobs.store import Interrupted, StoreUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.jobs.store import Claimed, WorkerStore


class Keeper:
    """``hold(claimed)`` when a job is in hand, ``hold(None)`` when it is not."""

    def __init__(self, store: WorkerStore, period: float) -> None:
        self._store = store
        self._period = period
        self._claimed: Claimed | None = None
        self._lost: Claimed | None = None
        self._stop = _thread.allocate_lock()
        self._started = False
        self._settling = False

    def hold(self, claimed: Claimed | None) -> None:
        """From now on this claim, and no other, is renewed."""
        self._claimed = claimed
        self._settling = False
        if claimed is not None and not self._started:
            self._started = True
            self._stop.acquire()
            _thread.start_new_thread(self._run, ())

    def settling(self) -> None:
        """The claim in hand is being settled: that it is not held any more is no news from now on."""
        self._settling = True

    def close(self) -> None:
        """Ends the thread; it may still finish the renewal it is at."""
        self._claimed = None
        if self._started:
            self._started = False
            self._stop.release()

    def lost(self, claimed: Claimed) -> None:
        """Says once in the log that the claim is not ours any more."""
        if self._lost is not claimed:
            self._lost = claimed
            events.emit("warning", "worker.task.lease_lost", job_id=claimed.id)

    def _run(self) -> None:
        # A signal that this thread took would not interrupt what the main thread waits for.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while not self._stop.acquire(timeout=self._period):
            claimed = self._claimed
            try:
                if claimed is not None and claimed is not self._lost:
                    self._renew(claimed)
            except (StoreUnavailable, Interrupted):
                # The next tick tries again, with a third of the lease still left.
                continue
            except Exception as error:  # noqa: BLE001  the edge of a thread: it must go on, and say what happened
                events.emit("error", "worker.queue.unavailable", cause=type(error).__name__)
        self._stop.release()

    def _renew(self, claimed: Claimed) -> None:
        held = self._store.renew(claimed, None)
        # A job that was settled meanwhile, or is just being, is not lost.
        if not held.held and self._claimed is claimed and not self._settling:
            self.lost(claimed)
