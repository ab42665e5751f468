"""What the supervisor needs of the machine, beside ``ports`` and ``ports_processes``. ``host`` implements it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:

    class Protocol:
        """Stands in for ``typing.Protocol``: the supervisor does not pay for ``typing``."""


class Connection(Protocol):
    """One accepted control session; never blocks."""

    fd: int

    def receive(self) -> bytes | None:
        """What has come in; ``b""`` at the end or after an error, ``None`` where nothing is there."""

    def send(self, data: bytes) -> int:
        """How many bytes were taken; -1 where the peer is gone."""

    def close(self) -> None:
        """Gives the descriptor back."""


class Listener(Protocol):
    """The control socket."""

    fd: int

    def accept(self) -> Connection | None:
        """A session of a peer that may talk to us; ``None`` where there is none. ``OSError``: no descriptors left."""

    def remove(self) -> None:
        """Closes it, and removes its file if that is still ours."""


class Notify(Protocol):
    """The service manager, which wants to be told."""

    def send(self, text: str) -> bool:
        """False where the message could not be handed over now, and may be later; never blocks."""


class Records(Protocol):
    """The supervisor's files. Each method may raise ``WorkerError``."""

    def write_locator(self, data: bytes) -> None:
        """Exclusively created, 0600 before the first byte, flushed, renamed."""

    def write_state(self, data: bytes) -> bool:
        """False where it could not be written."""

    def raise_stop_flag(self) -> None:
        """Writes the stop flag."""

    def remove(self) -> bool:
        """Removes state, stop flag and locator with their temporary files; false where one could not be removed."""

    def remove_workdirs(self) -> bool:
        """Removes the jobs' work directories, which nobody uses any more; false where one could not be removed."""


class Guardian(Protocol):
    """The guardian process, from its parent's side."""

    def ended(self) -> bool:
        """Whether it has been reaped."""

    def reap_strangers(self) -> None:
        """Reaps what has been orphaned to us."""

    def finish(self, generation: int | None) -> None:
        """Waits for the guardian's end; then ends and reaps whatever of its generation became ours by it."""

    def kill(self) -> None:
        """Ends it without appeal."""
