"""The server's run as an HTTP endpoint sees it; `trio_mcp.server` implements it and is not imported here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import trio

from trio_mcp.eras.server_negotiation import ClientDeclaration, ServerIdentity
from trio_mcp.http.rules.statuses import Refusal
from trio_mcp.http.server.statistics import HttpStatistics
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.link import Link
from trio_mcp.principal import Principal
from trio_mcp.session.handlers import RequestHooks
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.server import ServerSession
from trio_mcp.session.sink import SessionSink, Sink

if TYPE_CHECKING:  # few servers have stores
    from trio_mcp.stores.contract import Stores

__all__ = ["ExchangeSink", "Hooks", "HostedClient", "HostedRun", "HostedServer", "Runnable"]


# The classes of `trio_mcp.server` are described by protocols rather than imported, because that package imports this
# one in order to serve over HTTP, and imports must go one way only.


class ExchangeSink(Sink, Protocol):
    """The destination of all messages that belong to one modern request."""

    @property
    def waiting(self) -> int:
        """The number of messages that have not been sent yet."""

    async def flush(self) -> None:
        """Wait until the request has ended and its response has been sent."""


class HostedServer(Protocol):
    """A server, as an HTTP endpoint sees it."""

    @property
    def identity(self) -> ServerIdentity:
        """The server's declaration about itself: its name, its capabilities and its revisions."""

    @property
    def options(self) -> SessionOptions:
        """The limits and hooks for requests that the server handles."""

    @property
    def scoped(self) -> str:
        """A description of something that needs scopes, such as ``"the tool 'write'"``; empty if nothing does."""

    @property
    def stores(self) -> Stores | None:
        """The server's own stores, which keep the messages of sessions, too; None without any."""

    @property
    def inherited(self) -> Any:
        """The secrets that the supervisor of this process gave it; None without one."""

    def needed_scopes(self, method: str, params: Mapping[str, Any]) -> frozenset[str]:
        """Return the scopes that a request needs."""

    def input_schema(self, tool: str) -> dict[str, Any] | None:
        """Return the input schema of a tool, or None if the tool is unknown.

        The schema is the same object for as long as the tool is registered, so that a caller can cache by identity.
        """


class HostedClient(Protocol):
    """The session of a client that has a link of its own.

    Attributes:
        ending: Whether further requests are refused.
    """

    ending: bool

    async def end_listening(self) -> None:
        """Send the client the notifications about the last changes; this takes bounded time."""

    async def wait_settled(self) -> None:
        """Wait until no request from the client is under way."""

    async def aclose(self) -> None:
        """End the session."""


class Hooks(RequestHooks, Protocol):
    """The hooks that handle one modern request.

    Attributes:
        refusal: A refusal from which the response gets its status and headers, if nothing has been sent yet; or None.
    """

    refusal: Refusal | None

    async def end_listening(self) -> None:
        """Respond to the request if it is a ``subscriptions/listen``; this takes bounded time."""


class HostedRun(Protocol):
    """One run of a server, from entering its lifespan to leaving it."""

    @property
    def served(self) -> HostedServer:
        """The server that runs."""

    @property
    def nursery(self) -> trio.Nursery:
        """The nursery for tasks that may outlive a request, but not the run."""

    @property
    def endpoints(self) -> list[Callable[[], HttpStatistics]]:
        """A function for each endpoint that serves the run, which returns the statistics of the endpoint."""

    permit: Callable[[Principal, Collection[str]], Refusal | None] | None
    """Checks the scopes of requests that have not been checked before; see `Protection.permit`."""

    @property
    def healthy(self) -> bool:
        """Whether the server's stores, if it has any, could be used at the last attempt."""

    def seen(self) -> int:
        """Return the number of the newest change, in any process, that the listeners of this run hear of."""

    @property
    def exchanges(self) -> set[Any]:
        """The modern requests that are being served."""

    def exchange(self, sink: ExchangeSink, incoming: IncomingRequest, client: ClientDeclaration) -> Hooks:
        """Return the hooks that handle one modern request, and add them to `exchanges`; the caller removes them.

        Args:
            sink: The destination of everything that belongs to the request.
            incoming: The request.
            client: What the request declares about its client.
        """

    def connect(self, sink: SessionSink, *, lasting: bool) -> ServerSession:
        """Return a connection of the legacy era, to which the caller feeds messages.

        The connection belongs to the run from the call of its `begin` to that of its `finish`.

        Args:
            sink: The destination of the connection's messages.
            lasting: Whether the client can be sent messages after the response to its request.
        """

    async def serve_opening(
        self, opening: contextlib.AbstractAsyncContextManager[Link], opened: Callable[[HostedClient], object]
    ) -> None:
        """Open a link and serve it until the client closes it.

        Args:
            opening: Opens the link.
            opened: Called with the session when the link is open.
        """

    async def end_listening(self) -> None:
        """Send listening clients the last changes, and tell them that the server ends; this takes bounded time."""

    def ending_gracefully(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a context manager; its block is cancelled only after listening clients know that the server ends."""


class Runnable(Protocol):
    """A server that can be run."""

    def open_run(self) -> contextlib.AbstractAsyncContextManager[HostedRun]:
        """Return a context manager that runs the server for the duration of its block."""
