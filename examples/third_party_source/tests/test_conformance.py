"""The suite that every task source must pass, run on this one."""

from __future__ import annotations

import spool_source

from platform_worker.testing import TaskSourceConformance


class TestSpoolSource(TaskSourceConformance):
    factory = spool_source.factory

    def config(self, root):  # noqa: ARG002
        return {"directory": "spool"}

    def put(self, root, count):
        for _ in range(count):
            spool_source.put(root / "spool", "greet", {"name": "Ada"})
