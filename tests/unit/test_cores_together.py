"""The pool's machine and the guardian's ledger as they meet: over the ownership channel, above a host that is late.

What supervisor and guardian say lies encoded on the channel for as long as the drawn numbers like; reports, words and
ends of children come in any order that a machine could bring them; children are refused, stubborn, garbled, silent
or killed; each of the two is killed at any step. A second generation waits for the fence all the while.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from platform_worker.guardian import ledger as led
from platform_worker.pool import effects as fx
from platform_worker.pool import events as ev
from platform_worker.pool.machine import Policy, PoolMachine
from platform_worker.pool.shutdown import Budgets
from platform_worker.pool.states import PoolStatus, StopMode
from platform_worker.protocol import ownership as own
from platform_worker.protocol.lifeline import LifelineViolation, format_pulse, parse_pulse, parse_up

POLICY = Policy(2, 1000, 500, 100, 3, 60_000)
#: What a child says next where it behaves: from its state to the word, and to the state after it.
NEXT = {"boots": ("booted", "waits"), "takes over": ("ready", "works"), "works": ("last", "works last")}
AT_WORK = ("works", "works last")


class Child:
    """A process, as far as the cores can tell."""

    def __init__(self) -> None:
        self.state = "boots"
        self.known = False  # whether the guardian knows that its program runs
        self.pending: deque[str] = deque()  # said and not yet read by the guardian
        self.told: deque[str] = deque()  # written by the guardian and not yet read
        self.status: tuple[int | None, int | None] | None = None

    @property
    def alive(self) -> bool:
        return self.status is None

    def die(self, code: int | None, signal: int | None) -> None:
        if self.alive:
            self.status = (code, signal)


class Generation:
    """Supervisor and guardian of one generation, and what of it lives. ``fence`` is who holds it, of all."""

    def __init__(self, number: int, fence: list[Generation]) -> None:
        self.number, self.fence = number, fence
        self.pool, self.ledger = PoolMachine(POLICY), led.Ledger(Budgets(500, 100))
        self.supervisor = self.guardian = True
        self.up: deque[bytes] = deque()
        self.down: deque[bytes] = deque()
        self.children: dict[led.Name, Child] = {}
        self.sweep = self.sweep_all = False
        self.stops = False
        self.claims = False
        self.frozen = False  # the guardian
        self.late = 0.0  # how long something was to be done here and was not, in seconds
        self.lost = False  # whether the end of the channel has been noticed
        self.exited: set[tuple[int, int]] = set()
        self.finish: fx.Finish | None = None

    def alive(self) -> list[led.Name]:
        return [name for name, child in self.children.items() if child.alive]

    def silent(self, name: led.Name, child: Child) -> bool:
        """Whether it has shown by nothing that its program runs."""
        starting = self.ledger.states().get(name) is led.ChildState.STARTING
        return child.alive and starting and child.state == "boots" and not child.pending

    # The supervisor

    def happen(self, event: ev.Event, now: float) -> None:
        if self.supervisor:
            self.carry_out(self.pool.handle(event, now))

    def carry_out(self, effects: list[fx.Effect]) -> None:
        self.pool.validate()
        for effect in effects:
            match effect:
                case fx.StartChild(slot, incarnation):
                    assert not self.stops, "a child for a pool that stops"
                    self.send(own.Start(slot, incarnation, {"slot": slot}))
                case fx.TellChild(slot, incarnation, word):
                    self.send(own.Tell(slot, incarnation, word))
                case fx.TerminateChild(slot, incarnation):
                    self.send(own.Terminate(slot, incarnation))
                case fx.KillChild(slot, incarnation):
                    self.send(own.Kill(slot, incarnation))
                case fx.ReleaseFence():
                    self.send(own.Release())
                case fx.AbandonClaim() | fx.EndGuardian():
                    self.kill_guardian()
                case fx.RaiseStopFlag():
                    self.stops = True
                case fx.Finish():
                    self.finish = effect
                case _:
                    pass

    def send(self, command: own.GuardianCommand) -> None:
        if self.guardian:
            self.down.append(own.encode(command))

    def hear(self, now: float) -> None:
        event = own.decode_event(self.up.popleft())
        match event:
            case own.Started(slot, incarnation):
                self.happen(ev.ChildStarted(slot, incarnation), now)
            case own.StartFailed(slot, incarnation, reason):
                self.happen(ev.ChildNotStarted(slot, incarnation, reason), now)
            case own.Said(slot, incarnation, line):
                self.happen(said(slot, incarnation, line), now)
            case own.Exited(slot, incarnation, code, signal):
                assert (slot, incarnation) not in self.exited, "one end is told once"
                self.exited.add((slot, incarnation))
                self.happen(ev.ChildExited(slot, incarnation, code, signal), now)
            case own.Released():
                self.happen(ev.FenceReleased(), now)
            case _:
                raise AssertionError(event)

    # The guardian

    def answer(self, now: float) -> None:
        """To the claim of the fence."""
        self.claims = False
        if self.fence:
            self.happen(ev.FenceBusy(), now)
            assert not self.supervisor or fx.Finish("worker-already-running", ()) == self.finish
            self.kill_guardian()
        else:
            self.fence.append(self)
            self.happen(ev.FenceClaimed(self.number), now)

    def occur(self, event: led.Event, now: float) -> None:
        if not self.guardian:
            return
        effects = deque(self.ledger.handle(event, now))
        self.obey(effects, now)

    def obey(self, effects: deque[led.Effect], now: float) -> None:
        self.ledger.validate()
        for effect in effects:
            match effect:
                case led.Spawn(name):
                    assert self.fence == [self], "a child of a generation that has no fence"
                    assert name not in self.children, "the same child twice"
                    self.children[name] = Child()
                case led.Write(name, word):
                    self.children[name].told.append(word)
                case led.SendTerm(name):
                    assert name in self.children
                case led.KillGroup(name):
                    self.children[name].die(None, 9)
                case led.Sweep():
                    self.sweep = True
                case led.SweepAll():
                    self.sweep_all = True
                case led.Emit(event):
                    if self.supervisor:
                        self.up.append(own.encode(event))
                case led.LetGo():
                    assert [] == self.alive(), "the fence is let go over a living child"
                    assert not self.children, "the fence is let go before an end was seen"
                    self.fence.remove(self)

    def kill_guardian(self) -> None:
        """The kernel takes the children along, and lets go of the fence when the last of them is gone."""
        if self.guardian:
            self.guardian = False
            self.children.clear()
            if self in self.fence:
                self.fence.remove(self)

    def kill_supervisor(self) -> None:
        self.supervisor = False
        self.up.clear()

    # What can happen now

    def choices(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        if self.supervisor and self.up:
            found.append(("hear",))
        if self.guardian and not self.frozen and self.down and self.supervisor:
            found.append(("command",))
        if self.guardian and not self.frozen and not self.supervisor and not self.lost:
            found.append(("owner lost",))
        if self.supervisor and not self.guardian and not self.up and not self.lost:
            found.append(("guardian lost",))
        if self.guardian and self.claims:
            found.append(("answered",))
        if self.guardian and not self.frozen:
            if self.sweep and self.ledger.ended():
                found.append(("cleared",))
            if self.sweep_all:
                found.append(("all cleared",))
            for name, child in self.children.items():
                found += [(what, name) for what in self.of_child(name, child)]
        return found

    def of_child(self, name: led.Name, child: Child) -> list[str]:
        found = [] if child.known else ["executed"]
        found += ["heard"] if child.pending else []
        if not child.alive:
            return found or ["reaped"]
        if child.told:
            found.append("reads")
        if child.state in NEXT or child.state == "leaves":
            found.append("acts")
        return found

    def do(self, what: str, now: float, name: led.Name | None = None) -> None:
        """One of ``choices``."""
        child = self.children[name] if name is not None else Child()
        match what:
            case "answered":
                self.answer(now)
            case "hear":
                self.hear(now)
            case "command":
                self.occur(own.decode_command(self.down.popleft()), now)  # type: ignore[arg-type]  # no claim here
            case "owner lost":
                self.lost = True
                self.down.clear()
                if self.claims:
                    self.kill_guardian()  # it gives up, and leaves
                self.occur(led.OwnerLost(), now)
            case "guardian lost":
                self.lost = True
                self.happen(ev.GuardianLost(), now)
            case "cleared":
                self.sweep = False
                for one in self.ledger.ended():
                    del self.children[one]
                    self.occur(led.Cleared(one), now)
            case "all cleared":
                self.sweep_all = False
                self.occur(led.AllCleared(), now)
            case "executed":
                child.known = True
                self.occur(led.Executed(name), now)  # type: ignore[arg-type]
            case "heard":
                self.occur(led.Heard(name, child.pending.popleft()), now)  # type: ignore[arg-type]
            case "reaped":
                assert child.status is not None
                if name in self.ledger.ended():
                    return
                self.occur(led.Ended(name, *child.status), now)  # type: ignore[arg-type]
            case "reads":
                self.reads(child, child.told.popleft())
            case "acts":
                self.acts(child)

    def reads(self, child: Child, word: str) -> None:
        if child.state == "stubborn":
            return
        if word == "go":
            assert child.state == "waits", "go to a child that has not booted"
            working = [one for one in self.children.values() if one.alive and one.state in ("takes over", *AT_WORK)]
            assert len(working) < POLICY.workers
            child.state = "takes over"
        elif word == "go on":
            child.state = "works" if child.state == "works last" else child.state
        else:
            child.state = "leaves"

    def acts(self, child: Child) -> None:
        if child.state == "leaves":
            child.pending.append("done")
            child.die(0, None)
            return
        word, child.state = NEXT[child.state]
        child.pending.append(word)
        if word == "last":
            child.state = "works last"


def said(slot: int, incarnation: int, line: str) -> ev.ChildSaid | ev.ChildPulsed:
    """As the supervisor's loop takes it."""
    if line.startswith("pulse "):
        pulse = parse_pulse(line)
        return ev.ChildPulsed(slot, incarnation, pulse.limit_ms, pulse.silent_ms, pulse.task_ms)
    try:
        return ev.ChildSaid(slot, incarnation, *parse_up(line))
    except LifelineViolation:
        return ev.ChildSaid(slot, incarnation, "")


class World:
    """Two generations of one pool on one machine."""

    def __init__(self) -> None:
        self.now = 0.0
        self.fence: list[Generation] = []
        self.generations: list[Generation] = []
        self.start()

    def start(self) -> None:
        """A new supervisor, whose claim is answered when it comes to it."""
        one = Generation(len(self.generations) + 1, self.fence)
        one.pool.begin(self.now)
        one.claims = True
        self.generations.append(one)

    @property
    def last(self) -> Generation:
        return self.generations[-1]

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for one in self.generations:
            one.late += seconds if one.frozen or one.choices() else 0.0
            if one.supervisor:
                one.carry_out(one.pool.advance(self.now))
            if one.guardian and not one.frozen:
                one.obey(deque(one.ledger.advance(self.now)), self.now)
        self.check()

    def step(self, pick: int, kind: int) -> None:
        """Mostly what a machine does by itself, now and then what it must not."""
        one = self.last
        children = [child for child in one.children.values() if child.alive]
        child = children[pick % len(children)] if children else None
        if kind < 12:
            for turn in range(1 + kind % 6):
                possible = [(each, choice) for each in self.generations for choice in each.choices()]
                if possible:
                    each, (what, *names) = possible[(pick >> turn) % len(possible)]
                    each.do(what, self.now, *names)
        elif kind == 12:
            self.wait((0.01, 0.05, 0.3, 1.1)[pick % 4])
        elif kind in (13, 22, 23, 24) and child is not None:
            child.die(*((None, 9), (1, None), (0, None))[pick % 3])
        elif kind == 14 and child is not None:
            child.pending.append(("nonsense", "failed worker-child-exited", "Timeout (0:00:01)!", "done")[pick % 4])
        elif kind == 15 and child is not None and child.state in AT_WORK:
            child.pending.append(format_pulse(100, pick % 300, None if pick % 2 else 5))
        elif kind == 16 and child is not None:
            child.state = "stubborn"
        elif kind == 17:
            one.happen(ev.StopRequested(list(StopMode)[pick % 3]), self.now)
        elif kind == 18:
            one.kill_supervisor() if pick % 2 else one.kill_guardian()
        elif kind == 19:
            self.start()
        elif kind == 20:
            one.frozen = one.guardian and pick % 2 == 0
        elif kind == 21:
            names = [name for name, each in one.children.items() if one.silent(name, each)]
            if names and one.guardian:
                name = names[pick % len(names)]
                if pick % 2:
                    del one.children[name]
                    one.occur(led.NotForked(name, "worker-fork-failed"), self.now)
                else:
                    one.children[name].known = True
                    one.children[name].die(127, None)
                    one.occur(led.Refused(name, "worker-child-start-failed"), self.now)
        self.check()

    def check(self) -> None:
        assert len(self.fence) <= 1
        for old in self.generations:
            assert not old.alive() or old in self.fence, "a child lives, and nobody holds the fence for it"
        for one in self.generations:
            for slot in range(POLICY.workers):
                at_work = [n for n, c in one.children.items() if n.slot == slot and c.alive and c.state in AT_WORK]
                assert len(at_work) <= 1, "two at work in one slot"

    def end(self, slow: int = 0, *, stubborn: bool = False, orphaned: bool = False) -> None:
        """Stops what is left, on a machine that is ``slow`` at first (in steps of time before it does anything).

        However stubborn, everything is gone, and the fence is free. A guardian that nobody will continue is ended by
        its supervisor; where that is dead as well, somebody has to.
        """
        for one in self.generations:
            for child in one.children.values():
                child.state = "stubborn" if stubborn else child.state
            if orphaned:
                one.kill_supervisor()
                if ("owner lost",) in one.choices():
                    one.do("owner lost", self.now)
        for one in self.generations:
            one.happen(ev.StopRequested(StopMode.GRACEFUL), self.now)
            if one.frozen and not one.supervisor:
                one.frozen = False
        for _ in range(slow):
            self.wait(0.05)
        for _ in range(5_000):
            possible = [(each, choice) for each in self.generations for choice in each.choices()]
            if possible:
                each, (what, *names) = possible[0]
                each.do(what, self.now, *names)
                self.check()
            elif not self.fence and all(one.finish or not one.supervisor for one in self.generations):
                break
            else:
                self.wait(0.05)
        assert [] == self.fence, "the fence is held for ever"
        assert [] == [name for one in self.generations for name in one.alive()]
        for one in self.generations:
            assert one.finish is not None or not one.supervisor
            assert one.late >= 1 or one.finish is None or one.finish.reason != "worker-shutdown-failed"


@settings(max_examples=250, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 24)), max_size=150),
    st.integers(0, 60),
    st.booleans(),
    st.booleans(),
)
def test_whatever_happens_no_generation_lives_beside_another_and_every_stop_ends(
    steps: list[tuple[int, int]], slow: int, stubborn: bool, orphaned: bool
) -> None:
    world = World()
    for pick, kind in steps:
        world.step(pick, kind)
    world.end(slow, stubborn=stubborn, orphaned=orphaned)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 60), st.booleans(), st.booleans())
def test_long_lives_end_as_short_ones_do(seed: int, slow: int, stubborn: bool, orphaned: bool) -> None:
    chance = random.Random(seed)
    world = World()
    often = chance.choice([2, 5, 20])
    for _ in range(chance.randint(20, 300)):
        world.step(
            chance.randrange(10**6), chance.randint(12, 24) if chance.randrange(often) == 0 else chance.randrange(12)
        )
    world.end(slow, stubborn=stubborn, orphaned=orphaned)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=60, max_size=200))
def test_where_nobody_misbehaves_a_stop_ends_in_good_order(picks: list[int]) -> None:
    world = World()
    for pick in picks:
        world.step(pick, 0)
    world.end()
    assert fx.Finish(None, ()) == world.last.finish


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_where_nobody_misbehaves_every_slot_is_handed_on_and_on(picks: list[int]) -> None:
    world = World()
    for turn in range(400):
        world.step(picks[turn % len(picks)] if turn % 3 else 0, 0)
    assert PoolStatus.RUNNING is world.last.pool.status
    for slot in range(POLICY.workers):
        assert max(name.incarnation for name in world.last.children if name.slot == slot) >= 4
