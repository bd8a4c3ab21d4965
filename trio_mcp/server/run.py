"""One run of a server: from the entry of its lifespan to its exit. It may have one client (stdio) or many."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.link import Link
from trio_mcp.server.changes import Changes
from trio_mcp.server.connection import Connection, Exchange, Served
from trio_mcp.server.input.rounds import InputRun
from trio_mcp.session.sink import SessionSink

if TYPE_CHECKING:  # a server on stdio needs nothing of HTTP
    from trio_mcp.http.server.host import ExchangeSink
    from trio_mcp.http.server.statistics import HttpStatistics

__all__ = ["Run", "ServerStatistics"]


@attrs.define(eq=False)
class Run:
    """What all clients of one run of a server share.

    Attributes:
        served: The server.
        states: What its lifespan yielded, and those of the servers that are mounted in it, by their settings; None
            without a lifespan.
        nursery: For what outlives a request and a connection, but not the run. It is cancelled before the lifespan
            ends.
        changes: Tells them what has changed.
        input: What those share who ask a client for input.
        connections: The clients that are connected.
        exchanges: Requests of the modern era that belong to no connection.
        endpoints: What tells of each HTTP endpoint that serves the run.
    """

    served: Served
    states: Mapping[Any, Any]
    nursery: trio.Nursery
    changes: Changes
    input: InputRun
    connections: set[Connection] = attrs.field(factory=set, init=False)
    exchanges: set[Any] = attrs.field(factory=set, init=False)
    endpoints: list[Callable[[], HttpStatistics]] = attrs.field(factory=list, init=False)

    @property
    def clients(self) -> list[Connection | Exchange]:
        """Everyone who is served now."""
        return [*self.connections, *self.exchanges]

    def exchange(self, sink: ExchangeSink, peer: Peer, client: ClientDeclaration) -> Exchange:
        """Give what answers one request of the modern era; whoever asks takes it out of the exchanges at its end."""
        exchange = Exchange(self, sink, peer, client)
        self.exchanges.add(exchange)
        return exchange

    def connect(self, sink: SessionSink, *, lasting: bool) -> Connection:
        """Make a connection that is fed; it belongs to the run from `begin` to `finish`."""
        return Connection(self, (None, sink), lasting=lasting)

    async def serve_link(self, link: Link) -> None:
        """Serve one link until the client closes it.

        When cancelled, those who listen for changes get their results, then handlers are cancelled, and the link is
        closed.
        """
        connection = Connection(self, link)
        async with self.ending_gracefully([connection]):
            await self._serve(connection)

    async def serve_only_link(
        self, opening: contextlib.AbstractAsyncContextManager[Link], opened: Callable[[], object]
    ) -> None:
        """As `serve_link`, for a link that ends with the run: it, too, is cancelled only when the results have left.

        Args:
            opening: Gives the link.
            opened: Called when it is there.
        """
        block = trio.CancelScope()
        async with self.ending_gracefully(self.connections, block), opening as link:
            opened()
            with block:
                await self._serve(Connection(self, link))

    async def _serve(self, connection: Connection) -> None:
        self.connections.add(connection)
        try:
            async with connection:
                await connection.wait_closed()
        finally:
            connection.audience.forget_everything()
            self.connections.discard(connection)

    @contextlib.asynccontextmanager
    async def ending_gracefully(
        self, connections: Collection[Connection] | None = None, inner: trio.CancelScope | None = None
    ) -> AsyncIterator[None]:
        """A block that is cancelled only after everyone who listens has been told of the end.

        Args:
            connections: Whose listeners; None for everyone's.
            inner: What is cancelled then instead of all of it: what is around that can still send what it holds.
        """
        async with background_nursery() as nursery:
            with trio.CancelScope(shield=True) as whole:
                nursery.start_soon(self._await_cancellation, connections, whole, inner or whole)
                yield

    async def _await_cancellation(
        self, connections: Collection[Connection] | None, whole: trio.CancelScope, block: trio.CancelScope
    ) -> None:
        try:
            await trio.sleep_forever()
        finally:  # cancelled from outside, or by the end of the block
            clients = self.clients if connections is None else connections
            ending = [client for client in clients if client.has_listeners]
            with trio.CancelScope(shield=True):  # each of them has a deadline
                await self.end_listening(connections)
            (block if ending else whole).cancel("the server ends")

    async def end_listening(self, connections: Collection[Connection] | None = None) -> None:
        """Tell everyone who listens what has changed, and of the end; within bounds."""
        self.changes.tell_all()
        async with trio.open_nursery() as nursery:
            for client in self.clients if connections is None else connections:
                nursery.start_soon(client.end_listening)


@attrs.frozen
class ServerStatistics:
    """What a server offers and what it is doing, in all of its runs, also those of servers in which it is mounted.

    Attributes:
        tools: Tools that it offers, mounted ones included; so for all kinds.
        resources: Resources, without the templates.
        resource_templates: Resource templates.
        prompts: Prompts.
        completions: Arguments that have a completion function.
        runs: Runs that are going on: entries of the lifespan.
        sessions: Sessions that are open: one for each link; over HTTP one for each session, and for each request that
            belongs to none.
        incoming: Requests that are neither answered nor cancelled, running or queued.
        running: Handlers that run, those that listen aside.
        queued: Requests that wait until fewer handlers of their session run.
        outgoing: Requests to clients that wait for their answer.
        parked: Handlers with ``park_input`` that wait for input between two requests.
        listening: Requests ``subscriptions/listen`` that are open.
        topics: What somebody hears the changes of: lists, and resources by URI.
        watched_resources: How many of these are resources.
        changes_waiting: Changes that somebody is yet to be told of.
        messages_waiting: Messages that wait for a link.
        http: The HTTP endpoints that it is served on.
    """

    tools: int
    resources: int
    resource_templates: int
    prompts: int
    completions: int
    runs: int
    sessions: int
    incoming: int
    running: int
    queued: int
    outgoing: int
    parked: int
    listening: int
    topics: int
    watched_resources: int
    changes_waiting: int
    messages_waiting: int
    http: tuple[HttpStatistics, ...]
