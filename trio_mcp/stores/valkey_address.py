"""The addresses of engines that speak the protocol of Valkey and Redis, as URLs give them."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

__all__ = ["SCHEMES", "EngineAddress", "is_engine"]

SCHEMES: Final = ("valkey", "valkeys", "redis", "rediss", "unix", "valkey+unix", "redis+unix")
"""The schemes of URLs; an ``s`` at the end stands for TLS."""

PORT: Final = 6379
MOST_DATABASES: Final = 10_000
"""The highest number of a database that is accepted (arbitrary); an engine has 16 by default."""

LONGEST: Final = 2000
"""The maximum length of a URL, in characters (arbitrary)."""

ESCAPES: Final = "in a password, write # as %23, / as %2F, and @ as %40"

FORM: Final = "write valkey://user:password@host:port/database, with valkeys for TLS, or unix:///path/of/the/socket"


def is_engine(place: object) -> bool:
    """Return whether a place is the URL of an engine, and not the path of a file."""
    return isinstance(place, str) and place.partition(":")[0].lower() in SCHEMES and ":/" in place


@attrs.frozen
class EngineAddress:
    """Where an engine is, and who connects to it.

    Attributes:
        host: The name or the address of its host; empty with a Unix socket.
        port: Its port; 0 with a Unix socket.
        path: The absolute path of its Unix socket, or empty.
        tls: Whether the connection is encrypted.
        database: The number of the database.
        user: The name of a user of the engine; None for its default user.
        password: The password, or None.
    """

    host: str
    port: int
    path: str
    tls: bool
    database: int
    user: str | None
    password: str | None = attrs.field(repr=False)

    @classmethod
    def parse(cls, url: object) -> EngineAddress:
        """Return the address in a URL: ``scheme://user:password@host:port/database``, or ``unix:///path?db=0``.

        Raises:
            TypeError: If it is not a string.
            ValueError: If it is not the URL of an engine. The message does not contain the password.
        """
        if not isinstance(url, str):
            raise TypeError(f"url must be a string, got {type(url).__name__}")
        scheme = url.partition(":")[0].lower()
        if scheme not in SCHEMES:
            # A mistyped scheme is shown, but nothing else of the URL, which may have a password.
            shown = f"{scheme!r:.40}" if "://" in url else "a text without one"
            raise ValueError(f"the scheme of url must be one of {', '.join(SCHEMES)}; got {shown}: {FORM}")
        if len(url) > LONGEST or any(each.isspace() or not each.isprintable() for each in url):
            raise _wrong(f"has blanks, control characters, or more than {LONGEST} characters")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise _wrong(f"has a host or a port that can't be read; {ESCAPES}") from None
        if parts.fragment:
            raise _wrong(f"has a fragment; {ESCAPES}")
        if scheme.endswith("unix") and parts.hostname:
            raise _wrong("has a host beside a path")
        user, password = (None if each is None else unquote(each) for each in (parts.username, parts.password))
        if user and password is None:
            raise _wrong("has a user without a password, or a password without a colon before it")
        if scheme.endswith("unix"):
            return cls("", 0, unquote(_socket(parts)), False, _database(_query(parts.query)), user or None, password)
        if parts.query:
            raise _wrong("has a query: the number of the database follows the host, as in valkey://host/0")
        if not parts.hostname:
            raise _wrong("has no host")
        if port == 0:
            raise _wrong("has the port 0")
        tls = scheme in ("valkeys", "rediss")
        return cls(parts.hostname, port or PORT, "", tls, _database(parts.path[1:]), user or None, password)

    def __str__(self) -> str:
        """Return the URL without user and password."""
        if self.path:
            return f"unix://{self.path}" + (f"?db={self.database}" if self.database else "")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"valkey{'s' if self.tls else ''}://{host}:{self.port}/{self.database}"


def _socket(parts: SplitResult) -> str:
    if not parts.path.startswith("/") or parts.path == "/":
        raise _wrong("has no absolute path of a socket, as in unix:///run/valkey/valkey.sock")
    return parts.path


def _query(query: str) -> str:
    name, _, number = query.partition("=")
    if query and name != "db":
        raise _wrong("has a query other than db=, as in unix:///run/valkey/valkey.sock?db=0")
    return number


def _database(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= MOST_DATABASES):
        raise _wrong(f"must name the database by a number from 0 to {MOST_DATABASES}")
    return int(text)


def _wrong(what: str) -> ValueError:
    return ValueError(f"url {what}: {FORM}")
