"""Whose leftovers are whose, and how the fence is taken."""

import pytest

from platform_worker.guardian.claim import ClaimAttempt
from platform_worker.guardian.leftovers import condemned
from platform_worker.ports_processes import Stranger
from platform_worker.protocol.ownership import Busy, Claim, Claimed, Failed

ALIVE = {"7.0.1": 100, "7.1.1": 101}
CLAIM = Claim("/r", "python", None, "fork", 1200, 10000, 10000, 1000)


@pytest.mark.parametrize(
    ("stranger", "alive", "verdict"),
    [
        (Stranger(5, "7.0.1", 5), ALIVE, "spared"),
        (Stranger(5, "7.2.1", 5), ALIVE, "gone"),
        (Stranger(5, "7.2.1", 101), ALIVE, "gone"),
        (Stranger(5, None, 101), ALIVE, "spared"),
        (Stranger(5, None, 99), ALIVE, "gone"),
        (Stranger(5, None, 5), ALIVE, "unknown"),
        (Stranger(5, None, 5), {}, "gone"),
        (Stranger(5, "7.0.1", 5), {}, "gone"),
    ],
)
def test_whose_it_is(stranger, alive, verdict):
    """By its mark, else by its session; who cannot be told is spared while anyone lives."""
    gone, unknown = condemned([stranger], alive, ended={99})
    assert verdict == ("gone" if gone else "unknown" if unknown else "spared")


class FakeFence:
    """Each lock is free after so many tries."""

    def __init__(self, lock=1, members=1, error_at=None):
        self.lock, self.members, self.error_at = lock, members, error_at
        self.calls = []

    def _call(self, name):
        self.calls.append(name)
        if name == self.error_at:
            raise OSError("no")

    def try_lock(self):
        self._call("lock")
        self.lock -= 1
        return self.lock <= 0

    def try_members(self):
        self._call("members")
        self.members -= 1
        return self.members <= 0

    def next_generation(self):
        self._call("number")
        return 8

    def release(self):
        self.calls.append("release")

    def abandon(self):
        self.calls.append("abandon")


def run(fence):
    """Steps, on a clock that is always on time, until there is an outcome; with the time it took."""
    attempt = ClaimAttempt(CLAIM, fence, 100.0)
    while (outcome := attempt.step(attempt.next_deadline())) is None:
        pass
    return outcome, attempt.next_deadline() - 100.0


@pytest.mark.parametrize(("lock", "members"), [(1, 1), (5, 1), (1, 5), (300, 1000)])
def test_a_claim_tries_again(lock, members):
    """A probe, or an old generation that is just ending, delays a claim and does not fail it."""
    fence = FakeFence(lock, members)
    assert Claimed(8) == run(fence)[0]
    assert ["lock"] * lock + ["members"] * members + ["number"] == fence.calls


def test_a_live_guardian_makes_it_busy():
    """It gives up after the lock's wait, having let go of everything."""
    fence = FakeFence(lock=10**9)
    outcome, seconds = run(fence)
    assert Busy() == outcome
    assert 1.2 <= seconds < 1.21
    assert "abandon" == fence.calls[-1]


def test_members_that_live_on_make_it_busy():
    """It waits for them as long as a start may take."""
    fence = FakeFence(members=10**9)
    outcome, seconds = run(fence)
    assert Busy() == outcome
    assert 10.0 <= seconds < 10.01
    assert "abandon" == fence.calls[-1]


@pytest.mark.parametrize("call", ["lock", "members", "number"])
def test_the_machine_refuses(call):
    """Whatever step the machine refuses, the claim fails with the lock's reason and nothing is held."""
    fence = FakeFence(error_at=call)
    assert Failed("worker-lifecycle-lock-failed") == run(fence)[0]
    assert [call, "abandon"] == fence.calls[-2:]
