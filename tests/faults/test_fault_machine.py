"""The fault machine with a number of seeds; many more with ``bin/faults``."""

from __future__ import annotations

import pytest

from faults.machine import play
from harness import scaled


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(1, scaled(60) + 1))
def test_whatever_is_killed_nothing_outlives_its_generation_and_no_job_is_lost(seed: int) -> None:
    """A failure prints what was done, and the seed; ``bin/faults --seed`` makes the run again."""
    play(seed)
