"""One slot and the children that hold it, one after the other. The only code that moves a child's phase."""

from __future__ import annotations

from platform_worker.pool.states import SERVING_PHASES, WORKING_PHASES, ChildPhase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from platform_worker.pool.effects import Effect


class Child:
    """One incarnation of a slot."""

    __slots__ = (
        "deadline",
        "exhausted",
        "incarnation",
        "out_of_touch",
        "phase",
        "pressed",
        "pulse_due",
        "ready_at",
        "reason",
        "slot",
    )

    def __init__(self, slot: Slot, incarnation: int, deadline: float | None) -> None:
        self.slot = slot
        self.incarnation = incarnation
        self.phase = ChildPhase.LAUNCHING
        #: When its time is over, whatever it is doing; ``None``: it has all the time it wants.
        self.deadline = deadline
        #: How far it has been pressed: 0 not, 1 terminated, 2 killed.
        self.pressed = 0
        #: Why it ends: what it said, or what we ended it for.
        self.reason: str | None = None
        self.exhausted = False
        self.ready_at: float | None = None
        #: When it has been silent for too long; ``None``: a task is in hand, or it has promised nothing.
        self.pulse_due: float | None = None
        #: Its source has had no contact for longer than it may.
        self.out_of_touch = False

    @property
    def silent_at(self) -> float | None:
        """When its silence is to be noticed."""
        return self.pulse_due if self.phase in SERVING_PHASES else None

    @property
    def stalled(self) -> bool:
        """It should take tasks, and does not get at them."""
        return self.out_of_touch and self.phase in SERVING_PHASES

    def press(self, now: float, grace: float) -> list[Effect]:
        """Terminates it, and the next time kills it."""
        from platform_worker.pool.effects import KillChild, TerminateChild

        self.pressed += 1
        if self.pressed == 1:
            self.deadline = now + grace
            return [TerminateChild(self.slot.index, self.incarnation)]
        self.deadline = None
        return [KillChild(self.slot.index, self.incarnation)]

    def kill(self) -> list[Effect]:
        """Kills it now."""
        self.pressed = max(self.pressed, 1)
        return self.press(0.0, 0.0)


class Slot:
    """A stable place in the pool."""

    __slots__ = (
        "current",
        "finished",
        "handing_over",
        "incarnations",
        "index",
        "restart_at",
        "served",
        "streak",
        "successor",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.incarnations = 0
        #: Who holds the slot.
        self.current: Child | None = None
        #: Who takes over when ``current`` is gone.
        self.successor: Child | None = None
        #: When the slot is refilled, while it waits for that.
        self.restart_at: float | None = None
        #: Unexpected exits in a row.
        self.streak = 0
        #: A child of this slot has been ready once.
        self.served = False
        #: An orderly recycle is under way; the slot counts as ready.
        self.handing_over = False
        #: Nothing was left to take: the slot is not filled again.
        self.finished = False

    def children(self) -> list[Child]:
        """Those that live, the holder first."""
        return [child for child in (self.current, self.successor) if child is not None]

    def child(self, incarnation: int) -> Child | None:
        """The child of that number, if it lives."""
        for child in self.children():
            if child.incarnation == incarnation:
                return child
        return None

    def launch(self, deadline: float | None) -> Child:
        """A new child: it holds the slot if nobody does, else it is the successor."""
        assert self.successor is None, "one replacement at a time"
        self.incarnations += 1
        self.restart_at = None
        child = Child(self, self.incarnations, deadline)
        if self.current is None:
            self.current = child
        else:
            self.successor = child
        return child

    def remove(self, child: Child) -> None:
        """The child is gone; its successor holds the slot now."""
        if child is self.current:
            self.current, self.successor = self.successor, None
        else:
            assert child is self.successor, "a child of this slot"
            self.successor = None

    @property
    def ready(self) -> bool:
        """Whether the slot counts as ready: it takes tasks, or is being handed over."""
        if self.finished:
            return True
        return self.handing_over or (self.current is not None and self.current.phase in WORKING_PHASES)

    def validate(self) -> None:
        """What must hold after every step."""
        assert self.current is not None or self.successor is None, "a successor succeeds somebody"
        assert self.restart_at is None or self.current is None, "a slot that is held does not wait for a refill"
        if self.successor is not None:
            assert self.successor.phase not in WORKING_PHASES - {ChildPhase.RETIRING, ChildPhase.DONE}, "two at work"
            assert self.successor.phase is not ChildPhase.TAKING_OVER, "takes over before the slot is free"
