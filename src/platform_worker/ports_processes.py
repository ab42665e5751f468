"""What the guardian needs of the machine: a few small protocols. ``host`` implements them, the tests fake them.

``now`` is monotonic seconds everywhere.
"""

from __future__ import annotations

from platform_worker.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol
else:

    class Protocol:
        """Stands in for ``typing.Protocol``: the guardian does not pay for ``typing``."""


class StreamGarbled(Exception):  # noqa: N818  the peer's fault, named by what happened
    """What came in is no stream of short UTF-8 lines, or the peer has not read until the bound was reached."""


class Stream(Protocol):
    """One end of a channel, never blocking, bounded both ways."""

    @property
    def fd(self) -> int:
        """What to wait on."""

    @property
    def pending(self) -> int:
        """How many bytes are kept unsent."""

    def receive(self) -> tuple[list[str], bool]:
        """The whole lines that are there, and whether the end was reached. Raises ``StreamGarbled``."""

    def send(self, data: bytes) -> None:
        """Writes what fits, keeps the rest. ``StreamGarbled`` when too much is kept. A dead peer is no error."""

    def flush(self) -> bool:
        """Writes what was kept, as far as it fits; true when nothing is left."""

    def close(self) -> None:
        """Gives the descriptor back."""


class Launched(Value):
    """A process that was started; ``report`` turns readable when its program runs or is refused (``None``: it runs)."""

    pid: int
    lifeline: Stream
    report: int | None


class Driver(Protocol):
    """How child processes are started and signalled. Chosen once, by the claim."""

    def start(self, mark: str) -> Launched:
        """Starts a child with ``PLATFORM_WORKER_CHILD`` = ``mark``. ``WorkerForkError`` or ``WorkerStartError``."""

    def terminate(self, pid: int) -> None:
        """SIGTERM, or what stands for it, to the child; no error if it is gone."""

    def kill(self, pid: int) -> None:
        """Ends the child and its process group without appeal; no error if it is gone."""


class Group(Protocol):
    """Every process of one worker generation but its guardian, as the kernel keeps them together (a cgroup)."""

    def join(self, pid: int) -> None:
        """Puts a child in, 0 being the caller; never fails."""

    def clear(self) -> bool:
        """Kills whoever is in it; true once nobody is. Does not wait."""


class Stranger(Value):
    """A process that became the guardian's when its parent died. ``mark``: its ``PLATFORM_WORKER_CHILD``, if any."""

    pid: int
    mark: str | None
    session: int


class Family(Protocol):
    """The processes whose parent the guardian is."""

    def ended(self) -> int | None:
        """One that has ended and is not reaped; ``None`` if there is none."""

    def reap(self, pid: int) -> tuple[int | None, int | None]:
        """Takes the ended process's exit code or signal, exactly one of the two, and lets its pid go."""

    def report(self, fd: int) -> str | None:
        """What a readable ``Launched.report`` says: why the program was refused, ``None`` if it runs. Closes it."""

    def strangers(self, known: Sequence[int]) -> list[Stranger]:
        """The living ones that are not ``known``."""

    def kill(self, pid: int) -> bool:
        """SIGKILL to one of the strangers; false if that is not permitted (set-user-id programs)."""


class Fence(Protocol):
    """The locks of one root. Every call may raise ``OSError``: the machine's fault."""

    def try_lock(self) -> bool:
        """``worker.lock``, exclusively."""

    def try_members(self) -> bool:
        """``worker.members``: true once nothing of an older generation lives, and it is held shared."""

    def next_generation(self) -> int:
        """Writes and returns the new generation's number, greater than any before."""

    def release(self) -> None:
        """Lets go of both; whoever else has the members' open file keeps that lock."""

    def abandon(self) -> None:
        """After a failed claim: lets go of whatever was taken, for everyone."""


class Waiter(Protocol):
    """The one wait for everything."""

    def watch(self, fd: int, read: bool, write: bool) -> None:
        """Waits for ``fd`` from now on; with neither, no more."""

    def wait(self, seconds: float | None) -> list[tuple[int, bool, bool]]:
        """Returns ``(fd, readable, writable)``; an end or error is both. Empty on time or when a process ended."""


class Clock(Protocol):
    """Time that only goes forward."""

    def now(self) -> float:
        """Monotonic seconds."""
