"""The client's end of a WebSocket: connects to a server, and does the TLS and WebSocket handshakes."""

from __future__ import annotations

import contextlib
import math
import os
import re
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import SplitResult, quote

import trio
from trio_websocket import ConnectionRejected, wrap_client_stream
from wsproto.utilities import RemoteProtocolError

from trio_mcp._checks import (
    FilledText,
    as_written,
    check_count,
    check_headers,
    check_seconds,
    check_url,
)
from trio_mcp._nursery import background_nursery, closing
from trio_mcp._platform import check_unix_sockets
from trio_mcp._secrets import without_credentials
from trio_mcp.errors import HttpError, HttpTrouble, TransportError
from trio_mcp.lines import CHUNK
from trio_mcp.link import Link, connect_problem
from trio_mcp.tls import tls_problem
from trio_mcp.websocket.link import WebSocketLink
from trio_mcp.websocket.sockets import SUBPROTOCOL, TrioSocket
from trio_mcp.websocket.stream import WatchedStream

__all__ = ["open_websocket"]

OPENING_TIMEOUT: Final = 10.0
"""How many seconds connecting may take, including the TLS and WebSocket handshakes.

An arbitrary choice; there is a limit because another kind of server may never respond.
"""

DEFAULT_PORTS: Final = {"ws": 80, "wss": 443}

# The header fields that callers must not set: the handshake sets Connection and Upgrade itself (RFC 6455, section 4.1),
# and has no body, so Content-Length and Transfer-Encoding would be wrong.
OWN_HEADERS: Final = ("connection", "upgrade", "content-length", "transfer-encoding")

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2}) ")
_TROUBLES: dict[int, HttpTrouble] = {401: "unauthorized", 403: "forbidden", 503: "busy"}

# The statuses of a server that has no WebSocket at this URL; most likely it serves HTTP there.
_TROUBLES |= dict.fromkeys((200, 400, 404, 405, 406, 415, 426, 501), "not_websocket")


@contextlib.asynccontextmanager
async def open_websocket(
    url: str,
    headers: Mapping[str, str] | None,
    *,
    ssl_context: ssl.SSLContext | None,
    unix_socket: str | os.PathLike[str] | None,
    max_message_size: int,
    ping_interval: float,
    ping_timeout: float,
) -> AsyncIterator[Link]:
    """Connect to a server over a WebSocket, as `websocket_client` does, but without its ``auth``."""
    target = _Target(url, headers, ssl_context, unix_socket)
    check_count("max_message_size", max_message_size)
    check_seconds("ping_interval", ping_interval)
    check_seconds("ping_timeout", ping_timeout)
    raw: trio.abc.Stream | None = None
    with trio.CancelScope(deadline=trio.current_time() + OPENING_TIMEOUT) as opening:
        raw = await target.connect()
    if raw is None:
        raise target.too_slow()
    # The stream is closed forcefully: by then `hang_up` has closed an open WebSocket in an orderly way, and after a
    # failed handshake there is nothing to wait for. The stream is closed outside the nursery, because the reader in the
    # nursery uses it to the end.
    async with closing(partial(trio.aclose_forcefully, raw)), background_nursery() as nursery:
        stream = WatchedStream(raw, max_message_size=max_message_size, is_client=True)
        socket = TrioSocket(stream, "server", ping_interval, ping_timeout, math.inf)
        # One scope can't surround both steps of the opening: the nursery begins in between, and has to stay open for
        # the caller's block. So a second scope uses the deadline of the first.
        with trio.CancelScope(deadline=opening.deadline) as opening:
            await target.secure(raw)
            failure = await socket.open(partial(target.shake_hands, stream), nursery)
        # The deadline is checked first: if it has cut off the handshake, `failure` is unbound.
        if opening.cancelled_caught:
            raise target.too_slow()
        if failure is not None:
            raise target.refusal(failure, stream) from None
        # A server need not name a subprotocol (RFC 6455, section 4.2.2), and wsproto accepts that: it refuses only a
        # subprotocol that was not offered.
        if socket.subprotocol != SUBPROTOCOL:
            raise TransportError(
                f"{target.shown} has a WebSocket, but not for MCP: it did not accept the subprotocol {SUBPROTOCOL!r}"
            )
        async with WebSocketLink(socket).running() as link:
            yield link


class _Target:
    """The server to connect to, with arguments that have been checked.

    Args:
        url: The server's URL.
        headers: The header fields to send with the handshake.
        ssl_context: How to check the server's certificate; None for the system's trust store.
        unix_socket: The path of a Unix socket to connect to; None for TCP.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None,
        ssl_context: ssl.SSLContext | None,
        unix_socket: str | os.PathLike[str] | None,
    ) -> None:
        parts = check_url(url, tuple(DEFAULT_PORTS))
        check_headers(headers or {})
        # Header names are case-insensitive (RFC 9110, section 5.1), so they are compared in lower case.
        given = {name.lower(): value for name, value in (headers or {}).items()}
        for name in given:
            if name in OWN_HEADERS or name.startswith("sec-websocket-"):
                raise ValueError(f"headers must not contain {name!r}, which the handshake sets itself")
        # A ws URI has no user name (RFC 6455, section 3). Ignoring one would drop credentials silently.
        if parts.username is not None:
            raise ValueError("url must not contain a user name: pass headers={'Authorization': …}")
        if ssl_context is not None and not isinstance(ssl_context, ssl.SSLContext):
            raise TypeError(f"ssl_context must be an ssl.SSLContext, got {type(ssl_context).__name__}")
        if ssl_context is not None and parts.scheme != "wss":
            raise ValueError("ssl_context can be used only if the URL begins with wss://")
        self._parts = parts
        self._tls = parts.scheme == "wss"
        self._ssl_context = ssl_context
        if unix_socket is not None:
            check_unix_sockets()
        self._path = None if unix_socket is None else os.fspath(unix_socket)
        self._host = _ascii(parts.hostname or "")
        self._port = parts.port or DEFAULT_PORTS[parts.scheme]
        shown_host = f"[{self._host}]" if ":" in self._host else self._host
        # The Host field contains the port only if that is not the default one (RFC 6455, section 4.1).
        named = shown_host if self._port == DEFAULT_PORTS[parts.scheme] else f"{shown_host}:{self._port}"
        # A Host that the caller has passed is removed from the other headers: trio-websocket would send it as a second
        # one, and a server must refuse two (RFC 9112, section 3.2).
        self._authority = given.pop("host", named)
        self._headers = [(name.encode(), value.encode()) for name, value in given.items()]
        # The query is not shown, because it may contain a secret.
        secret = isinstance(url, FilledText)
        self.shown = as_written(url).partition("?")[0] if secret else f"{parts.scheme}://{named}{parts.path}"
        self._where = self.shown if self._path is None else f"{self.shown} on the socket {self._path}"

    async def connect(self) -> trio.abc.Stream:
        """Connect, without any handshake.

        Raises:
            TransportError: If the connection can't be made.
        """
        try:
            stream: trio.SocketStream = (
                await trio.open_tcp_stream(self._host, self._port)
                if self._path is None
                else await trio.open_unix_socket(self._path)
            )
        except (OSError, ValueError) as exc:  # ValueError: a path or a host that can't exist
            raise TransportError(f"can't connect to {self._where}: {connect_problem(exc)}") from exc
        if not self._tls:
            return stream
        context = self._ssl_context or ssl.create_default_context()
        # `https_compatible` is set, because a WebSocket ends with a close frame, and many servers send no TLS
        # close_notify after that frame.
        return trio.SSLStream(stream, context, server_hostname=self._host, https_compatible=True)

    async def secure(self, stream: trio.abc.Stream) -> None:
        """Do the TLS handshake, if the URL begins with ``wss://``.

        Raises:
            TransportError: If the handshake fails.
        """
        if isinstance(stream, trio.SSLStream):
            try:
                # The handshake is not left to the first write, because trio-websocket would report a bad certificate as
                # a closed connection.
                await stream.do_handshake()
            except trio.BrokenResourceError as exc:
                raise TransportError(
                    f"the TLS handshake with {self._where} failed: {tls_problem(str(exc.__cause__ or exc), 'ws://')}"
                ) from exc

    async def shake_hands(self, stream: WatchedStream, nursery: trio.Nursery) -> Any:
        """Do the WebSocket handshake; trio-websocket starts its reader in the nursery."""
        given: Any = stream
        return await wrap_client_stream(
            nursery,
            given,
            self._authority,
            _resource(self._parts),
            subprotocols=[SUBPROTOCOL],
            extra_headers=list(self._headers),
            # trio-websocket's own limit is switched off, because it counts characters, and when it is exceeded, the
            # messages in the queue are dropped. Instead, `Frames` limits messages before they are parsed.
            max_message_size=2**63,
            receive_buffer_size=CHUNK,
        )

    def too_slow(self) -> TransportError:
        """Return the error for a server that does not respond in time."""
        return TransportError(f"{self.shown} did not respond within {OPENING_TIMEOUT:g} seconds")

    def refusal(self, failure: Exception, stream: WatchedStream) -> TransportError:
        """Return the error for a handshake that has failed."""
        cause: BaseException | None = failure
        # If the parser has refused something, trio-websocket fails once more while it responds to that, so the parser's
        # exception is looked for.
        while cause is not None and not isinstance(cause, (RemoteProtocolError, ConnectionRejected)):
            cause = cause.__context__
        if isinstance(cause, ConnectionRejected):
            return self._refused(cause.status_code, cause.headers, cause.body or b"")
        # If a refusal has a body that only the end of the connection ends, trio-websocket does not report the refusal,
        # so its status is read from the bytes.
        status = _STATUS.match(stream.refusal)
        if cause is None and status is not None:
            return self._refused(int(status[1]), (), stream.refusal.partition(b"\r\n\r\n")[2])
        hint = "" if self._tls else "; does its URL begin with wss://?"
        if cause is None:
            how = stream.broken or "it closed the connection"
            return TransportError(f"{self.shown} did not respond to the WebSocket handshake: {how}{hint}")
        return TransportError(f"{self.shown} is not a WebSocket of an MCP server: {cause}{hint}")

    def _refused(self, status: int, fields: Iterable[tuple[bytes, bytes]], body: bytes) -> HttpError:
        reason = ""
        with contextlib.suppress(ValueError):  # a server may use unknown statuses
            reason = HTTPStatus(status).phrase
        sent = [(name.decode(), value.decode()) for name, value in self._headers]
        # Latin-1 has a character for each byte, so decoding the server's headers can't fail.
        headers = {
            name.decode("latin-1").lower(): without_credentials(value, sent).decode("latin-1") for name, value in fields
        }
        excerpt = without_credentials(body, sent)[:500].decode("utf-8", "replace")
        return HttpError(f"GET {self.shown}", status, reason, headers, excerpt, _TROUBLES.get(status, "refused"))


def _ascii(host: str) -> str:
    """Return a host name in ASCII, as it is sent.

    Raises:
        ValueError: If the name can't be encoded.
    """
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError as exc:
        raise ValueError(f"the host name in url is not valid: {exc}") from None


def _resource(parts: SplitResult) -> str:
    # A request must be in ASCII. Characters that are already percent-encoded stay as they are.
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    return path + (f"?{quote(parts.query, safe='/%:@!$&()*+,;=~-._?' + chr(39))}" if parts.query else "")
