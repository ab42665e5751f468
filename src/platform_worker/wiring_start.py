"""The composition root of the supervisor: the start, step by step, and what is undone when a step fails."""

from __future__ import annotations

import os
import sys
import time

from platform_worker.artifacts.boot import has_current, load_current
from platform_worker.config import WorkerSettings, app_settings, listen_address, worker_settings
from platform_worker.errors import (
    EXIT_OK,
    WorkerAlreadyRunningError,
    WorkerBuildError,
    WorkerError,
    WorkerStartError,
    runtime_error,
)
from platform_worker.host import cgroup, choices
from platform_worker.host.fence import fence_held, open_members
from platform_worker.host.guardian_process import start_guardian
from platform_worker.host.notify import NotifySocket, take_service
from platform_worker.host.supervisor_process import GuardianHandle, SignalStops, keep_standard_descriptors
from platform_worker.pool.machine import Policy, PoolMachine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.artifacts.generation import Generation
    from platform_worker.host.logs import StderrLog
    from platform_worker.host.notify import Service
    from platform_worker.pool.effects import StartChild
    from platform_worker.supervisor.control import ControlSessions
    from platform_worker.supervisor.loop import SupervisorLoop
    from platform_worker.supervisor.probe import ProbeSessions

#: How long the guardian waits for ``worker.lock``: for a dying guardian, and past a reader's momentary look.
_LOCK_WAIT_MS = 600
_FLUSH_SECONDS = 2.0


class _Clock:
    def now(self) -> float:
        return time.monotonic()


def run_start(root: str, *, build: bool, until_empty: bool, once: bool, json_output: bool) -> int:
    """From nothing to nothing; in between a pool. Returns 0 or raises ``WorkerError``."""
    root = os.path.realpath(root)
    service = take_service(os.environ, os.getpid())  # before anything is started that would inherit it
    keep_standard_descriptors()
    signals = SignalStops()
    try:
        _refuse_a_second(root)
        generation = _select(root, build, signals)
        settings = worker_settings(generation.config, os.environ)
        return _Start(root, generation, settings, signals, service, until_empty or once, once, json_output).run()
    finally:
        signals.end()


def _refuse_a_second(root: str) -> None:
    """A pool that answers is running: said at once. One that does not may be dying; the guardian waits a moment."""
    if fence_held(root):
        from platform_worker.host.control_client import ask

        try:
            ask(root, "status")
        except WorkerError:
            return
        raise WorkerAlreadyRunningError("worker-already-running")


def _select(root: str, build: bool, signals: SignalStops) -> Generation:
    """The generation to run, built first where asked for or where there is none."""
    if (build and not fence_held(root)) or not has_current(root):
        _build(root, signals)
    return load_current(root)


def _build(root: str, signals: SignalStops) -> None:
    """``worker build``, in a process of its own: the supervisor lives long, and keeps none of what a build imports."""
    import subprocess

    code = "import sys; from platform_worker.cli import main; sys.exit(main())"
    command = [sys.executable, "-P", "-c", code, "--root", root, "build"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
        signals.at_once = run.terminate
        if signals.pending:  # came before
            run.terminate()
        told = run.stderr.read() if run.stderr is not None else b""
        status = run.wait()
        signals.at_once = None
    if signals.pending:
        raise SystemExit(EXIT_OK)
    if status != 0:
        raise _retold(told.decode("utf-8", "replace"))


def _retold(text: str) -> WorkerError:
    """The build's own error: its code, reason and hints, from what it printed. Tracebacks before it are passed on."""
    lines = text.splitlines()
    from platform_worker.errors import WorkerUsageError

    for cls in (WorkerUsageError, WorkerBuildError, WorkerStartError):
        for at, line in enumerate(lines):
            code, _, reason = line.partition(": ")
            if code == cls.code and reason in cls.reasons:
                if at:
                    print("\n".join(lines[:at]), file=sys.stderr)  # noqa: T201  the application's own error, to the log
                return cls(reason, hints=[w.removeprefix("hint: ") for w in lines[at + 1 :] if w.startswith("hint: ")])
    print(text, file=sys.stderr)  # noqa: T201  a build that died otherwise: what it said is all there is
    return WorkerStartError("worker-start-failed", hints=["the build ended unexpectedly; run `worker build`"])


class _Start:
    """What one start knows; ``run`` composes the loop and carries it to its end."""

    def __init__(
        self,
        root: str,
        generation: Generation,
        settings: WorkerSettings,
        signals: SignalStops,
        service: Service,
        until_empty: bool,
        once: bool,
        json_output: bool,
    ) -> None:
        self.root, self.generation, self.settings, self.signals = root, generation, settings, signals
        self.service = service
        self.json_output = json_output
        self.until_empty = until_empty
        self.workers = 1 if once else settings.workers
        self.once = once
        self.driver = choices.driver(settings.driver)
        self.endpoint = choices.Endpoint(settings)
        self.pool_id = ""
        self.members = -1
        self.announced = False

    def run(self) -> int:
        from platform_worker.host.logs import StderrLog
        from platform_worker.host.prctl import become_subreaper
        from platform_worker.host.telemetry import find_telemetry

        become_subreaper()
        log = StderrLog(2)
        telemetry = find_telemetry()
        pool = PoolMachine(self._policy())
        self.members = open_members(self.root)
        guardian = start_guardian(self.members)
        loop = self._loop(pool, guardian.pid, guardian.channel, guardian.credential, log, telemetry)
        ended = loop.run()
        claimed = pool.generation is not None
        if ended.reason is None:
            if claimed:
                log.event("info", "worker.process.stop")
                telemetry.process("stop_success")
            telemetry.flush(_FLUSH_SECONDS)
            return EXIT_OK
        error = runtime_error(ended.reason, hints=ended.hints)
        if claimed:
            telemetry.process("start_failure" if not self.announced else "stop_failure")
            log.event("error", "worker.process.stop", reason=ended.reason)
        telemetry.flush(_FLUSH_SECONDS)
        raise error

    def _policy(self) -> Policy:
        s = self.settings
        return Policy(
            workers=self.workers,
            start_timeout_ms=s.start_timeout_ms,
            stop_timeout_ms=s.stop_timeout_ms,
            force_kill_timeout_ms=s.force_kill_timeout_ms,
            restart_intensity=s.restart_intensity,
            restart_period_ms=s.restart_period_ms,
            until_empty=self.until_empty,
            once=self.once,
        )

    def _loop(
        self, pool: PoolMachine, pid: int, channel: int, credential: str, log: StderrLog, telemetry: object
    ) -> SupervisorLoop:
        from platform_worker.host.records import FileRecords
        from platform_worker.host.streams import LineStream
        from platform_worker.host.waiter import PollWaiter
        from platform_worker.protocol.ownership import MAX_LINE, Claim
        from platform_worker.supervisor.loop import Ports, SupervisorLoop

        s = self.settings
        self.records = FileRecords(self.root, s.state_path, s.stop_flag_path)
        ports = Ports(
            clock=_Clock(),
            waiter=PollWaiter(),
            channel=LineStream(channel, MAX_LINE, 16 * 1024 * 1024),
            guardian=GuardianHandle(pid, lambda generation: cgroup.clear_one(self.root, generation)),
            records=self.records,
            log=log,
            telemetry=telemetry,  # type: ignore[arg-type]  # found, not made, by host.telemetry
            take_signals=self.signals.take,
            open_control=self._open_control,
            open_probe=self._open_probe,
            leave_fence=self._leave_fence,
            announce=self._announce,
            boot=self._boot,
            while_booting=lambda: self._while_booting(log, pool.generation),
            log_exceptions=app_settings(self.generation.config, os.environ).log_exceptions,
            notify=NotifySocket(self.service.socket) if self.service.socket is not None else None,
            watchdog=self.service.watchdog,
        )
        claim = Claim(
            root=self.root,
            python=sys.executable,
            command=s.spawn_command if self.driver == "spawn" else None,
            driver=self.driver,
            lock_wait_ms=_LOCK_WAIT_MS,
            start_timeout_ms=s.start_timeout_ms,
            stop_timeout_ms=s.stop_timeout_ms,
            force_kill_timeout_ms=s.force_kill_timeout_ms,
        )
        return SupervisorLoop(pool, ports, claim, credential, self._constants())

    def _constants(self) -> dict[str, object]:
        from platform_worker.artifacts.canonical import sha256_hex

        s = self.settings
        return {
            "version": 1,
            "pid": os.getpid(),
            "worker_count": self.workers,
            "driver_requested": s.driver,
            "driver": self.driver,
            "control_transport_requested": s.control_transport,
            "control_transport": self.endpoint.transport,
            "endpoint_hash": sha256_hex(self.endpoint.name.encode()),
        }

    def _open_control(self, loop: SupervisorLoop) -> ControlSessions:
        """Under the claimed fence: stale files away, listener, then the locator that leads to it."""
        from _operator import _compare_digest  # hmac's own, without its imports

        from platform_worker.protocol.locator import Locator, encode
        from platform_worker.supervisor.control import ControlSessions

        s = self.settings
        self.records.prepare()
        listener = self.endpoint.listen(self.root)
        credential = os.urandom(32).hex()
        locator = Locator(
            control_credential=credential,
            control_transport=self.endpoint.transport,
            socket_path=s.socket_path,
            tcp_host=self.endpoint.tcp_host,
            tcp_port=self.endpoint.tcp_port,
            stop_timeout_ms=s.stop_timeout_ms,
            force_kill_timeout_ms=s.force_kill_timeout_ms,
        )
        try:
            self.records.write_locator(encode(locator))
        except WorkerError:
            listener.remove()
            raise
        return ControlSessions(listener, credential, _compare_digest, loop.asked, loop.health, loop.request_stop)

    def _open_probe(self, loop: SupervisorLoop) -> ProbeSessions | None:
        address = listen_address(self.settings.probe_listen)
        if address is None:
            return None
        from platform_worker.host.probe_socket import ProbeListener
        from platform_worker.supervisor.probe import ProbeSessions

        return ProbeSessions(ProbeListener(*address), lambda: str(loop.health()["reason"]))

    def _leave_fence(self) -> None:
        if self.members >= 0:
            os.close(self.members)
            self.members = -1

    def _boot(self, effect: StartChild, generation: int) -> dict[str, object]:
        s = self.settings
        if not self.pool_id:
            from platform_worker.host.records import pool_id

            self.pool_id = pool_id(self.root, s.pool_id)
        limit = 1 if self.once else s.max_requests - _jitter(s.max_requests_jitter)
        return {
            "generation": generation,
            "incarnation": effect.incarnation,
            "slot": effect.slot,
            "worker_count": self.workers,
            "pool_id": self.pool_id,
            "max_requests": limit,
            "stop_timeout_ms": s.stop_timeout_ms,
            "task_type": s.task_type,
            "until_empty": self.until_empty,
            "log_exceptions": not effect.quiet,
        }

    def _announce(self, state: dict[str, object]) -> None:
        from platform_worker.protocol.control import dump

        self.announced = True
        keys = ("status", "pid", "worker_count", "ready_worker_count", "driver", "control_transport", "endpoint_hash")
        summary = {key: state[key] for key in keys}
        if self.json_output:
            line = dump(summary)
        else:
            line = f"running: {summary['ready_worker_count']} of {summary['worker_count']} workers ready\n".encode()
        try:
            os.write(1, line)
        except OSError:
            return  # nobody reads: no reason to stop working

    def _while_booting(self, log: StderrLog, generation: int | None) -> None:
        """The children take longer to boot than this takes."""
        from platform_worker.host.containment import mechanisms

        log.warm()
        found = mechanisms(self.root, generation)
        here, missing = ([name for name, there in found.items() if there is wanted] for wanted in (True, False))
        log.event("info", "worker.process.containment", mechanisms=here, missing=missing)
        self._warn_of_changes(log)

    def _warn_of_changes(self, log: StderrLog) -> None:
        if not os.path.exists(os.path.join(self.root, "worker.toml")):
            return
        from platform_worker.building.staleness import config_differs

        if config_differs(self.root, self.generation):
            log.event("warning", "worker.process.start", cause="configuration-changed", hint="run `worker build`")


def _jitter(most: int) -> int:
    """0 to ``most``, evenly; ``random`` would cost its import."""
    return int.from_bytes(os.urandom(8)) % (most + 1) if most else 0
