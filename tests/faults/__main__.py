"""Runs of the fault machine: ``bin/faults [--runs N] [--first SEED] [--seed SEED] [--jobs N] [--keep-going]``.

Example: ``bin/faults --seed 4711`` makes one run again, and prints what it does.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from faults.machine import play


def main() -> int:
    """0 where every run held."""
    parser = argparse.ArgumentParser(
        prog="bin/faults", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5000, help="how many runs (5000)")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first (1); the others follow it")
    parser.add_argument("--seed", type=int, help="one run again, with what it does")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side (2)")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    options = parser.parse_args()
    if options.seed is not None:
        print("\n".join(play(options.seed)))
        return 0
    began, failed, done = time.monotonic(), 0, 0
    with ProcessPoolExecutor(options.jobs, max_tasks_per_child=1) as executor:
        runs = {executor.submit(play, seed): seed for seed in range(options.first, options.first + options.runs)}
        for run in as_completed(runs):
            done += 1
            error = run.exception()
            if error is not None:
                failed += 1
                print(
                    f"seed {runs[run]} failed: {error}\nmake it again with: bin/faults --seed {runs[run]}", flush=True
                )
                if not options.keep_going:
                    executor.shutdown(cancel_futures=True)
                    break
            elif done % 10 == 0 or done == options.runs:
                print(f"{done} of {options.runs} runs, {failed} failed, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
