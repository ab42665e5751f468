"""The example of a source of one's own: installed as a stranger would install it, run by a real child."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from child_owner import Child, eventually, publish

EXAMPLE = Path(__file__).parents[2] / "examples" / "third_party_source"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder that the example is installed into, with its metadata."""
    target = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index",
         "--disable-pip-version-check", "--target", target, EXAMPLE],
        check=True,
    )  # fmt: skip
    return target


@pytest.fixture
def root(tmp_path, site):
    (tmp_path / "tasks.py").write_text(
        "from platform_worker import JobContext, task\n"
        "@task('greet')\n"
        "def greet(name: str, context: JobContext) -> str: return f'Hello {name}'\n"
        "@task('wait')\n"
        "def wait():\n"
        "    import pathlib, time\n"
        "    pathlib.Path('started').touch()\n"
        "    time.sleep(9999)\n"
    )
    (entry,) = importlib.metadata.distributions(name="spool-source", path=[str(site)])
    (point,) = entry.entry_points.select(group="platform_worker.task_sources", name="spool")
    publish(tmp_path, handlers=["tasks"], source=point.value, plugins={"parts": {"directory": "spool"}})
    return tmp_path


def put(root, site, task, data):
    code = f"import spool_source; print(spool_source.put('spool', {task!r}, {data!r}))"
    env = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=root, env=env, capture_output=True, text=True
    ).stdout.strip()


def outcome(root, folder, id):
    path = root / "spool" / folder / f"{id}.json"
    return eventually(lambda: path.exists() and json.loads(path.read_text()))


def test_it_works_off_what_is_put_and_is_woken_by_the_bell(root, site):
    first = put(root, site, "greet", {"name": "Ada"})
    with Child(root, env={"PYTHONPATH": str(site)}).started() as child:
        assert {"result": "Hello Ada"} == outcome(root, "done", first)
        second = put(root, site, "greet", {"nobody": 1})
        assert "InvalidData" == outcome(root, "failed", second)["error"]["type"]
        third = put(root, site, "unheard-of", {})
        assert "UnknownTask" == outcome(root, "failed", third)["error"]["type"]
        child.tell("stop")
        assert "done" == child.heard()
        assert 0 == child.ends()


def test_an_interrupted_task_goes_back_to_the_spool(root, site):
    id = put(root, site, "wait", {})
    with Child(root, env={"PYTHONPATH": str(site)}).started() as child:
        eventually((root / "started").exists)
        child.terminate()
        assert "done" == child.heard()
        assert 0 == child.ends()
    assert [f"{id}.json"] == os.listdir(root / "spool" / "new")


def test_what_a_killed_child_had_in_hand_is_worked_by_the_next_of_its_slot(root, site):
    id = put(root, site, "wait", {})
    with Child(root, env={"PYTHONPATH": str(site)}).started() as child:
        eventually((root / "started").exists)
        child.process.kill()
        child.ends()
    assert [f"{id}.json"] == os.listdir(root / "spool" / "claimed" / "0")
    (root / "tasks.py").write_text("from platform_worker import task\n@task('wait')\ndef wait(): return 'at last'\n")
    with Child(root, incarnation=2, until_empty=True, env={"PYTHONPATH": str(site)}).started() as child:
        assert {"result": "at last"} == outcome(root, "done", id)
        assert ["empty", "done"] == [child.heard(), child.heard()]


def test_it_passes_the_conformance_suite(site):
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=EXAMPLE,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == result.returncode, result.stdout


def test_its_settings_refuse_what_is_not_theirs(site):
    code = "import spool_source; spool_source.factory.settings(directory='', more=1)"
    env = {**os.environ, "PYTHONPATH": str(site)}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "2 validation errors" in result.stderr
