"""Defines the interface of a WebSocket for a link, and implements this interface with trio-websocket."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import ProtocolError

from trio_mcp.errors import TransportError
from trio_mcp.websocket.frames import CloseCause
from trio_mcp.websocket.stream import Accept, WatchedStream

__all__ = ["LAST_WORDS", "NOT_TEXT", "SUBPROTOCOL", "Ended", "Open", "Socket", "TrioSocket", "farewell"]

SUBPROTOCOL: Final = "mcp"
"""The subprotocol that both sides must name (RFC 6455, section 1.9)."""

LAST_WORDS: Final = 0.5
"""How many seconds sending a close frame may take when the time is up.

An arbitrary choice: sending it is only a local write.
"""


NOT_TEXT: Final = "a binary frame, although messages must be text"


class Ended(Exception):
    """A WebSocket has ended.

    Args:
        cause: Why the WebSocket was lost; None if it was closed in an orderly way.
    """

    def __init__(self, cause: TransportError | None = None) -> None:
        super().__init__(cause)
        self.cause = cause


class Socket(Protocol):
    """An open WebSocket.

    Attributes:
        waiting: Whether receiving is paused, because a received message waits for room.
    """

    waiting: bool

    async def receive_all(self, accept: Accept) -> None:
        """Pass every message to ``accept``, in order.

        Raises:
            Ended: When no more messages will come.
        """

    async def send(self, messages: Sequence[bytes]) -> None:
        """Send messages. Only one task may send, and cancelling it ends the WebSocket.

        Raises:
            Ended: If the messages can't be sent.
        """

    async def close(self, code: int, reason: str) -> None:
        """Tell the peer that nothing more will be sent; messages that still arrive are received."""

    async def hang_up(self) -> None:
        """Close the connection that carries the WebSocket."""


Open = Callable[[trio.Nursery], Awaitable[WebSocketConnection]]
"""A function that does the opening handshake; trio-websocket starts its reader in the nursery."""


class TrioSocket:
    """A WebSocket, implemented with trio-websocket, which pings a silent peer.

    Args:
        stream: The underlying stream.
        peer: A word for the peer: ``"client"`` or ``"server"``.
        ping_interval: Seconds of silence after which the peer gets a ping.
        ping_timeout: Seconds of silence after which the peer is considered dead.
        message_timeout: Seconds that a message may take to arrive.
    """

    def __init__(
        self, stream: WatchedStream, peer: str, ping_interval: float, ping_timeout: float, message_timeout: float
    ) -> None:
        self.waiting = False
        self._stream = stream
        self._peer = peer
        self._interval = ping_interval
        self._timeout = ping_timeout
        self._message_timeout = message_timeout
        self._connection: Any = None
        # The set contains bound methods: each access makes a new one, but they compare and hash as equal.
        self._beating: set[Any] = set()
        self._over = trio.CancelScope()  # surrounds the opening handshake
        self._stopped = trio.Event()  # is set when the reader has ended
        self._failure: Exception | None = None

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that both sides have agreed on."""
        subprotocol: str | None = self._connection.subprotocol
        return subprotocol

    async def open(self, handshake: Open, nursery: trio.Nursery) -> Exception | None:
        """Do the opening handshake.

        Returns:
            None if the handshake succeeded; otherwise trio-websocket's exception, which is a `ConnectionClosed` if the
            peer merely closed the connection.
        """
        home: Any = _Home(nursery, self._read)
        with self._over:
            # The handshake would wait forever once its reader has ended, so `_read` cancels it then.
            try:
                self._connection = await handshake(home)
            except ConnectionClosed as exc:  # the connection was closed during the response
                return exc
            # Pings start only now: before the handshake has ended, none can be sent. The caller's deadline bounds the
            # handshake.
            nursery.start_soon(self._keep_alive, nursery)
            return None
        # Only `_read` cancels the scope, so the reader has ended; if the stream ended cleanly, there is no exception.
        return self._failure or ConnectionClosed(None)

    async def _read(self, read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        except Exception as exc:
            # The exception is not raised, because it would end the nursery, although only the link is lost.
            self._failure = exc
        # If the reader is cancelled, the event is never set; but then the nursery ends, and with it every task that
        # could wait for the event.
        self._stopped.set()
        self._over.cancel("the reader has ended")

    # --- messages -------------------------------------------------------------------------------------------------

    async def receive_all(self, accept: Accept) -> None:
        # Earlier messages are in trio-websocket's queue; `Frames.in_parser` prevents later messages from overtaking
        # them.
        self._stream.accept = accept
        try:
            while isinstance(message := await self._connection.get_message(), str):
                await accept(message.encode())
                # The message is recorded only after `accept`, because until then no later message may bypass the parser
                # and overtake this one.
                self._stream.parsed()
                del message  # otherwise a long message would stay in memory until the next one arrives
        except ConnectionClosed:
            pass
        else:
            self._stream.give_up(CloseCause(CloseReason.UNSUPPORTED_DATA, NOT_TEXT))
        raise Ended(await self._end())

    async def send(self, messages: Sequence[bytes]) -> None:
        # After a close frame no data may be sent (RFC 6455, section 5.5.1), and `WatchedStream` would drop it.
        if self._connection.closed is not None:
            raise Ended
        try:
            await self._stream.send_messages(messages)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Ended from None  # `receive_all` reports the reason, after the last messages that have arrived

    # --- the end --------------------------------------------------------------------------------------------------

    async def _end(self) -> TransportError | None:
        """Respond to the end of the connection, and return why it was lost; None if the closing was orderly."""
        stream, peer, closed = self._stream, self._peer, self._connection.closed
        if closed is None and stream.fault is None:  # an exception has closed the queue, and the reader is about to end
            await self._stopped.wait()
        code = CloseReason.ABNORMAL_CLOSURE if closed is None else closed.code
        fault = stream.fault
        # A fault that this side has found takes precedence, because in that case trio-websocket only knows that its
        # stream has ended.
        if fault is not None:
            cause = f"the {peer} sent {fault.reason}"
        elif self._failure is not None:
            cause = f"the connection to the {peer} failed: {type(self._failure).__name__}: {self._failure}"
            fault = CloseCause(CloseReason.INTERNAL_ERROR, "the connection failed")
        elif code != CloseReason.ABNORMAL_CLOSURE and stream.answered:
            with trio.move_on_after(LAST_WORDS):
                await self.hang_up()  # the server should close first (RFC 6455, section 7.1.1); a client may do so, too
            return farewell(peer, code, closed.reason)
        elif stream.answered:
            return None  # we have closed the WebSocket, and the peer has not responded
        elif code == CloseReason.ABNORMAL_CLOSURE:
            broken = stream.broken or "it was closed without a close frame"
            return TransportError(f"the connection to the {peer} was lost: {broken}")
        else:
            # The parser refused a frame: no close frame has arrived, and trio-websocket sends none.
            cause = f"the {peer} violated the WebSocket protocol: {closed.reason}"
            fault = CloseCause(code, closed.reason or "")
        # The fault is recorded so that `hang_up` lingers: a reset could destroy the close frame on its way.
        stream.give_up(fault)
        with trio.move_on_after(LAST_WORDS):
            await stream.say_goodbye(fault)
        return TransportError(cause)

    async def close(self, code: int, reason: str) -> None:
        # Once the reader has ended, either there is a more precise reason, or no peer is left to receive a reason: see
        # `_end`.
        fault = self._stream.fault or (CloseCause(code, reason) if self._connection.closed is None else None)
        if fault is not None:
            await self._stream.say_goodbye(fault)

    async def hang_up(self) -> None:
        await self._stream.hang_up()

    # --- life -----------------------------------------------------------------------------------------------------

    async def _keep_alive(self, nursery: trio.Nursery) -> None:
        """Ping a silent peer, and give it up after a longer silence. Any byte that arrives is a sign of life."""
        stream = self._stream
        while stream.fault is None:
            now = trio.current_time()
            if self.waiting:
                # The peer may be sending, but this side is not reading, so its silence does not count.
                stream.stand_still(now - stream.heard)
            silent = now - stream.heard
            if silent >= self._timeout:
                text = f"nothing within ping_timeout={self._timeout:g} seconds"
                stream.give_up(CloseCause(CloseReason.INTERNAL_ERROR, text))
                return
            # Bytes that trickle in are signs of life, so the limit on silence alone would never end a message that
            # arrives slowly.
            if stream.unfinished() >= self._message_timeout:
                text = f"a message that took longer than {self._message_timeout:g} seconds"
                stream.give_up(CloseCause(CloseReason.POLICY_VIOLATION, text))
                return
            quiet = silent >= self._interval or self.waiting
            if quiet:
                # While this side does not read, it would not receive a pong. So it sends no ping, but an unsolicited
                # pong, which is a sign of its own life.
                beat = self._connection.pong if self.waiting else self._connection.ping
                # A ping of trio-websocket waits for its pong without a limit: if each interval began another ping,
                # tasks would pile up.
                if beat not in self._beating:
                    self._beating.add(beat)
                    nursery.start_soon(self._beat, beat)
            next_beat = now + self._interval - (0 if quiet else silent)
            # A message may begin while this task sleeps, so it may take up to twice its time limit.
            wake = min(next_beat, stream.heard + self._timeout, now + self._message_timeout)
            await trio.sleep_until(wake)
            # If this task wakes up too late, this program stood still, and not the peer.
            stream.stand_still(trio.current_time() - wake)

    async def _beat(self, beat: Callable[[], Awaitable[None]]) -> None:
        # wsproto raises `ProtocolError` for a ping after a close frame has arrived. Both errors are ignored, because
        # `receive_all` reports the end.
        with contextlib.suppress(ConnectionClosed, ProtocolError):
            await beat()
        self._beating.discard(beat)


class _Home:
    """A stand-in for the nursery in which trio-websocket starts its reader, so that only the link fails with it."""

    def __init__(self, nursery: trio.Nursery, run: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]) -> None:
        self._nursery = nursery
        self._run = run

    def start_soon(self, reader: Callable[[], Awaitable[None]]) -> None:
        self._nursery.start_soon(self._run, reader)


def farewell(peer: str, code: int, reason: str | None) -> TransportError | None:
    """Return the error for a WebSocket that the peer has closed with a code; None if the closing was orderly."""
    # A browser sends 1001 when a person leaves the page, and sends no code if the page gave none.
    in_order = {CloseReason.NORMAL_CLOSURE, CloseReason.NO_STATUS_RCVD}
    if code in in_order or (code == CloseReason.GOING_AWAY and peer == "client"):
        return None
    return TransportError(f"the {peer} closed the WebSocket: {_in_words(code, reason)}")


def _in_words(code: int, reason: str | None) -> str:
    """Describe in words a close code and a reason, both of which the peer has chosen."""
    words = f"{int(code)}"
    with contextlib.suppress(ValueError):
        words += f" ({CloseReason(code).name.lower().replace('_', ' ')})"
    return f"{words}: {_shown(reason)}" if reason else words


def _shown(text: str) -> str:
    """Return a text from the peer without control characters, which could hide the rest of a message on a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)
