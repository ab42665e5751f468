"""The tour that bin/demo gives; see there. Runs in the demo's own environment."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
ROOT = CHECKOUT / "examples" / "documents"
LOG = ROOT / "var" / "demo.log"
WORKER = [str(Path(sys.executable).with_name("worker")), "--root", str(ROOT)]
START_SECONDS = 30
WORK_SECONDS = 120
UNFINISHED = ("queued", "processing", "retry_wait")

sys.path.insert(0, str(ROOT))


class DemoError(Exception):
    """Something did not go as it should; the text is for the person in front of the terminal."""


def show(step: str) -> None:
    """One step of the tour."""
    print(f"\n==> {step}", flush=True)


def worker(*arguments: str) -> str:
    """Runs one command of the product, showing it as one would type it, and gives what it printed."""
    print(f"$ worker {' '.join(arguments)}", flush=True)
    done = subprocess.run([*WORKER, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise DemoError(f"`worker {arguments[0]}` ended with exit code {done.returncode}")
    return done.stdout.strip()


def start() -> subprocess.Popen[bytes]:
    """`worker start` in the background, in a session of its own, so that Ctrl-C reaches the demo alone."""
    print("$ worker start --json &", flush=True)
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("wb") as log:
        return subprocess.Popen(
            [*WORKER, "start", "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )


def summary_line(pool: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The line that `worker start` prints once every child is ready."""
    assert pool.stdout is not None
    ready, _, _ = select.select([pool.stdout], [], [], START_SECONDS)
    line = json.loads((pool.stdout.readline() if ready else b"") or b"{}")
    if line.get("status") != "running":
        raise DemoError(f"the pool did not start ({line.get('reason', 'it said nothing')}); its log: {relative(LOG)}")
    return dict(line)


def stop(pool: subprocess.Popen[bytes] | None) -> None:
    """`worker stop`, and the end of the supervisor, whatever went wrong before. A second Ctrl-C changes nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if pool is None or pool.poll() is None:
        subprocess.run([*WORKER, "stop"], stdout=subprocess.DEVNULL, check=False)
    if pool is None:
        return
    try:
        code = pool.wait(timeout=20)
    except subprocess.TimeoutExpired:
        pool.kill()  # its guardian sees that, and ends the children
        code = pool.wait()
    print(f"The pool ended with exit code {code}.", flush=True)
    if code != 0:
        raise DemoError(f"the pool failed; its log: {relative(LOG)}")


def follow(queue: Any, total: int, pool: subprocess.Popen[bytes]) -> None:
    """Draws how many jobs are done until none is left."""
    deadline = time.monotonic() + WORK_SECONDS
    while True:
        counts = queue.counts().values()
        left = {state: sum(getattr(one, state) for one in counts) for state in UNFINISHED}
        done = max(0, total - sum(left.values()))
        width = 40 * done // total
        line = f"[{'#' * width}{'.' * (40 - width)}] {done}/{total} done, {left['retry_wait']} waiting for a retry  "
        print(f"\r{line}" if sys.stdout.isatty() else line, end="" if sys.stdout.isatty() else "\n", flush=True)
        if not any(left.values()):
            print()
            return
        if pool.poll() is not None:
            raise DemoError(f"the pool ended by itself; its log: {relative(LOG)}")
        if time.monotonic() > deadline:
            raise DemoError(f"the jobs were not done within {WORK_SECONDS} seconds; the pool's log: {relative(LOG)}")
        time.sleep(0.2)  # how often a person wants to see the bar move


def report(jobs: list[Any]) -> None:
    """What came out: how many files of each type, and which ones failed and why."""
    types = Counter(job.result["type"] for job in jobs if job.status == "completed")
    bytes_of: Counter[str] = Counter()
    for job in jobs:
        if job.status == "completed":
            bytes_of[job.result["type"]] += job.result.get("size", 0)
    print(f"{'type':<10}{'files':>8}{'bytes':>12}")
    for name, files in types.most_common():
        print(f"{name:<10}{files:>8}{bytes_of[name]:>12}")
    failed = [job for job in jobs if job.status != "completed"]
    print(f"\n{len(failed)} could not be taken, on purpose:")
    for job in failed:
        error = job.error or {}
        where = relative(Path(job.data["path"]))
        print(f"  {where}: {job.status} after attempt {job.attempt} of {job.max_attempts}")
        print(f"    {error.get('reason')}: {error.get('message')}")


def relative(path: Path) -> str:
    """The path as seen from the checkout."""
    return os.path.relpath(path, CHECKOUT)


def tour() -> None:
    """All of it."""
    import samples
    import walk

    from platform_worker import Queue

    began = time.monotonic()
    show("Compile worker.toml and the handlers into an artifact generation")
    print(worker("build"))
    show("Start the pool and wait until every child is ready")
    pool = None
    try:
        pool = start()
        line = summary_line(pool)
        print(f"{line['status']}: {line['ready_worker_count']} of {line['worker_count']} children ready")
        show("Enqueue one job for each file of this checkout, and a few samples; one has macros, one is cut short")
        samples.write(ROOT / "var" / "samples")
        paths = [*walk.files_of(CHECKOUT), *walk.files_of(ROOT / "var" / "samples")]
        ids = walk.enqueue(iter(paths), ROOT)
        with Queue.open(root=ROOT) as queue:
            follow(queue, len(ids), pool)
            jobs = [queue.get(one) for one in ids]
        show("Ask how the pool is")
        print(worker("health"))
        show(f"Results, one JSON file a content, in {relative(ROOT / 'var' / 'results')}")
        report(jobs)
    finally:
        show("Stop the pool")
        print("$ worker stop", flush=True)
        stop(pool)
    print(f"\n{len(jobs)} jobs, {time.monotonic() - began:.1f} seconds. To look around:")
    print(f"    bin/worker --root {relative(ROOT)} jobs --limit 5")


def interrupted(_signum: int, _frame: object) -> None:
    """SIGTERM and a closed terminal end the demo as Ctrl-C does: by way of its clean-up."""
    raise KeyboardInterrupt


def main() -> int:
    """Runs the tour; 0 when everything went as it should."""
    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGHUP, interrupted)
    try:
        tour()
    except KeyboardInterrupt:
        print("\nInterrupted; the pool is stopped.", file=sys.stderr)
        return 130
    except DemoError as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
