"""The table of a child's life: every phase, every event, what is done about it.

Everything that moves a child's phase is named here and carried out in ``slots``; nobody else writes it. ``REFUSE`` is
a word that this child cannot say now: it is broken, and killed. An exit is possible in every phase.
"""

from __future__ import annotations

from enum import Enum

from platform_worker.pool.states import ChildPhase


class Stimulus(Enum):
    """What can happen to one child."""

    STARTED = "started"
    NOT_STARTED = "not-started"
    BOOTED = "booted"
    READY = "ready"
    LAST = "last"
    EMPTY = "empty"
    DONE = "done"
    FAILED = "failed"
    GARBLED = "garbled"
    EXITED = "exited"
    OVERDUE = "overdue"
    TIMED_OUT = "timed-out"
    PULSED = "pulsed"


class Action(Enum):
    """What is done about it."""

    #: Its program runs now.
    RUN = "run"
    #: It can take over: at once if it holds the slot, else when the child before it is gone, which is told to stop.
    OFFER = "offer"
    #: It takes tasks.
    SERVE = "serve"
    #: Its limit is in sight: start its replacement.
    REPLACE = "replace"
    #: Nothing is left to take (``until_empty``).
    EXHAUST = "exhaust"
    #: It has settled everything, and has the force-kill budget to end in.
    FAREWELL = "farewell"
    #: It has said why it ends.
    EXCUSE = "excuse"
    #: Its task's hard deadline has passed: it writes its stacks, and ends.
    EXPIRE = "expire"
    #: It has ended.
    LEAVE = "leave"
    #: It never was.
    VANISH = "vanish"
    #: Its time is over: terminate, then kill.
    PRESS = "press"
    #: It tells of its contact and its task.
    NOTE = "note"
    #: It broke the protocol: kill.
    REFUSE = "refuse"
    #: True, and of no consequence.
    IGNORE = "ignore"
    #: Cannot happen: the guardian reports a start once, and before anything else of that child.
    IMPOSSIBLE = "impossible"


_P, _S, _A = ChildPhase, Stimulus, Action
_ORDER = tuple(Stimulus)
_ROWS: dict[ChildPhase, tuple[Action, ...]] = {
    #                STARTED        NOT_STARTED     BOOTED     READY      LAST        EMPTY       DONE
    #                FAILED      GARBLED    EXITED    OVERDUE   TIMED_OUT   PULSED
    _P.LAUNCHING: (_A.RUN, _A.VANISH, _A.IMPOSSIBLE, _A.IMPOSSIBLE, _A.IMPOSSIBLE, _A.IMPOSSIBLE, _A.IMPOSSIBLE,
                   _A.IMPOSSIBLE, _A.IMPOSSIBLE, _A.LEAVE, _A.PRESS, _A.IMPOSSIBLE, _A.IMPOSSIBLE),
    _P.BOOTING: (_A.IMPOSSIBLE, _A.IMPOSSIBLE, _A.OFFER, _A.REFUSE, _A.REFUSE, _A.REFUSE, _A.FAREWELL,
                 _A.EXCUSE, _A.REFUSE, _A.LEAVE, _A.PRESS, _A.REFUSE, _A.REFUSE),
    _P.BOOTED: (_A.IMPOSSIBLE, _A.IMPOSSIBLE, _A.REFUSE, _A.REFUSE, _A.REFUSE, _A.REFUSE, _A.FAREWELL,
                _A.EXCUSE, _A.REFUSE, _A.LEAVE, _A.PRESS, _A.REFUSE, _A.REFUSE),
    _P.TAKING_OVER: (_A.IMPOSSIBLE, _A.IMPOSSIBLE, _A.REFUSE, _A.SERVE, _A.REFUSE, _A.REFUSE, _A.FAREWELL,
                     _A.EXCUSE, _A.REFUSE, _A.LEAVE, _A.PRESS, _A.REFUSE, _A.REFUSE),
    _P.READY: (_A.IMPOSSIBLE, _A.IMPOSSIBLE, _A.REFUSE, _A.REFUSE, _A.REPLACE, _A.EXHAUST, _A.FAREWELL,
               _A.EXCUSE, _A.REFUSE, _A.LEAVE, _A.PRESS, _A.EXPIRE, _A.NOTE),
    _P.LAST: (_A.IMPOSSIBLE, _A.IMPOSSIBLE, _A.REFUSE, _A.REFUSE, _A.REFUSE, _A.REFUSE, _A.FAREWELL,
              _A.EXCUSE, _A.REFUSE, _A.LEAVE, _A.PRESS, _A.EXPIRE, _A.NOTE),
    # Told to stop: what it said before it heard that is still on its way.
    _P.RETIRING: (_A.IGNORE, _A.VANISH, _A.IGNORE, _A.IGNORE, _A.IGNORE, _A.EXHAUST, _A.FAREWELL,
                  _A.EXCUSE, _A.REFUSE, _A.LEAVE, _A.PRESS, _A.EXPIRE, _A.IGNORE),
    _P.DONE: (_A.IMPOSSIBLE, _A.IMPOSSIBLE, _A.REFUSE, _A.REFUSE, _A.REFUSE, _A.REFUSE, _A.REFUSE,
              _A.REFUSE, _A.REFUSE, _A.LEAVE, _A.PRESS, _A.REFUSE, _A.REFUSE),
    # Its stacks are no words.
    _P.EXPIRED: (_A.IMPOSSIBLE, _A.IMPOSSIBLE, _A.REFUSE, _A.REFUSE, _A.REFUSE, _A.REFUSE, _A.REFUSE,
                 _A.REFUSE, _A.IGNORE, _A.LEAVE, _A.PRESS, _A.IGNORE, _A.IGNORE),
}  # fmt: skip

TRANSITIONS: dict[tuple[ChildPhase, Stimulus], Action] = {
    (phase, stimulus): action for phase, row in _ROWS.items() for stimulus, action in zip(_ORDER, row, strict=True)
}
