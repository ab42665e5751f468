"""What the log makes of an event. The descriptor is a temporary file's."""

from __future__ import annotations

import ast
import json
import sys
from datetime import datetime
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

import platform_worker
from platform_worker.host.logs import StderrLog, _json_line
from platform_worker.ports import EVENTS

VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@pytest.fixture(params=["structlog is there", "nobody imported structlog"])
def lines(request, tmp_path, monkeypatch):
    """A log, and what was written to it."""
    if request.param == "structlog is there":
        monkeypatch.setattr(structlog, "is_configured", lambda: False)
    else:
        monkeypatch.delitem(sys.modules, "structlog")
    monkeypatch.setattr("platform_worker.host.logs._is_terminal", lambda: False)
    with (tmp_path / "log").open("w+") as file:
        log = StderrLog(file.fileno(), slot=3)
        yield log, lambda: [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


def test_an_event_is_one_json_line(lines):
    log, read = lines
    log.event("warning", "worker.child.exit", cause="signal", code=None)

    (line,) = read()
    stamp = line.pop("timestamp")
    assert {"event": "worker.child.exit", "level": "warning", "slot": 3, "cause": "signal", "code": None} == line
    assert stamp.endswith("Z")


@given(fields=st.dictionaries(st.text(min_size=1), VALUES | st.lists(VALUES)))
def test_a_line_is_the_same_with_and_without_structlog(fields):
    render = structlog.processors.JSONRenderer(sort_keys=True, ensure_ascii=False)
    stamped = structlog.processors.TimeStamper(fmt="iso", utc=True)(None, "info", {})["timestamp"]
    ours = _json_line("info", "worker.child.exit", fields)
    stamp = json.loads(ours)["timestamp"]
    record = {**fields, "event": "worker.child.exit", "level": "info", "timestamp": stamp}

    assert render(None, "info", record) == ours
    between = datetime.fromisoformat(stamp) - datetime.fromisoformat(stamped)
    assert 0 <= between.total_seconds() < 60
    assert len("2026-01-01T00:00:00.000000Z") == len(stamp)


def test_fields_are_bounded(lines):
    log, read = lines
    log.event("info", "worker.child.exit", cause="é" * 5000, hints=["x" * 5000] * 100)

    (line,) = read()
    assert 513 == len(line["cause"])
    assert 16 == len(line["hints"])
    assert 513 == len(line["hints"][0])


def test_a_traceback_keeps_its_end_where_the_cause_stands(lines):
    log, read = lines
    log.failure("error", "worker.child.rejected", ValueError("first" + "x" * 50000 + "last"))

    (line,) = read()
    assert line["exception"].endswith("last")
    assert 16385 == len(line["exception"])


def test_an_exception_whose_text_cannot_be_made_is_named(lines):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    log, read = lines
    log.failure("error", "worker.child.rejected", Mute())

    assert "Mute" in read()[0]["exception"]


def test_text_that_is_not_unicode_is_escaped(lines):
    log, read = lines
    log.event("info", "worker.child.exit", cause="\udcff")

    assert 1 == len(read())


def test_a_value_whose_text_cannot_be_made_costs_the_line_only(lines):
    class Mute:
        def __str__(self):
            raise RuntimeError

    log, read = lines
    log.event("info", "worker.child.exit", cause=Mute())
    log.event("info", "worker.child.exit", cause="fine")

    assert ["fine"] == [line["cause"] for line in read()]


def test_a_descriptor_that_is_gone_is_no_matter(tmp_path):
    with (tmp_path / "log").open("w") as file:
        log = StderrLog(file.fileno())
    log.event("info", "worker.child.exit")


KINDS = ("process", "child", "task", "queue")


@pytest.mark.parametrize(
    "folder", ["child", "host", "supervisor", "tasks", "jobs", "sources", "wiring_child.py", "wiring_start.py"]
)
def test_every_event_that_is_logged_is_in_the_closed_list(folder):
    place = Path(platform_worker.__file__).parent / folder
    files = [place] if place.is_file() else list(place.rglob("*.py"))
    words = {
        node.value
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(".") == 2
    }
    events = {word for word in words if word.startswith(tuple(f"worker.{who}." for who in KINDS))}
    assert set() == events - EVENTS
