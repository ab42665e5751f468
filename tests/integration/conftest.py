"""The fixtures of the queue, on every store."""

from harness.queue_fixtures import context, log, make, queue, root, source, worker

__all__ = ["context", "log", "make", "queue", "root", "source", "worker"]
