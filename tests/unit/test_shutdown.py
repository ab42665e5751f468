"""The shutdown ladder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_worker.pool.shutdown import Budgets, Ladder, Phase, ladder

BUDGETS = Budgets(stop_timeout_ms=10000, force_kill_timeout_ms=1000)


@pytest.mark.parametrize(
    ("now", "entered", "phase"),
    [
        (109.999, [], Phase.COOPERATIVE),
        (110.0, [Phase.TERMINATE], Phase.TERMINATE),
        (111.0, [Phase.KILL], Phase.KILL),
        (111.5, [], Phase.KILL),
        (112.0, [Phase.OVER], Phase.OVER),
        (999.0, [], Phase.OVER),
    ],
)
def test_the_whole_ladder(now, entered, phase):
    """Each phase lasts its budget; after the last nothing is due."""
    times = [109.999, 110.0, 111.0, 111.5, 112.0, 999.0]
    going = ladder(100.0, BUDGETS)
    for at in times[: times.index(now)]:
        going.advance(at)
    assert entered == going.advance(now)
    assert phase is going.phase
    assert (phase is Phase.OVER) == (going.next_deadline() is None)


def test_begin():
    """It begins by asking, unless it is to kill at once."""
    assert [Phase.COOPERATIVE] == Ladder(BUDGETS).begin(5.0)
    immediate = Ladder(BUDGETS)
    assert [Phase.KILL] == immediate.begin(5.0, immediate=True)
    assert 6.0 == immediate.next_deadline()


def test_before_the_beginning():
    """Nothing is due, nothing advances, nothing can be skipped."""
    waiting = Ladder(BUDGETS)
    assert waiting.next_deadline() is None
    assert [] == waiting.advance(1e9)
    with pytest.raises(ValueError, match="not begun"):
        waiting.skip_to(Phase.KILL, 0.0)


def test_it_begins_once():
    """A second beginning is a bug of the caller's."""
    with pytest.raises(ValueError, match="cooperative already"):
        ladder(0.0, BUDGETS).begin(1.0)


@pytest.mark.parametrize("at", list(Phase))
@pytest.mark.parametrize("to", list(Phase))
def test_skip_only_goes_down(at, to):
    """A skip enters a later phase at once, with its whole budget, and never an earlier one."""
    order = list(Phase)
    going = ladder(0.0, BUDGETS)
    going.skip_to(at, 1.0)
    deadline = going.next_deadline()
    skipped = order.index(to) > order.index(at)
    assert ([to] if skipped else []) == going.skip_to(to, 2.0)
    assert (to if skipped else at) is going.phase
    if skipped and to is not Phase.OVER:
        assert 3.0 == going.next_deadline()
    elif not skipped:
        assert deadline == going.next_deadline()


@given(
    st.integers(1, 86_400_000),
    st.integers(1, 86_400_000),
    st.lists(st.floats(0, 10_000, allow_nan=False), max_size=20),
)
def test_nobody_is_hurried(stop, force, waits):
    """However late and however often it is asked, phases come in order, one at a time, each after its whole length."""
    budgets = Budgets(stop, force)
    now = 1000.0
    going = ladder(now, budgets)
    entered_at, seen = now, [Phase.COOPERATIVE]
    for wait in waits:
        now += wait
        before = going.phase
        for phase in going.advance(now):
            assert now >= entered_at + budgets.seconds(before)
            entered_at = now
            seen.append(phase)
    assert list(Phase)[: len(seen)] == seen
