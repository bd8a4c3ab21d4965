"""The stream that carries a WebSocket: limits incoming data and the time for sending, and sends a close frame last.

trio-websocket implements the protocol on top of this stream, as on any other.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import trio
from wsproto.frame_protocol import FrameProtocol

from trio_mcp._nursery import closing
from trio_mcp._platform import SOCKETS_ARE_FILES
from trio_mcp.lines import CHUNK, read_socket, write_now
from trio_mcp.websocket.frames import BURST, CloseCause, Frames
from trio_mcp.websocket.text_frames import SplitFrame, read_text_frame, split_frame, text_frame_parts

__all__ = ["WatchedStream"]

LINGERED: Final = 64 * 1024 * 1024
"""How many bytes are still read from a peer that has violated the protocol or a limit. An arbitrary choice.

A browser sends a long message to its end. The operating system resets a connection that is closed with data unread, and
the reset may destroy the close frame before the peer has read it."""


Accept = Callable[[bytes], Awaitable[None]]
"""A function that takes a message, and returns when there is room for the next one."""


class WatchedStream:
    """The `trio.abc.Stream` that trio-websocket reads and writes; only `hang_up` closes the underlying stream.

    Args:
        stream: The underlying stream, which carries the bytes.
        read: The bytes that have already been read from the underlying stream.
        max_message_size: How many bytes a message may have.
        write_timeout: Seconds that the peer may take to read a `CHUNK` once its buffers are full.
        is_client: Whether this is the client's end, which masks its frames.

    Attributes:
        heard: The time, by Trio's clock, at which the peer was last heard from.
        fault: Why this side has given up the WebSocket; None if it has not.
        answered: Whether this side has sent a close frame.
        goodbye: Whether nothing more is sent, because a close frame has been sent or the stream is broken.
        broken: What broke the stream, in words; empty if it is not broken.
        accept: Takes the messages for which the parser is not needed; None if all go through the parser.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        read: bytes = b"",
        *,
        max_message_size: int,
        write_timeout: float = math.inf,
        is_client: bool,
    ) -> None:
        self._stream = stream
        # Only a plain socket is read and written directly: with TLS, the bytes on the descriptor are not those of the
        # messages.
        self._socket = stream.socket if SOCKETS_ARE_FILES and isinstance(stream, trio.SocketStream) else None
        self._ahead = read
        self._frames = Frames(max_message_size)
        self._split: SplitFrame | None = None  # the message that is arriving, if it needs no parser
        self._limit = max_message_size
        self._write_timeout = write_timeout
        self._is_client = is_client
        self._sending = trio.Lock()
        # This scope is a placeholder until the first read, because `stop` may be called before the first read.
        self._receiving = trio.CancelScope()
        self._ended = False
        self._begun = 0.0
        # The server's end passes no frame to the parser before it has responded to the handshake: trio-websocket would
        # notice such a frame only when more data arrives.
        self._answering = trio.Event()
        self.heard = trio.current_time()
        self.fault: CloseCause | None = None
        self.answered = False
        self.goodbye = False
        self.broken = ""
        self.accept: Accept | None = None

    @property
    def refusal(self) -> bytes:
        """The bytes that the peer has sent instead of completing the handshake."""
        return self._frames.refusal

    def unfinished(self) -> float:
        """Return for how many seconds a message has been arriving; 0 if there is no such message."""
        return trio.current_time() - self._begun if self._frames.partial or self._split is not None else 0.0

    def parsed(self) -> None:
        """Record that a message from the parser has been passed on."""
        self._frames.in_parser -= 1

    def stand_still(self, seconds: float) -> None:
        """Don't count a number of seconds against the peer, because this program was not reading during that time."""
        self.heard += seconds
        self._begun += seconds

    def give_up(self, fault: CloseCause) -> None:
        """Stop reading because of a fault; `say_goodbye` tells the peer about it."""
        # The first fault is kept; a later one, such as silence, may only be its consequence.
        if self.fault is None:
            self.fault = fault
        self.stop()

    def stop(self) -> None:
        """Stop reading."""
        # Cancelling the scope is not enough: the reader may be between two reads, each of which has a scope of its own.
        self._ended = True
        self._answering.set()
        self._receiving.cancel("the WebSocket has ended")

    # --- what trio-websocket calls --------------------------------------------------------------------------------

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the next bytes, at most `CHUNK`; empty once the WebSocket has ended for this side."""
        # One scope covers all the messages that need no parser: a scope for each message would cost as much as reading
        # the message.
        with trio.CancelScope() as self._receiving:
            return await self._next_piece()
        return b""

    async def _next_piece(self) -> bytes:
        frames = self._frames
        if not (self._is_client or frames.in_head):
            await self._answering.wait()
        while True:
            if self._ahead or self._ended:
                # The time that it takes to handle a message does not count as the peer's silence.
                self.heard = trio.current_time()
                await trio.lowlevel.checkpoint()
            else:
                await self._fetch()
            if self._ended or not self._ahead:
                self._ended = True
                return b""
            if not frames.partial and self._split is None:
                self._begun = trio.current_time()
            if self.accept is not None and frames.at_rest:
                await self._accept_whole(self.accept)
                if not self._ahead:
                    continue
            count = frames.admit(self._ahead)
            # The rest waits until trio-websocket has handled these bytes, so that a full queue holds up the peer.
            admitted, self._ahead = self._ahead[:count], self._ahead[count:]
            if frames.fault is not None:  # the bytes before the fault are still parsed
                self.give_up(frames.fault)
            return admitted

    async def _fetch(self) -> None:
        try:
            if self._socket is None:
                self._ahead = bytes(await self._stream.receive_some(CHUNK))
            else:
                self._ahead = await read_socket(self._socket)
        # trio-websocket reports every broken stream as code 1006, without a cause, so the cause has to be kept here.
        except trio.BrokenResourceError as exc:
            self.broken = f"the connection broke: {exc.__cause__ or exc}"
            raise
        self.heard = trio.current_time()

    async def _accept_whole(self, accept: Accept) -> None:
        """Pass on the messages that have arrived and need no parser, up to a frame that needs it."""
        if self._split is not None and not await self._take(self._split, accept):
            return
        data, place, count = self._ahead, 0, 0
        while found := read_text_frame(data, place, not self._is_client, self._limit):
            message, place = found
            await accept(message)
            count += 1
            # `accept` has no checkpoint while there is room, so a chunk of tiny messages would hold up all other tasks.
            if count % BURST == 0:
                await trio.lowlevel.checkpoint()
        # The data is cut only once, at the end: cutting off each message would copy the rest each time.
        self._ahead = data[place:]
        if (split := split_frame(self._ahead, not self._is_client, self._limit)) is not None:
            self._ahead = self._ahead[len(split.head) :]
            self._begun = trio.current_time()
            await self._take(split, accept)

    async def _take(self, split: SplitFrame, accept: Accept) -> bool:
        """Take the next piece of a message, and pass the message on if it is complete. Return whether it was."""
        data = self._ahead
        try:
            place = split.take(data)
        except UnicodeDecodeError:  # the parser will refuse the message
            self._split, self._ahead = None, split.as_it_came() + data
            return False
        self._ahead, message = data[place:], split.message()
        self._split = split if message is None else None
        if message is None:
            return False
        await accept(message)
        return True

    async def send_all(self, data: Any) -> None:
        """Send bytes, unless a close frame has already been sent."""
        await self._send((data,))

    async def _send(self, parts: Sequence[Any]) -> None:
        try:
            self._sending.acquire_nowait()  # unlike `acquire`, this is not a checkpoint
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            # trio-websocket sends each frame in a separate call, so the first byte shows whether it is a close frame
            # (RFC 6455, section 5.2).
            is_close = parts[0][:1] == b"\x88"
            self.answered = self.answered or is_close
            if self.goodbye:
                await trio.lowlevel.checkpoint()
                return
            await trio.lowlevel.checkpoint_if_cancelled()
            # If sending fails or is cancelled from here on, a frame is cut off, and nothing may follow it.
            self.goodbye = True
            for part in parts:
                await self._send_pieces(part)
            self.goodbye = is_close
        finally:
            # The first bytes that the server's end sends are its response to the handshake, for which the reader waits.
            # Even if sending it fails, the reader must continue.
            self._answering.set()
            self._sending.release()

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Stop reading, but keep the underlying stream open, because the close frame may still have to be sent."""
        self.stop()
        await trio.lowlevel.checkpoint()

    async def _send_pieces(self, data: Any) -> None:
        view = memoryview(data)
        while True:
            if self._socket is not None:
                # The system nearly always takes all of the data at once, which needs neither a deadline nor a
                # checkpoint.
                view = view[write_now(self._socket, view) :]
            if not view:
                return
            # Each piece has the full time limit: a peer that reads slowly must not be cut off because a message is
            # long.
            with trio.move_on_after(self._write_timeout) as scope:
                try:
                    await self._stream.send_all(view[:CHUNK])
                except trio.BrokenResourceError as exc:
                    self.broken = self.broken or f"the connection broke: {exc.__cause__ or exc}"
                    raise
            if scope.cancelled_caught:
                self.broken = f"the other side read nothing for {self._write_timeout:g} seconds"
                # The frame is cut off, so the connection is of no further use. Closing it also wakes the reader.
                await trio.aclose_forcefully(self._stream)
                raise trio.BrokenResourceError(self.broken)
            view = view[CHUNK:]

    async def send_messages(self, messages: Sequence[bytes]) -> None:
        """Send messages together, each as a text frame."""
        *first, last = [part for message in messages for part in text_frame_parts(message, self._is_client)]
        # Only the last message can be long. A long one is sent separately, so that it need not be copied to be joined
        # to its head.
        await self._send([b"".join(first), last] if len(last) > CHUNK else [b"".join([*first, last])])

    # --- the end --------------------------------------------------------------------------------------------------

    async def say_goodbye(self, fault: CloseCause) -> None:
        """Send a close frame after the data that is being sent, unless one has been sent already."""
        # While data is being sent, `goodbye` is set only temporarily. So in this case `send_all` is called, too: it
        # waits for the lock, and then checks `goodbye` again.
        if not self.goodbye or self._sending.locked():
            # The close frame is made here, because trio-websocket's `aclose` would drop messages that still arrive, and
            # would send nothing after a fault of the peer. wsproto shortens the reason to fit into a control frame (RFC
            # 6455, section 5.5).
            frame = FrameProtocol(self._is_client, []).close(*fault)
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
                await self.send_all(frame)

    async def hang_up(self) -> None:
        """Close the underlying stream, within the caller's time limit.

        A peer at fault gets that time to read the reason for the close.
        """
        self.stop()
        # Lingering may take all of the caller's time limit; the stream is then closed forcefully.
        async with closing(partial(trio.aclose_forcefully, self._stream)):
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
                if self.fault is not None and not self.broken:
                    await self._linger()
                await self._stream.aclose()

    async def _linger(self) -> None:
        if isinstance(self._stream, trio.SocketStream):
            # The peer reads the end of the data after the close frame and closes its side, which ends the following
            # loop.
            await self._stream.send_eof()
        left = LINGERED
        while data := await self._stream.receive_some(CHUNK):
            left -= len(data)
            if left < 0:
                await trio.sleep_forever()  # a peer whose writes block can read the close frame meanwhile
