"""What an HTTP endpoint needs of the server's run that it serves; `trio_mcp.server` has it, and is not known here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import trio

from trio_mcp.eras.server_negotiation import ClientDeclaration, ServerIdentity
from trio_mcp.http.server.statistics import HttpStatistics
from trio_mcp.jsonrpc.messages import ErrorResponse, Incoming, Request, RequestId, Response
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.session.handlers import RequestHooks
from trio_mcp.session.options import SessionOptions
from trio_mcp.session.sink import SessionSink, Sink

__all__ = ["ExchangeSink", "HostedConnection", "Run", "Served"]


class ExchangeSink(Sink, Protocol):
    """Where everything goes that belongs to one request of the modern era."""

    @property
    def waiting(self) -> int:
        """How many messages have not been sent."""

    async def flush(self) -> None:
        """Wait until the request is over, and its answer has been sent."""


class HostedConnection(Protocol):
    """One client of the handshake era: a session that is fed, instead of reading from a link."""

    @property
    def client(self) -> ClientDeclaration | None:
        """What the handshake declared; None before it."""

    @property
    def initialized(self) -> bool:
        """Whether the client has confirmed the handshake."""

    @property
    def closed(self) -> bool:
        """Whether it has ended."""

    @property
    def close_cause(self) -> Exception | None:
        """Why it has ended."""

    @property
    def busy(self) -> bool:
        """Whether a request of the client's is under way."""

    def begin(self, nursery: trio.Nursery) -> None:
        """Run what belongs to it in a nursery, from now until `end`."""

    def presume(self, revision: str) -> None:
        """Take the handshake for done, by a client that has said nothing of itself."""

    def initialize(self, request: Request, metadata: Mapping[str, Any]) -> Response | ErrorResponse:
        """Answer ``initialize``."""

    def feed(self, message: Incoming, metadata: Mapping[str, Any] | None = None) -> None:
        """Take what the client has sent."""

    def serves(self, request_id: RequestId) -> bool:
        """Whether a request of the client's is running or queued, unanswered and not cancelled."""

    async def wait_idle(self) -> None:
        """Wait until no handler runs."""

    async def wait_settled(self) -> None:
        """Wait until no request of the client's is under way."""

    def end(self, why: str) -> None:
        """End it: handlers are cancelled, calls raise `SessionClosed`. Again is a no-op."""

    def finish(self) -> None:
        """Nothing that belonged to it runs any more."""


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

    def connect(self, sink: SessionSink, *, lasting: bool) -> HostedConnection:
        """Make a connection of the handshake era.

        Args:
            sink: Where its messages go.
            lasting: Whether the client can still be told things when its request is answered.
        """

    async def end_listening(self) -> None:
        """Tell everyone who listens what has changed, and of the end; within bounds."""

    def ending_gracefully(self) -> contextlib.AbstractAsyncContextManager[None]:
        """A block that is cancelled only after everyone who listens has been told of the end."""
