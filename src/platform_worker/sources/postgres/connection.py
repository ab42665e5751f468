"""One session: how it is opened, how a statement waits for its answer, how libpq's errors become ours.

The statement is sent and its answer waited for here, not in libpq: so a stop ends the wait, and a server that says
nothing is given up after a while, whatever the network in between believes.
"""

from __future__ import annotations

import os
import select
import time

from platform_worker.jobs.store import StoreUnavailable
from platform_worker.sources.postgres import errors, schema
from platform_worker.sources.postgres.migrate import migrate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg
    from psycopg.pq.abc import PGconn, PGresult

    Patience = Callable[[float], None]
    #: A result's rows: each value as the server writes it, or None.
    Rows = list[tuple[str | None, ...]]
    Value = str | int | bool | Sequence[str | int | None] | None

#: Where the url does not say otherwise. A dead peer is noticed whether or not there is something to send to it.
_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
    "application_name": "platform-worker",
}
#: A worker's statement without an answer for so long is given up with its session, and tried again on another; seconds.
ANSWER_SECONDS = 5.0
#: How often a wait looks whether it is still wanted.
_LOOK_MS = 200
#: Sessions of the parents of this process: left alone, since whoever ends one ends it for its owner.
_parents: list[psycopg.Connection] = []

# The settings are of a session that is ours alone: behind a pooler they would be somebody else's next.
_BEGIN = """SELECT version, current_setting('server_encoding'), pg_backend_pid(), CASE pg_backend_pid() WHEN $1 THEN
    (SELECT count(set_config(name, value, false)) FROM unnest($2::text[], $3::text[]) AS s(name, value)) END
    FROM {s}.meta"""


class Connection:
    """A session that opens itself again after an error, and in a forked process. Not for two threads at once."""

    def __init__(
        self,
        url: str,
        schema_name: str,
        *,
        seconds: float = ANSWER_SECONDS,
        settings: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.schema = schema_name
        self._url = url
        self._seconds = seconds
        self._settings = (
            # The server gives it up a little later by itself.
            ("statement_timeout", str(int(seconds * 1500))),
            ("default_transaction_isolation", "read committed"),
            *settings,
        )
        self._session: psycopg.Connection | None = None
        #: Whether an answer is still to be taken.
        self._sent = False
        self._pid = os.getpid()
        #: Whether each transaction may get another session of the server's: a pooler is in between.
        self.pooled = False

    @property
    def opened(self) -> bool:
        """Whether there is a session, as far as we know."""
        return self._session is not None

    def run(self, statement: str, *values: Value, patience: Patience | None = None) -> Rows:
        """One statement, which is one transaction; its rows."""
        return self.run_all([(statement, values)], patience=patience)[0]

    def run_all(
        self,
        statements: Sequence[tuple[str, Sequence[Value]]],
        *,
        patience: Patience | None = None,
    ) -> list[Rows]:
        """Several statements, a transaction each, in one round trip. Where one fails the next ones still happen."""
        pg = self._open()
        until = time.monotonic() + self._seconds
        try:
            self._take_sent(pg, patience, until)
            self._send(pg, statements)
            answers = self._answers(pg, len(statements), patience, until)
        except BaseException as error:
            # Where the answer was not taken, the session is good for nothing more.
            self.close()
            raise _ours(error) from error
        try:
            return [_rows(answer) for answer in answers]
        except StoreUnavailable:
            # Also a session that an operator has ended says so in an answer.
            self.close()
            raise

    def script(self, statements: str) -> None:
        """Several statements in one text, without parameters, as one transaction."""
        pg = self._open()
        until = time.monotonic() + self._seconds
        try:
            self._take_sent(pg, None, until)
            pg.send_query(statements.encode())
            answers = self._answers(pg, 1, None, until)
        except BaseException as error:
            self.close()
            raise _ours(error) from error
        for answer in answers:
            code = sqlstate(answer)
            if code is not None:
                self.close()
                raise errors.translated(code, answer.error_message.decode(errors="replace"))

    def send(self, statement: str) -> None:
        """One statement whose answer is taken before the next one."""
        pg = self._open()
        try:
            pg.send_query(statement.replace("{s}", schema.quoted(self.schema)).encode())
            pg.flush()
            self._sent = True
        except BaseException as error:
            self.close()
            raise _ours(error) from error

    def ready(self) -> None:
        """Opens the session where there is none."""
        self._open()

    def fileno(self) -> int:
        """What is readable when the server has something to say; -1 without a session."""
        return -1 if self._session is None else self._session.pgconn.socket

    def notified(self) -> list[str]:
        """What the server has said unasked since the last look."""
        found: list[str] = []
        if self._session is None:
            return found
        pg = self._session.pgconn
        try:
            pg.consume_input()
            while not pg.is_busy() and pg.get_result() is not None:
                pass  # of a statement that was only sent
            while (notice := pg.notifies()) is not None:
                found.append(notice.extra.decode())
        except _libpq_error() as error:
            self.close()
            raise StoreUnavailable(errors.UNREACHABLE) from error
        return found

    def close(self) -> None:
        """Ends the session; the next use opens another."""
        session, self._session = self._session, None
        self._sent = False
        if session is None:
            return
        if self._pid == os.getpid():
            session.close()
        else:
            _parents.append(session)

    def _take_sent(self, pg: PGconn, patience: Patience | None, until: float) -> None:
        if self._sent:
            self._answers(pg, 1, patience, until)
            self._sent = False

    def _open(self) -> PGconn:
        if self._pid != os.getpid():
            if self._session is not None:
                _parents.append(self._session)
            self._session, self._sent, self._pid = None, False, os.getpid()
        if self._session is not None:
            self._look(self._session.pgconn)
        if self._session is None:
            self._connect()
        assert self._session is not None
        return self._session.pgconn

    def _look(self, pg: PGconn) -> None:
        """Drops a session that has ended while nobody used it."""
        poll = select.poll()
        poll.register(pg.socket, select.POLLIN)
        # A last word of the server's may stand before its end.
        while self._session is not None and poll.poll(0):
            try:
                pg.consume_input()
            except _libpq_error():
                self.close()
            else:
                if pg.status == _bad():
                    self.close()

    def _connect(self) -> None:
        session = connect(self._url)
        try:
            self._begin(session)
        except BaseException as error:
            session.close()
            raise _ours(error) from error
        self._session = session

    def _begin(self, session: psycopg.Connection) -> None:
        pg = session.pgconn
        names, settings = zip(*self._settings, strict=True)
        values = (pg.backend_pid, names, settings)
        for fresh in (True, False):
            self._send(pg, [(_BEGIN, values)])
            (answer,) = self._answers(pg, 1, None, time.monotonic() + self._seconds)
            if fresh and sqlstate(answer) in errors.UNDEFINED:
                migrate(session, self.schema)
                continue
            break
        ((version, encoding, pid, _),) = _rows(answer)
        if fresh and int(version or 0) < schema.VERSION:
            migrate(session, self.schema)
        elif int(version or 0) > schema.VERSION:
            raise StoreUnavailable("postgres.schema: it is of a newer version of this package", transient=False)
        if encoding != "UTF8":
            raise StoreUnavailable("postgres.url: the database must have the encoding UTF8", transient=False)
        self.pooled = int(pid or 0) != pg.backend_pid

    def _send(self, pg: PGconn, statements: Sequence[tuple[str, Sequence[Value]]]) -> None:
        name = schema.quoted(self.schema)
        if len(statements) == 1:
            ((statement, values),) = statements
            pg.send_query_params(statement.replace("{s}", name).encode(), [encoded(value) for value in values])
            return
        pg.enter_pipeline_mode()
        for statement, values in statements:
            pg.send_query_params(statement.replace("{s}", name).encode(), [encoded(value) for value in values])
            pg.pipeline_sync()

    def _answers(self, pg: PGconn, count: int, patience: Patience | None, until: float) -> list[PGresult]:
        from psycopg.pq import ExecStatus, PipelineStatus

        piped = pg.pipeline_status != PipelineStatus.OFF
        found: list[PGresult] = []
        between = False
        while True:
            while not pg.is_busy():
                result = pg.get_result()
                if result is None:
                    if not piped:
                        return found
                    if between:
                        raise StoreUnavailable(errors.UNREACHABLE)
                    between = True
                    continue
                between = False
                if result.status != ExecStatus.PIPELINE_SYNC:
                    found.append(result)
                    continue
                count -= 1
                if not count:
                    pg.exit_pipeline_mode()
                    return found
            self._wait(pg, patience, until)

    def _wait(self, pg: PGconn, patience: Patience | None, until: float) -> None:
        poll = select.poll()
        while True:
            unsent = pg.flush()
            poll.register(pg.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
            if poll.poll(_LOOK_MS):
                break
            if patience is not None:
                patience(0)
            if time.monotonic() > until:
                raise StoreUnavailable(errors.NO_ANSWER)
        pg.consume_input()


def connect(url: str) -> psycopg.Connection:
    """A new session, without anything of ours in it."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        settings = {**_DEFAULTS, **conninfo_to_dict(url), "client_encoding": "utf8"}
    except psycopg.ProgrammingError as error:
        raise StoreUnavailable(
            "postgres.url: must be a connection URL, or keywords with values", transient=False
        ) from error
    try:
        conninfo = make_conninfo("", **settings)
        return psycopg.Connection.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise StoreUnavailable(errors.UNREACHABLE) from error


def encoded(value: Value) -> bytes | None:
    """A parameter in the server's text form."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int):
        return b"%d" % value
    return ("{" + ",".join([_element(item) for item in value]) + "}").encode()


def _element(item: str | int | None) -> str:
    if item is None:
        return "NULL"
    if isinstance(item, int):
        return str(item)
    return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'


def sqlstate(answer: PGresult) -> str | None:
    """The error's code, ``None`` where there is none."""
    from psycopg.pq import DiagnosticField, ExecStatus

    if answer.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        return None
    # Without a code it is libpq's own: the connection has ended.
    return (answer.error_field(DiagnosticField.SQLSTATE) or b"08006").decode()


def _rows(answer: PGresult) -> Rows:
    code = sqlstate(answer)
    if code is not None:
        raise errors.translated(code, answer.error_message.decode(errors="replace"))
    get = answer.get_value
    columns = range(answer.nfields)
    return [tuple([_text(get(row, column)) for column in columns]) for row in range(answer.ntuples)]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _libpq_error() -> type[Exception]:
    import psycopg

    return psycopg.Error


def _bad() -> int:
    from psycopg.pq import ConnStatus

    return ConnStatus.BAD


def _ours(error: BaseException) -> BaseException:
    return StoreUnavailable(errors.UNREACHABLE) if isinstance(error, _libpq_error()) else error
