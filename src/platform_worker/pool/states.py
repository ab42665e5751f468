"""The states of a pool and of its children, as someone who watches them would say them."""

from __future__ import annotations

from enum import Enum


class PoolStatus(Enum):
    """What ``worker status`` says."""

    #: The fence is being claimed, or not every slot has been ready yet.
    STARTING = "starting"
    #: Every slot has been ready once; single slots may be refilled.
    RUNNING = "running"
    #: Told to stop, or failed for good: the children go, then the files, then the fence.
    STOPPING = "stopping"


class ChildPhase(Enum):
    """Where one child process stands."""

    #: The guardian was told to start it.
    LAUNCHING = "launching"
    #: Its program runs; it verifies artifacts, imports handlers, constructs the source.
    BOOTING = "booting"
    #: Has booted, and waits until the child before it is gone.
    BOOTED = "booted"
    #: Told to take over the slot: the source is asked whether it is ready.
    TAKING_OVER = "taking-over"
    #: Takes tasks.
    READY = "ready"
    #: Has received the last task of its limit; waits for ``stop`` or ``go on`` when that is settled.
    LAST = "last"
    #: Told to stop: finishes the task in hand and takes no other.
    RETIRING = "retiring"
    #: Has settled everything and said so; its exit follows.
    DONE = "done"
    #: The hard deadline of its task has passed; it writes its stacks, and its exit follows.
    EXPIRED = "expired"


class StopMode(Enum):
    """How urgently a stop was asked for."""

    #: The first SIGTERM or SIGINT, or ``worker stop``.
    GRACEFUL = "graceful"
    #: A second signal: what is left of the cooperative phase is skipped.
    HURRIED = "hurried"
    #: SIGQUIT: straight to killing.
    KILLING = "killing"


#: Phases in which no task can be in hand.
IDLE_PHASES = frozenset({ChildPhase.LAUNCHING, ChildPhase.BOOTING, ChildPhase.BOOTED, ChildPhase.TAKING_OVER})
#: Phases of a child that holds its slot.
WORKING_PHASES = frozenset(
    {ChildPhase.READY, ChildPhase.LAST, ChildPhase.RETIRING, ChildPhase.DONE, ChildPhase.EXPIRED}
)
#: Phases of a child that takes tasks, or has the last of its limit.
SERVING_PHASES = frozenset({ChildPhase.READY, ChildPhase.LAST})
#: Phases of a child that will go, and be replaced by what is there already or not at all.
LEAVING_PHASES = frozenset({ChildPhase.RETIRING, ChildPhase.DONE, ChildPhase.EXPIRED})
