"""One client of a server: a session whose requests go to the server's handlers, through its middleware."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from trio_mcp.errors import TransportError, TrioMcpError
from trio_mcp.protocol.trace_context import CURRENT_TRACE, TraceContext
from trio_mcp.server.context import Context
from trio_mcp.server.logging import CURRENT
from trio_mcp.session.responder import Responder
from trio_mcp.session.server import ServerSession
from trio_mcp.types.meta import BAGGAGE, TRACEPARENT

if TYPE_CHECKING:
    from trio_mcp.link import Link
    from trio_mcp.server.core import ServerCore
    from trio_mcp.server.serving import Serving

__all__ = ["Connection", "Handler", "Middleware"]

Handler: TypeAlias = Callable[["ServerCore", Context[Any]], Awaitable[dict[str, Any]]]
Middleware: TypeAlias = Callable[[Context[Any], Callable[[], Awaitable[dict[str, Any]]]], Awaitable[dict[str, Any]]]
"""``async (context, call_next) -> result``: see `Server`."""


class Connection(ServerSession):
    """A session of a `Server`.

    Attributes:
        serving: The run of the server that it belongs to.
        subscriptions: The URIs of the resources whose changes the client wants to hear of (legacy era).
    """

    def __init__(self, serving: Serving, link: Link) -> None:
        read, write = link
        server = serving.server
        super().__init__(read, write, server.identity, options=server.options, on_error=server.on_error)
        self.serving = serving
        self._server = server
        self._state = serving.state
        self._changed: dict[tuple[str, str | None], None] = {}  # in order: what came first is told first
        self.subscriptions: set[str] = set()
        self._change = trio.Event()
        self._trio_token = trio.lowlevel.current_trio_token()

    async def received_request(self, responder: Responder) -> None:
        server = self._server
        handler = server._methods.get(responder.method)
        if handler is None:
            await super().received_request(responder)
            return
        CURRENT.set((responder, self._trio_token))
        meta = responder.meta
        # What this task has inherited is the trace in which the server was started, not that of the request.
        if TRACEPARENT in meta or BAGGAGE in meta or CURRENT_TRACE.get() is not None:
            CURRENT_TRACE.set(TraceContext.from_meta(meta))
        context: Context[Any] = Context(responder, self._state)
        if server.middleware:
            result = await _through(server.middleware, 0, context, lambda: handler(server, context))
            if type(result) is not dict:
                raise TypeError(f"a middleware must return the result, a dict; got {type(result).__name__}")
        else:
            result = await handler(server, context)
        await responder.respond(result)

    def announce(self, method: str, uri: str | None = None) -> None:
        """Send a notification soon, from any thread; several of one kind become one.

        Args:
            method: The notification's.
            uri: Its only parameter, of a resource that the client must have subscribed to; None for no parameters.
        """
        try:
            self._trio_token.run_sync_soon(self._note_change, method, uri, idempotent=True)
        except trio.RunFinishedError:
            pass  # with everyone who could be told

    def _note_change(self, method: str, uri: str | None) -> None:
        if self.initialized and (uri is None or uri in self.subscriptions):
            self._changed[method, uri] = None
            self._change.set()

    async def send_announcements(self) -> None:
        """The task behind `announce`; ends with the session."""
        while True:
            await self._change.wait()
            self._change = trio.Event()
            while self._changed:
                method, uri = next(iter(self._changed))
                del self._changed[method, uri]
                if uri is not None and uri not in self.subscriptions:
                    continue
                try:
                    await self.send_notification(method, None if uri is None else {"uri": uri})
                except TransportError:
                    return
                except TrioMcpError:
                    continue  # not for this client: it has not declared, or its revision does not know, such a thing


def _through(
    middleware: tuple[Middleware, ...],
    index: int,
    context: Context[Any],
    handle: Callable[[], Awaitable[dict[str, Any]]],
) -> Awaitable[dict[str, Any]]:
    """Call the handler through what is left of the middleware."""
    if index == len(middleware):
        return handle()
    return middleware[index](context, lambda: _through(middleware, index + 1, context, handle))
