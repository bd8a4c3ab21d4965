"""Opens a WebSocket, with a handshake that is authorized like any other HTTP request."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from functools import partial

from trio_mcp._checks import check_on_trio
from trio_mcp.errors import HttpError
from trio_mcp.http.client.auth import Auth, opened
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.http.headers import Headers
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE
from trio_mcp.link import Link
from trio_mcp.websocket.client import open_websocket

__all__ = ["http_url", "websocket_client"]


@contextlib.asynccontextmanager
async def websocket_client(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    auth: Auth | None = None,
    ssl_context: ssl.SSLContext | None = None,
    unix_socket: str | os.PathLike[str] | None = None,
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
    ping_interval: float = 15.0,
    ping_timeout: float = 60.0,
) -> AsyncIterator[Link]:
    """Connect to a server over a WebSocket, with the subprotocol ``mcp``; each attempt takes ten seconds at most.

    When the block ends, the messages handed over are sent and the WebSocket is closed, within a second. When
    cancelled, the WebSocket is closed at once. HTTP proxies are not used.

    Args:
        url: The server's URL, ``ws://`` or ``wss://``.
        headers: Sent with the handshake.
        auth: Signs in, and authorizes the handshake: see `trio_mcp.auth`.
        ssl_context: The TLS context for ``wss://``. The default trusts the system's certificates.
        unix_socket: The path of a Unix socket to connect to; the URL then only names the host and the path.
        max_message_size: The longest message accepted from the server, in bytes; a longer one ends the link.
        ping_interval: Seconds of silence after which the server gets a ping.
        ping_timeout: Seconds of silence after which the link is lost.

    Raises:
        AuthorizationError: If the server asks for an authorization that could not be obtained.
        HttpError: If the server refuses the handshake with an HTTP status.
        TransportError: If the server can't be reached, or accepts no WebSocket with this subprotocol.
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is invalid.
    """
    check_on_trio()
    connect = partial(
        open_websocket,
        url,
        ssl_context=ssl_context,
        unix_socket=unix_socket,
        max_message_size=max_message_size,
        ping_interval=ping_interval,
        ping_timeout=ping_timeout,
    )
    if auth is None:
        async with connect(headers) as link:
            yield link
        return
    given = HttpServerParameters(url, kind="ws", headers=headers or {}, auth=auth).headers
    server = http_url(url)
    async with opened(auth, server) as signer, contextlib.AsyncExitStack() as stack:
        assert signer is not None
        attempt = signer.attempt()
        while True:
            fields = {**given, **dict(await attempt.fields("GET", server))}
            try:
                link = await stack.enter_async_context(connect(fields))
                break
            except HttpError as exc:
                refusal = exc
            # This call comes after the `except` block, because inside that block a cancellation would replace the
            # error.
            if not await attempt.again(refusal.status, Headers(refusal.headers.items())):
                raise refusal
        yield link


def http_url(url: str) -> str:
    """Return the URL of a WebSocket server with the corresponding HTTP scheme: tokens are issued for that URL."""
    scheme, separator, rest = url.partition("://")
    return f"http{scheme[2:].lower()}{separator}{rest}" if scheme.lower() in ("ws", "wss") else url
