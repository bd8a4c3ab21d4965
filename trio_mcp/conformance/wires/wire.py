"""The interface of a wire, the conformance kit's raw connection to a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeAlias

import trio

from trio_mcp.conformance.steps import Headers, Http
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.notes import Notes, to_text

__all__ = ["MessageWire", "OpenWire", "Wire"]


class Wire(Protocol):
    """The conformance kit's side of a raw connection to the target; a tape records all that is sent or received.

    A separate task reads continuously. If the peer ends the connection, no method raises: the end is noted as
    ``close``, and whatever can't be sent is noted as an ``unsent`` mark. Every wait is bounded.

    Attributes:
        transport: ``stdio``, ``tcp``, ``tls``, ``unix``, ``websocket``, ``http``, ``sse``, ``memory`` or ``link``.
        number: The number by which events identify the connection.
        is_open: Whether the target can still be reached over the wire, as far as is known.
    """

    transport: str
    number: int

    @property
    def is_open(self) -> bool: ...

    async def send(self, message: Any, *, headers: Headers = ...) -> None:
        """Send a JSON value as a message; over HTTP in a POST with matching headers, which ``headers`` may override.

        Over HTTP, this returns once the request is written; a task of the wire reads the response.
        """

    async def write(self, texts: Sequence[bytes], *, framed: bool = True, headers: Headers = ...) -> None:
        """Send texts as they are, each framed as a message of the transport, or not framed at all."""

    @property
    def tokens(self) -> frozenset[str]:
        """The names of the tokens that can be sent over the wire; see `trio_mcp.conformance.credentials`."""
        ...

    def act_as(self, user: str) -> None:
        """Over HTTP, send the token with this name from now on; over other transports, do nothing."""

    async def http(self, step: Http) -> None:
        """Make an HTTP request; over other transports, do nothing."""

    async def cancel(self, request_id: Any, reason: str | None) -> None:
        """Cancel a request: with a notification, or in the modern era over HTTP by closing its response."""

    async def stop(self, how: Literal["close", "reset", "half"], which: int) -> None:
        """End the connection; over HTTP, one of the open responses, chosen by ``which`` modulo their number."""

    async def resume(self, which: int) -> None:
        """Over HTTP, resume one of the broken streams, chosen by ``which`` modulo their number."""


class MessageWire:
    """The base class of all wires except those over HTTP; the connection of such a wire carries messages both ways.

    Attributes:
        notes: Records everything that happens on the connection.
    """

    notes: Notes

    @property
    def is_open(self) -> bool:
        """Whether neither side has ended the connection."""
        return self.notes.is_open

    async def send(self, message: Any, *, headers: Headers | None = None) -> None:
        """Send a JSON value as a message."""
        await self.write([to_text(message)])

    async def write(self, texts: Sequence[bytes], *, framed: bool = True, headers: Headers | None = None) -> None:
        """Send texts as they are."""
        raise NotImplementedError

    @property
    def tokens(self) -> frozenset[str]:
        """No tokens: authorization is defined for HTTP only."""
        return frozenset()

    def act_as(self, user: str) -> None:
        """Do nothing, because the transport has no tokens."""

    async def http(self, step: Http) -> None:
        """Do nothing, because the transport is not HTTP."""
        await trio.lowlevel.checkpoint()

    async def cancel(self, request_id: Any, reason: str | None) -> None:
        """Cancel a request with a notification."""
        params = {"requestId": request_id} | ({} if reason is None else {"reason": reason})
        await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def resume(self, which: int) -> None:
        """Do nothing: only streams over HTTP can be resumed."""
        await trio.lowlevel.checkpoint()


OpenWire: TypeAlias = Callable[[Tape, int, str], AbstractAsyncContextManager[Wire]]
"""A function that opens a wire, given the tape, the number of the connection and the revision to speak.

The caller does the handshake. The function raises `trio_mcp.TransportError` if the target can't be reached.
"""
