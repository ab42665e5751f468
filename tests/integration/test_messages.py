"""What a person is told: by commands on a real application, no pool needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Application
from harness.commands import command

Make = Callable[..., Application]
TASKS = "from platform_worker import task\n@task\ndef crop(path: str = ''): ...\n"


@pytest.fixture
def app(application: Make) -> Application:
    return application(tasks=TASKS).build()


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ("{secret:1}", "data: is not JSON: Expecting property name enclosed in double quotes, column 2"),
        ('{"a":\n secret}', "data: is not JSON: Expecting value, line 2, column 2"),
        ('{"a": NaN}', "data: is not JSON: NaN and Infinity are not allowed"),
        ("", "data: is empty, must be JSON"),
        ("1" * 5000, "data: has a number with too many digits"),
        ("[" * 100_000, "data: is nested too deeply"),
    ],
    ids=range(6),
)
def test_data_that_is_no_json_is_refused_with_the_place(app: Application, data: str, hint: str) -> None:
    done = command(app.root, "enqueue", "tasks.crop", "--data", data)
    assert (2, [hint]) == (done.code, done.hints())


def test_a_file_of_data_that_cannot_be_read_says_why(app: Application, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b'{"a": "\xe9"}')
    for name, rule in (
        ("missing", "the file cannot be read: No such file or directory"),
        (".", "the file cannot be read: Is a directory"),
        ("latin", "the file must be UTF-8"),
    ):
        done = command(app.root, "enqueue", "tasks.crop", "--data", f"@{tmp_path / name}")
        assert (2, [f"--data: {rule}"]) == (done.code, done.hints())


def test_a_line_that_is_no_json_is_named_with_its_column(app: Application, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text('{"task": "tasks.crop"}\n{"task": secret}\n')
    done = command(app.root, "enqueue", "--lines", str(tmp_path / "lines"))
    assert (2, "line 2: is not JSON: Expecting value, column 10") == (done.code, done.hints()[0])


def test_the_name_of_the_function_finds_its_task(app: Application) -> None:
    done = command(app.root, "enqueue", "crop")
    assert (2, "task: did you mean tasks.crop?") == (done.code, done.hints()[0])
    assert "or pass --allow-unknown" in done.hints()[1]
