"""An OpenTelemetry SDK for the processes of a pool, set up by a ``sitecustomize``; it writes all it gets to a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

SOURCE = """
import json, os, sys, threading
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

PATH, HANG = os.environ["PW_TELEMETRY"], os.environ.get("PW_TELEMETRY_HANG")

def write(text):
    if HANG:
        threading.Event().wait()
    fd = os.open(PATH, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, json.dumps(text).encode() + b"\\n")
    os.close(fd)

class Spans(SpanExporter):
    def export(self, spans):
        for span in spans:
            write({"span": json.loads(span.to_json(indent=None)), "process": os.getpid()})
        return SpanExportResult.SUCCESS

class Metrics(MetricExporter):
    def export(self, data, timeout_millis=0, **_):
        write({"metrics": json.loads(data.to_json(indent=None)), "process": os.getpid()})
        return MetricExportResult.SUCCESS
    def force_flush(self, timeout_millis=0): return True
    def shutdown(self, timeout_millis=0, **_): pass

trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(BatchSpanProcessor(Spans(), schedule_delay_millis=100))
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(Metrics(), export_interval_millis=3600000)]))
"""


def telemetry(folder: Path, hang: bool = False) -> dict[str, str]:
    """The environment of a pool that tells everything to ``folder/told``, or to a back end that never answers."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SOURCE)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = {"PW_TELEMETRY": str(folder / "told"), "PYTHONPATH": os.pathsep.join(paths)}
    return {**found, "PW_TELEMETRY_HANG": "1"} if hang else found


def told(folder: Path) -> list[dict[str, Any]]:
    """Every export so far."""
    path = folder / "told"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def spans(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Name and attributes of each span."""
    found = (export["span"] for export in told(folder) if "span" in export)
    return [(span["name"], span["attributes"]) for span in found]


def points(folder: Path) -> list[tuple[str, dict[str, Any], float]]:
    """Name, labels and value (a histogram's: its count) of each point of the last export of each process."""
    last = {export["process"]: export["metrics"] for export in told(folder) if "metrics" in export}
    return [
        (metric["name"], point["attributes"], point.get("value", point.get("count")))
        for data in last.values()
        for resource in data["resource_metrics"]
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
        for point in metric["data"]["data_points"]
    ]
