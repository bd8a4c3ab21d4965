"""The client's end of Streamable HTTP, for every revision, and of HTTP+SSE where a server speaks nothing newer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from trio_mcp.http.client.client_link import HttpClientLink
from trio_mcp.http.client.wire import http_wire
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE
from trio_mcp.link import Link
from trio_mcp.retrying import Backoff

__all__ = ["streamable_http_client"]


@contextlib.asynccontextmanager
async def streamable_http_client(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    http_client: Any = None,
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
    reconnect: Backoff | None = None,
) -> AsyncIterator[Link]:
    """Connect to a server over Streamable HTTP. Nothing is sent until the session sends something.

    Each request is a POST of its own, and what fails it fails that call only. A server of 2024-11-05 answers the
    handshake with 400, 404 or 405; then the link goes on over HTTP+SSE.

    When the block ends, what is on its way has a moment to arrive, and a session of the handshake era is ended with a
    DELETE. When cancelled, the connections are closed at once, without that.

    Args:
        url: The server's MCP endpoint.
        headers: Sent with each request, for example ``Authorization``.
        http_client: An ``AsyncClient`` of httpx or httpx2, for TLS, proxies, authentication and more; it is not
            closed. Its read timeout is not used, as the session has its own.
        max_message_size: The longest JSON text, or event of a stream, that is taken from the server, in bytes.
        reconnect: How often and when to go on with a stream of the handshake era that broke.

    Raises:
        TypeError, ValueError: An argument is not what it should be.
    """
    async with http_wire(url, headers, http_client) as wire:
        link = HttpClientLink(wire, max_message_size, reconnect or Backoff())
        async with link.running():
            yield link.link
