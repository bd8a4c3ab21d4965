"""HTTP+SSE, the transport of 2024-11-05, from the client's side: one stream for all that comes, POSTs for what goes.

2024-11-05 `basic/transports`, HTTP with SSE. This file can go when nobody speaks that, together with `sse_client`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from trio_mcp.errors import HttpError, RemoteProtocolError, TransportError
from trio_mcp.http.client.legacy.events import is_event_stream
from trio_mcp.http.client.rules import endpoint_url, stream_headers
from trio_mcp.http.client.wire import HttpResponse, HttpWire
from trio_mcp.http.sse import EventDecoder, ServerSentEvent
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.messages import Failure, Incoming, Malformed

__all__ = ["OldStream"]

ENDPOINT_TIMEOUT: Final = 10.0
"""Seconds for a server to say where messages are to be posted."""


class OldStream:
    """The stream of one connection.

    Args:
        wire: Where the connection is made.
        max_message_size: The longest event that is taken, in bytes.
        deliver: Takes what comes, and in the end a `Failure`.
        failure: Reads an answer that is no stream.

    Attributes:
        endpoint: Where messages are posted.
    """

    def __init__(
        self,
        wire: HttpWire,
        max_message_size: int,
        deliver: Callable[[Incoming], Awaitable[None]],
        failure: Callable[[HttpResponse], Awaitable[HttpError]],
    ) -> None:
        self._wire = wire
        self._decoder = EventDecoder(max_message_size)
        self._deliver = deliver
        self._failure = failure
        self.endpoint = ""

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Open the stream, wait for the endpoint, then read; the end of the stream is the end of the link.

        Raises:
            TransportError: There is no such stream.
            RemoteProtocolError: What the server sent as its endpoint is none.
        """
        lost = TransportError(f"the server ended the event stream of {self._wire.shown}")
        try:
            with trio.CancelScope(deadline=trio.current_time() + ENDPOINT_TIMEOUT) as opening:
                async with self._wire.exchange("GET", stream_headers()) as response:
                    if not is_event_stream(response):
                        raise await self._failure(response)
                    while chunk := await response.receive():
                        for event in self._decoder.feed(chunk):
                            if self.endpoint:
                                await self._take(event)
                                continue
                            self.endpoint = self._read_endpoint(event)
                            opening.deadline = float("inf")
                            task_status.started()
            if opening.cancelled_caught:
                text = f"{self._wire.shown} sent no endpoint event within {ENDPOINT_TIMEOUT:g} seconds"
                raise TransportError(text)
        except TransportError as exc:
            lost = exc
        if not self.endpoint:
            raise lost
        await self._deliver(Failure(lost))

    def _read_endpoint(self, event: ServerSentEvent | Malformed) -> str:
        if isinstance(event, Malformed) or event.event != "endpoint":
            raise RemoteProtocolError(f"the event stream of {self._wire.shown} does not begin with an endpoint event")
        return endpoint_url(self._wire.url, event.data)

    async def _take(self, event: ServerSentEvent | Malformed) -> None:
        if isinstance(event, Malformed):
            await self._deliver(event)
        elif event.event == "message" and event.data:
            await self._deliver(decode(event.data))
