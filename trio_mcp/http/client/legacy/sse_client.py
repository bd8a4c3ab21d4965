"""The client's end of HTTP+SSE, the transport of 2024-11-05."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from trio_mcp.http.client.client_link import HttpClientLink
from trio_mcp.http.client.wire import http_wire
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE
from trio_mcp.link import Link
from trio_mcp.retrying import Backoff

__all__ = ["sse_client"]


@contextlib.asynccontextmanager
async def sse_client(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    http_client: Any = None,
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
) -> AsyncIterator[Link]:
    """Connect to a server over HTTP+SSE, which `streamable_http_client` finds out by itself where it has to.

    The end of the event stream is the loss of the link. When cancelled, or when the block ends, it is closed.

    Args:
        url: The server's event stream.
        headers: Sent with each request.
        http_client: An ``AsyncClient`` of httpx or httpx2; it is not closed.
        max_message_size: The longest event that is taken from the server, in bytes.

    Raises:
        HttpError: The server answered with something else than an event stream.
        TransportError: It can't be reached, or sent no endpoint.
        RemoteProtocolError: The endpoint is none, or leads to another origin.
        TypeError, ValueError: An argument is not what it should be.
    """
    async with http_wire(url, headers, http_client) as wire:
        link = HttpClientLink(wire, max_message_size, Backoff())
        async with link.running():
            await link.open_old_stream()
            yield link.link
