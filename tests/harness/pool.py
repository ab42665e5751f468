"""One ``worker start`` and all that it owns, seen from outside."""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from harness.processes import MARK, alive, census, command, environment, eventually, stat


class Pool:
    """A pool on ``root``. Its processes carry a random mark, by which they are found whatever else they lost."""

    def __init__(self, worker: str, root: Path, environ: dict[str, str], number: int) -> None:
        self.root = root
        self.marker = secrets.token_hex(16)
        self.environ = {**os.environ, **environ, MARK: self.marker}
        self.out = root / f"start-{number}.out"
        self.err = root / f"start-{number}.err"
        #: What ``worker start`` is started with, in place of the command ``worker``.
        self.launch = [worker]
        self._worker = worker
        self._process: subprocess.Popen[bytes] | None = None

    # Starting

    def start(self, *arguments: str, wait: bool = True, seconds: float = 20.0, **popen: Any) -> dict[str, Any]:
        """Runs ``worker start --json``; the summary, or nothing where it is not waited for."""
        line = [*self.launch, "--root", str(self.root), "start", "--json", *arguments]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self._process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self.environ, **popen
            )
        return self.summary(seconds) if wait else {}

    def summary(self, seconds: float = 20.0) -> dict[str, Any]:
        """Waits for the line that says every child is ready."""

        def printed() -> bytes:
            text = self.out.read_bytes()
            assert b"\n" in text or self.process.poll() is None, f"ended {self.process.returncode}: {self.log()}"
            return text if b"\n" in text else b""

        found: dict[str, Any] = json.loads(eventually(printed, seconds, "the summary line").split(b"\n")[0])
        assert "running" == found["status"], (found, self.log())
        return found

    # Who

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The supervisor as we started it."""
        assert self._process is not None, "the pool was not started"
        return self._process

    @property
    def supervisor(self) -> int:
        """Its pid."""
        return self.process.pid

    def census(self) -> list[int]:
        """Everybody, the supervisor included."""
        return census(self.marker)

    def guardian(self) -> int | None:
        """The guardian's pid; also when its parent is gone."""
        found = []
        for pid in self.census():
            seen = stat(pid)
            if seen and "run_guardian" in command(pid) and "PLATFORM_WORKER_CHILD" not in environment(pid):
                found.append((seen.started, pid))
        # What it has forked looks like it for an instant, and is younger.
        return min(found)[1] if found else None

    def children(self) -> dict[int, int]:
        """The pid of each slot's newest living child, by slot."""
        newest: dict[int, tuple[int, int]] = {}
        for pid in self.census():
            mark = environment(pid).get("PLATFORM_WORKER_CHILD")
            seen = stat(pid)
            line = command(pid)
            if mark is None or seen is None or seen.session != pid or not ("run_child" in line or ".child" in line):
                continue  # a subprocess of a task has the mark as well
            _, slot, incarnation = (int(part) for part in mark.split("."))
            newest[slot] = max(newest.get(slot, (0, 0)), (incarnation, pid))
        return {slot: pid for slot, (_, pid) in sorted(newest.items())}

    def others(self) -> list[int]:
        """Marked processes that are none of ours: what tasks have started."""
        ours = {self.supervisor, self.guardian(), *self.children().values()}
        return [pid for pid in self.census() if pid not in ours]

    # Asking

    def run(self, *arguments: str, seconds: float = 30.0) -> subprocess.CompletedProcess[str]:
        """A command on this root, to its end. It does not carry the pool's mark."""
        line = [self._worker, "--root", str(self.root), *arguments]
        return subprocess.run(line, capture_output=True, text=True, timeout=seconds, check=False)

    def status(self) -> dict[str, Any]:
        """What ``worker status --json`` prints; it must answer."""
        done = self.run("status", "--json")
        assert 0 == done.returncode, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def health(self) -> tuple[int, dict[str, Any]]:
        """The exit code and the object of ``worker health --json``."""
        done = self.run("health", "--json")
        return done.returncode, json.loads(done.stdout)

    def ready(self) -> int:
        """How many slots are ready."""
        return int(self.status()["ready_worker_count"])

    def stop(self, seconds: float = 30.0) -> subprocess.CompletedProcess[str]:
        """``worker stop``; it must succeed, and the supervisor end with 0."""
        done = self.run("stop", seconds=seconds)
        assert 0 == done.returncode, (done.stderr, self.log())
        assert 0 == self.wait(5), self.log()
        return done

    def wait(self, seconds: float = 20.0) -> int:
        """The supervisor's exit code, negative for a signal."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the supervisor did not end within {seconds} s: {self.log()}") from None

    def signal(self, number: int = signal.SIGTERM) -> None:
        """To the supervisor."""
        self.process.send_signal(number)

    def signal_group(self, number: int) -> None:
        """To the process group of the supervisor, which was started with ``start_new_session=True``."""
        assert os.getpgid(self.supervisor) == self.supervisor
        os.killpg(self.supervisor, number)

    def kill(self) -> None:
        """SIGKILL to the supervisor, and reaps it."""
        self.process.kill()
        self.process.wait()

    # What it left

    def log(self) -> str:
        """Everything on stderr so far."""
        return self.err.read_text(errors="replace") if self.err.exists() else ""

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The log's events, all or of one name."""
        found = []
        for line in self.log().splitlines():
            if line.startswith("{") and line.endswith("}"):
                event = json.loads(line)
                if name is None or event.get("event") == name:
                    found.append(event)
        return found

    def assert_gone(self, seconds: float = 5.0) -> None:
        """Nobody is left, within ``seconds``."""
        eventually(lambda: not self.census(), seconds, f"census 0, not {[(p, command(p)) for p in self.census()]}")

    def close(self) -> list[int]:
        """Kills everybody that is left; returns who that was."""
        if self._process is None:
            return []
        left = found = self.census()
        deadline = time.monotonic() + 10
        while found and time.monotonic() < deadline:
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            select.select([], [], [], 0.01)
            found = self.census()
        self._process.wait(5)
        return left

    def started(self) -> bool:
        """True while the supervisor lives."""
        return self._process is not None and alive(self._process.pid)
