"""Hypercorn's HTTP/2, hardened so that a problem on one stream affects neither the other streams nor the server.

Hypercorn 0.18 leaves these gaps:

* If a peer never opens a stream's window, the request waits forever, even after the connection has ended, while its
  data piles up.
* Data on a stream whose response has ended ends the connection, and so does a path that is not ASCII.
* After a number of requests the connection ends at once, with the requests under way. This module sets no such limit.
* A stream that the peer has reset is never forgotten, and keeps the connection from becoming idle.
* The peer decides how many header fields are remembered to compress later ones.
* A request that is cancelled while its head is being written ends the connection, or drops the data of other requests.
* When the server ends, the last response is sent without its end.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import h2.events
import trio
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from hypercorn.events import Closed, Event, Updated
from hypercorn.protocol.events import Body, EndBody, Event as StreamEvent, Request, Response, StreamClosed
from hypercorn.protocol.h2 import BUFFER_LOW_WATER, H2Protocol, StreamBuffer
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.utils import filter_pseudo_headers
from priority.priority import DeadlockError, MissingStreamError

from trio_mcp.http.framing import MAX_FRAMING, TOKEN
from trio_mcp.http.runner.wire import PIECE

__all__ = ["Http2"]

FRAME_HEAD = 9
"""The size of a frame's header, in bytes (RFC 9113, section 4.1)."""

MAX_TABLE = 4096
"""The maximum size of the compression's table, in bytes: HPACK's default, even if the client allows more.

The encoder searches the table for every field that it writes."""

_TOKEN = re.compile(TOKEN)


class Http2(H2Protocol):
    """The HTTP/2 protocol of one connection.

    Args:
        given: The arguments of hypercorn's class.
        write_timeout: Seconds that the peer may take to open the window for `PIECE` bytes on a stream.

    Attributes:
        refusing: Whether new requests are refused because the server is ending.
    """

    has_unread_body = False  # over HTTP/2, unread data never delays the end of the connection

    def __init__(self, *given: Any, write_timeout: float) -> None:
        super().__init__(*given)
        self._write_timeout = write_timeout
        self.refusing = False

    async def handle(self, event: Event) -> None:
        await super().handle(event)
        if isinstance(event, Closed):
            for buffer in tuple(self.stream_buffers.values()):
                # Nothing will empty the buffer any more, so wake the request that waits for that. Hypercorn closes the
                # streams, but not their buffers.
                await buffer.close()

    async def send_task(self) -> None:
        """Send the queued data of all streams, until the connection is closed.

        Requests never write by themselves: one that is cancelled half-way would break the connection.
        """
        while not self.closed:
            try:
                stream_id = next(self.priority)
            except DeadlockError:  # every stream is blocked
                await self._flush()
                await self.has_data.wait()
                await self.has_data.clear()
            else:
                await self._send_data(stream_id)

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, Response):
            fields = [(b":status", b"%d" % event.status_code), *event.headers, *self.config.response_headers("h2")]
            with contextlib.suppress(ProtocolError):  # the stream may have ended in the meantime
                self.connection.send_headers(event.stream_id, fields)
            # Hypercorn would flush here, in the task of the request, which may be cancelled. HPACK's state and the
            # order of frames belong to the connection, so all bytes from h2 must be sent: this task only wakes the
            # sender.
            await self.has_data.set()
            return
        if not isinstance(event, (Body, EndBody)):
            await super().stream_send(event)
            return
        # If a piece can't be pushed within the timeout, the stream is given up: `push` waits for the peer's window.
        for piece in _pieces(event):
            with trio.move_on_after(self._write_timeout) as waiting:
                await super().stream_send(piece)
            if waiting.cancelled_caught:
                await self._give_up(event.stream_id, ErrorCodes.CANCEL)
                return

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            if self.closed:
                return
            if isinstance(event, h2.events.RequestReceived) and not _can_be_served(event):
                await self._reset(event.stream_id, ErrorCodes.PROTOCOL_ERROR)
            elif isinstance(event, h2.events.RequestReceived) and not self.refusing:
                # Hypercorn itself would refuse the request as soon as the connection is to end, which it does when it
                # has no stream any more.
                await self._create_stream(event)
                await self.send(Updated(idle=False))
            elif isinstance(event, h2.events.RequestReceived):
                # RFC 9113, section 8.7: this code tells the client that the request was not processed and can be
                # sent again, elsewhere.
                await self._reset(event.stream_id, ErrorCodes.REFUSED_STREAM)
            elif isinstance(event, h2.events.DataReceived) and event.stream_id not in self.streams:
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if event.stream_id not in self.stream_buffers:
                    # RFC 9113, section 8.1: NO_ERROR asks the client to stop sending; the response has been sent, and
                    # didn't need the rest of the request.
                    await self._reset(event.stream_id, ErrorCodes.NO_ERROR)
            elif isinstance(event, h2.events.DataReceived) and self._is_mostly_framing(event):
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                await self._give_up(event.stream_id, ErrorCodes.ENHANCE_YOUR_CALM)
            else:
                await super()._handle_events([event])
            # The size of the encoder's table is limited, because h2 adopts whatever size the client allows.
            if isinstance(event, h2.events.RemoteSettingsChanged):
                encoder = self.connection.encoder
                encoder.header_table_size = min(encoder.header_table_size, MAX_TABLE)
            if isinstance(event, h2.events.StreamReset):
                # `super` has closed the stream, but has kept its buffer, and has not noticed that the connection may
                # be idle now.
                await self._forget(event.stream_id)
                await self.send(Updated(idle=self.idle))
        # The acknowledgements sent above are flushed here, because hypercorn flushes only after the events that it
        # handles itself.
        await self._flush()

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
        # Unlike hypercorn's method, this one opens no WebSocket, uses a `_Buffer`, leaves the HTTP method as it is
        # (which is case-sensitive: RFC 9110, section 9.1), and does not end the connection after a number of requests.
        stream_id, fields = request.stream_id, dict(request.headers)
        stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            stream_id,
        )
        self.streams[stream_id] = stream
        self.stream_buffers[stream_id] = _Buffer(self.context.event_class)
        self.priority.insert_stream(stream_id)
        self.priority.block(stream_id)  # blocked until there is something to send
        await stream.handle(
            Request(
                stream_id=stream_id,
                headers=filter_pseudo_headers(request.headers),
                http_version="2",
                method=fields[b":method"].decode(),
                raw_path=fields[b":path"],
                state=self.connection_state,
            )
        )
        await self.context.mark_request()
        if stream.closed:
            # Hypercorn has refused a host that is not in `server_names`, but has not reported the end of the exchange.
            await self.stream_send(StreamClosed(stream_id=stream_id))

    async def _send_data(self, stream_id: int) -> None:
        buffer = self.stream_buffers.get(stream_id)
        with contextlib.suppress(KeyError, MissingStreamError):  # the stream may have been forgotten in the meantime
            await super()._send_data(stream_id)
        if buffer is not None and stream_id not in self.stream_buffers:
            await buffer.close()  # the end has been sent: wake the request that waits for that

    async def _priority_updated(self, event: h2.events.PriorityUpdated) -> None:
        """Ignore the event: RFC 9113, section 5.3.2, deprecates priorities."""

    def _is_mostly_framing(self, event: h2.events.DataReceived) -> bool:
        """Return whether a body arrives in too many small frames, each of which costs time (RFC 9113, section 10.5)."""
        buffer = self.stream_buffers.get(event.stream_id)
        if not isinstance(buffer, _Buffer):
            return False  # the response on the stream has ended
        # The flow-controlled length includes padding. Each byte of content allows a quarter of a byte of framing.
        buffer.framing += FRAME_HEAD + event.flow_controlled_length - len(event.data) * 5 // 4
        return buffer.framing > MAX_FRAMING

    async def _give_up(self, stream_id: int, code: ErrorCodes) -> None:
        """Reset a stream, cancel its request, and send nothing more on it."""
        await self._reset(stream_id, code)
        await self._close_stream(stream_id)
        await self._forget(stream_id)
        await self.send(Updated(idle=self.idle))

    async def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        with contextlib.suppress(ProtocolError):  # the stream may have ended already
            self.connection.reset_stream(stream_id, code)
        await self.has_data.set()

    async def _forget(self, stream_id: int) -> None:
        """Drop the data queued on a stream, and wake the request that waits for it to be sent."""
        buffer = self.stream_buffers.pop(stream_id, None)
        if buffer is not None:
            self.priority.remove_stream(stream_id)
            await buffer.close()


class _Buffer(StreamBuffer):
    """The data queued on a stream.

    There are two differences from hypercorn's buffer: a request that adds data continues when there is room again, not
    whenever the sender has tried; and a request that waits for the end continues only when the end has been sent,
    because the connection may be closed right after that.

    Attributes:
        framing: Bytes received on the stream that were not content, less a quarter of the content.
    """

    framing = 0

    async def pop(self, max_length: int) -> bytes:
        # Unlike hypercorn's method, this one does not set `_is_empty`: `close` sets it once the end of the stream has
        # been sent.
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < BUFFER_LOW_WATER:
            await self._paused.set()
        return data


def _pieces(event: Body | EndBody) -> Iterator[Body | EndBody]:
    """Yield an event's data in pieces, each of which has its own timeout and is copied only when its turn comes."""
    if isinstance(event, EndBody) or len(event.data) <= PIECE:
        yield event
        return
    data: Any = memoryview(event.data)
    for start in range(0, len(data), PIECE):
        yield Body(event.stream_id, data[start : start + PIECE])


def _can_be_served(request: h2.events.RequestReceived) -> bool:
    # h2 has checked the pseudo-header fields, but accepts any bytes as a method or a path. CONNECT would make hypercorn
    # open a WebSocket (RFC 8441).
    fields = dict(request.headers)
    method, path = fields[b":method"], fields.get(b":path")
    return _TOKEN.fullmatch(method) is not None and method != b"CONNECT" and path is not None and path.isascii()
