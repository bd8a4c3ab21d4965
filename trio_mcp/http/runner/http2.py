"""HTTP/2 as hypercorn speaks it, hardened: what happens on one stream costs neither the others nor the server anything.

Hypercorn 0.18 leaves this open:

* A peer that gives a stream no window holds its request forever, even after the connection has ended, and what it is
  sent piles up.
* What arrives on a stream that has been answered ends the connection, and so does a path that is not ASCII.
* After a number of requests the connection ends at once, with the requests that are under way. Here they have no limit.
* A stream that the peer has reset is never forgotten, and keeps the connection from being idle.
* The fields that are remembered, to write them shorter, are as many as the peer likes.
* A request that is cancelled while its head is being written ends the connection, or takes what others wait to send.
* As the server ends, the last answer goes without its end.
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
from hypercorn.protocol.events import Body, EndBody, Request, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import BUFFER_LOW_WATER, H2Protocol, StreamBuffer
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.utils import filter_pseudo_headers
from priority.priority import DeadlockError, MissingStreamError

__all__ = ["MAX_FRAMING", "PIECE", "Http2"]

PIECE = 64 * 1024
"""Bytes that a peer has the whole write timeout to take."""

MAX_FRAMING = 256 * 1024
"""Bytes by which the framing of a body may exceed a quarter of its content: each chunk, or frame, costs time."""

FRAME_HEAD = 9

MAX_TABLE = 4096
"""Bytes of the fields that are remembered for a connection, to write them shorter, whatever the client takes: each one
that is sent is looked for in all of them."""

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, section 5.6.2


class Http2(H2Protocol):
    """The protocol of one connection.

    Args:
        given: What hypercorn's takes.
        write_timeout: Seconds that the peer may take to open the window for `PIECE` bytes on a stream.
    """

    def __init__(self, *given: Any, write_timeout: float) -> None:
        super().__init__(*given)
        self._write_timeout = write_timeout

    async def handle(self, event: Event) -> None:
        await super().handle(event)
        if isinstance(event, Closed):
            for buffer in tuple(self.stream_buffers.values()):
                await buffer.close()  # nobody empties it any more: whoever waits for that goes on

    async def send_task(self) -> None:
        """Send what waits. No request does that itself: cancelled half-way it would take the connection along."""
        while not self.closed:
            try:
                stream_id = next(self.priority)
            except DeadlockError:
                await self._flush()
                await self.has_data.wait()
                await self.has_data.clear()
            else:
                await self._send_data(stream_id)

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, Response):
            fields = [(b":status", b"%d" % event.status_code), *event.headers, *self.config.response_headers("h2")]
            with contextlib.suppress(ProtocolError):  # the stream has ended meanwhile
                self.connection.send_headers(event.stream_id, fields)
            await self.has_data.set()
            return
        if not isinstance(event, (Body, EndBody)):
            await super().stream_send(event)
            return
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
            elif isinstance(event, h2.events.RequestReceived) and self.context.terminated.is_set():
                await self._reset(event.stream_id, ErrorCodes.REFUSED_STREAM)  # RFC 9113, 8.7: it may be sent again
            elif isinstance(event, h2.events.DataReceived) and event.stream_id not in self.streams:
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if event.stream_id not in self.stream_buffers:
                    # RFC 9113, 8.1: the answer, which has been sent, does not need the rest of the request.
                    await self._reset(event.stream_id, ErrorCodes.NO_ERROR)
            elif isinstance(event, h2.events.DataReceived) and self._is_mostly_framing(event):
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                await self._give_up(event.stream_id, ErrorCodes.ENHANCE_YOUR_CALM)
            else:
                await super()._handle_events([event])
            if isinstance(event, h2.events.RemoteSettingsChanged):
                encoder = self.connection.encoder
                encoder.header_table_size = min(encoder.header_table_size, MAX_TABLE)
            if isinstance(event, h2.events.StreamReset):
                await self._forget(event.stream_id)
                await self.send(Updated(idle=self.idle))
        await self._flush()

    async def _create_stream(self, request: h2.events.RequestReceived) -> None:
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
        self.priority.block(stream_id)
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

    async def _send_data(self, stream_id: int) -> None:
        buffer = self.stream_buffers.get(stream_id)
        with contextlib.suppress(KeyError, MissingStreamError):  # it has been forgotten meanwhile
            await super()._send_data(stream_id)
        if buffer is not None and stream_id not in self.stream_buffers:
            await buffer.close()  # its end is sent: whoever waits for that goes on

    async def _priority_updated(self, event: h2.events.PriorityUpdated) -> None:
        """Ignore it: RFC 9113, 5.3.2, has done away with it."""

    def _is_mostly_framing(self, event: h2.events.DataReceived) -> bool:
        """Whether a body has come in frames that are too small: each costs time (RFC 9113, 10.5)."""
        buffer = self.stream_buffers.get(event.stream_id)
        if not isinstance(buffer, _Buffer):
            return False  # it has been answered
        buffer.framing += FRAME_HEAD + event.flow_controlled_length - len(event.data) * 5 // 4
        return buffer.framing > MAX_FRAMING

    async def _give_up(self, stream_id: int, code: ErrorCodes) -> None:
        """Reset a stream; its request is cancelled, and nothing is sent on it any more."""
        await self._reset(stream_id, code)
        await self._close_stream(stream_id)
        await self._forget(stream_id)
        await self.send(Updated(idle=self.idle))

    async def _reset(self, stream_id: int, code: ErrorCodes) -> None:
        with contextlib.suppress(ProtocolError):  # it has ended already
            self.connection.reset_stream(stream_id, code)
        await self.has_data.set()

    async def _forget(self, stream_id: int) -> None:
        """Drop what waits to be sent on a stream; whoever waits for it to be sent goes on."""
        buffer = self.stream_buffers.pop(stream_id, None)
        if buffer is not None:
            self.priority.remove_stream(stream_id)
            await buffer.close()


class _Buffer(StreamBuffer):
    """What waits to be sent on a stream.

    Whoever adds to it goes on when some was sent, not whenever that was tried. Whoever waits for its end goes on when
    that was sent: the connection may be closed next.

    Attributes:
        framing: Bytes of what came on the stream that were no content, less a quarter of the content.
    """

    framing = 0

    async def pop(self, max_length: int) -> bytes:
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < BUFFER_LOW_WATER:
            await self._paused.set()
        return data


def _pieces(event: Body | EndBody) -> Iterator[Body | EndBody]:
    """What is handed over at a time: a large answer takes as long as it takes, and is copied piece by piece."""
    if isinstance(event, EndBody) or len(event.data) <= PIECE:
        yield event
        return
    data: Any = memoryview(event.data)
    for start in range(0, len(data), PIECE):
        yield Body(event.stream_id, data[start : start + PIECE])


def _can_be_served(request: h2.events.RequestReceived) -> bool:
    fields = dict(request.headers)
    method, path = fields[b":method"], fields.get(b":path")
    return _TOKEN.fullmatch(method) is not None and method != b"CONNECT" and path is not None and path.isascii()
