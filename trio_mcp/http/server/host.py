"""What an HTTP endpoint needs of the server's run that it serves; `trio_mcp.server` has it, and is not known here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import trio

from trio_mcp.eras.server_negotiation import ClientDeclaration, ServerIdentity
from trio_mcp.http.server.statistics import HttpStatistics
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.session.handlers import RequestHooks
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.server import ServerSession
from trio_mcp.session.sink import SessionSink, Sink

__all__ = ["ExchangeSink", "Run", "Served"]


class ExchangeSink(Sink, Protocol):
    """Where everything goes that belongs to one request of the modern era."""

    @property
    def waiting(self) -> int:
        """How many messages have not been sent."""

    async def flush(self) -> None:
        """Wait until the request is over, and its answer has been sent."""


class Served(Protocol):
    """The server."""

    @property
    def identity(self) -> ServerIdentity:
        """What it says of itself."""

    @property
    def options(self) -> SessionOptions:
        """Limits and hooks of what it answers."""

    def input_schema(self, tool: str) -> dict[str, Any] | None:
        """The input schema of a tool; None for one that is not known. It is the same object as long as the tool is."""


class Run(Protocol):
    """One run of a server, from the entry of its lifespan to its exit."""

    @property
    def served(self) -> Served:
        """The server."""

    @property
    def nursery(self) -> trio.Nursery:
        """The home of what outlives a request, but not the run."""

    @property
    def endpoints(self) -> list[Callable[[], HttpStatistics]]:
        """What tells of each endpoint that serves the run."""

    @property
    def exchanges(self) -> set[Any]:
        """Requests of the modern era that are being served."""

    def exchange(self, sink: ExchangeSink, peer: Peer, client: ClientDeclaration) -> RequestHooks:
        """Give what answers one request of the modern era; it is among the `exchanges` until it is taken out there.

        Args:
            sink: Where everything goes that belongs to it.
            peer: What is in flight: it.
            client: What it declares.
        """

    def connect(self, sink: SessionSink, *, lasting: bool) -> ServerSession:
        """Make a connection of the legacy era, which is fed; it belongs to the run from `begin` to `finish`.

        Args:
            sink: Where its messages go.
            lasting: Whether the client can still be told things when its request is answered.
        """

    async def end_listening(self) -> None:
        """Tell everyone who listens what has changed, and of the end; within bounds."""

    def ending_gracefully(self) -> contextlib.AbstractAsyncContextManager[None]:
        """A block that is cancelled only after everyone who listens has been told of the end."""
