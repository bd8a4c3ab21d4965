"""Reads and writes HTTP/1.1 over a Trio stream, through h11: the kit has no other loop that reads HTTP/1.1."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import h11
import trio

from trio_mcp.conformance.wires.notes import LONGEST, TooMuch
from trio_mcp.lines import CHUNK

__all__ = ["GONE", "H11Stream", "response_reader"]

GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
"""The exceptions that a stream raises after either side has ended the connection."""

HEAD_SIZE: Final = 256 * 1024
"""The maximum size of the head of a response, in bytes (an arbitrary choice)."""


class H11Stream:
    """One HTTP/1.1 connection, read through h11.

    Args:
        stream: The connection.
        protocol: The h11 state of this side; by default that of a server.
        count: Called with the size of each piece that is read.

    Attributes:
        stream: The connection.
        has_ended: Whether the peer has closed its side.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        protocol: h11.Connection | None = None,
        *,
        count: Callable[[int], object] | None = None,
    ) -> None:
        self.stream = stream
        self.has_ended = False
        self._h11 = h11.Connection(h11.SERVER) if protocol is None else protocol
        self._count = count

    @property
    def is_done(self) -> bool:
        """Whether the exchange is complete and both sides keep the connection open (RFC 9112, section 9.3)."""
        return self._h11.our_state is self._h11.their_state is h11.DONE

    @property
    def unread(self) -> bytes:
        """The bytes that h11 has not parsed."""
        return self._h11.trailing_data[0]

    async def serve(self, respond: Callable[[H11Stream, h11.Request, bytes], Awaitable[None]]) -> None:
        """Pass each request of a client with its body to a function that responds, until the connection ends.

        Raises:
            h11.RemoteProtocolError, TooMuch: As `next_request` raises them.
        """
        while (request := await self.next_request()) is not None:
            await respond(self, *request)
            if not self.next_cycle():
                return

    async def next_event(self) -> Any:
        """Read the next event.

        Raises:
            h11.RemoteProtocolError: If the peer breaks HTTP, or ends the connection in the middle of a message.
        """
        while (event := self._h11.next_event()) is h11.NEED_DATA:
            # A client may wait for status 100 before it sends the body, as curl does for a second.
            if self._h11.they_are_waiting_for_100_continue:
                await self.send(h11.InformationalResponse(status_code=100, headers=[]))
            await self._receive()
        return event

    async def next_request(self) -> tuple[h11.Request, bytes] | None:
        """Read a request with its body; return None once the client has closed the connection.

        Raises:
            TooMuch: If the body is longer than `LONGEST`.
            h11.RemoteProtocolError: See `next_event`.
        """
        request = await self.next_event()
        # A client may close the connection between two requests at any time (RFC 9112, section 9.5).
        if not isinstance(request, h11.Request):
            return None
        body = bytearray()
        while isinstance(part := await self.next_event(), h11.Data):
            body += part.data
            if len(body) > LONGEST:
                raise TooMuch(f"a body has more than {LONGEST} bytes")
        return request, bytes(body)

    def next_cycle(self) -> bool:
        """Prepare for the next exchange; return whether the connection is kept open for a further exchange."""
        if not self.is_done:
            return False
        self._h11.start_next_cycle()
        return True

    async def send(self, *events: Any) -> None:
        """Send h11 events in a single write."""
        await self.stream.send_all(b"".join(self._h11.send(event) or b"" for event in events))

    async def refuse(self, status: int, text: str) -> None:
        """Respond with a text, and a header that says that the connection is closed after it."""
        fields = [("Content-Type", "text/plain"), ("Content-Length", str(len(text))), ("Connection", "close")]
        with contextlib.suppress(h11.LocalProtocolError):
            await self.send(h11.Response(status_code=status, headers=fields))
            # h11 refuses to send a body in response to HEAD, which has none.
            await self.send(h11.Data(data=text.encode()))

    async def until_left(self) -> None:
        """Wait until the peer has ended the connection."""
        with contextlib.suppress(*GONE):
            # Bytes that come meanwhile belong to a pipelined next request, so h11 keeps them.
            while not self.has_ended:
                await self._receive()

    async def _receive(self) -> None:
        data = bytes(await self.stream.receive_some(CHUNK))
        if self._count is not None:
            self._count(len(data))
        self.has_ended = not data
        # Empty bytes tell h11 that the connection has ended: between two messages, the end is an event; within a
        # message, it is an error.
        self._h11.receive_data(data)


def response_reader(stream: trio.abc.Stream, method: str, *, count: Callable[[int], object] | None = None) -> H11Stream:
    """Return a reader of the response to a request that was written without h11.

    Args:
        stream: The connection.
        method: The method of the request.
        count: Called with the size of each piece that is read.
    """
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_SIZE)
    # h11 reads a response only after a request. It would refuse to write requests that are wrong on purpose, so it gets
    # a substitute, in which only HEAD affects how the response is read.
    parser.send(h11.Request(method="HEAD" if method == "HEAD" else "POST", target="/", headers=[("Host", "-")]))
    parser.send(h11.EndOfMessage())
    return H11Stream(stream, parser, count=count)
