"""Jobs and arguments that are off: refused with a rule, never with a traceback, and nothing is enqueued."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Application, eventually, scaled
from harness.commands import Outcome, command

Make = Callable[..., Application]
INVALID = "PLATFORM_WORKER_USAGE: worker-job-invalid"
USAGE = "PLATFORM_WORKER_USAGE: worker-usage-invalid"
UNKNOWN = "PLATFORM_WORKER_USAGE: worker-task-unknown"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Application:
    """An application that is built and never started."""
    return Application(tmp_path_factory.mktemp("jobs") / "app", queue={"data_max_bytes": 1000}).build()


def refused(app: Application, *words: str, stdin: bytes = b"") -> Outcome:
    """Runs ``worker enqueue``; the queue must be as it was."""
    before = app.statuses()
    done = command(app.root, "enqueue", *words, stdin=stdin)
    assert before == app.statuses(), "nothing was enqueued"
    return done


def check(app: Application, done: Outcome, expected: str) -> list[str]:
    """Refused as ``expected``, with rules that show no value; nothing was enqueued."""
    assert (2, "") == (done.code, done.out), done.err
    assert expected == done.err.splitlines()[0], done.err
    assert done.err.count("\n") == 1 + len(done.hints())
    assert done.hints(), "a rule for a person"
    assert "hunter2" not in done.err
    assert str(app.root) not in done.err
    return done.hints()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", INVALID),
        ("hunter2", INVALID),
        ('{"a": "hunter2"', INVALID),
        ('["hunter2"]', INVALID),
        ('"hunter2"', INVALID),
        ("null", INVALID),
        ("3", INVALID),
        ('{"a": NaN}', INVALID),
        ('{"a": [1, {"b": -Infinity}]}', INVALID),
        ('{"a": 1e999}', INVALID),
        ('{"a": "' + "x" * 1000 + '"}', INVALID),
        ('{"a": "' + "ü" * 500 + '"}', INVALID),
        ("[" * 100_000, INVALID),
        ('{"a":' * 2000 + "1" + "}" * 2000, INVALID),
        ('{"a": "\\ud800"}', INVALID),
        ('{"a": ' + "9" * 5000 + "}", INVALID),
        ("@no-such-file", USAGE),
        ("@", USAGE),
        ("@.", USAGE),
    ],
)
def test_data_that_is_none(app: Application, data: str, expected: str) -> None:
    """Not JSON, no object, not finite, too large, too deep, not to be said in UTF-8, no such file."""
    assert "data" in check(app, refused(app, "nap", "--data", data), expected)[0]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"{", b"[]", b'{"a": NaN}', b'{"a": "' + b"x" * 2000 + b'"}'])
@pytest.mark.parametrize("way", ["@FILE", "-"])
def test_data_of_a_file_or_standard_input_is_held_to_the_same(
    app: Application, tmp_path: Path, content: bytes, way: str
) -> None:
    """Whatever it comes from."""
    (tmp_path / "data").write_bytes(content)
    word = f"@{tmp_path / 'data'}" if way == "@FILE" else "-"
    done = refused(app, "nap", "--data", word, stdin=content)
    check(app, done, USAGE if content == b"\xff\xfe" else INVALID)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], USAGE),
        (["nap", "more"], USAGE),
        (["nap", "--hunter2"], USAGE),
        (["nap", "--priority"], USAGE),
        (["nap", "--priority", "hunter2"], USAGE),
        (["nap", "--priority", "0"], INVALID),
        (["nap", "--priority", "9" * 30], INVALID),
        (["nap", "--delay", "nan"], INVALID),
        (["nap", "--delay", "inf"], INVALID),
        (["nap", "--delay", "-1"], INVALID),
        (["nap", "--delay", "1e300"], INVALID),
        (["nap", "--max-attempts", "0"], INVALID),
        (["nap", "--max-attempts", "9" * 30], INVALID),
        (["nap", "--timeout-ms", "-1"], INVALID),
        (["nap", "--timeout-ms", "9" * 30], INVALID),
        (["nap", "--queue", ""], INVALID),
        (["nap", "--queue", "Hunter2!"], INVALID),
        (["nap", "--queue", "q" * 65], INVALID),
        (["nap", "--unique", ""], INVALID),
        (["nap", "--unique", "\udcff"], INVALID),
        (["", "--allow-unknown"], INVALID),
        (["\udcff", "--allow-unknown"], INVALID),
        (["x" * 100_000, "--allow-unknown"], INVALID),
        (["hunter2"], UNKNOWN),
        (["nap", "--lines", "x"], USAGE),
        (["--lines", "x", "--data", "{}"], USAGE),
        (["--lines", "no-such-file"], USAGE),
        (["--lines", "."], USAGE),
    ],
)
def test_options_of_a_job_that_are_off(app: Application, words: list[str], expected: str) -> None:
    """Each names its rule."""
    done = refused(app, *words)
    assert (2, expected) == (done.code, done.err.splitlines()[0]), done.err
    assert "" == done.out
    assert done.hints()
    assert "hunter2" not in done.err.replace("--hunter2", "") or expected == UNKNOWN


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        "{}",
        '{"task": "nap", "data": []}',
        '{"task": "nap", "colour": "hunter2"}',
        '{"task": ["nap"]}',
        '{"task": {"a": 1}}',
        '{"task": null}',
        '{"task": "nap", "priority": true}',
        '{"task": "nap", "priority": 1.5}',
        '{"task": "nap", "priority": "hunter2"}',
        '{"task": "nap", "delay": "1"}',
        '{"task": "nap", "delay": 1e999}',
        '{"task": "nap", "delay": true}',
        '{"task": "nap", "run_at": "2030-01-01T00:00:00"}',
        '{"task": "nap", "run_at": "hunter2"}',
        '{"task": "nap", "run_at": 5}',
        '{"task": "nap", "run_at": "2030-01-01T00:00:00Z", "delay": 1}',
        '{"task": "nap", "run_at": "9999-12-31T23:59:59-23:59"}',
        '{"task": "nap", "max_attempts": 99999999999999999999}',
        '{"task": "nap", "unique": 5}',
        '{"task": "nap", "unique": "\\ud800"}',
        '{"task": "nap", "queue": ["default"]}',
        '{"task": "nap", "connection": {}}',
        '{"task": "nap", "allow_unknown": "yes"}',
        '{"task": "nap", "data": {"a": "\\ud800"}}',
        '{"task": "nap"}{"task": "nap"}',
    ],
)
def test_one_bad_line_is_named_by_its_number_and_nothing_is_enqueued(
    app: Application, tmp_path: Path, line: str
) -> None:
    """The file is checked whole, before the first of its jobs is added."""
    file = tmp_path / "lines"
    file.write_text('{"task": "nap"}\n\n{"task": "nap", "data": {"seconds": 0}}\n' + line + '\n{"task": "nap"}\n')
    done = refused(app, "--lines", str(file))
    hints = check(app, done, done.err.splitlines()[0])
    assert done.err.splitlines()[0] in (INVALID, UNKNOWN), done.err
    assert hints[0].startswith("line 4: "), hints
    assert "nothing was enqueued" in hints[-1]


VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 5, 10, 2**31, 2**63, 2**70, -(2**63), 0.5, -0.0, 1e308, float("nan"), float("inf"), "",
    "nap", "default", "\0", "\ud800", "a" * 70, "ä", " ", "1", "2030-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", [],
    [1], {}, {"a": 1}, {"": None}, {"a": {"b": [None]}}, {"context": 1}, "\U0001f600", "'; drop table jobs; --",
]  # fmt: skip
KEYS = (
    "task", "data", "queue", "priority", "delay", "run_at", "max_attempts", "timeout_ms", "backoff_ms", "unique",
    "allow_unknown", "connection", "id", "more",
)  # fmt: skip


def test_any_line_is_a_job_or_a_named_mistake(application: Make) -> None:
    """Whatever its keys hold: taken whole and to be read back, or refused by a rule."""
    app = application("lines").build()
    chance = random.Random(7)
    taken = 0
    for _ in range(scaled(400)):
        record = {"task": "nap", **{key: chance.choice(VALUES) for key in chance.sample(KEYS, chance.randint(0, 3))}}
        line = json.dumps(record)
        done = command(app.root, "enqueue", "--lines", "-", "--json", stdin=line.encode())
        if done.code == 0:
            taken += 1
            (id,) = json.loads(done.out)["ids"]
            shown = command(app.root, "jobs", "show", id, "--json")
            assert id == json.loads(shown.out)["job"]["id"]
        else:
            assert 2 == done.code, (line, done.err)
            assert done.hints(), (line, done.err)
    assert taken
    assert 0 == command(app.root, "jobs", "--json", "--limit", "1000").code
    assert 0 == command(app.root, "queues").code


def test_thousands_of_command_lines_end_with_an_exit_code_and_no_traceback(application: Make) -> None:
    """Words of all sorts in any order: 0 to 3, and an error is one line with hints."""
    app = application("words").build()
    chance = random.Random(11)
    words = [
        "build", "status", "health", "stop", "enqueue", "jobs", "queues", "init", "show", "retry", "cancel", "purge",
        "recover", "pause", "resume", "--check", "--json", "--help", "-h", "--root", "--failed", "--status", "failed",
        "--queue", "default", "--limit", "--after", "--older-than", "7d", "1y", "--data", "{}", "--lines", "-", "--",
        "--priority", "--delay", "--unique", "", " ", "-1", "0", "99999999999999999999", "nap", "x" * 5000, "\udcff",
        "\n", "../..", "--version", "--no-such", "-x", "--json=1", "--limit=-5", "--status=x", "é",
    ]  # fmt: skip
    for _ in range(scaled(600)):
        line = [chance.choice(words) for _ in range(chance.randint(1, 6))]
        if "init" in line or "build" in line[:3]:
            line = [word for word in line if word not in ("init", "build")]
        done = command(app.root, *(line or ["status"]))
        assert done.code in (0, 1, 2, 3), (line, done.code)
        if done.code:
            lines = done.err.splitlines()
            named = [number for number, text in enumerate(lines) if text.startswith("PLATFORM_WORKER_")]
            assert named, (line, done.err)
            assert all(text.startswith("hint: ") for text in lines[named[0] + 1 :]), (line, done.err)


def test_bad_data_that_gets_past_the_enqueue_is_the_job_s_failure(application: Make) -> None:
    """Extra, missing or mistyped arguments, unknown tasks: failed with their reason, and the child goes on."""
    app = application(worker={"workers": 1}).build()
    with app.queue() as queue:
        jobs = {
            queue.enqueue("spin", {"more": 1}): "data-invalid",
            queue.enqueue("spin", {"seconds": "hunter2"}): "data-invalid",
            queue.enqueue("spin", {"context": 1, "seconds": 0}): "data-invalid",
            queue.enqueue("nobody", {}, allow_unknown=True): "task-unknown",
        }
    pool = app.start()
    (good,) = app.enqueue("nap")
    eventually(lambda: {"completed": 1, "failed": 4} == app.statuses())
    for job, reason in jobs.items():
        error = app.job(job).error
        assert {"message", "reason", "type"} == set(error)
        assert reason == error["reason"], error
    assert [] == pool.events("worker.child.exit")
    assert "completed" == app.job(good).status
    assert "hunter2" not in pool.log()
    pool.stop()
    assert not os.path.exists(app.root / "core")
