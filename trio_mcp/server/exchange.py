"""One request of the modern era that comes alone, as over HTTP: who answers it, without a session around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.http.server.host import ExchangeSink
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.jsonrpc.messages import ErrorData
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.server.audience import Audience
from trio_mcp.server.connection import SharedByClients
from trio_mcp.session.handlers import RequestContext, error_for
from trio_mcp.session.session import SessionStatistics

__all__ = ["Exchange"]


class Exchange:
    """The hooks of a `trio_mcp.session.handlers.Handlers` that answers one request.

    Args:
        run: The run of the server.
        sink: Where everything goes that belongs to the request.
        peer: What is in flight: this request.
        client: What it declares; it has been judged already.

    Attributes:
        states, input, trio_token: As those of a `Connection`.
    """

    def __init__(self, run: SharedByClients, sink: ExchangeSink, peer: Peer, client: ClientDeclaration) -> None:
        self.states = run.states
        self.input = run.input
        self.trio_token = trio.lowlevel.current_trio_token()
        self._served = run.served
        self._changes = run.changes
        self._sink = sink
        self._peer = peer
        self._client = client
        self._audience: Audience | None = None

    def make_context(self, incoming: IncomingRequest) -> RequestContext:
        return self._served.make_context(incoming, self._sink, self, self.states.get(self._served.settings))

    def intercept(self, context: RequestContext) -> dict[str, Any] | None:
        context.client = self._client
        return self._served.identity.discover(self._client) if context.method == "server/discover" else None

    async def received_request(self, context: RequestContext) -> Any:
        return await self._served.answer(context)

    def error_for(self, exc: Exception, context: RequestContext) -> ErrorData:
        return error_for(exc, context.method)

    # --- what a handler asks of its client -----------------------------------------------------------------------

    @property
    def room(self) -> Callable[[], Awaitable[None]]:
        """Waits until something may be sent."""
        return self._sink.room

    @property
    def audience(self) -> Audience:
        """What the client hears of."""
        if self._audience is None:
            self._audience = Audience(self._changes)
        return self._audience

    # --- what the run asks ---------------------------------------------------------------------------------------

    @property
    def changes_waiting(self) -> int:
        """How many changes its client has not been told yet."""
        return 0 if self._audience is None else self._audience.waiting

    def statistics(self) -> SessionStatistics:
        """Tell what is going on, as a session does."""
        peer = self._peer
        return SessionStatistics(
            outgoing=0,
            incoming=peer.incoming_count,
            running=peer.running_count,
            queued=0,
            listening=peer.listening_count,
            bulk_waiting=self._sink.waiting,
            control_waiting=0,
            flushed=not self._sink.waiting,
            notices_waiting=0,
            closed=peer.closed,
        )

    @property
    def has_listeners(self) -> bool:
        """Whether it is a ``subscriptions/listen``."""
        return self._peer.listening_count > 0

    async def end_listening(self) -> None:
        """End a ``subscriptions/listen`` with a result, and wait up to ``close_grace`` seconds until that is sent."""
        self.audience.end()
        if self.has_listeners:
            with trio.move_on_after(self._served.options.close_grace, shield=True):
                await self._sink.flush()
