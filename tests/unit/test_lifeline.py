"""The words between guardian and child."""

from __future__ import annotations

import json

import pytest

from platform_worker.protocol import lifeline
from platform_worker.protocol.lifeline import (
    LifelineViolation,
    Pulse,
    format_boot,
    format_pulse,
    parse_boot,
    parse_down,
    parse_pulse,
    parse_up,
)

BOOT = {
    "generation": 7,
    "incarnation": 2,
    "slot": 0,
    "worker_count": 4,
    "pool_id": "c0ffee",
    "max_requests": 1000,
    "stop_timeout_ms": 10000,
    "task_type": "queue",
    "until_empty": False,
    "members_fd": 5,
}


def test_the_boot_line_survives_the_wire():
    boot = parse_boot(format_boot(BOOT).encode())

    assert BOOT == {name: getattr(boot, name) for name in BOOT}
    assert boot.log_exceptions is True


def test_the_boot_line_may_say_that_the_traceback_is_in_the_log_already():
    assert parse_boot(format_boot({**BOOT, "log_exceptions": False}).encode()).log_exceptions is False


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"go",
        b"boot",
        b"boot {",
        b"boot []",
        b"boot " + b"[" * 3000,
        b"boot \xff",
        b"boot " + json.dumps({**BOOT, "more": 1}).encode(),
        b"boot " + json.dumps({k: v for k, v in BOOT.items() if k != "slot"}).encode(),
        b"boot " + json.dumps({**BOOT, "pool_id": "x" * 5000}).encode(),
        *(
            b"boot " + json.dumps({**BOOT, key: value}).encode()
            for key, value in [
                ("slot", -1),
                ("slot", True),
                ("slot", "0"),
                ("worker_count", 0),
                ("max_requests", 0),
                ("pool_id", 7),
                ("task_type", None),
                ("until_empty", 1),
                ("members_fd", -1),
                ("log_exceptions", "yes"),
            ]
        ),
    ],
)
def test_any_other_boot_line_is_refused(line):
    with pytest.raises(LifelineViolation):
        parse_boot(line)


@pytest.mark.parametrize("word", sorted(lifeline.DOWN))
def test_the_words_down_are_read(word):
    assert word == parse_down(word.encode())


@pytest.mark.parametrize("line", [b"", b"GO", b"go ", b"stop now", b"\xff"])
def test_other_words_down_are_refused(line):
    with pytest.raises(LifelineViolation):
        parse_down(line)


@pytest.mark.parametrize("word", sorted(lifeline.UP))
def test_the_words_up_are_read(word):
    assert (word, None) == parse_up(word)


def test_a_failure_carries_its_reason():
    assert ("timeout", None) == parse_up("Timeout (0:00:31)!")
    assert ("failed", "worker-start-failed") == parse_up(lifeline.format_failed("worker-start-failed"))


@pytest.mark.parametrize("line", ["", "failed", "failed ", "DONE", "ready "])
def test_other_words_up_are_refused(line):
    with pytest.raises(LifelineViolation):
        parse_up(line)


@pytest.mark.parametrize(
    ("said", "task_ms"), [("pulse limit=10 silent=0 task=-", None), ("pulse limit=10 silent=0 task=7", 7)]
)
def test_a_pulse_is_read_as_it_is_written(said, task_ms):
    assert Pulse(10, 0, task_ms) == parse_pulse(said)
    assert said == format_pulse(10, 0, task_ms)


@pytest.mark.parametrize(
    "line",
    [
        "pulse ",
        "pulse limit=1 silent=1",
        "pulse silent=1 limit=1 task=1",
        "pulse limit=1 silent=1 task=1 name=x",
        "pulse limit=-1 silent=1 task=1",
        "pulse limit=1 silent=1.5 task=1",
        "pulse limit= silent=1 task=1",
        "pulse limit=- silent=1 task=1",
        "pulse limit=\u0661 silent=1 task=1",
        "pulse limit=1 silent=1 task=" + "9" * 16,
        "pulse limit=1  silent=1 task=1",
    ],
)
def test_any_other_pulse_is_refused(line):
    with pytest.raises(LifelineViolation):
        parse_pulse(line)
