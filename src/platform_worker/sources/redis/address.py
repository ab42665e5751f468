"""What a URL says: ``redis://[user[:password]@]host[:port][/db]``, ``rediss://…`` for TLS, ``unix://[…@]/path[?db=N]``.

Read by hand: ``urllib.parse`` would cost every child more than the whole connection.
"""

from __future__ import annotations

from platform_worker.jobs.store import StoreUnavailable
from platform_worker.value import Value

DEFAULT_PORT = 6379


class Address(Value):
    """Where a server is and who we are there. ``path`` is of a unix socket; with it ``host`` is empty."""

    host: str
    port: int
    path: str
    tls: bool
    database: int
    user: str
    password: str
    ca_file: str = ""


def parse(url: str) -> Address:
    """The address; ``StoreUnavailable`` with the rule where the URL is off it."""
    try:
        return _parse(url)
    except ValueError as error:
        rule = "redis.url: must be redis://, rediss:// or unix://, [user:password@], host[:port][/database] or a path"
        raise StoreUnavailable(rule, transient=False) from error


def _parse(url: str) -> Address:
    scheme, found, rest = url.partition("://")
    if not found or scheme not in ("redis", "rediss", "unix"):
        raise ValueError("scheme")
    rest, _, query = rest.partition("?")
    options = dict(pair.partition("=")[::2] for pair in query.split("&") if pair)
    login, at, place = rest.rpartition("@")
    user, _, password = login.partition(":") if at else ("", "", "")
    database = options.pop("db", "0")
    ca_file = _decoded(options.pop("ssl_ca_certs", ""))
    if options:
        raise ValueError("options")
    host, port, path = "", DEFAULT_PORT, ""
    if scheme == "unix":
        path = _decoded(place)
    else:
        where, _, number = place.partition("/")
        database = number or database
        host, port = _host(where)
    if not (host or path):
        raise ValueError("host")
    return Address(
        host=host,
        port=port,
        path=path,
        tls=scheme == "rediss",
        database=_number(database),
        user=_decoded(user),
        password=_decoded(password),
        ca_file=ca_file,
    )


def _host(where: str) -> tuple[str, int]:
    if where.startswith("["):
        host, _, rest = where[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = where.partition(":")
    number = _number(port) if port else DEFAULT_PORT
    if not 0 < number < 65536:
        raise ValueError("port")
    return _decoded(host), number


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise ValueError("number")
    return int(text)


def _decoded(text: str) -> str:
    first, *others = text.split("%")
    parts = [first.encode()]
    for other in others:
        parts.append(bytes.fromhex(other[:2]) + other[2:].encode())
    return b"".join(parts).decode()
