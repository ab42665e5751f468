"""The work directories of jobs: what is left of them after a stop, and when a stop removes them."""

from __future__ import annotations

import os
from collections.abc import Callable

from harness import Application, eventually

Make = Callable[..., Application]

TASKS = (
    "import os, time\nfrom platform_worker import JobContext, task\n"
    "@task('quick')\ndef quick(context: JobContext) -> None:\n"
    "    (context.workdir / 'file').write_text('x')\n"
    "@task('stubborn')\ndef stubborn(context: JobContext) -> None:\n"
    "    (context.workdir / 'file').write_text('x')\n"
    "    open('begun', 'w').close()\n"
    "    while True:\n"
    "        try:\n            time.sleep(600)\n"
    "        except KeyboardInterrupt:\n            pass\n"
)


def test_after_a_stop_the_folder_of_work_directories_is_gone(application: Make) -> None:
    app = application(tasks=TASKS, worker={"workers": 2})
    pool = app.start()
    app.enqueue("quick", 4)
    eventually(lambda: app.statuses() == {"completed": 4})
    assert ["jobs"] == [name for name in app.leftovers() if not name.startswith("worker.")]
    assert [] == os.listdir(app.root / "var/tmp/jobs")
    pool.stop()
    app.assert_clean()
    assert [] == app.leftovers()


def test_a_job_that_had_to_be_killed_leaves_nothing_either(application: Make) -> None:
    """Nobody of the slot's next incarnation comes to remove it; its job is given back all the same."""
    budgets = {"workers": 1, "stop_timeout_ms": 200, "force_kill_timeout_ms": 200}
    app = application(tasks=TASKS, worker=budgets)
    pool = app.start()
    app.enqueue("stubborn")
    eventually((app.root / "begun").exists)
    assert 1 == len(os.listdir(app.root / "var/tmp/jobs"))
    pool.stop()
    app.assert_clean()
    assert [] == app.leftovers()
