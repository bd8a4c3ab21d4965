"""Serves one client (stdio) or many clients during one run of a server, from entering the lifespan to leaving it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._nursery import background_nursery
from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.link import Link
from trio_mcp.server.changes import Changes
from trio_mcp.server.input.options import InputRun
from trio_mcp.server.served_session import (
    LayeredRequest,
    Permit,
    Served,
    ServedSession,
    SingleRequest,
)
from trio_mcp.session.sink import SessionSink

if TYPE_CHECKING:  # a server on stdio never loads HTTP, and few servers have stores
    from trio_mcp.http.server.host import ExchangeSink
    from trio_mcp.http.server.statistics import HttpStatistics
    from trio_mcp.server.bus import Bus

__all__ = ["Run"]


@attrs.define(eq=False)
class Run:
    """The state that all clients of one run of a server share.

    Attributes:
        served: The server.
        states: The states that the lifespans of the server and of those mounted in it yielded, keyed by their settings;
            None without a lifespan.
        nursery: For tasks that outlive a request or a session, but not the run. This nursery is cancelled before the
            lifespan ends.
        changes: Notifies clients of changes.
        input: The shared state for asking clients for input.
        bus: Shares the changes with other processes; None without stores.
        connections: The sessions that are open.
        exchanges: Requests of the modern era that belong to no session.
        permit: Checks the scopes of requests over HTTP: see `Protection.permit`. None where there is no HTTP.
        endpoints: A function for each HTTP endpoint of the run that returns its statistics.
    """

    served: Served
    states: Mapping[Any, Any]
    nursery: trio.Nursery
    changes: Changes
    input: InputRun
    _request: type[SingleRequest] = attrs.field(init=False)
    permit: Permit | None = attrs.field(default=None, init=False)
    bus: Bus | None = attrs.field(default=None, init=False)
    connections: set[ServedSession] = attrs.field(factory=set, init=False)
    exchanges: set[Any] = attrs.field(factory=set, init=False)
    endpoints: list[Callable[[], HttpStatistics]] = attrs.field(factory=list, init=False)

    # The class is chosen once, so that a request costs nothing more if the server has no middleware for it.
    @_request.default
    def _request_class(self) -> type[SingleRequest]:
        layers = self.served.layers
        return LayeredRequest if layers.handle_request or layers.send_notification else SingleRequest

    @property
    def clients(self) -> list[ServedSession | SingleRequest]:
        """All sessions and single requests that are being served."""
        return [*self.connections, *self.exchanges]

    @property
    def healthy(self) -> bool:
        """Whether the server's stores, if it has any, could be used at the last attempt."""
        return self.bus is None or not self.bus.fails

    def seen(self) -> int:
        """Return the number of the newest change, in any process, that the listeners of this run hear of."""
        return 0 if self.bus is None else self.bus.seen

    def exchange(self, sink: ExchangeSink, incoming: IncomingRequest, client: ClientDeclaration) -> SingleRequest:
        """Return the hooks for one request of the modern era; at its end, the caller removes them from `exchanges`."""
        exchange = self._request(self, sink, incoming, client)
        self.exchanges.add(exchange)
        return exchange

    def connect(self, sink: SessionSink, *, lasting: bool) -> ServedSession:
        """Return a session to which the caller feeds messages; from `begin` to `finish` it is in `connections`."""
        # None takes the place of the channel to read from: over HTTP, the session gets the message of each POST through
        # `feed`.
        return ServedSession(self, (None, sink), lasting=lasting)

    async def serve_link(self, link: Link) -> None:
        """Serve one link until the client closes it.

        When this method is cancelled, it responds to open ``subscriptions/listen`` requests, then cancels handlers and
        closes the link.
        """
        # Only this link's connection is ended: the run still serves other links when this method is cancelled.
        connection = ServedSession(self, link)
        async with self.ending_gracefully([connection]):
            await self._serve(connection)

    async def serve_opening(
        self, opening: contextlib.AbstractAsyncContextManager[Link], opened: Callable[[ServedSession], object]
    ) -> None:
        """Open a link and serve it like `serve_link`; the link itself is not cancelled before the results are sent.

        Args:
            opening: Opens the link.
            opened: Called with the session when the link is open.
        """
        # The tasks of the link (its reader and its writer) run inside `opening`. If they were cancelled together with
        # the session, they could not write the last results. So only the inner block is cancelled.
        block = trio.CancelScope()
        served: list[ServedSession] = []
        async with self.ending_gracefully(served, block), opening as link:
            connection = ServedSession(self, link)
            served.append(connection)
            opened(connection)
            with block:
                await self._serve(connection)

    async def _serve(self, connection: ServedSession) -> None:
        self.connections.add(connection)
        try:
            async with connection:
                await connection.wait_closed()
        finally:  # a session that has ended must neither be counted nor be notified of changes
            connection.audience.forget_everything()
            self.connections.discard(connection)

    @contextlib.asynccontextmanager
    async def ending_gracefully(
        self, connections: Collection[ServedSession] | None = None, inner: trio.CancelScope | None = None
    ) -> AsyncIterator[None]:
        """Delay the cancellation of a block until open ``subscriptions/listen`` requests have received their responses.

        Args:
            connections: The clients whose requests are ended; None for all.
            inner: The scope to cancel instead of the whole block, so that the link around that scope can still flush.
        """
        # The block is shielded from cancellation. When a cancellation comes, a task outside the shield first sends the
        # responses, and then cancels the block.
        async with background_nursery() as nursery:
            with trio.CancelScope(shield=True) as whole:
                nursery.start_soon(self._await_cancellation, connections, whole, inner or whole)
                yield

    async def _await_cancellation(
        self, connections: Collection[ServedSession] | None, whole: trio.CancelScope, block: trio.CancelScope
    ) -> None:
        try:
            await trio.sleep_forever()
        finally:  # the cancellation comes from outside, or from background_nursery when the block ends
            clients = self.clients if connections is None else connections
            # The clients with listeners are collected before these listeners end, because afterwards no client has a
            # listener.
            ending = [client for client in clients if client.has_listeners]
            with trio.CancelScope(shield=True):  # the wait is bounded: each client has close_grace seconds
                await self.end_listening(connections)
            # If there was no listener, nothing needs to be sent any more, so the link is cancelled at once as well.
            (block if ending else whole).cancel("the server is ending")

    async def end_listening(self, connections: Collection[ServedSession] | None = None) -> None:
        """Notify listeners of all remaining changes, and end their requests, within ``close_grace`` seconds."""
        # The task that usually notifies listeners has been cancelled together with the server.
        self.changes.tell_all()
        # The clients' listeners end concurrently: each client may take `close_grace` seconds, and the times of several
        # clients must not add up.
        async with trio.open_nursery() as nursery:
            for client in self.clients if connections is None else connections:
                nursery.start_soon(client.end_listening)
