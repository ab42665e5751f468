"""The log and the telemetry of a real child: what they say, and that their failures change nothing."""

from __future__ import annotations

import json
import os
import select
import signal

import pytest
from child_owner import Child, eventually, publish

SDK = """
import json, time
from pathlib import Path
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

def record(line):
    with open("telemetry", "a") as file:
        file.write(json.dumps(line) + "\\n")

class Spans(SpanExporter):
    def export(self, spans):
        HANG
        for span in spans:
            record(["span", span.name, dict(span.attributes), span.parent is not None])
        return SpanExportResult.SUCCESS

class Metrics(MetricExporter):
    def export(self, data, timeout_millis=0, **_):
        HANG
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        record(["metric", metric.name, dict(point.attributes), getattr(point, "value", None)])
        return MetricExportResult.SUCCESS
    def force_flush(self, timeout_millis=0): return True
    def shutdown(self, timeout_millis=0, **_): pass

trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(BatchSpanProcessor(Spans()))
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(Metrics(), export_interval_millis=3600000)]))
"""

TASKS = """
from platform_worker import task

@task("add")
def add(a: int, b: int = 2) -> int:
    try:
        from opentelemetry import trace
        with trace.get_tracer("app").start_as_current_span("inside"):
            return a + b
    except ImportError:
        return a + b

@task("bad")
def bad():
    raise RuntimeError("boom")

@task("log")
def log():
    from platform_worker.jobs import events
    for number in range(2000):
        events.emit("info", "worker.task.lease_lost", number=number)
"""


def ledger(root):
    path = root / "ledger"
    return path.read_text().splitlines() if path.exists() else []


def application(root, *lines, before=""):
    (root / "tasks.py").write_text(before + TASKS)
    (root / "todo").write_text("".join(f"{line}\n" for line in lines))
    publish(root, handlers=["tasks"])


def stop(child):
    child.tell("stop")
    assert "done" == child.heard()
    assert 0 == child.ends()


def test_spans_and_metrics_of_the_last_task_are_there_when_it_has_ended(tmp_path):
    application(tmp_path, 'add {"a":1}', "bad", before=SDK.replace("HANG", ""))
    with Child(tmp_path).started() as child:
        eventually(lambda: len(ledger(tmp_path)) == 2)
        stop(child)
    records = [json.loads(line) for line in (tmp_path / "telemetry").read_text().splitlines()]
    spans = [record[1:] for record in records if record[0] == "span"]
    assert ["worker.task", {"operation": "queue", "outcome": "success"}, False] in spans
    assert ["worker.task", {"operation": "queue", "outcome": "failure"}, False] in spans
    assert ["inside", {}, True] in spans
    metrics = [record[1:] for record in records if record[0] == "metric"]
    assert {"worker.task_total", "worker.task_duration_ms"} == {name for name, _, _ in metrics}
    assert [1, 1] == [value for name, _, value in metrics if name == "worker.task_total"]
    assert all({"operation", "outcome"} == labels.keys() for _, labels, _ in metrics)


def test_a_back_end_that_never_answers_holds_up_nothing_but_the_flush(tmp_path):
    application(tmp_path, *['add {"a":1}'] * 50, before=SDK.replace("HANG", "time.sleep(9999)"))
    with Child(tmp_path).started() as child:
        eventually(lambda: len(ledger(tmp_path)) == 50)
        child.tell("stop")
        assert "done" == child.heard(4.0)
        assert 0 == child.ends(2.0)


@pytest.mark.parametrize("broken", ["start_span", "create_counter"])
def test_an_sdk_that_raises_changes_nothing_about_a_task(tmp_path, broken):
    before = f"""
from opentelemetry import metrics, trace

class Broken:
    def __getattr__(self, name):
        if name == {broken!r}:
            raise RuntimeError("the sdk is broken")
        return lambda *args, **options: self

trace.get_tracer = lambda *_: Broken()
metrics.get_meter = lambda *_: Broken()
"""
    application(tmp_path, "bad", before=before)
    with Child(tmp_path).started() as child:
        eventually(lambda: ledger(tmp_path) == ["fail 1 RuntimeError"])
        stop(child)


def test_logging_as_fast_as_possible_while_signals_arrive_is_never_reentrant(tmp_path):
    application(tmp_path, *["log"] * 3)
    with Child(tmp_path).started() as child:
        for _ in range(1000):
            child.process.send_signal(signal.SIGHUP)
            select.select([], [], [], 0.0005)
        eventually(lambda: len(ledger(tmp_path)) == 3)
        child.process.send_signal(signal.SIGTERM)
        assert "done" == child.heard()
        assert 0 == child.ends()
    assert "reentrant" not in child.stderr()
    assert 6000 == sum(event["event"] == "worker.task.lease_lost" for event in child.events())


def test_a_reader_of_the_log_that_stalls_costs_lines_not_time(tmp_path):
    application(tmp_path, *["log"] * 3)
    reading, writing = os.pipe()
    try:
        with Child(tmp_path, stderr=writing).started() as child:
            eventually(lambda: len(ledger(tmp_path)) == 3)
            stop(child)
    finally:
        os.close(writing)
        first = os.read(reading, 65536).splitlines()[0]
        os.close(reading)
    assert "worker.task.lease_lost" == json.loads(first)["event"]


def test_a_reader_of_the_log_that_goes_away_is_no_matter(tmp_path):
    application(tmp_path, *["log"] * 3)
    reading, writing = os.pipe()
    os.close(reading)
    with Child(tmp_path, stderr=writing).started() as child:
        os.close(writing)
        eventually(lambda: len(ledger(tmp_path)) == 3)
        stop(child)


def test_an_application_that_has_configured_structlog_gets_our_events_its_own_way(tmp_path):
    before = """
import structlog
structlog.configure(
    processors=[lambda logger, method, event: "OWN " + method + " " + event["event"]],
    logger_factory=lambda *_: structlog.WriteLogger(open("own", "w", buffering=1)),
)
"""
    application(tmp_path, "bad", before=before)
    with Child(tmp_path).started() as child:
        eventually(lambda: ledger(tmp_path))
        stop(child)
    assert "OWN error worker.task.failed\n" == (tmp_path / "own").read_text()


def test_a_log_configuration_that_raises_changes_nothing_about_a_task(tmp_path):
    before = "import structlog\nstructlog.configure(processors=[lambda *_: 1 / 0])\n"
    application(tmp_path, "bad", before=before)
    with Child(tmp_path).started() as child:
        eventually(lambda: ledger(tmp_path) == ["fail 1 RuntimeError"])
        stop(child)
