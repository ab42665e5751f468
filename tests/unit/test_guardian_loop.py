"""The guardian's loop on a fake machine: no process, no descriptor, no clock."""

import pytest

from platform_worker.errors import WorkerForkError
from platform_worker.guardian.ledger import OwnerState
from platform_worker.guardian.loop import GuardianLoop, Machine
from platform_worker.ports_processes import Launched, Stranger, StreamGarbled
from platform_worker.protocol.ownership import (
    Busy,
    Claim,
    Claimed,
    Exited,
    Hello,
    Kill,
    Release,
    Released,
    Said,
    Start,
    Started,
    StartFailed,
    Tell,
    Terminate,
    decode_event,
    encode,
)

CLAIM = Claim("/r", "python", None, "fork", 1200, 10000, 10000, 1000)
CREDENTIAL = "ab" * 32


class FakeStream:
    """What comes in is scripted, what goes out is kept."""

    def __init__(self, fd):
        self.fd, self.pending, self.closed = fd, 0, False
        self.incoming, self.sent, self.garbled = [], [], False

    def receive(self):
        if self.garbled:
            raise StreamGarbled
        lines, self.incoming = [line for line in self.incoming if line is not None], []
        return lines, self.ended

    ended = False

    def send(self, data):
        self.sent.append(data)

    def flush(self):
        return True

    def close(self):
        self.closed = True


class World:
    """Every port in one: a script of what happens at each wait, and a record of what was done."""

    def __init__(self, *script):
        self.script = list(script)
        self.channel = FakeStream(3)
        self.time = 0.0
        self.log = []
        self.lifelines = {}
        self.zombies = {}
        self.strays = []
        self.refuse = False
        self.locked_tries = 0
        self.group = None
        self.loop = GuardianLoop(
            Machine(
                self.channel,
                self,
                self,
                self,
                lambda root: self,
                lambda root, number: self.group,
                lambda claim, group: self,
                lambda boot: b"boot {}\n",
            )
        )

    # Waiter
    def watch(self, fd, read, write):
        assert fd == 3 or fd in self.lifelines

    def wait(self, seconds):
        if self.zombies:
            return []  # the end of a process wakes it up
        if seconds == 0 or not self.script:
            assert seconds is not None, f"waits for ever after {self.log}"
            self.time += seconds
            return []
        step = self.script.pop(0)
        ready = step(self)
        if isinstance(ready, float):
            self.time += ready
            return []
        return [(fd, True, False) for fd in ready or []]

    # Clock
    def now(self):
        return self.time

    # Fence
    def try_lock(self):
        self.locked_tries -= 1
        return self.locked_tries < 0

    def try_members(self):
        return True

    def next_generation(self):
        return 5

    def release(self):
        self.log.append("let go")

    def abandon(self):
        self.log.append("abandon")

    # Driver
    def start(self, mark):
        if self.refuse:
            raise WorkerForkError("worker-fork-failed")
        pid = 100 + len(self.lifelines)
        self.log.append(f"start {mark}")
        self.lifelines[pid] = FakeStream(pid)
        return Launched(pid, self.lifelines[pid], None)

    def terminate(self, pid):
        self.log.append(f"term {pid}")

    def kill(self, pid):
        if pid in self.strays:
            self.strays.remove(pid)
            self.log.append(f"kill stray {pid}")
            return True
        self.log.append(f"kill {pid}")
        if pid not in self.zombies:
            self.zombies[pid] = (None, 9)
        return True

    # Family
    def ended(self):
        return next(iter(self.zombies), None)

    def reap(self, pid):
        self.log.append(f"reap {pid}")
        return self.zombies.pop(pid)

    def report(self, fd):
        raise AssertionError("nothing here has a report")

    def strangers(self, known):
        return [Stranger(pid, None, pid) for pid in self.strays]

    def events(self):
        return [decode_event(line) for line in self.channel.sent]


def say(*commands):
    """The supervisor says these."""

    def step(world):
        world.channel.incoming = [encode(command).decode().rstrip("\n") for command in commands]
        return [3]

    return step


def hang_up(world):
    """The supervisor dies."""
    world.channel.ended = True
    return [3]


def hear(pid, *lines):
    """A child says these."""

    def step(world):
        world.lifelines[pid].incoming = list(lines)
        return [pid]

    return step


def end(pid, code, *lines):
    """A child says these and ends."""

    def step(world):
        world.lifelines[pid].incoming = list(lines)
        world.zombies[pid] = (code, None)

    return step


def run(*script):
    world = World(*script)
    world.loop.run(CREDENTIAL)
    return world


def test_from_claim_to_release():
    """Words go down and up; last words come before the exit; the fence is let go before the supervisor hears of it."""
    world = run(
        say(CLAIM),
        say(Start(0, 1, {}), Tell(0, 1, "go")),
        hear(100, "booted", "ready"),
        end(100, 0, "done"),
        say(Release()),
    )
    lines = [Said(0, 1, "booted"), Said(0, 1, "ready"), Said(0, 1, "done")]
    expected = [Hello(CREDENTIAL), Claimed(5), Started(0, 1), *lines, Exited(0, 1, 0, None), Released()]
    assert expected == world.events()
    assert [b"boot {}\n", b"go\n"] == world.lifelines[100].sent
    assert ["start 5.0.1", "kill 100", "reap 100", "let go"] == world.log
    assert world.lifelines[100].closed
    assert OwnerState.CLOSED is world.loop.owner


def test_a_group_is_killed_before_its_leader_is_reaped():
    """While the leader is not reaped its number is its group's and nobody else's."""
    world = run(say(CLAIM), say(Start(0, 1, {})), end(100, 0), say(Release()))
    assert world.log.index("kill 100") < world.log.index("reap 100")


def test_terminate_is_said_before_it_is_sent():
    """So that the child can tell it from a signal to everybody."""
    world = run(say(CLAIM), say(Start(0, 1, {})), say(Terminate(0, 1)), say(Kill(0, 1)), say(Release()))
    assert b"terminate\n" == world.lifelines[100].sent[-1]
    assert ["term 100", "kill 100"] == world.log[1:3]
    assert Exited(0, 1, None, 9) in world.events()


@pytest.mark.parametrize("before", [[], [say()], [say(CLAIM)]])
def test_the_supervisor_dies_before_anything_started(before):
    """The guardian ends at once."""
    world = run(*before, hang_up)
    assert not [entry for entry in world.log if entry.startswith("start")]


def test_the_supervisor_dies_while_the_claim_waits():
    """The guardian ends at once, without the fence."""
    world = World(say(CLAIM), hang_up)
    world.locked_tries = 10**6
    world.loop.run(CREDENTIAL)
    assert [Hello(CREDENTIAL)] == world.events()


def test_commands_that_come_with_the_end_are_void():
    """Who gave them is dead: nothing is started any more."""

    def start_and_die(world):
        say(Start(0, 1, {}))(world)
        return hang_up(world)

    assert ["let go"] == run(say(CLAIM), start_and_die).log


def test_the_supervisor_dies_over_a_child():
    """Stop, terminate, kill, each after its budget; then the fence."""
    world = run(say(CLAIM), say(Start(0, 1, {})), hang_up)
    assert [b"boot {}\n", b"stop\n", b"terminate\n"] == world.lifelines[100].sent
    assert ["start 5.0.1", "term 100", "kill 100", "kill 100", "reap 100", "let go"] == world.log
    assert 11.0 <= world.time < 11.1
    assert not [event for event in world.events() if isinstance(event, Exited | Released)]


@pytest.mark.parametrize("line", ['{"type":"nope"}', encode(CLAIM).decode(), encode(Start(0, 1, {})).decode()])
def test_a_supervisor_that_breaks_the_protocol_is_dead(line):
    """An unknown word, a second claim, the same child twice."""

    def nonsense(world):
        world.channel.incoming = [line]
        return [3]

    world = run(say(CLAIM), say(Start(0, 1, {})), nonsense, end(100, 0))
    assert b"stop\n" == world.lifelines[100].sent[-1]
    assert "let go" == world.log[-1]


def test_a_command_before_the_claim():
    """Ends the guardian: it has nothing to lose yet."""
    assert [Hello(CREDENTIAL)] == run(say(Start(0, 1, {}))).events()


def test_busy():
    """It says so and ends, with nothing held."""
    world = World(say(CLAIM))
    world.locked_tries = 10**6
    world.loop.run(CREDENTIAL)
    assert [Hello(CREDENTIAL), Busy()] == world.events()
    assert ["abandon"] == world.log


def test_no_process_to_be_had():
    """The start fails, the guardian goes on."""

    def refuse(world):
        world.refuse = True
        return say(Start(0, 1, {}))(world)

    world = run(say(CLAIM), refuse, say(Release()))
    assert StartFailed(0, 1, "worker-fork-failed") in world.events()


def test_a_child_that_says_no_lines():
    """It is killed, and its exit is told like any other."""

    def garble(world):
        world.lifelines[100].garbled = True
        return [100]

    world = run(say(CLAIM), say(Start(0, 1, {})), garble, say(Release()))
    assert Exited(0, 1, None, 9) in world.events()


class FakeGroup:
    """Empty when it was told to end so often."""

    def __init__(self, world, times):
        self.world, self.times = world, times

    def clear(self):
        self.times -= 1
        self.world.log.append("clear")
        return self.times <= 0


@pytest.mark.parametrize("last", [say(Release()), hang_up])
def test_the_fence_waits_for_the_generations_group(last):
    """Whoever the kernel still counts in it lives: it is told again until nobody is, whoever ends the generation."""
    world = World(say(CLAIM), say(Start(0, 1, {})), end(100, 0), last)
    world.group = FakeGroup(world, 3)
    world.loop.run(CREDENTIAL)
    assert ["clear", "clear", "clear", "let go"] == world.log[-4:]
    assert 3 == world.log.count("clear")


def test_exited_waits_for_the_leftovers():
    """What the child left is killed first, and looked for again."""

    def stray(world):
        world.strays.append(900)
        return end(100, 0)(world)

    def look(world):
        world.log.append(world.events())
        return 0.01

    world = run(say(CLAIM), say(Start(0, 1, {})), stray, look, say(Release()))
    told = next(entry for entry in world.log if isinstance(entry, list))
    assert world.log.index("kill stray 900") < world.log.index(told)
    assert not [event for event in told if isinstance(event, Exited)]
    assert Exited(0, 1, 0, None) in world.events()
