"""A stranger's source as a stranger meets it: wheel and plugin in a fresh environment, the commands of the README."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Pool, eventually

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "third_party_source"
TASKS = """
import os, time
from platform_worker import task

@task("greet")
def greet(name: str) -> str:
    return f"Hello {name}"

@task("gate")
def gate() -> int:
    open("started", "w").close()
    while not os.path.exists("gate"):
        time.sleep(0.005)
    return os.getpid()
"""
CONFIG = """
[app]
handlers = ["tasks"]
modules = ["spool"]

[worker]
workers = 2

[spool]
directory = "spool"
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, the plugin, and nothing of this checkout."""
    wheels, made = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("environment")
    for project in (REPOSITORY, EXAMPLE):
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels, project],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    subprocess.run([sys.executable, "-m", "venv", made], check=True)
    pip = [made / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *wheels.glob("*.whl")], check=True)
    return made / "bin"


class Site:
    """An application's root beside that environment."""

    def __init__(self, root: Path, programs: Path) -> None:
        self.root, self.programs = root, programs
        (root / "tasks.py").write_text(TASKS)
        (root / "worker.toml").write_text(CONFIG)
        self.pool = Pool(str(programs / "worker"), root, {}, 0)

    def put(self, task: str, data: dict[str, object]) -> str:
        """As the example's README does it."""
        code = f"import spool_source; print(spool_source.put('spool', {task!r}, {data!r}))"
        return self.python(code).stdout.strip()

    def python(self, code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.programs / "python", "-c", code], cwd=self.root, check=True, capture_output=True, text=True
        )

    def outcome(self, folder: str, id: str) -> dict[str, object]:
        path = self.root / "spool" / folder / f"{id}.json"
        found: dict[str, object] = eventually(lambda: path.exists() and json.loads(path.read_text()))
        return found


@pytest.fixture
def site(tmp_path: Path, environment: Path):
    made = Site(tmp_path, environment)
    yield made
    assert [] == made.pool.close(), "processes outlived the test"


def test_nothing_of_the_checkout_is_used(site: Site) -> None:
    found = site.python("import platform_worker, spool_source; print(platform_worker.__file__, spool_source.__file__)")
    assert all(str(site.programs.parent) in path for path in found.stdout.split())


def test_it_is_built_started_worked_and_stopped(site: Site) -> None:
    built = site.pool.run("build", "--json")
    assert (0, "ok") == (built.returncode, json.loads(built.stdout)["status"]), built.stderr
    site.pool.start()
    ids = [site.put("greet", {"name": name}) for name in ("Ada", "Grace", "Barbara")]
    assert ["Hello Ada", "Hello Grace", "Hello Barbara"] == [site.outcome("done", id)["result"] for id in ids]
    failed = site.put("unheard-of", {})
    assert "UnknownTask" == site.outcome("failed", failed)["error"]["type"]
    assert (0, "healthy") == (site.pool.health()[0], site.pool.health()[1]["reason"])

    # A task in hand is finished by the stop.
    last = site.put("gate", {})
    eventually((site.root / "started").exists)
    stopping: Callable[[], object] = lambda: site.pool.status()["status"] == "stopping"  # noqa: E731
    site.pool.signal()
    eventually(stopping)
    (site.root / "gate").touch()
    assert 0 == site.pool.wait()
    assert isinstance(site.outcome("done", last)["result"], int)
    assert [] == os.listdir(site.root / "spool" / "new")


def test_what_a_killed_child_had_in_hand_is_worked_by_its_replacement(site: Site) -> None:
    assert 0 == site.pool.run("build").returncode
    site.pool.start()
    id = site.put("gate", {})
    eventually((site.root / "started").exists)
    (slot,) = (folder.name for folder in (site.root / "spool" / "claimed").iterdir() if os.listdir(folder))
    killed = site.pool.children()[int(slot)]
    os.kill(killed, 9)
    (site.root / "gate").touch()
    assert killed != site.outcome("done", id)["result"]
    site.pool.stop()


def test_a_batch_ends_when_the_spool_is_empty(site: Site) -> None:
    id = site.put("greet", {"name": "Ada"})
    assert 0 == site.pool.run("build").returncode
    done = site.pool.run("start", "--until-empty")
    assert 0 == done.returncode, done.stderr
    assert {"result": "Hello Ada"} == site.outcome("done", id)


def test_its_settings_are_checked_by_the_build(site: Site) -> None:
    (site.root / "worker.toml").write_text(CONFIG.replace('directory = "spool"', 'directory = "spool"\nfolder = "x"'))
    done = site.pool.run("build")
    assert 2 == done.returncode
    assert "worker-config-invalid" in done.stderr
    assert "spool.folder" in done.stderr
