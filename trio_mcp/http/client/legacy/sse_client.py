"""The client of HTTP+SSE, the transport of 2024-11-05: messages come in on one stream, and go out in POSTs.

2024-11-05 `basic/transports`, HTTP with SSE. This module can be deleted once no servers of that revision are left.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final
from urllib.parse import urljoin

import trio

from trio_mcp._checks import check_on_trio
from trio_mcp._nursery import start
from trio_mcp.errors import RemoteProtocolError, TransportError
from trio_mcp.http.client.auth import Auth
from trio_mcp.http.client.origins import origin_of
from trio_mcp.http.client.posting import Remote, message_of, refusal_of
from trio_mcp.http.client.sending.sender import AsyncHttpClient
from trio_mcp.http.client.streamable import HttpLink
from trio_mcp.http.client.wire import http_wire
from trio_mcp.http.headers import EVENTS, MAX_URL, shown
from trio_mcp.http.sse import EventDecoder, ServerSentEvent
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE
from trio_mcp.jsonrpc.messages import Malformed, TransportFailure
from trio_mcp.link import Link
from trio_mcp.retrying import Backoff
from trio_mcp.stopwatch import current_stopwatch

__all__ = ["endpoint_url", "open_old_stream", "sse_client"]

ENDPOINT_TIMEOUT: Final = 10.0
"""Seconds that a server may take to say where to post messages (arbitrary): a server of a different kind may never say
where."""


@contextlib.asynccontextmanager
async def sse_client(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    auth: Auth | None = None,
    http_client: AsyncHttpClient | None = None,
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
) -> AsyncIterator[Link]:
    """Connect to a server over HTTP+SSE; `streamable_http_client` falls back to this transport by itself.

    If the event stream ends, the link is lost. When the block ends or is cancelled, the stream is closed.

    Args:
        url: The URL of the server's event stream.
        headers: Sent with each request.
        auth: Signs in, and authorizes each request: see `trio_mcp.auth`.
        http_client: An ``AsyncClient`` of httpx or httpx2; it is not closed.
        max_message_size: The longest event accepted from the server, in bytes.

    Raises:
        HttpError: If the response is not an event stream.
        TransportError: If the server can't be reached, or sends no endpoint.
        RemoteProtocolError: If the endpoint is malformed or leads to another origin.
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is invalid.
    """
    check_on_trio()
    async with http_wire(url, headers, http_client, auth) as wire:
        link = HttpLink(wire, max_message_size, Backoff())
        async with link.running():
            await open_old_stream(link.remote)
            yield link.link


async def open_old_stream(remote: Remote) -> None:
    """Switch a link to HTTP+SSE.

    Raises:
        TransportError: If the server has no event stream of that transport.
        RemoteProtocolError: If the endpoint that the server sends is invalid.
    """
    # A task of the link reads the stream, because the stream must outlive this call.
    remote.endpoint = await start(remote.nursery, partial(_follow_old_stream, remote))
    remote.answers_here = False


async def _follow_old_stream(remote: Remote, task_status: trio.TaskStatus[str]) -> None:
    """Open the stream, wait for the endpoint, then read events; the end of the stream is the end of the link."""
    shown_url, decoder, endpoint = remote.wire.shown, EventDecoder(remote.max_message_size), ""
    lost = TransportError(f"the server ended the event stream of {shown_url}")
    try:
        # The deadline is lifted when the endpoint has arrived: the stream lasts as long as the link.
        with current_stopwatch().limit(ENDPOINT_TIMEOUT) as opening:
            async with remote.wire.exchange("GET", {"Accept": EVENTS}) as response:
                if response.status != 200 or response.headers.media_type != EVENTS:
                    raise (await refusal_of(response)).error
                while chunk := await response.receive():
                    for event in decoder.feed(chunk):
                        if not endpoint:
                            # The deadline may have passed just as the event arrived; the deadline then wins.
                            await trio.lowlevel.checkpoint_if_cancelled()
                            endpoint = _endpoint(remote, event)
                            opening.deadline = float("inf")
                            task_status.started(endpoint)
                        elif (message := message_of(event)) is not None:
                            await remote.deliver(message)
                            del message  # without this, a long message would stay in memory
                        del event
        if opening.cancelled_caught:
            raise TransportError(f"{shown_url} sent no endpoint event within {ENDPOINT_TIMEOUT:g} seconds")
    # The error goes to the caller or to the session, and is not raised in the nursery, because an exception there would
    # cancel everything else.
    except TransportError as exc:
        lost = exc
    # If no endpoint has arrived, the link could not be opened, and the caller gets the error. Otherwise the link is
    # lost, and the session gets the error.
    if not endpoint:
        raise lost
    await remote.deliver(TransportFailure(lost))


def _endpoint(remote: Remote, event: ServerSentEvent | Malformed) -> str:
    if isinstance(event, Malformed) or event.event != "endpoint":
        raise RemoteProtocolError(f"the event stream of {remote.wire.shown} does not begin with an endpoint event")
    return endpoint_url(remote.wire.url, event.data)


def endpoint_url(stream_url: str, data: bytes) -> str:
    """Return the URL for POSTs that an ``endpoint`` event names (2024-11-05 `basic/transports`, HTTP with SSE).

    Raises:
        RemoteProtocolError: If the event is malformed, or leads to another origin, which would get our credentials.
    """
    try:
        if not 0 < len(data) <= MAX_URL:
            raise ValueError
        url = urljoin(stream_url, data.decode())
        same = origin_of(url) == origin_of(stream_url)
    except ValueError:
        raise RemoteProtocolError("the server's endpoint event has no valid URL, or one that is too long") from None
    if not same or any(character <= " " or character == "\x7f" for character in url):
        # Spaces and control characters are not allowed in a URL (RFC 3986), and could end up in the head of a request.
        raise RemoteProtocolError(f"the server's endpoint event leads elsewhere, to {shown(url)}; it is not followed")
    return url
