"""Spans and metrics by opentelemetry-api, which the application must have loaded: without its SDK nothing is recorded.

The one file that knows opentelemetry. A tracer, meter or exporter that fails changes nothing: each call that reaches
the application's SDK stands at a boundary of its own.
"""

from __future__ import annotations

import sys
import time

from platform_worker.ports import PROCESS_STATUSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from platform_worker.ports import Operation, Outcome, Telemetry


class _NoSpan:
    __slots__ = ()

    def end(self, outcome: Outcome) -> None:  # noqa: ARG002  the port's
        return


_NO_SPAN = _NoSpan()


class NoTelemetry:
    """Nobody listens."""

    def task(self, operation: Operation) -> _NoSpan:  # noqa: ARG002  the port's
        return _NO_SPAN

    def process(self, status: str, seconds: float = 0.0) -> None:  # noqa: ARG002  the port's
        assert status in PROCESS_STATUSES, status

    def flush(self, seconds: float) -> None:  # noqa: ARG002  the port's
        return


def find_telemetry() -> Telemetry:
    """What the application has set up by now; opentelemetry is never imported by us where it has not been already."""
    if "opentelemetry.trace" not in sys.modules and "opentelemetry.metrics" not in sys.modules:
        return NoTelemetry()
    try:
        return OpenTelemetry()
    except Exception:  # noqa: BLE001  the edge to the application's SDK: a pool works without being watched
        return NoTelemetry()


class OpenTelemetry:
    """Implements ``Telemetry`` on the providers that are installed now."""

    def __init__(self) -> None:
        from opentelemetry import context, metrics, trace

        self._trace: Any = trace
        self._context: Any = context
        self._providers: tuple[Any, ...] = (trace.get_tracer_provider(), metrics.get_meter_provider())
        self._tracer: Any = trace.get_tracer("platform_worker")
        meter = metrics.get_meter("platform_worker")
        self.task_total: Any = meter.create_counter("worker.task_total")
        self.task_duration: Any = meter.create_histogram("worker.task_duration_ms", unit="ms")
        self._process_total: Any = meter.create_counter("worker.process_total")

    def task(self, operation: Operation) -> _TaskSpan | _NoSpan:
        try:
            span = self._tracer.start_span("worker.task", attributes={"operation": operation})
            token = self._context.attach(self._trace.set_span_in_context(span))
        except Exception:  # noqa: BLE001  the edge to the application's SDK: the task runs without a span
            return _NO_SPAN
        return _TaskSpan(self, operation, span, token)

    def detach(self, token: Any) -> None:
        self._context.detach(token)

    def process(self, status: str, seconds: float = 0.0) -> None:
        import os

        assert status in PROCESS_STATUSES, status
        outcome = status.rpartition("_")[2]
        try:
            self._process_total.add(1, {"status": status})
            now = time.time_ns()
            span = self._tracer.start_span(
                "worker.process",
                attributes={"outcome": outcome, "pid": os.getpid()},
                start_time=now - int(seconds * 1e9),
            )
            span.end(now)
        except Exception:  # noqa: BLE001  the edge to the application's SDK: the pool goes on
            return

    def flush(self, seconds: float) -> None:
        """Shuts the providers down in a thread of its own, and gives up on them after ``seconds``."""
        import atexit
        from _thread import allocate_lock, start_new_thread

        done = allocate_lock()
        done.acquire()
        start_new_thread(_shut_down, (self._providers, done.release))
        if not done.acquire(timeout=seconds):
            # The SDK would wait for the same back end once more, without a bound of ours, at the interpreter's exit.
            for provider in self._providers:
                atexit.unregister(getattr(provider, "shutdown", None))  # type: ignore[arg-type]  # None is nobody's


class _TaskSpan:
    """A task that is being measured."""

    __slots__ = ("_began", "_operation", "_owner", "_span", "_token")

    def __init__(self, owner: OpenTelemetry, operation: Operation, span: Any, token: Any) -> None:
        self._owner = owner
        self._operation = operation
        self._span = span
        self._token = token
        self._began = time.perf_counter()

    def end(self, outcome: Outcome) -> None:
        elapsed = (time.perf_counter() - self._began) * 1000
        labels = {"operation": self._operation, "outcome": outcome}
        try:
            self._owner.detach(self._token)
            self._span.set_attribute("outcome", outcome)
            self._span.end()
            self._owner.task_total.add(1, labels)
            self._owner.task_duration.record(elapsed, labels)
        except Exception:  # noqa: BLE001  the edge to the application's SDK: the task has its outcome already
            return


def _shut_down(providers: tuple[Any, ...], done: Callable[[], None]) -> None:
    for provider in providers:
        try:
            if hasattr(provider, "shutdown"):
                provider.shutdown()
        except Exception:  # noqa: BLE001  the edge to the application's SDK: the other one has its turn
            continue
    done()
