"""Wires over WebSocket whose text frames the conformance kit makes itself."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Final, Literal

import trio
import wsproto
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from trio_mcp._nursery import background_nursery, closing
from trio_mcp.conformance.steps import Headers
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.lines import half_close, reset
from trio_mcp.conformance.wires.notes import WRITE_TIMEOUT, Notes, TooMuch
from trio_mcp.conformance.wires.wire import MessageWire, OpenWire
from trio_mcp.errors import TransportError
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.lines import CHUNK
from trio_mcp.sockets.addresses import web_address
from trio_mcp.sockets.client import open_socket
from trio_mcp.websocket.sockets import SUBPROTOCOL
from trio_mcp.websocket.text_frames import text_frame

__all__ = ["websocket_wire"]

OPENING_TIMEOUT: Final = 10.0
"""Seconds for the WebSocket handshake (arbitrary)."""

GOODBYE_TIMEOUT: Final = 1.0
"""Seconds for the target to reply to a close frame (arbitrary)."""


class WebSocketWire(MessageWire):
    """A wire over a WebSocket.

    Attributes:
        transport: ``websocket``.
        number: The number of the connection.
    """

    transport = "websocket"

    def __init__(
        self, tape: Tape, number: int, stream: trio.abc.Stream, protocol: wsproto.WSConnection, subprotocol: str | None
    ) -> None:
        self.number = number
        self.notes = Notes(tape, number, self.transport, subprotocol=subprotocol)
        self._stream = stream
        self._protocol = protocol
        self._sending = trio.Lock()
        self._ended = trio.Event()

    async def write(self, texts: Sequence[bytes], *, framed: bool = True, headers: Headers | None = None) -> None:
        """Send each text as a text frame of its own, or all of them as the fragments of one message.

        Texts that are not UTF-8 are not sent: they would oblige a server to end the connection (RFC 6455, section 8.1),
        whatever MCP says.
        """
        if not _is_utf8(b"".join(texts)):
            self.notes.mark("unsent", reason="a text frame can only contain UTF-8")
        elif framed:
            for text in texts:
                # The frame is not made by wsproto, which expects decoded text, and refuses to send once it considers
                # the connection to be closing.
                await self._send(text, text_frame(text, True))
        elif texts:
            frames = b""
            for number, text in enumerate(texts):
                # Only the first frame carries the opcode, and only the last one has the final bit set (RFC 6455,
                # section 5.4).
                frame = bytearray(text_frame(text, True))
                frame[0] = (0x80 if number == len(texts) - 1 else 0) | (0 if number else 0x01)
                frames += frame
            await self._send(b"".join(texts), frames)

    async def stop(self, how: Literal["close", "reset", "half"], which: int = 0) -> None:
        """End the connection with a close frame or a reset, or close only its sending side."""
        if how == "half":
            # RFC 6455 has no frame that closes only the sending side: that is possible only for the underlying stream,
            # and not if it uses TLS.
            if await half_close(self._stream, self.notes):
                return
            how = "close"
        if how == "close":
            await self._say_goodbye(how)
        else:
            # The close is noted before the reader sees the stream end, which it would otherwise attribute to the
            # target.
            self.notes.close("client", how)
            reset(self._stream)
        await trio.aclose_forcefully(self._stream)

    async def _say_goodbye(self, reason: str) -> None:
        if self.is_open:
            # The close is noted before the frame is sent: the target replies with a close frame of its own, which must
            # not be noted as the cause.
            self.notes.close("client", reason)
            with contextlib.suppress(wsproto.utilities.LocalProtocolError):
                await self._put(self._protocol.send(CloseConnection(code=1000)))
                # The server should close TCP first (RFC 6455, section 7.1.1). If this side closed it while there are
                # unread bytes, the system would send a reset, and the target might never see our close frame.
                with trio.move_on_after(GOODBYE_TIMEOUT):
                    await self._ended.wait()

    async def _send(self, text: bytes, frames: bytes) -> None:
        if not self.is_open:
            await trio.lowlevel.checkpoint()
            self.notes.mark("unsent", reason="the connection has ended")
            return
        self.notes.asked()
        # The text is noted before the write: a response may be read while this side is still writing.
        self.notes.text("client", text)
        if not await self._put(frames):
            self.notes.mark("unsent", reason="the target is no longer reading")

    async def _put(self, data: bytes) -> bool:
        # The lock is needed because the reader also sends (pongs and close frames): a frame must not begin within
        # another frame, and Trio does not allow two tasks to send at once.
        async with self._sending:
            try:
                with trio.fail_after(WRITE_TIMEOUT):
                    await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return False
            except trio.TooSlowError:
                # Part of a frame may have been sent, so no other frame can be sent on this connection.
                self.notes.close("client", f"the target has not read anything for {WRITE_TIMEOUT:g} seconds")
                await trio.aclose_forcefully(self._stream)
                return False
        return True

    async def read(self) -> None:
        """Note everything that arrives until the connection ends; this runs as a task."""
        facts: dict[str, Any] = {"reason": "the connection was closed without a close frame"}
        parts: list[bytes] = []
        try:
            while data := await self._stream.receive_some(CHUNK):
                self.notes.count(len(data))
                self._protocol.receive_data(bytes(data))
                for event in self._protocol.events():
                    if isinstance(event, CloseConnection):
                        facts = {"reason": event.reason or "closed", "code": int(event.code)}
                        # The close is noted when the frame arrives, and not when TCP ends, which may take a while: no
                        # data may follow a close frame (RFC 6455, section 5.5.1).
                        self.notes.close("server", **facts)
                        # If this side has sent its close frame first, the target's frame is the reply to it, and
                        # wsproto refuses to send a second close frame.
                        with contextlib.suppress(wsproto.utilities.LocalProtocolError):
                            await self._put(self._protocol.send(event.response()))
                    # A server that gets no pong gives up the connection; `websockets`, for one, does so after 20
                    # seconds by default.
                    elif isinstance(event, Ping):
                        await self._put(self._protocol.send(event.response()))
                    elif isinstance(event, (TextMessage, BytesMessage)):
                        # wsproto delivers a message frame by frame, and a long frame in pieces, as its bytes arrive.
                        parts.append(event.data.encode() if isinstance(event, TextMessage) else bytes(event.data))
                        if event.message_finished:
                            binary = {"binary": True} if isinstance(event, BytesMessage) else {}
                            self.notes.text("server", b"".join(parts), **binary)
                            parts = []
        # A target may reset the connection instead of sending a close frame, often because the server process has died.
        except trio.BrokenResourceError as exc:
            facts = {"reason": f"the connection broke: {exc.__cause__ or exc}"}
        except trio.ClosedResourceError:
            pass  # `stop` has closed the stream, and noted the close
        except wsproto.utilities.RemoteProtocolError as exc:
            facts = {"reason": f"not a WebSocket: {exc}"}
        except TooMuch as exc:
            self.notes.flood(exc)
        self.notes.close("server", **facts)
        self._ended.set()
        await trio.aclose_forcefully(self._stream)

    async def leave(self) -> None:
        """Close the connection when the wire's block ends."""
        await self._say_goodbye("done")


def websocket_wire(parameters: HttpServerParameters, *, ssl_context: ssl.SSLContext | None = None) -> OpenWire:
    """Return a function that opens wires to a server over WebSockets."""
    address, path = web_address(parameters.url)
    request = Request(
        host=address.place,
        target=path,
        subprotocols=[SUBPROTOCOL],
        extra_headers=[(name.encode(), value.encode()) for name, value in parameters.headers.items()],
    )

    @contextlib.asynccontextmanager
    async def opened(tape: Tape, number: int, revision: str) -> AsyncIterator[WebSocketWire]:
        stream = await open_socket(address, ssl_context, https_compatible=True)
        # The block includes the handshake: if the handshake fails or is cancelled, its connection must not stay open.
        async with closing(partial(trio.aclose_forcefully, stream)):
            protocol = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
            subprotocol = await _shake_hands(stream, protocol, request, address.url)
            wire = WebSocketWire(tape, number, stream, protocol, subprotocol)
            async with background_nursery(wire.leave) as nursery:
                nursery.start_soon(wire.read)
                yield wire

    return opened


async def _shake_hands(
    stream: trio.abc.Stream, protocol: wsproto.WSConnection, request: Request, name: str
) -> str | None:
    problem = f"did not respond within {OPENING_TIMEOUT:g} seconds"
    try:
        with trio.move_on_after(OPENING_TIMEOUT):
            await stream.send_all(protocol.send(request))
            while True:
                # One byte is read at a time, so that a frame that follows the handshake directly is left for the
                # reader.
                data = await stream.receive_some(1)
                protocol.receive_data(bytes(data) or None)
                for event in protocol.events():
                    if isinstance(event, AcceptConnection):
                        return event.subprotocol
                    if isinstance(event, RejectConnection):
                        raise TransportError(f"{name} refused the WebSocket with status {event.status_code}")
                    if isinstance(event, (RejectData, CloseConnection)):
                        break
                if not data:
                    problem = "closed the connection instead of responding to the handshake"
                    break
    except (trio.BrokenResourceError, wsproto.utilities.RemoteProtocolError) as exc:
        problem = f"is not a WebSocket: {exc}"
    raise TransportError(f"{name} {problem}")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
