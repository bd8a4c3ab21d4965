"""One request of the modern era that comes alone, as over HTTP: who answers it, without a session around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.http.server.host import ExchangeSink
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.jsonrpc.messages import ErrorData
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.server.audience import Audience
from trio_mcp.server.connection import answer_request
from trio_mcp.server.context import Context
from trio_mcp.session.context import RequestContext
from trio_mcp.session.handlers import error_for
from trio_mcp.session.session import SessionStatistics

if TYPE_CHECKING:
    from trio_mcp.server.serving import Serving

__all__ = ["Exchange"]


class Exchange:
    """The hooks of a `trio_mcp.session.handlers.Handlers` that answers one request.

    Args:
        serving: The run of the server.
        sink: Where everything goes that belongs to the request; its `flush` waits until that has been sent.
        peer: What is in flight: this request.
        client: What it declares; it has been judged already.
    """

    def __init__(self, serving: Serving, sink: ExchangeSink, peer: Peer, client: ClientDeclaration) -> None:
        self.serving = serving
        self._sink = sink
        self._peer = peer
        self._client = client
        self._audience: Audience | None = None

    def make_context(self, incoming: IncomingRequest) -> Context[Any]:
        return Context(incoming, self._sink, self, self.serving.states[self.serving.server])

    def intercept(self, context: RequestContext) -> dict[str, Any] | None:
        context.client = self._client
        if context.method == "server/discover":
            return self.serving.server.identity.discover(self._client)
        return None

    async def received_request(self, context: RequestContext) -> Any:
        return await answer_request(self.serving.server, context)

    def error_for(self, exc: Exception, context: RequestContext) -> ErrorData:
        return error_for(exc, context.method)

    # --- what a handler asks of its client -----------------------------------------------------------------------

    @property
    def trio_token(self) -> trio.lowlevel.TrioToken:
        return trio.lowlevel.current_trio_token()

    @property
    def room(self) -> Callable[[], Awaitable[None]]:
        """Waits until something may be sent."""
        return self._sink.room

    @property
    def audience(self) -> Audience:
        """What the client hears of."""
        if self._audience is None:
            self._audience = Audience(self.serving.changes)
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
            with trio.move_on_after(self.serving.server.options.close_grace, shield=True):
                await self._sink.flush()
