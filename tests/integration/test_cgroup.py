"""Containment by cgroup, in a cgroup of the test's own."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cgroup_box import Box, refusal

from platform_worker.host import cgroup

CASES = Path(__file__).with_name("cgroup_cases.py")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    if why := refusal():
        pytest.skip(why)
    one = Box(tmp_path)
    yield one
    one.close()


def test_in_a_box(box: Box) -> None:
    """The cases of ``cgroup_cases.py``, each with its own claim."""
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", str(CASES)]
    done = box.run(f"cd {shlex.quote(str(CASES.parents[2]))} && exec {shlex.join(line)}")
    assert 0 == done.returncode, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_a_machines_root_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is in this process's cgroup: told that it is the root of the tree, it has nothing to divide."""
    monkeypatch.setattr(cgroup, "_path_of", lambda process: "/")
    for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if not (Path(mount) / "cgroup.events").exists():
            monkeypatch.setattr(cgroup, "_MOUNTS", (mount,))
            assert cgroup.delegated() is None
