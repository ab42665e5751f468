"""The pool's machine on a fake host: what was chosen, one plain test each."""

from __future__ import annotations

import pytest

from platform_worker.pool.effects import (
    AbandonClaim,
    Announce,
    Count,
    EndGuardian,
    Finish,
    KillChild,
    LogEvent,
    RaiseStopFlag,
    ReleaseFence,
    RemoveFiles,
    StartChild,
    StateChanged,
    TellChild,
    TerminateChild,
)
from platform_worker.pool.events import (
    ChildExited,
    ChildNotStarted,
    ChildPulsed,
    ChildSaid,
    ChildStarted,
    FenceBusy,
    FenceClaimed,
    FenceReleased,
    GuardianLost,
    GuardianRefused,
    SetupFailed,
    StopRequested,
)
from platform_worker.pool.life import IllegalEvent
from platform_worker.pool.machine import Policy, PoolMachine
from platform_worker.pool.states import ChildPhase, PoolStatus, StopMode


def policy(**changes: object) -> Policy:
    fields: dict[str, object] = {
        "workers": 1,
        "start_timeout_ms": 10_000,
        "stop_timeout_ms": 5_000,
        "force_kill_timeout_ms": 1_000,
        "restart_intensity": 3,
        "restart_period_ms": 60_000,
    }
    return Policy(**{**fields, **changes})  # type: ignore[arg-type]


class Host:
    """Plays the guardian: obeys nothing by itself, counts everything, checks the invariants after every step."""

    def __init__(self, **changes: object) -> None:
        self.pool = PoolMachine(policy(**changes))
        self.now = 0.0
        self.pool.begin(self.now)

    def do(self, event: object) -> list[object]:
        """One event; what is asked for, without what is only said."""
        effects = self.pool.handle(event, self.now)  # type: ignore[arg-type]
        self.pool.validate()
        return [effect for effect in effects if not isinstance(effect, LogEvent | StateChanged)]

    def wait(self, seconds: float) -> list[object]:
        """Time passes, every deadline on the way is met."""
        end, effects = self.now + seconds, []
        while (at := self.pool.next_deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            effects += self.pool.advance(self.now)
            self.pool.validate()
        self.now = end
        return [effect for effect in effects if not isinstance(effect, LogEvent | StateChanged)]

    def claim(self) -> list[object]:
        return self.do(FenceClaimed(7))

    def say(self, word: str, slot: int = 0, incarnation: int = 1, reason: str | None = None) -> list[object]:
        return self.do(ChildSaid(slot, incarnation, word, reason))

    def pulse(
        self, silent_ms: int = 0, task_ms: int | None = None, slot: int = 0, incarnation: int = 1
    ) -> list[object]:
        """A pulse of a source with a limit of ten seconds; what is logged of it."""
        effects = self.pool.handle(ChildPulsed(slot, incarnation, 10_000, silent_ms, task_ms), self.now)
        self.pool.validate()
        return [effect for effect in effects if not isinstance(effect, StateChanged)]

    def exit(
        self, code: int | None = 0, signal: int | None = None, slot: int = 0, incarnation: int = 1
    ) -> list[object]:
        return self.do(ChildExited(slot, incarnation, code, signal))

    def boot(self, slot: int = 0, incarnation: int = 1) -> list[object]:
        return [*self.do(ChildStarted(slot, incarnation)), *self.say("booted", slot, incarnation)]

    def ready(self, slot: int = 0, incarnation: int = 1) -> list[object]:
        return [*self.boot(slot, incarnation), *self.say("ready", slot, incarnation)]


def running(**changes: object) -> Host:
    host = Host(**changes)
    host.claim()
    for slot in range(host.pool.policy.workers):
        host.ready(slot)
    assert host.pool.status is PoolStatus.RUNNING
    return host


# Starting


def test_a_claimed_fence_starts_every_slot() -> None:
    host = Host(workers=2)
    assert [StartChild(0, 1, False), StartChild(1, 1, False)] == host.claim()


def test_a_booted_child_is_told_to_go() -> None:
    host = Host()
    host.claim()
    assert [TellChild(0, 1, "go")] == host.boot()


def test_the_pool_runs_when_every_slot_is_ready() -> None:
    host = Host(workers=2)
    host.claim()
    assert [TellChild(0, 1, "go")] == host.ready(0)
    assert host.pool.health == "worker-pool-starting"
    assert [TellChild(1, 1, "go"), Announce(), Count("start_success")] == host.ready(1)
    assert (PoolStatus.RUNNING, 2, "healthy") == (host.pool.status, host.pool.ready_count, host.pool.health)


def test_a_busy_fence_ends_the_start() -> None:
    assert [Finish("worker-already-running", ())] == Host().do(FenceBusy())


def test_a_refused_claim_ends_the_start_with_its_reason() -> None:
    assert [Finish("worker-lifecycle-lock-failed", ())] == Host().do(GuardianRefused("worker-lifecycle-lock-failed"))


def test_a_child_that_cannot_boot_ends_the_start_with_its_reason() -> None:
    host = Host(workers=2)
    host.claim()
    host.do(ChildStarted(0, 1))
    host.do(ChildStarted(1, 1))
    host.say("failed", reason="worker-handlers-unimportable")
    assert [RaiseStopFlag(), TellChild(1, 1, "stop")] == host.exit(1)
    assert [RemoveFiles(), ReleaseFence()] == host.exit(0, slot=1)
    assert [Finish("worker-handlers-unimportable", ())] == host.do(FenceReleased())


def test_a_child_that_was_never_started_ends_the_start() -> None:
    host = Host()
    host.claim()
    assert [RaiseStopFlag(), RemoveFiles(), ReleaseFence()] == host.do(ChildNotStarted(0, 1, "worker-fork-failed"))
    assert [Finish("worker-fork-failed", ())] == host.do(FenceReleased())


def test_a_start_that_takes_too_long_is_rolled_back() -> None:
    host = Host()
    host.claim()
    host.do(ChildStarted(0, 1))
    assert [RaiseStopFlag(), TellChild(0, 1, "stop")] == host.wait(10)
    assert [TerminateChild(0, 1)] == host.wait(1)
    assert [KillChild(0, 1)] == host.wait(1)
    assert [RemoveFiles(), ReleaseFence()] == host.exit(None, 9)
    assert [Finish("worker-readiness-timeout", ())] == host.do(FenceReleased())


def test_a_file_that_cannot_be_made_rolls_the_start_back_with_its_hint() -> None:
    host = Host()
    host.claim()
    assert [RaiseStopFlag(), TellChild(0, 1, "stop")] == host.do(SetupFailed("worker-control-unavailable", ("a",)))
    host.exit(0)
    assert [Finish("worker-control-unavailable", ("a",))] == host.do(FenceReleased())


# Stopping


def test_a_stop_before_the_claim_parts_from_the_guardian() -> None:
    assert [AbandonClaim(), Finish(None, ())] == Host().do(StopRequested(StopMode.GRACEFUL))


def test_a_stop_goes_down_the_ladder_and_is_no_failure() -> None:
    host = running()
    assert [RaiseStopFlag(), TellChild(0, 1, "stop")] == host.do(StopRequested(StopMode.GRACEFUL))
    assert host.pool.health == "worker-pool-stopping"
    assert host.pool.ready_count == 0
    assert [TerminateChild(0, 1)] == host.wait(5)
    assert [KillChild(0, 1)] == host.wait(1)
    assert [RemoveFiles(), ReleaseFence()] == host.exit(None, 9)
    assert [Finish(None, ())] == host.do(FenceReleased())


def test_a_guardian_that_is_silent_after_the_last_deadline_of_a_stop_is_ended() -> None:
    host = running()
    host.do(StopRequested(StopMode.GRACEFUL))
    assert [TerminateChild(0, 1), KillChild(0, 1)] == host.wait(7.9)
    assert [EndGuardian()] == host.wait(0.1)
    assert [RemoveFiles(), Finish("worker-shutdown-failed", ())] == host.do(GuardianLost())


def test_a_guardian_that_does_not_let_go_of_the_fence_is_ended() -> None:
    host = running()
    host.do(StopRequested(StopMode.GRACEFUL))
    host.exit(0)
    assert [] == host.wait(1.9)
    assert [EndGuardian()] == host.wait(0.1)
    assert [Finish("worker-shutdown-failed", ())] == host.do(GuardianLost())


def test_children_that_end_in_time_end_the_stop() -> None:
    host = running(workers=2)
    host.do(StopRequested(StopMode.GRACEFUL))
    host.say("done")
    assert [] == host.exit(0)
    host.say("done", 1)
    assert [RemoveFiles(), ReleaseFence()] == host.exit(0, slot=1)


def test_a_second_stop_over_the_control_channel_changes_nothing() -> None:
    host = running()
    host.do(StopRequested(StopMode.GRACEFUL))
    assert [] == host.do(StopRequested(StopMode.GRACEFUL))


def test_a_second_signal_skips_the_rest_of_the_cooperative_phase() -> None:
    host = running()
    host.do(StopRequested(StopMode.GRACEFUL))
    assert [TerminateChild(0, 1)] == host.do(StopRequested(StopMode.HURRIED))


def test_a_killing_stop_kills_at_once() -> None:
    assert [RaiseStopFlag(), KillChild(0, 1)] == running().do(StopRequested(StopMode.KILLING))


@pytest.mark.parametrize("word", ["last", "empty", "booted", "ready"])
@pytest.mark.parametrize("mode", list(StopMode))
def test_what_was_said_before_a_stop_was_heard_starts_nobody(mode: StopMode, word: str) -> None:
    host = running()
    host.do(StopRequested(mode))
    assert [] == host.say(word)
    assert [RemoveFiles(), ReleaseFence()] == host.exit(None, 9)


def test_a_child_that_is_started_when_all_are_killed_does_not_take_over() -> None:
    host = running(workers=2)
    host.exit(None, 9, slot=1)
    host.do(ChildStarted(1, 2))
    host.do(StopRequested(StopMode.KILLING))
    assert [] == host.do(ChildSaid(1, 2, "booted"))


def test_a_child_without_a_task_in_hand_has_only_the_force_kill_budget() -> None:
    host = Host(workers=2)
    host.claim()
    host.ready(0)
    host.do(ChildStarted(1, 1))
    host.do(StopRequested(StopMode.GRACEFUL))
    assert [TerminateChild(1, 1)] == host.wait(1)
    assert [KillChild(1, 1)] == host.wait(1)


def test_a_child_that_says_done_and_stays_is_ended() -> None:
    host = running()
    host.say("done")
    assert [TerminateChild(0, 1)] == host.wait(1)
    assert [KillChild(0, 1)] == host.wait(1)


def test_nothing_is_started_for_a_child_that_ends_during_a_stop() -> None:
    host = running(workers=2)
    host.do(StopRequested(StopMode.GRACEFUL))
    assert [] == host.exit(None, 9)
    assert [] == host.wait(4)


# Recycling


def test_the_replacement_boots_while_the_last_task_runs_and_takes_over_when_its_elder_is_gone() -> None:
    host = running()
    assert [StartChild(0, 2, False)] == host.say("last")
    assert [TellChild(0, 1, "stop")] == host.boot(0, 2)
    assert host.pool.ready_count == 1
    host.say("done")
    assert [TellChild(0, 2, "go")] == host.exit(0)
    assert host.pool.health == "healthy"
    assert [Count("recycle_success")] == host.say("ready", 0, 2)


def test_an_elder_that_ends_before_its_replacement_has_booted_is_followed_at_its_boot() -> None:
    host = running()
    host.say("last")
    host.say("done")
    host.exit(0)
    assert [TellChild(0, 2, "go")] == host.boot(0, 2)


def test_a_replacement_that_cannot_boot_leaves_the_elder_at_work() -> None:
    host = running(restart_intensity=0)
    host.say("last")
    host.do(ChildStarted(0, 2))
    host.say("failed", 0, 2, "worker-generation-invalid")
    assert [Count("recycle_failure"), TellChild(0, 1, "go on")] == host.exit(1, incarnation=2)
    assert host.pool.health == "healthy"
    assert [StartChild(0, 3, True)] == host.say("last")


def test_a_replacement_that_never_boots_is_ended_and_the_elder_goes_on() -> None:
    host = running()
    host.say("last")
    host.do(ChildStarted(0, 2))
    assert [TerminateChild(0, 2), KillChild(0, 2)] == host.wait(11)
    assert [Count("recycle_failure"), TellChild(0, 1, "go on")] == host.exit(None, 9, incarnation=2)


@pytest.mark.parametrize("overdue", [False, True])
def test_a_replacement_that_leaves_in_good_order_before_it_took_over_leaves_the_elder_at_work(overdue: bool) -> None:
    """Terminated in time while it boots, or by somebody from outside: the elder must not wait for ever."""
    host = running()
    host.say("last")
    host.do(ChildStarted(0, 2))
    if overdue:
        host.wait(10.5)
    host.say("done", 0, 2)
    assert [Count("recycle_failure"), TellChild(0, 1, "go on")] == host.exit(0, incarnation=2)
    assert [StartChild(0, 3, overdue)] == host.say("last")


def test_a_replacement_that_has_booted_takes_over_at_once_when_its_elder_dies() -> None:
    host = running()
    host.say("last")
    host.boot(0, 2)
    assert TellChild(0, 2, "go") in host.exit(None, 11)


def test_a_child_that_says_done_unasked_is_followed_as_in_a_recycle() -> None:
    host = running(restart_intensity=0)
    host.say("done")
    assert [StartChild(0, 2, False)] == host.exit(0)
    assert host.pool.ready_count == 1


# Restarting


@pytest.mark.parametrize(("code", "signal"), [(0, None), (1, None), (None, 9), (None, 11), (None, 15)])
def test_an_exit_without_done_is_unexpected_and_the_slot_is_refilled_at_once(
    code: int | None, signal: int | None
) -> None:
    host = running()
    assert [StartChild(0, 2, False)] == host.exit(code, signal)
    assert host.pool.health == "worker-pool-not-ready"


def test_a_child_that_its_jobs_hard_deadline_ended_is_replaced_at_once_and_not_counted() -> None:
    host = running(restart_intensity=0)
    for incarnation in (1, 2, 3):
        assert [] == host.say("timeout", incarnation=incarnation)
        assert [] == host.say("Thread 0x1 (most recent call first):", incarnation=incarnation)
        assert [StartChild(0, incarnation + 1, False)] == host.exit(1, incarnation=incarnation)
        host.ready(0, incarnation + 1)
    assert (PoolStatus.RUNNING, 1) == (host.pool.status, host.pool.ready_count)


def test_a_child_that_stays_after_its_jobs_hard_deadline_is_ended() -> None:
    host = running()
    host.say("timeout")
    assert [TerminateChild(0, 1), KillChild(0, 1)] == host.wait(3)


def test_a_child_that_never_took_a_task_has_no_hard_deadline_to_speak_of() -> None:
    host = running()
    host.say("last")
    host.do(ChildStarted(0, 2))
    host.do(StopRequested(StopMode.GRACEFUL))
    assert [KillChild(0, 2)] == host.say("timeout", 0, 2)


def test_a_refill_that_is_not_ready_in_time_is_counted_in_whatever_good_order_it_then_goes() -> None:
    """Else a boot that hangs for ever would be tried for ever."""
    host = running(restart_intensity=2)
    assert [StartChild(0, 2, False)] == host.exit(None, 9)
    host.do(ChildStarted(0, 2))
    assert [TerminateChild(0, 2)] == host.wait(10)
    host.say("done", 0, 2)
    host.exit(0, incarnation=2)
    host.wait(0.2)
    host.do(ChildStarted(0, 3))
    host.wait(10)
    host.say("done", 0, 3)
    assert RaiseStopFlag() in host.exit(0, incarnation=3)
    assert [Finish("worker-readiness-timeout", ())] == host.do(FenceReleased())


def test_pauses_grow_while_children_end_at_once() -> None:
    host = running(restart_intensity=100)
    pauses = []
    for incarnation in range(1, 10):
        before = host.now
        started = host.exit(None, 9, incarnation=incarnation)
        while not started:
            at = host.pool.next_deadline()
            assert at is not None
            started = host.wait(at - host.now)
        pauses.append(round(host.now - before, 3))
        host.do(ChildStarted(0, incarnation + 1))
    assert [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5] == pauses


def test_pauses_begin_anew_after_a_child_that_worked() -> None:
    host = running(restart_intensity=100)
    host.exit(None, 9)
    host.ready(0, 2)
    host.wait(0.5)
    assert [StartChild(0, 3, False)] == host.exit(None, 9, incarnation=2)


def test_one_exit_more_than_the_intensity_fails_the_pool() -> None:
    host = running(restart_intensity=1, workers=2)
    host.exit(None, 9)
    host.ready(0, 2)
    host.wait(1)
    assert [RaiseStopFlag(), TellChild(1, 1, "stop")] == host.exit(None, 9, incarnation=2)
    assert host.pool.health == "worker-child-failure"
    host.exit(0, slot=1)
    assert [Finish("worker-child-exited", ())] == host.do(FenceReleased())


def test_exits_are_forgiven_after_the_period() -> None:
    host = running(restart_intensity=1)
    host.exit(None, 9)
    host.ready(0, 2)
    host.wait(60)
    assert [StartChild(0, 3, False)] == host.exit(None, 9, incarnation=2)


def test_intensity_zero_fails_at_the_first_with_the_childs_own_reason() -> None:
    host = running(restart_intensity=0)
    host.say("failed", reason="worker-task-settlement-failed")
    host.exit(1)
    assert host.pool.failure == "worker-task-settlement-failed"


def test_a_boot_failure_is_logged_loudly_only_once() -> None:
    host = running(restart_intensity=9)
    host.exit(None, 9)
    host.do(ChildStarted(0, 2))
    host.say("failed", 0, 2, "worker-handlers-unimportable")
    host.exit(1, incarnation=2)
    assert [StartChild(0, 3, True)] == host.wait(0.1)


def test_a_child_that_breaks_the_protocol_is_killed() -> None:
    assert [KillChild(0, 1)] == running().say("booted")
    assert [KillChild(0, 1)] == running().say("")


# The guardian


def test_the_guardians_death_ends_the_pool_with_its_files_removed() -> None:
    host = running()
    assert [RemoveFiles(), Finish("worker-process-guardian-failed", ())] == host.do(GuardianLost())


def test_a_guardian_that_ends_after_the_release_is_no_failure() -> None:
    host = running()
    host.do(StopRequested(StopMode.GRACEFUL))
    host.exit(0)
    assert [Finish(None, ())] == host.do(GuardianLost())


def test_what_cannot_happen_raises_and_changes_nothing() -> None:
    host = running()
    with pytest.raises(IllegalEvent):
        host.do(ChildStarted(0, 1))
    assert host.pool.slots[0].current is not None
    assert host.pool.slots[0].current.phase is ChildPhase.READY


def test_events_of_a_child_that_is_gone_are_passed_over() -> None:
    host = running()
    host.exit(None, 9)
    assert [] == host.say("ready", 0, 1)


# Batches


def test_until_empty_ends_when_every_slot_found_nothing() -> None:
    host = running(workers=2, until_empty=True)
    for slot in (0, 1):
        host.say("empty", slot)
        host.say("done", slot)
        last = host.exit(0, slot=slot)
    assert [RaiseStopFlag(), RemoveFiles(), ReleaseFence()] == last
    assert [Finish(None, ())] == host.do(FenceReleased())


def test_once_stops_its_child_at_its_only_job() -> None:
    host = running(until_empty=True, once=True)
    assert [TellChild(0, 1, "stop")] == host.say("last")
    host.say("done")
    assert [RaiseStopFlag(), RemoveFiles(), ReleaseFence()] == host.exit(0)


def test_once_does_not_replace_a_child_that_died_in_its_only_job() -> None:
    """The next one would take a second job."""
    host = running(until_empty=True, once=True)
    host.say("last")
    effects = host.exit(None, 9)
    assert [RaiseStopFlag(), RemoveFiles(), ReleaseFence()] == effects
    assert [Finish("worker-child-exited", ())] == host.do(FenceReleased())


def test_once_replaces_a_child_that_died_before_it_had_a_job() -> None:
    host = running(until_empty=True, once=True)
    assert [StartChild(0, 2, False)] == host.exit(None, 9)


# Progress


def stalled(cause: str, slot: int = 0) -> LogEvent:
    return LogEvent("warning", "worker.child.stalled", {"slot": slot, "cause": cause})


def test_a_source_without_contact_makes_the_pool_unhealthy_until_it_has_it_again() -> None:
    host = running(workers=2)
    assert [] == host.pulse(10_000)
    assert host.pool.health == "healthy"
    assert [stalled("no-contact")] == host.pulse(10_001)
    assert [] == host.pulse(12_001), "one episode, one line"
    assert (host.pool.health, host.pool.ready_count) == ("worker-pool-stalled", 2)
    assert [] == host.pulse(3)
    assert host.pool.health == "healthy"
    assert [stalled("no-contact", 1)] == host.pulse(10_001, slot=1)


def test_a_child_that_falls_silent_without_a_task_is_noticed() -> None:
    host = running()
    host.pulse(1_000)
    host.wait(13.9)
    assert host.pool.health == "healthy"
    effects = host.pool.advance(host.now + 0.2)
    assert stalled("silent") in effects
    assert host.pool.health == "worker-pool-stalled"
    assert host.pool.next_deadline() is None
    host.pulse()
    assert host.pool.health == "healthy"


def test_a_task_may_take_and_be_silent_for_as_long_as_it_likes() -> None:
    host = running()
    host.pulse(1_000)
    host.pulse(0, task_ms=0)
    assert host.pool.next_deadline() is None
    host.wait(100_000)
    assert host.pool.health == "healthy"


def test_a_child_that_promises_nothing_is_not_watched() -> None:
    host = running()
    assert host.pool.next_deadline() is None
    host.wait(100_000)
    assert host.pool.health == "healthy"


def test_a_stalled_child_that_ends_takes_its_stall_along() -> None:
    host = running()
    host.pulse(10_001)
    host.exit(None, 9)
    host.ready(incarnation=2)
    assert host.pool.health == "healthy"


def test_a_stalled_child_that_is_recycled_is_no_matter_any_more() -> None:
    host = running()
    host.pulse(10_001)
    host.say("last")
    assert host.pool.health == "worker-pool-stalled"
    host.boot(incarnation=2)
    assert host.pool.health == "healthy"


def test_a_pulse_before_ready_is_none() -> None:
    host = Host()
    host.claim()
    host.boot()
    assert KillChild(0, 1) in host.pulse()


def test_a_pulse_that_was_on_its_way_when_the_stop_came_changes_nothing() -> None:
    host = running()
    host.do(StopRequested(StopMode.GRACEFUL))
    assert [] == host.pulse(20_000)
    assert host.pool.health == "worker-pool-stopping"
