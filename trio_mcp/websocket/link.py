"""Carries the messages of a link over a WebSocket, for both sides: one text frame for each message."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import trio
from wsproto.frame_protocol import CloseReason

from trio_mcp._nursery import background_nursery
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.messages import SessionMessage, TransportFailure
from trio_mcp.link import Link
from trio_mcp.text_sender import TextSender
from trio_mcp.websocket.frames import CloseCause
from trio_mcp.websocket.sockets import LAST_WORDS, Ended, Socket

__all__ = ["Inbox", "WebSocketLink"]

INBOX: Final = 4 * 1024 * 1024
"""How many bytes of messages may wait for the session. While the inbox is full, pings get no response.

An arbitrary choice.
"""

COST: Final = 1024
"""How many bytes are counted for each message besides its text: a short text takes many times its size in memory.

An arbitrary choice.
"""

GOODBYE: Final = CloseCause(CloseReason.NORMAL_CLOSURE, "")

CLOSE_GRACE: Final = 1.0
"""How many seconds the peer may take to read the last messages and to close its end.

An arbitrary choice; there is a limit because a peer that does not read must not hold up the end of a session.
"""


class Inbox(trio.abc.ReceiveChannel[SessionMessage]):
    """The messages that wait for a session, limited in bytes. While there is any room, a message of any length fits."""

    def __init__(self, limit: int = INBOX) -> None:
        self._limit = limit
        self._items: deque[tuple[SessionMessage, int]] = deque()
        self._size = 0
        self._ended = False
        self._closed = False
        self._arrived = trio.lowlevel.ParkingLot()
        self._taken = trio.lowlevel.ParkingLot()

    @property
    def has_room(self) -> bool:
        # A closed inbox drops all messages, so there is always room: the reader must not wait, because it still has to
        # find the peer's close frame.
        return self._size < self._limit or self._closed

    async def room(self) -> None:
        """Wait until there is room; if there already is, return without a checkpoint."""
        # Each message that is taken wakes the reader, but a short one may not make enough room.
        while not self.has_room:
            await self._taken.park()

    def put(self, item: SessionMessage, size: int = 0) -> None:
        """Add a message, or drop it if the inbox is closed."""
        if not self._closed:
            # The limit may be exceeded: a failure must always be added, and a message longer than the inbox would never
            # fit.
            self._items.append((item, size + COST))
            self._size += size + COST
            self._arrived.unpark()

    def end(self) -> None:
        """Record that no more messages will come."""
        self._ended = True
        self._arrived.unpark_all()

    def receive_nowait(self) -> SessionMessage:
        """Return the next message, or raise the same exceptions as a memory channel."""
        if self._closed:
            raise trio.ClosedResourceError
        if not self._items:
            raise trio.EndOfChannel if self._ended else trio.WouldBlock
        item, size = self._items.popleft()
        self._size -= size
        self._taken.unpark()
        return item

    async def receive(self) -> SessionMessage:
        await trio.lowlevel.checkpoint_if_cancelled()
        with contextlib.suppress(trio.WouldBlock):
            item = self.receive_nowait()
            # The message has been taken, so a cancellation must not lose it.
            await trio.lowlevel.cancel_shielded_checkpoint()
            return item
        # The message is taken only after waking up, so cancelling `park` can't lose it.
        while True:
            await self._arrived.park()
            with contextlib.suppress(trio.WouldBlock):
                return self.receive_nowait()

    def close(self) -> None:
        """Drop all messages, both those that wait and any that come later."""
        self._closed = True
        self._items.clear()
        self._size = 0
        self._arrived.unpark_all()
        self._taken.unpark_all()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class WebSocketLink:
    """Runs the tasks that carry messages between a WebSocket and the channels of a link.

    Args:
        socket: The open WebSocket.
        metadata: The metadata that the session gets with each message.
        farewell: The reason given to the peer for closing the WebSocket.

    Attributes:
        farewell: The reason that will be given to the peer; it may be changed while the link is open.
    """

    def __init__(
        self,
        socket: Socket,
        *,
        metadata: Mapping[str, Any] | None = None,
        farewell: CloseCause = GOODBYE,
    ) -> None:
        self.farewell = farewell
        self._socket = socket
        self._metadata = metadata
        self._inbox = Inbox()
        self._outbound = TextSender(self._report)
        self._written, self._ended = trio.Event(), trio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Link]:
        """Yield the link. At the end of the block the messages handed over are sent, and the WebSocket is closed."""
        try:
            async with background_nursery(self._end) as nursery:
                nursery.start_soon(self._read)
                nursery.start_soon(self._send)
                yield Link(self._inbox, self._outbound)
        finally:
            # A session that still uses the link gets an error at once and does not wait for tasks that have ended.
            self._inbox.close()
            self._outbound.refuse()
            # The close is shielded, but for a short time, so that a close frame is sent even if everything is
            # cancelled. No close frame is sent if another frame was cut off.
            with trio.move_on_after(LAST_WORDS, shield=True):
                await self._socket.close(*self.farewell)
                await self._socket.hang_up()

    async def _end(self) -> None:
        # Messages that arrive from now on are dropped, because the session no longer reads.
        self._inbox.close()
        # `close` is called, because `refuse` would drop the messages that were handed over but have not been sent.
        self._outbound.close()
        # Nothing is lost, because this waits first until the last messages and our close frame are written, and then
        # for the peer's close frame.
        with trio.move_on_after(CLOSE_GRACE):
            await self._written.wait()
            await self._ended.wait()

    async def _accept(self, data: bytes) -> None:
        inbox = self._inbox
        # The message is added before the wait for room: it is in memory already, so holding it back would save nothing.
        inbox.put(SessionMessage(decode(data), metadata=self._metadata), len(data))
        if not inbox.has_room:
            # During this wait nothing is read, not even a pong, and the keep-alive must not count that against the
            # peer.
            self._socket.waiting = True
            await inbox.room()
            self._socket.waiting = False

    async def _read(self) -> None:
        inbox = self._inbox
        try:
            await self._socket.receive_all(self._accept)
        except Ended as end:
            if end.cause is not None:
                inbox.put(SessionMessage(TransportFailure(end.cause)))
        inbox.end()
        self._ended.set()
        # Nothing more can be sent, so the session gets an error if it tries.
        self._outbound.refuse()

    async def _send(self) -> None:
        """Send every message until the session closes its side, and then the close frame."""
        try:
            while True:
                # Waiting messages are sent together, so that many small ones take only one system call.
                await self._socket.send(await self._outbound.take())
        # `ClosedResourceError` means that `_read` has closed the channel. Nothing is reported for these errors, because
        # `_read` alone reports the loss, and only once.
        except (Ended, trio.EndOfChannel, trio.ClosedResourceError):
            pass
        # The close frame is sent before `running` sends one, because `_end` waits for the peer's close frame, which is
        # the response to this one.
        await self._socket.close(*self.farewell)
        self._written.set()

    async def _report(self, failure: TransportFailure) -> None:
        self._inbox.put(SessionMessage(failure))
