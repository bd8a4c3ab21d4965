"""The settings of an HTTP server, and its limits on connections."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias
from wsgiref.handlers import format_date_time

import attrs

from trio_mcp._checks import check_count, check_text
from trio_mcp.http.framing import Fields
from trio_mcp.sockets.listening import cannot_listen

__all__ = ["BACKLOG", "KEEP_ALIVE", "Bound", "ServerLimits", "ServerSettings", "settings_at"]

BACKLOG: Final = 1000
"""How many connections may wait to be accepted.

An arbitrary choice: as many as may be open. Beyond it, the system drops the attempts of clients, which then wait longer
and longer between two of them: 15 seconds after a server took 15 seconds to start.
"""

KEEP_ALIVE: Final = 75
"""How many seconds an idle connection is kept, unless the settings say otherwise.

It exceeds the 60 seconds for which nginx and the load balancers of large clouds keep a connection by default: a server
that closes first may lose a request that is on its way, and a proxy must not repeat a POST."""

Bound: TypeAlias = tuple[str, socket.socket]
"""A scheme and the socket bound for it: ``http``, ``https``, or ``quic``, which no runner supports."""


def date_field() -> Fields:
    """Return the ``Date`` field of a response."""
    return [(b"date", format_date_time(time.time()).encode("ascii"))]


@attrs.frozen(kw_only=True)
class ServerSettings:
    """The settings of one server, for any runner.

    Attributes:
        bind: Binds the sockets. It gets the descriptors that a service manager has handed over, which replace the
            addresses of the settings if there are any, and raises OSError if an address can't be bound.
        tls: The TLS context of the sockets for ``https``.
        backlog: How many connections may wait to be accepted.
        response_fields: Returns the header fields that every response carries. It is called at most once a second.
        keep_alive_timeout: Seconds for which an idle connection is kept.
        keep_alive_requests: The number of requests after which a connection is closed.
        handshake_timeout: Seconds for a TLS handshake, which `ServerLimits.head_timeout` limits as well.
        read_timeout: Seconds for each wait for bytes; None for no limit.
        max_head: The maximum size of a request head, in bytes.
        root_path: The ``root_path`` of ASGI.
        server_names: The hosts that are served; empty for all.
        config: The hypercorn configuration from which the settings were made, if any.
        shared: Sockets that another process has bound and keeps, and on which its other child processes accept
            connections, too; they replace ``bind``.
    """

    bind: Callable[[list[int]], list[Bound]]
    tls: ssl.SSLContext | None = None
    backlog: int = BACKLOG
    response_fields: Callable[[], Fields] = date_field
    keep_alive_timeout: float = KEEP_ALIVE
    keep_alive_requests: int = 1000
    handshake_timeout: float = 60.0
    read_timeout: float | None = None
    max_head: int = 16 * 1024
    root_path: str = ""
    server_names: Sequence[str] = ()
    config: Any = None
    shared: Sequence[Bound] = ()


def settings_at(host: str, port: int) -> ServerSettings:
    """Return the settings of a server at one address.

    Raises:
        TypeError: If the host is not a string, or the port not an integer.
        ValueError: If the host is empty, or the port out of range.
    """
    check_text("host", host)
    check_count("port", port, least=0, most=65535)
    return ServerSettings(bind=partial(_bind, host.strip("[]"), port))


def _bind(host: str, port: int, inherited: list[int]) -> list[Bound]:
    # An IPv6 address needs brackets, to separate its colons from that of the port (RFC 3986, section 3.2.2).
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    sockets = []
    try:
        for descriptor in inherited:
            where = f"fd://{descriptor}"
            sockets.append(socket.socket(fileno=descriptor))
        if not inherited:
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            sockets.append(sock)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # With this option, a restarted server need not wait until the system has forgotten the connections of the
            # previous one.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
    except OSError as exc:
        for sock in sockets:
            sock.close()
        raise cannot_listen(where, exc) from None
    return [("http", sock) for sock in sockets]


@attrs.frozen
class ServerLimits:
    """Limits on the connections of one server.

    Attributes:
        connections: How many may be open at once; further ones get a 503 and are closed.
        write_timeout: Seconds that a peer may take to read 64 KiB once its buffers are full, before it is dropped.
        grace: Seconds that exchanges under way are given when the server ends.
        head_timeout: Seconds for a TLS handshake, and for the head of a request. The time for a head counts from its
            first byte, or, for the first head of a connection, from the beginning of the connection.
    """

    connections: int = 1000
    write_timeout: float = 30.0
    grace: float = 5.0
    head_timeout: float = 5.0
