"""The guardian's loop: waits for everything, feeds the ledger, does what it says. Decides nothing itself.

Bounds: while the supervisor does not read, what the children say is left in their lifelines (each holds some kilobytes,
then the child waits); exits are still noted, at most one a child. A child that does not read what it is told until its
bound is reached is killed; so is one that says something that is no line. A supervisor that breaks the protocol is
treated as dead.
"""

from __future__ import annotations

from platform_worker.errors import WorkerForkError, WorkerStartError
from platform_worker.guardian.claim import ClaimAttempt
from platform_worker.guardian.ledger import (
    AllCleared,
    Cleared,
    Emit,
    Ended,
    Executed,
    Garbled,
    Heard,
    KillGroup,
    Ledger,
    LetGo,
    Name,
    NotForked,
    OwnerLost,
    OwnerState,
    Refused,
    SendTerm,
    Spawn,
    Sweep,
    SweepAll,
    Write,
)
from platform_worker.guardian.leftovers import condemned
from platform_worker.pool.shutdown import Budgets
from platform_worker.ports_processes import StreamGarbled
from platform_worker.protocol.ownership import (
    MAX_LIFELINE_LINE,
    Claim,
    Claimed,
    Hello,
    OwnershipViolation,
    Released,
    decode_command,
    encode,
)
from platform_worker.value import Value, unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from platform_worker.guardian.ledger import Effect, Event
    from platform_worker.ports_processes import Clock, Driver, Family, Fence, Group, Launched, Stream, Waiter
    from platform_worker.protocol.ownership import GuardianEvent

#: With this much unread by the supervisor the children's lifelines are not read either.
_BACK_PRESSURE = 262144
#: How soon leftovers are looked at again when no end of a process says so, in seconds: first, and at most.
_SWEEP_FIRST, _SWEEP_LAST = 0.002, 0.1


class Machine(Value):
    """The ports, and how to make those that depend on the claim."""

    channel: Stream
    waiter: Waiter
    family: Family
    clock: Clock
    fence: Callable[[str], Fence]
    #: Where the machine keeps a generation together by itself; of a root and a generation's number.
    group: Callable[[str, int], Group | None]
    driver: Callable[[Claim, Group | None], Driver]
    boot_line: Callable[[object], bytes]


class _Process:
    __slots__ = ("heard_end", "launched", "mark", "report")

    def __init__(self, mark: str, launched: Launched) -> None:
        self.mark = mark
        self.launched = launched
        self.report = launched.report
        self.heard_end = False


class GuardianLoop:
    """``run()`` returns when nothing of the generation is left."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._fence: Fence | None = None
        self._group: Group | None = None
        self._driver: Driver | None = None
        self._attempt: ClaimAttempt | None = None
        self._claim: Claim | None = None
        self._ledger: Ledger | None = None
        self._generation = 0
        self._processes: dict[Name, _Process] = {}
        self._ended: dict[Name, int] = {}
        self._sweep_at: float | None = None
        self._sweep_pause = _SWEEP_FIRST
        self._sweep_all = False
        self._unmarked: frozenset[int] = frozenset()
        self._owned = True
        self._done = False

    def run(self, credential: str) -> None:
        """From the first word to the last."""
        self._emit(Hello(credential))
        while not (self._done and (not self._owned or self._machine.channel.flush())):
            self._turn()

    def _turn(self) -> None:
        machine = self._machine
        self._watch()
        due = self._next_deadline()
        ready = machine.waiter.wait(None if due is None else max(0.0, due - machine.clock.now()))
        by_fd = {process.launched.lifeline.fd: name for name, process in self._processes.items()}
        reports = {process.report: name for name, process in self._processes.items() if process.report is not None}
        for fd, readable, writable in ready:
            if fd == machine.channel.fd:
                self._channel_ready(readable, writable)
            elif fd in reports:
                self._hear_report(reports[fd])
            elif fd in by_fd:
                self._lifeline_ready(by_fd[fd], readable, writable)
        self._reap()
        self._claim_step()
        if self._ledger is not None:
            self._carry_out(self._ledger.advance(machine.clock.now()))
        if self._sweep_at is not None and machine.clock.now() >= self._sweep_at:
            self._sweep()

    def _next_deadline(self) -> float | None:
        due = [
            self._sweep_at,
            None if self._attempt is None else self._attempt.next_deadline(),
            None if self._ledger is None else self._ledger.next_deadline(),
        ]
        return min((at for at in due if at is not None), default=None)

    def _watch(self) -> None:
        machine = self._machine
        backlog = machine.channel.pending
        machine.waiter.watch(machine.channel.fd, self._owned and not self._done, self._owned and backlog > 0)
        for process in self._processes.values():
            lifeline = process.launched.lifeline
            hear = not process.heard_end and backlog < _BACK_PRESSURE
            machine.waiter.watch(lifeline.fd, hear, not process.heard_end and lifeline.pending > 0)
            if process.report is not None:
                machine.waiter.watch(process.report, True, False)

    # The supervisor's side

    def _channel_ready(self, readable: bool, writable: bool) -> None:
        if writable:
            self._machine.channel.flush()
        if not readable or not self._owned:
            return
        try:
            lines, ended = self._machine.channel.receive()
            if ended:
                self._lose_owner()  # commands that came with the end are void: who gave them is dead
                return
            for line in lines:
                self._obey(line)
        except (OwnershipViolation, StreamGarbled):
            self._lose_owner()

    def _obey(self, line: str) -> None:
        command = decode_command(line.encode())
        if isinstance(command, Claim):
            if self._claim is not None:
                raise OwnershipViolation("claim: twice")
            self._claim = command
            self._fence = self._machine.fence(command.root)
            self._attempt = ClaimAttempt(command, self._fence, self._machine.clock.now())
        elif self._ledger is None:
            raise OwnershipViolation("nothing is claimed")
        else:
            self._happen(command)

    def _claim_step(self) -> None:
        if self._attempt is None or self._claim is None:
            return
        now = self._machine.clock.now()
        if now < self._attempt.next_deadline():
            return
        outcome = self._attempt.step(now)
        if outcome is None:
            return
        self._attempt = None
        if isinstance(outcome, Claimed):
            self._generation = outcome.generation
            self._ledger = Ledger(Budgets(self._claim.stop_timeout_ms, self._claim.force_kill_timeout_ms))
            self._group = self._machine.group(self._claim.root, outcome.generation)
            self._emit(outcome)  # first: the supervisor goes on while the driver is loaded
            self._driver = self._machine.driver(self._claim, self._group)
        else:
            self._emit(outcome)
            self._done = True

    def _lose_owner(self) -> None:
        if not self._owned:
            return
        self._owned = False
        self._attempt = None
        if self._ledger is None:
            self._done = True
        else:
            self._happen(OwnerLost())

    def _emit(self, event: GuardianEvent) -> None:
        if not self._owned:
            return
        try:
            self._machine.channel.send(encode(event))
        except StreamGarbled:  # it has not read for megabytes
            self._lose_owner()

    # The ledger's orders

    def _happen(self, event: Event) -> None:
        assert self._ledger is not None
        self._carry_out(self._ledger.handle(event, self._machine.clock.now()))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Emit(event):
                    if isinstance(event, Released):
                        self._done = True
                    self._emit(event)
                case Spawn(name):
                    self._spawn(effect)
                case Write(name, word):
                    self._write(name, word.encode() + b"\n")
                case SendTerm(name):
                    self._driver_of().terminate(self._processes[name].launched.pid)
                case KillGroup(name):
                    self._driver_of().kill(self._processes[name].launched.pid)
                case Sweep():
                    self._sweep_soon()
                case SweepAll():
                    self._sweep_all = True
                    self._sweep_soon()
                case LetGo():
                    self._let_go()
                case _:
                    unreachable(effect)

    def _driver_of(self) -> Driver:
        assert self._driver is not None
        return self._driver

    def _spawn(self, effect: Spawn) -> None:
        name = effect.name
        line = self._machine.boot_line(effect.boot)
        mark = f"{self._generation}.{name.slot}.{name.incarnation}"
        if len(line) > MAX_LIFELINE_LINE:
            self._happen(NotForked(name, "worker-child-start-failed"))
            return
        try:
            launched = self._driver_of().start(mark)
        except (WorkerForkError, WorkerStartError) as error:
            self._happen(NotForked(name, error.reason))
            return
        self._processes[name] = _Process(mark, launched)
        self._write(name, line)
        if launched.report is None:
            self._happen(Executed(name))

    def _write(self, name: Name, line: bytes) -> None:
        try:
            self._processes[name].launched.lifeline.send(line)
        except StreamGarbled:
            self._happen(Garbled(name))

    def _let_go(self) -> None:
        assert self._fence is not None
        self._fence.release()
        self._done = True

    # The children's side

    def _hear_report(self, name: Name) -> None:
        process = self._processes[name]
        if process.report is None:
            return
        self._machine.waiter.watch(process.report, False, False)
        reason = self._machine.family.report(process.report)
        process.report = None
        states = self._ledger.states() if self._ledger is not None else {}
        if name in states:
            self._happen(Executed(name) if reason is None else Refused(name, reason))

    def _lifeline_ready(self, name: Name, readable: bool, writable: bool) -> None:
        process = self._processes[name]
        if writable:
            process.launched.lifeline.flush()
        if not readable or process.heard_end:
            return
        try:
            lines, process.heard_end = process.launched.lifeline.receive()
        except StreamGarbled:
            process.heard_end = True
            self._happen(Garbled(name))
            return
        for line in lines:
            if line:
                self._happen(Heard(name, line))

    def _reap(self) -> None:
        family = self._machine.family
        while (pid := family.ended()) is not None:
            names = [name for name, process in self._processes.items() if process.launched.pid == pid]
            if not names:
                family.reap(pid)
                self._sweep_again()
                continue
            name = names[0]
            # Its group while its number is still its own; its last words while its lifeline is still open.
            self._driver_of().kill(pid)
            self._hear_report(name)
            self._lifeline_ready(name, True, False)
            process = self._processes.pop(name)
            self._machine.waiter.watch(process.launched.lifeline.fd, False, False)
            process.launched.lifeline.close()
            self._ended[name] = pid
            code, signum = family.reap(pid)
            self._happen(Ended(name, code, signum))

    # What children leave behind

    def _sweep_soon(self) -> None:
        self._sweep_pause = _SWEEP_FIRST
        self._sweep_at = self._machine.clock.now()

    def _sweep_again(self) -> None:
        if self._sweep_at is not None:
            self._sweep_at = self._machine.clock.now()

    def _sweep(self) -> None:
        assert self._ledger is not None
        now = self._machine.clock.now()
        pids = [process.launched.pid for process in self._processes.values()]
        strangers = self._machine.family.strangers(pids)
        unknown: list[int] = []
        if self._sweep_all:
            gone = [stranger.pid for stranger in strangers]
        else:
            alive = {process.mark: process.launched.pid for process in self._processes.values()}
            gone, unknown = condemned(strangers, alive, self._ended.values())
        # Who may not be killed cannot be waited for either: the slot, and the stop, would hang for as long as it likes.
        gone = [pid for pid in gone if self._machine.family.kill(pid)]
        # A process in the middle of an exec has no environment for an instant: who seems unmarked is looked at twice.
        new = not self._unmarked.issuperset(unknown)
        self._unmarked = frozenset(unknown)
        kept = self._sweep_all and self._group is not None and not self._group.clear()
        if gone or new or kept or self._machine.family.ended() is not None:
            self._sweep_at = now + self._sweep_pause
            self._sweep_pause = min(self._sweep_pause * 2, _SWEEP_LAST)
            return
        self._sweep_at = None
        if self._sweep_all:
            self._happen(AllCleared())
            return
        for name in self._ledger.ended():
            self._ended.pop(name, None)
            self._happen(Cleared(name))

    @property
    def owner(self) -> OwnerState | None:
        """Whose word counts; ``None`` before the claim."""
        return None if self._ledger is None else self._ledger.owner
