"""The supervisor's loop: waits for everything, turns what happened into events, carries effects out. Decides nothing.

It waits on the ownership channel, the control listener and its sessions, signals and ended children (one wake-up), and
the next deadline. A stop is answered last of all: children, files, fence, then ``stopped``.
"""

from __future__ import annotations

from platform_worker.errors import WorkerError
from platform_worker.pool import effects as fx
from platform_worker.pool import events as ev
from platform_worker.pool.notices import Notices
from platform_worker.pool.states import PoolStatus, StopMode
from platform_worker.ports_processes import StreamGarbled
from platform_worker.protocol import ownership as own
from platform_worker.protocol.control import dump
from platform_worker.protocol.lifeline import PULSE, TIMEOUT, LifelineViolation, parse_pulse, parse_up
from platform_worker.supervisor.control import ControlSessions
from platform_worker.value import Value, unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from platform_worker.pool.machine import PoolMachine
    from platform_worker.ports import Log, Telemetry
    from platform_worker.ports_processes import Clock, Stream, Waiter
    from platform_worker.ports_supervisor import Guardian, Notify, Records
    from platform_worker.supervisor.probe import ProbeSessions
    from platform_worker.supervisor.sessions import Sessions

#: How long answers may take to be fetched at the very end, in seconds.
_LAST_WORDS = 0.5


class Ended(Value):
    """How a pool ended: ``reason`` is ``None`` where it stopped as asked."""

    reason: str | None
    hints: tuple[str, ...]


class Ports(Value):
    """The machine, as the loop sees it."""

    clock: Clock
    waiter: Waiter
    channel: Stream
    guardian: Guardian
    records: Records
    log: Log
    telemetry: Telemetry
    #: The stops that signals have asked for since the last call.
    take_signals: Callable[[], list[StopMode]]
    #: Opens the control channel, under the claimed fence. Raises ``WorkerError``.
    open_control: Callable[[SupervisorLoop], ControlSessions]
    #: Opens the HTTP probe, where one is wanted. Raises ``WorkerError``.
    open_probe: Callable[[SupervisorLoop], ProbeSessions | None]
    #: Lets go of the supervisor's own share of the fence.
    leave_fence: Callable[[], None]
    announce: Callable[[dict[str, object]], None]
    boot: Callable[[fx.StartChild, int], dict[str, object]]
    #: What can wait until the children boot, and costs imports.
    while_booting: Callable[[], None]
    #: Whether the application's own stacks may be logged.
    log_exceptions: bool
    #: The service manager, and within how many seconds it expects a sign of life.
    notify: Notify | None = None
    watchdog: float | None = None


class SupervisorLoop:
    """One pool's supervisor. ``constants``: the state's keys that never change."""

    def __init__(
        self, pool: PoolMachine, ports: Ports, claim: own.Claim, credential: str, constants: dict[str, object]
    ) -> None:
        self._pool = pool
        self._ports = ports
        self._claim = claim
        self._credential = credential
        self._constants = constants
        self._control: ControlSessions | None = None
        self._probe: ProbeSessions | None = None
        self._channel_open = True
        self._ended: Ended | None = None
        self._began = ports.clock.now()
        self._notices = Notices(int(str(constants["pid"])), ports.watchdog)
        self._files = False
        #: What children write at a job's hard deadline, until they are gone.
        self._stacks: dict[tuple[int, int], list[str]] = {}

    def run(self) -> Ended:
        """From the claim to the end; nothing of the pool is left when it returns."""
        self._pool.begin(self._ports.clock.now())
        while self._ended is None:
            self._tell_manager()
            self._turn()
        self._tell_manager()
        self._say_stopped()
        return self._ended

    def state(self) -> dict[str, object]:
        """The state's ten keys."""
        pool = self._pool
        return {**self._constants, "ready_worker_count": pool.ready_count, "status": pool.status.value}

    def asked(self) -> dict[str, object]:
        """The state, for someone who asks."""
        self._ports.telemetry.process("status_success")
        return self.state()

    def health(self) -> dict[str, object]:
        """What a health probe is told."""
        state, reason = self.state(), self._pool.health
        keys = ("pid", "status", "worker_count", "ready_worker_count", "driver", "control_transport", "endpoint_hash")
        return {**{key: state[key] for key in keys}, "healthy": reason == "healthy", "reason": reason}

    def request_stop(self) -> None:
        """A stop over the control channel."""
        self._happen(ev.StopRequested(StopMode.GRACEFUL))

    # One turn

    def _turn(self) -> None:
        ports = self._ports
        channel = ports.channel
        served: list[Sessions] = [one for one in (self._control, self._probe) if one is not None]
        ports.waiter.watch(channel.fd, self._channel_open, self._channel_open and channel.pending > 0)
        interest = [wanted for one in served for wanted in one.interest()]
        for fd, read, write in interest:
            ports.waiter.watch(fd, read, write)
        due = [self._pool.next_deadline(), *(one.next_deadline() for one in served)]
        if ports.notify is not None:
            due.append(self._notices.next_deadline(self._pool.outlook))
        at = min((moment for moment in due if moment is not None), default=None)
        ready = ports.waiter.wait(None if at is None else max(0.0, at - ports.clock.now()))
        for fd, _, _ in interest:
            ports.waiter.watch(fd, False, False)
        for mode in ports.take_signals():
            self._happen(ev.StopRequested(mode))
        for fd, readable, writable in ready:
            if fd == channel.fd:
                self._channel_ready(readable, writable)
            else:
                for one in served:
                    one.ready(fd, ports.clock.now())
        ports.guardian.reap_strangers()
        if ports.guardian.ended() and self._channel_open:
            self._channel_ready(True, False)
        for one in served:
            one.expire(ports.clock.now())
        self._carry_out(self._pool.advance(ports.clock.now()))

    def _tell_manager(self) -> None:
        """What the service manager does not know yet. The loop's own turns are the signs of life."""
        ports, outlook = self._ports, self._pool.outlook
        while ports.notify is not None and (text := self._notices.due(outlook, ports.clock.now())) is not None:
            if ports.notify.send(text):
                self._notices.told(ports.clock.now())
            else:
                self._notices.missed(ports.clock.now())

    def _channel_ready(self, readable: bool, writable: bool) -> None:
        if not self._channel_open:
            return
        if writable:
            self._ports.channel.flush()
        if not readable:
            return
        try:
            lines, ended = self._ports.channel.receive()
            for line in lines:
                self._hear(own.decode_event(line.encode()))
        except (StreamGarbled, own.OwnershipViolation):
            self._ports.guardian.kill()
            ended = True
        if ended:
            self._channel_open = False
            self._ports.waiter.watch(self._ports.channel.fd, False, False)
            self._happen(ev.GuardianLost())

    def _hear(self, event: own.GuardianEvent) -> None:
        match event:
            case own.Hello(credential):
                if credential != self._credential:
                    raise own.OwnershipViolation("hello: not the guardian that was started")
                self._send(self._claim)
            case own.Claimed(generation):
                self._happen(ev.FenceClaimed(generation))
                self._set_up()
            case own.Busy():
                self._happen(ev.FenceBusy())
            case own.Failed(reason):
                self._happen(ev.GuardianRefused(reason))
            case own.Started(slot, incarnation):
                self._happen(ev.ChildStarted(slot, incarnation))
            case own.StartFailed(slot, incarnation, reason):
                self._happen(ev.ChildNotStarted(slot, incarnation, reason))
            case own.Said(slot, incarnation, line):
                self._hear_line(slot, incarnation, line)
            case own.Exited(slot, incarnation, code, signal):
                self._log_stacks(slot, incarnation)
                self._happen(ev.ChildExited(slot, incarnation, code, signal))
            case own.Released():
                self._ports.leave_fence()
                self._happen(ev.FenceReleased())
            case _:
                unreachable(event)

    def _hear_line(self, slot: int, incarnation: int, line: str) -> None:
        stacks = self._stacks.get((slot, incarnation))
        if stacks is not None:
            if not line.startswith(PULSE):
                stacks.append(line)
            return
        said = _said(slot, incarnation, line)
        if isinstance(said, ev.ChildSaid) and said.word == TIMEOUT:
            self._stacks[slot, incarnation] = []
        self._happen(said)

    def _log_stacks(self, slot: int, incarnation: int) -> None:
        stacks = self._stacks.pop((slot, incarnation), None)
        if stacks is not None:
            text = "\n".join(stacks) if self._ports.log_exceptions else ""
            self._ports.log.quote("error", "worker.task.failed", text, slot=slot, cause="timeout")

    def _set_up(self) -> None:
        """Files and control channel, while the children boot already."""
        if self._ended is not None or self._pool.status is PoolStatus.STOPPING:
            return
        try:
            self._files = True
            self._control = self._ports.open_control(self)
            self._probe = self._ports.open_probe(self)
        except WorkerError as error:
            self._happen(ev.SetupFailed(error.reason, error.hints))
        self._write_state()
        self._ports.while_booting()

    def _happen(self, event: ev.Event) -> None:
        self._carry_out(self._pool.handle(event, self._ports.clock.now()))

    def _carry_out(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            self._do(effect)

    def _do(self, effect: fx.Effect) -> None:
        ports = self._ports
        match effect:
            case fx.StartChild(slot, incarnation):
                self._start_child(effect, slot, incarnation)
            case fx.TellChild(slot, incarnation, word):
                self._send(own.Tell(slot, incarnation, word))
            case fx.TerminateChild(slot, incarnation):
                self._send(own.Terminate(slot, incarnation))
            case fx.KillChild(slot, incarnation):
                self._send(own.Kill(slot, incarnation))
            case fx.Announce():
                ports.announce(self.state())
            case fx.StateChanged():
                if self._files:
                    self._write_state()
            case fx.RaiseStopFlag():
                self._raise_stop_flag()
            case fx.RemoveFiles():
                self._remove_files()
            case fx.ReleaseFence():
                self._send(own.Release())
            case fx.AbandonClaim() | fx.EndGuardian():
                ports.guardian.kill()
            case fx.Finish(reason, hints):
                self._ended = Ended(reason, hints)
            case fx.LogEvent(level, event, fields):
                ports.log.event(level, event, **fields)  # type: ignore[arg-type]  # the levels are the same four words
            case fx.Count(status):
                ports.telemetry.process(status, ports.clock.now() - self._began)
            case _:
                unreachable(effect)

    def _start_child(self, effect: fx.StartChild, slot: int, incarnation: int) -> None:
        try:
            boot = self._ports.boot(effect, self._pool.generation or 0)
        except WorkerError as error:
            self._happen(ev.SetupFailed(error.reason, error.hints))
            self._happen(ev.ChildNotStarted(slot, incarnation, error.reason))
            return
        self._send(own.Start(slot, incarnation, boot))

    def _send(self, command: own.GuardianCommand) -> None:
        if not self._channel_open:
            return
        try:
            self._ports.channel.send(own.encode(command))
        except StreamGarbled:  # a guardian that has not read for megabytes is no guardian
            self._ports.guardian.kill()

    # Files

    def _write_state(self) -> None:
        if self._files and not self._ports.records.write_state(dump(self.state())):
            self._ports.log.event("error", "worker.process.status", cause="state-not-written")

    def _raise_stop_flag(self) -> None:
        if not self._files:
            return
        try:
            self._ports.records.raise_stop_flag()
        except WorkerError as error:  # the stop goes on without it: to refuse to stop would be worse
            self._ports.log.event("error", "worker.process.stop", cause="stop-flag-not-written", reason=error.reason)

    def _remove_files(self) -> None:
        if not self._files:
            return
        self._files = False
        if self._control is not None:
            self._control.close_listener()
        if self._probe is not None:  # its port must be free before the fence is
            self._probe.close_listener()
            self._probe.close_all()
            self._probe = None
        if not (self._ports.records.remove() & self._ports.records.remove_workdirs()):
            self._ports.log.event("error", "worker.process.stop", cause="files-not-removed")

    def _say_stopped(self) -> None:
        """The last thing of all."""
        ports = self._ports
        ports.guardian.finish(self._pool.generation)
        ports.leave_fence()
        if self._control is None:
            return
        state = {**self.state(), "status": "stopping", "ready_worker_count": 0}
        control, until = self._control, ports.clock.now() + _LAST_WORDS
        control.answer_stops(state, ports.clock.now())
        while control.pending and ports.clock.now() < until:
            for fd, read, write in control.interest():
                ports.waiter.watch(fd, read, write)
            for fd, _, _ in ports.waiter.wait(until - ports.clock.now()):
                ports.waiter.watch(fd, False, False)
                control.ready(fd, ports.clock.now())
        control.close_all()


def _said(slot: int, incarnation: int, line: str) -> ev.ChildSaid | ev.ChildPulsed:
    try:
        if line.startswith(PULSE):
            pulse = parse_pulse(line)
            return ev.ChildPulsed(slot, incarnation, pulse.limit_ms, pulse.silent_ms, pulse.task_ms)
        word, reason = parse_up(line)
    except LifelineViolation:
        word, reason = "", None
    return ev.ChildSaid(slot, incarnation, word, reason)
