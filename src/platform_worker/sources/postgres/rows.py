"""From rows to lives and back: reads what the model needs, writes what it decided."""

from __future__ import annotations

import json

from platform_worker.jobs import model
from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.postgres import errors
from platform_worker.sources.postgres.functions import LIFE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from platform_worker.jobs.policies import Backoff
    from platform_worker.sources.postgres.connection import Connection, Patience

_READ = f"SELECT {LIFE}, {{s}}.now_ms() FROM {{s}}.jobs j WHERE j.seq = $1"
APPLY = "SELECT o_done FROM {s}.apply($1, $2, $3, $4)"
#: A life that changes under every decision about it: cannot be, with one claim a job and a person at the keyboard.
_TRIES = 100


def life_of(text: str | None) -> model.Life:
    """A life as ``functions.LIFE`` writes it."""
    status, *numbers = (text or "").split(",")
    return model.Life(status, *map(int, numbers))


def changes_json(changes: dict[str, Any]) -> str:
    """A decision's changes for ``apply``; the error is JSON text in the row."""
    why = changes.get("error")
    if why is not None:
        changes = {**changes, "error": json.dumps(why, ensure_ascii=False, separators=(",", ":"))}
    return json.dumps(changes)


def apply_event(
    connection: Connection,
    key: str,
    event: model.Event,
    backoff: Backoff,
    patience: Patience | None = None,
    write: Callable[[str | None, str], bool] | None = None,
) -> str | None:
    """Applies one event to one job; a refusal or ``None``.

    ``write(life, changes)`` writes what was decided about that life; false where the job has another one by now.
    """
    for _ in range(_TRIES):
        found = connection.run(_READ, key, patience=patience)
        if not found:
            return model.STALE
        text, now = found[0]
        decision = model.decide(life_of(text), event, int(now or 0), backoff)
        if decision.refusal is not None or not decision.changes:
            return decision.refusal
        changes = changes_json(decision.changes)
        try:
            done = write(text, changes) if write is not None else _write(connection, key, text, changes, patience)
        except errors.ServerError as error:
            if error.sqlstate == errors.UNIQUE_VIOLATION:
                # A retry, while another unfinished job has the unique key.
                return model.WRONG_STATE
            raise
        if done:
            return None
        # Changed since it was read: the decision was about another life.
    raise StoreUnavailable("postgres.url: a job changes faster than it can be decided about")


def _write(connection: Connection, key: str, life: str | None, changes: str, patience: Patience | None) -> bool:
    ((done,),) = connection.run(APPLY, [key], [life], [changes], False, patience=patience)
    return done != "{}"
