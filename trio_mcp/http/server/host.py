"""What an HTTP endpoint needs of the server's run that it serves; `trio_mcp.server` has it, and is not known here."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import trio

from trio_mcp.eras.server_negotiation import ClientDeclaration, ServerIdentity
from trio_mcp.jsonrpc.messages import Incoming, Request
from trio_mcp.session.options import SessionOptions

__all__ = ["HostedConnection", "HostedExchange", "Run"]


class HostedExchange(Protocol):
    """What answers the single request of a modern POST: the answering half of a session, in the task of the POST."""

    async def serve(self, request: Request, metadata: dict[str, Any]) -> None:
        """Run the handler in this task; what it sends goes to the sink, and last its answer, if it gets one."""
        ...

    def end(self, why: str) -> None:
        """Cancel the handler: nothing is answered any more. Again is a no-op."""
        ...

    @property
    def close_cause(self) -> Exception | None:
        """Why nothing is answered any more."""
        ...


class HostedConnection(Protocol):
    """One client of the handshake era: a session that is fed, instead of reading from a link."""

    @property
    def client(self) -> ClientDeclaration | None:
        """What the handshake declared; None before it."""
        ...

    @property
    def initialized(self) -> bool:
        """Whether the client has confirmed the handshake."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        ...

    @property
    def close_cause(self) -> Exception | None:
        """Why it has ended."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a request of the client's is under way."""
        ...

    def presume(self, revision: str) -> None:
        """Take the handshake for done, by a client that has said nothing of itself."""
        ...

    def feed(self, message: Incoming, metadata: dict[str, Any] | None = None) -> None:
        """Take what the client has sent."""
        ...

    def is_open(self, request_id: object) -> bool:
        """Whether a request of the client's is queued or running, and not cancelled."""
        ...

    def end(self, why: str) -> None:
        """End it: handlers are cancelled, calls raise `SessionClosed`. Again is a no-op."""
        ...

    async def idle(self) -> None:
        """Wait until no handler runs."""
        ...

    async def host(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run what belongs to it, until `end`. A fault of its own costs nobody else anything."""
        ...


class Run(Protocol):
    """One run of a server, from the entry of its lifespan to its exit."""

    @property
    def identity(self) -> ServerIdentity:
        """What the server says of itself."""
        ...

    @property
    def options(self) -> SessionOptions:
        """The limits of its sessions."""
        ...

    @property
    def nursery(self) -> trio.Nursery:
        """The home of what outlives a request, but not the run."""
        ...

    def input_schema(self, tool: str) -> dict[str, Any] | None:
        """The input schema of a tool; None for one that is not known. The same object as long as the tool is."""
        ...

    def exchange(self, sink: Any) -> HostedExchange:
        """What answers one modern request, through a `session.sink.Sink`. It listens for changes until it has ended."""
        ...

    def connect(self, sink: Any, *, lasting: bool) -> HostedConnection:
        """A connection of the handshake era whose messages go to a `session.sink.Sink`.

        Args:
            sink: Where they go.
            lasting: Whether the client can still be told things when its request is answered.
        """
        ...

    async def end_listening(self) -> None:
        """Tell everyone who listens what has changed, and of the end; within bounds."""
        ...

    def ending_gracefully(self) -> contextlib.AbstractAsyncContextManager[None]:
        """A block that is cancelled only after everyone who listens has been told of the end."""
        ...
