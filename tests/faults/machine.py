"""One run of the fault machine: from a seed, pools are killed, frozen and restarted; then a look at what is left.

Everything that is chosen comes from the seed, so a run can be made again; when exactly something strikes is up to the
machine it runs on. What must hold, whatever was done:

* no process of an old generation lives beside a new one, and none at all within the budgets of a stop;
* the fence is free then, and the next start needs no help;
* every job has exactly one outcome, its settlement is by its last claim, and no job ran twice at once;
* supervisor and guardian keep no descriptor and no zombie of the children that have come and gone.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from faults.failpoints import ACTIONS, POINTS
from harness import Application, Pool, census, eventually
from harness.processes import children_of, descriptors, stat

TASKS = Path(__file__).with_name("tasks.py").read_text()
LAUNCHER = str(Path(__file__).with_name("launcher.py"))
STOP_MS, FORCE_MS = 1500, 400
#: The ladder's whole length, and as much again for a busy machine.
GONE_SECONDS = 2 * (STOP_MS + 2 * FORCE_MS) / 1000 + 3


class Run:
    """``play()`` raises ``AssertionError`` where something does not hold; ``story`` says what was done."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = random.Random(seed)
        self.story: list[str] = [f"seed {seed}"]
        self.jobs: list[str] = []
        self.frozen: set[int] = set()
        choose = self.random.choice
        worker = {
            "workers": choose([1, 2, 3]),
            "max_requests": choose([2, 5, 1000]),
            "stop_timeout_ms": STOP_MS,
            "force_kill_timeout_ms": FORCE_MS,
            "start_timeout_ms": 10000,
            "restart_intensity": 1000,
        }
        self.app = Application(root, TASKS, worker=worker, queue={"max_attempts": 1000, "backoff_ms": 10})
        self.app.build()
        self.story.append(f"settings {worker}")

    def play(self) -> None:
        """Some lives with faults, then one without, in which all is done and counted."""
        try:
            for _ in range(self.random.randint(1, 3)):
                self._life()
            self._last_life()
        finally:
            self._thaw()
            self.app.close()

    # One life

    def _life(self) -> None:
        pool = self._start()
        for _ in range(self.random.randint(0, 5)):
            self._act(pool)
            self._wait(self.random.choice([0.0, 0.01, 0.05, 0.2]))
        self._end(pool)
        eventually(lambda: self._thawed() and not pool.census(), GONE_SECONDS, "nobody of an ended pool")
        eventually(self.app.fence_free, 2, "the fence is free")

    def _start(self) -> Pool:
        pool = self.app.pool()
        if self.random.random() < 0.6:
            process = self.random.choice(sorted(POINTS))
            spec = {
                "process": process,
                "point": self.random.choice(POINTS[process]),
                "when": self.random.choice(["before", "after"]),
                "action": self.random.choice(ACTIONS),
                "nth": self.random.choice([1, 1, 2, 3, 7]),
            }
            self.story.append(f"start, armed {spec}")
            pool.launch = [sys.executable, LAUNCHER, json.dumps(spec)]
        else:
            self.story.append("start")
        pool.start(wait=False)
        if self.random.random() < 0.7:
            self._settled(pool)
        return pool

    def _settled(self, pool: Pool) -> None:
        """Ready, or ended, or frozen: whatever the failpoint made of it."""

        def settled() -> bool:
            pids = [pid for pid in (pool.supervisor, pool.guardian(), *pool.children().values()) if pid]
            stopped = any((seen := stat(pid)) is not None and seen.state == "T" for pid in pids)
            return stopped or b"\n" in pool.out.read_bytes() or pool.process.poll() is not None

        eventually(settled, 20, "a start that comes to something")
        self._assert_alone(pool)

    def _assert_alone(self, pool: Pool) -> None:
        """Whoever is ready is alone."""
        if b"\n" in pool.out.read_bytes():
            others = [other for other in self.app.pools if other is not pool]
            assert [] == [pid for other in others for pid in other.census()]

    def _act(self, pool: Pool) -> None:
        what = self.random.choice(["enqueue", "enqueue", "kill", "kill", "freeze", "thaw", "terminate", "ask"])
        if what == "enqueue":
            self._enqueue(self.random.randint(1, 8))
        elif what == "thaw":
            self._thaw()
        elif what == "ask":
            self.story.append("status")
            assert pool.run("status", "--json").returncode in (0, 3, 5)
        else:
            who = self.random.choice(["child", "child", "child", "guardian", "supervisor"])
            number = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "terminate": signal.SIGTERM}[what]
            self._signal(pool, who, number)

    def _signal(self, pool: Pool, who: str, number: int) -> None:
        if who == "child":
            found = list(pool.children().values())
        else:
            found = [pid for pid in ([pool.guardian()] if who == "guardian" else [pool.supervisor]) if pid]
        self.story.append(f"{signal.Signals(number).name} to the {who}")
        if not found:
            return
        pid = self.random.choice(found)
        if number == signal.SIGSTOP:
            self.frozen.add(pid)
        send(pid, number)

    def _end(self, pool: Pool) -> None:
        how = self.random.choice(["stop", "stop", "quit", "supervisor", "guardian", "both"])
        self.story.append(f"end: {how}")
        guardian = None
        if how in ("guardian", "both"):
            # One that is not there yet cannot be killed; and then nothing would end the pool.
            eventually(lambda: self._thawed() and (pool.guardian() or not pool.started()), 10, "a guardian")
            guardian = pool.guardian()
        if how in ("stop", "quit"):
            self._thaw()
            send(pool.supervisor, signal.SIGTERM if how == "stop" else signal.SIGQUIT)
        if how in ("supervisor", "both"):
            send(pool.supervisor, signal.SIGKILL)
        if how in ("guardian", "both") and guardian:
            send(guardian, signal.SIGKILL)
        # A failpoint may freeze somebody as late as now.
        eventually(lambda: self._thawed() and not pool.started(), GONE_SECONDS, "the supervisor's end")
        code = pool.wait(1)
        early = pool.log() == "" and code in (-signal.SIGTERM, -signal.SIGQUIT)  # it had not started anything
        assert early or code in (0, 1, -signal.SIGKILL), (code, pool.log())

    # The last life

    def _last_life(self) -> None:
        self._enqueue(5)
        self.story.append("the last start, without faults")
        pool = self.app.pool()
        pool.start(seconds=20)
        self._assert_alone(pool)
        eventually(lambda: set(self.app.statuses()) <= {"completed"}, 30, "every job done")
        self._assert_tidy(pool)
        pool.stop()
        self.app.assert_clean()
        assert [] == self.app.leftovers()
        self._assert_ledger()

    def _assert_tidy(self, pool: Pool) -> None:
        """One guardian, the children and nobody else; a descriptor or two for each."""
        guardian = pool.guardian()
        assert guardian is not None
        slots = int(pool.status()["worker_count"])
        eventually(lambda: [guardian] == children_of(pool.supervisor), 5, "no zombie of the supervisor's")
        eventually(lambda: slots <= len(children_of(guardian)) <= 2 * slots, 5, "no zombie of the guardian's")
        eventually(lambda: len(descriptors(guardian)) <= 12 + 4 * slots, 5, f"{descriptors(guardian)}")
        eventually(lambda: len(descriptors(pool.supervisor)) <= 20, 5, f"{descriptors(pool.supervisor)}")

    def _assert_ledger(self) -> None:
        lines = self.app.ledger.lines()
        assert 0 == self.app.ledger.count("overlap"), "a job ran twice at once"
        finished: dict[str, set[int]] = {}
        for event, job, attempt, _ in lines:
            if event == "finish":
                finished.setdefault(job, set()).add(attempt)
        with self.app.queue() as queue:
            for job_id in self.jobs:
                job = queue.get(job_id)
                assert "completed" == job.status, job
                assert job.result in finished[job_id], (job, finished[job_id])
                assert job.result == job.attempt, f"settled by a stale claim: {job}"
        starts = Counter((job, attempt, pid) for event, job, attempt, pid in lines if event == "start")
        assert all(count == 1 for count in starts.values()), "one claim started a job twice"

    # Means

    def _enqueue(self, count: int) -> None:
        self.story.append(f"enqueue {count}")
        with self.app.queue() as queue:
            for _ in range(count):
                seconds = self.random.choice([0.0, 0.0, 0.01, 0.1, 0.4])
                data = {"seconds": seconds, "how": self.random.choice(["nap", "spin"])}
                self.jobs.append(queue.enqueue("work", data))

    def _thaw(self) -> None:
        """Continues whoever is frozen, by us or by a failpoint."""
        for pool in self.app.pools:
            for pid in census(pool.marker):
                seen = stat(pid)
                if seen is not None and seen.state == "T":
                    send(pid, signal.SIGCONT)
        self.frozen.clear()

    def _thawed(self) -> bool:
        self._thaw()
        return True

    def _wait(self, seconds: float) -> None:
        select.select([], [], [], seconds)


def send(pid: int, number: int) -> None:
    """To somebody who may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def play(seed: int) -> list[str]:
    """One run in a folder of its own; what was done. Raises with the story where something does not hold."""
    with tempfile.TemporaryDirectory(prefix="platform-worker-faults-") as folder:
        run = Run(seed, Path(folder) / "app")
        try:
            run.play()
        except BaseException as error:
            logs = "\n".join(f"--- {pool.err.name}\n{pool.log()[-4000:]}" for pool in run.app.pools)
            raise AssertionError("\n".join([str(error), *run.story, logs])) from error
        return run.story
