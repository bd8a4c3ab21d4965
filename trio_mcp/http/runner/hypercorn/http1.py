"""Hypercorn's HTTP/1.1, hardened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import h11
import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, StreamClosed
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.worker_context import EventWrapper

from trio_mcp.http.framing import MAX_FRAMING, FramingError
from trio_mcp.http.runner.heads import check_head
from trio_mcp.http.runner.wire import MAX_RECEIVED, PIECE, DeadlineStream

__all__ = ["ClientLeft", "Http1"]


class Http1(H11Protocol):
    """HTTP/1.1 that stays HTTP/1.1: no HTTP/2, and a WebSocket only for an application that takes the connection over.

    RFC 9110, section 7.8: a server may ignore an Upgrade.

    The head of a response waits for the first piece of the body, as ASGI allows, and the last piece waits for the end,
    so that both are sent in one write. A request whose end is ambiguous is refused with 400, and the connection ends.

    Attributes:
        ending: Whether the piece of the body that is being sent is the last one.
    """

    ending = False
    _held: Sequence[bytes] = ()  # bytes that are sent with the next event
    _request: Any = None  # the request that has arrived last
    _lasts = True  # whether the response has not told the client that the connection ends
    _framing = 0  # bytes of the body that were not content, less a quarter of the content

    def __init__(self, *given: Any, receive: Callable[[], Awaitable[bytes | None]], patience: float) -> None:
        super().__init__(*given)
        # Hypercorn sets this event when the response has been sent, and `handle` waits for it before the next request.
        self.can_read = _NextRequest(self, receive, patience)

    def head_to_take(self) -> bytes:
        """Return the head of the request for an application that takes the connection over.

        Raises:
            RuntimeError: If the request asks for no other protocol, or its response has begun.
        """
        connection, request = self.connection, self._request
        # While the response has yet to be sent, h11 is PAUSED only if the request asks for another protocol.
        if connection.our_state is not h11.SEND_RESPONSE or connection.next_event() is not h11.PAUSED:
            raise RuntimeError(
                "the connection can't be taken over: the request has no Upgrade header, or the response has begun"
            )
        fields = b"".join([b"%b: %b\r\n" % field for field in request.headers])
        return b"%b %b HTTP/%b\r\n%b\r\n" % (request.method, request.target, request.http_version, fields)

    @property
    def has_unread_body(self) -> bool:
        """Whether the body of the request has not been read to its end."""
        return self.connection.their_state is h11.SEND_BODY

    async def handle(self, event: Event) -> None:
        """Act on an event; content that has arrived together is passed on in one piece, however it was chunked."""
        if not isinstance(event, RawData):
            await super().handle(event)
            return
        connection, body = self.connection, bytearray()
        # RFC 9112, section 9.6: anything after a request with "Connection: close" is ignored. h11 would report an
        # error, which would prevent the response to that request.
        if connection.their_state is not h11.MUST_CLOSE:
            connection.receive_data(event.data)
            self._framing += len(event.data)
        while connection.their_state is not h11.MUST_CLOSE:
            if connection.they_are_waiting_for_100_continue:
                fields = self.config.response_headers("h11")
                await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=fields))
            try:
                found = connection.next_event()
                if isinstance(found, h11.Data):
                    body += found.data
                    # Each byte of content allows a quarter of a byte of framing; see `MAX_FRAMING`.
                    self._framing -= len(found.data) * 5 // 4
                    if self._framing > MAX_FRAMING:  # RFC 9112, section 7.1.1: limit chunk extensions
                        raise h11.RemoteProtocolError("the chunks of the body have too much framing for their content")
                    continue
                if body and self.stream is not None:
                    await self.stream.handle(Body(stream_id=STREAM_ID, data=bytes(body)))
                    body.clear()
                if not await self._goes_on(found):
                    break
            except h11.RemoteProtocolError as error:
                # The error is sent only if no response has begun: otherwise it would look like the rest of that
                # response.
                if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    await self._send_error_response(self._status_of(error))
                await self.send(Closed())
                break

    async def _goes_on(self, found: Any) -> bool:
        """Act on an h11 event other than content, and return whether another event may follow without more bytes."""
        if isinstance(found, h11.Request):
            await self.send(Updated(idle=False))
            await self._create_stream(found)
        elif found is h11.PAUSED:  # pipelining: the next request waits for the response to this one
            await self.can_read.clear()
            await self.can_read.wait()
        elif isinstance(found, h11.EndOfMessage) and self.stream is not None:
            await self.stream.handle(EndBody(stream_id=STREAM_ID))
        else:
            return False
        return True

    def send_nowait(self, piece: bytes, wire: DeadlineStream) -> bool:
        """Send a piece of a response's body; see `Extras.send_nowait`."""
        connection = self.connection
        # Bytes that are held back must be sent first. After an error of the peer, h11 sends nothing more.
        if self._held or connection.our_state is not h11.SEND_BODY or connection.their_state is h11.ERROR:
            raise trio.WouldBlock
        data = b"".join(connection.send_with_data_passthrough(h11.Data(data=piece)))  # type: ignore[arg-type]
        sent = wire.send_nowait(data)
        if sent < len(data):
            self._held = [data[sent:]]
        return not self._held

    def _status_of(self, error: h11.RemoteProtocolError) -> int:
        """Return the status for a malformed request: h11's suggestion, corrected in two cases."""
        status = error.error_status_hint
        if status == 501:
            # h11 suggests 501 for every transfer coding but chunked. RFC 9112, section 6.3, requires 400 if chunked is
            # not the last one, because the end of the body is unknown then.
            return 400
        if status == 431 and self.connection.their_state is h11.ERROR and self.stream is None:
            # RFC 9112, section 3, requires 414 if the request target itself is too long.
            return 431 if b"\n" in self.connection.trailing_data[0] else 414
        return status

    async def _create_stream(self, request: h11.Request) -> None:
        self._framing = 0
        self._request = request
        try:
            target, headers = check_head(
                request.http_version, request.target, list(request.headers), self.config.h11_max_incomplete_size
            )
        except FramingError as exc:
            raise h11.RemoteProtocolError(str(exc), error_status_hint=exc.status) from None
        stream = self.stream = _Exchange(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        stream.protocol = self
        await stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=headers,
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii"),
                raw_path=target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()
        if stream.closed:
            # Hypercorn has refused a host that is not in `server_names`, but has not reported the end of the exchange.
            await self.stream_send(StreamClosed(stream_id=STREAM_ID))

    async def _send_h11_event(self, event: Any) -> None:
        connection: Any = self.connection
        try:
            parts: list[bytes] = connection.send_with_data_passthrough(event)
        except h11.LocalProtocolError:
            # Once the peer has broken the protocol, h11 sends nothing more, so the response can't be sent.
            if connection.their_state != h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response):
            # Tell the client how long the connection is kept, so that it closes first and never sends a request on a
            # connection that is being closed. h11 is DONE if the request was read to its end, and the client has not
            # asked for the connection to be closed.
            if connection.their_state is h11.DONE and self.keep_alive_requests < self.config.keep_alive_max_requests:
                said = b"keep-alive: timeout=%d\r\n\r\n" % self.config.keep_alive_timeout
                if self.context.terminated.is_set():  # the connection ends with this request
                    self._lasts = False
                    said = b"connection: close\r\n\r\n"
                parts = [b"".join(parts).removesuffix(b"\r\n"), said]
            self._held = parts
            return
        parts, self._held = [*self._held, *parts], ()
        if self.ending and isinstance(event, h11.Data):
            self._held = parts
            return
        # Small parts are joined: a write, and often a packet, for each part would cost more than the copy.
        if sum(map(len, parts)) <= PIECE:
            parts = [b"".join(parts)]
        for part in parts:  # a large body is not copied, so a client that doesn't read it costs no second copy
            if part:
                await self.send(RawData(data=part))

    async def _maybe_recycle(self) -> None:
        """Wait for the next request, unless the client knows that the connection ends.

        Hypercorn does not keep that promise when the server is ending.
        """
        await self._close_stream()
        connection = self.connection
        if self._lasts and connection.our_state is h11.DONE and connection.their_state is h11.DONE:
            connection.start_next_cycle()
            self.response = self.scope = None
            await self.can_read.set()
            await self.send(Updated(idle=True))
        else:
            await self.can_read.set()
            await self.send(Closed())


class _Exchange(HTTPStream):
    """A request and its response; it tells the protocol which piece of the response's body is the last."""

    protocol: Http1

    async def app_send(self, message: Any) -> None:
        if message is not None:
            self.protocol.ending = not message.get("more_body", False)
        await super().app_send(message)


class ClientLeft(Exception):
    """The client has left while another of its requests was waiting."""


class _NextRequest(EventWrapper):
    """The event for which the reader waits while a pipelined request must wait for the response to the one before.

    During the wait it continues to read, because otherwise no task would notice that the client leaves.

    Args:
        protocol: The protocol, which gets the bytes that arrive in the meantime.
        receive: Returns the next bytes; empty at the end, None when the time has run out.
        patience: How many more seconds to wait for the response once no more of what arrives can be kept.
    """

    def __init__(self, protocol: H11Protocol, receive: Callable[[], Awaitable[bytes | None]], patience: float) -> None:
        super().__init__()
        self.protocol = protocol
        self._receive = receive
        self._patience = patience
        self._left = False

    async def wait(self) -> None:
        # The exception is raised only outside the nursery, which would wrap it in an ExceptionGroup.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            await super().wait()
            nursery.cancel_scope.cancel("the response has been sent")
        if self._left:
            raise ClientLeft

    async def _watch(self) -> None:
        """Continue to read, within bounds, to learn whether the client leaves."""
        connection = self.protocol.connection
        room = MAX_RECEIVED - len(connection.trailing_data[0])
        while room > 0:
            data = await self._receive()
            if not data:
                break
            connection.receive_data(data)
            room -= len(data)
        else:
            # There is no room left. Without reading, nothing shows whether the client has left, so its time is limited.
            await trio.sleep(self._patience)
        self._left = True
        await self.set()
