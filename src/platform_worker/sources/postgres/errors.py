"""From the server's errors to ours: what passes by itself, what does not, and what a person may look at."""

from __future__ import annotations

from platform_worker.jobs.store import StoreUnavailable

UNREACHABLE = "postgres.url: the server cannot be reached, or refuses this database or role"
NO_ANSWER = "postgres.url: the server does not answer"

UNIQUE_VIOLATION = "23505"
#: The schema, or something in it, is not there.
UNDEFINED = frozenset({"3F000", "42P01", "42883"})

_RULES = {
    "25006": "postgres.url: the server takes no writes; it must be the primary one",
    "42501": "postgres.url: the role must be allowed to create and use the schema of postgres.schema",
    "53100": "postgres.url: the server's disk is full",
    "53300": "postgres.url: the server has no connection left",
    "57014": "postgres.url: a statement was cancelled, or took too long",
    "28000": "postgres.url: the server refuses the role",
    "28P01": "postgres.url: the server refuses the role or its password",
    "3D000": "postgres.url: the server has no such database",
}
#: Classes of SQLSTATE that pass by themselves, or when somebody mends the server: of connections, of transactions that
#: were in each other's way, of resources, of an operator's doing, of the machine.
_PASSING = frozenset({"08", "25", "26", "28", "3D", "40", "53", "55", "57", "58", "XX"})


class ServerError(Exception):
    """The server refused a statement, and would again: a mistake, or somebody changed the schema."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(f"{sqlstate}: {message}")
        self.sqlstate = sqlstate


def translated(sqlstate: str, message: str) -> StoreUnavailable | ServerError:
    """What to raise for an error of the server."""
    if sqlstate[:2] in _PASSING:
        return StoreUnavailable(_RULES.get(sqlstate, "postgres.url: the server is not ready"))
    if sqlstate in _RULES:
        return StoreUnavailable(_RULES[sqlstate], transient=False)
    if sqlstate in UNDEFINED:
        return StoreUnavailable("postgres.schema: the schema was changed or removed", transient=False)
    return ServerError(sqlstate, message)
