"""One client of a server: a session whose requests go to the server's handlers, through its middleware."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from trio_mcp.errors import LocalProtocolError, McpError, TrioMcpError
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.jsonrpc.messages import Notification, SessionMessage
from trio_mcp.server.audience import Audience
from trio_mcp.server.changes import LIST_CHANGES, Listener, Topic
from trio_mcp.server.context import Context
from trio_mcp.server.features.logging import CURRENT, wants_log
from trio_mcp.session.context import RequestContext
from trio_mcp.session.server import ServerSession
from trio_mcp.session.sink import SessionSink
from trio_mcp.trace_context import CURRENT_TRACE, TraceContext
from trio_mcp.types.error_codes import METHOD_NOT_FOUND
from trio_mcp.types.meta import BAGGAGE, TRACEPARENT

if TYPE_CHECKING:
    from trio_mcp.link import Link
    from trio_mcp.server.core import ServerCore
    from trio_mcp.server.serving import Serving

__all__ = ["Connection", "Handler", "Middleware", "NotificationHandler", "call_through"]

Handler: TypeAlias = Callable[["ServerCore", Context[Any]], Awaitable[dict[str, Any]]]
NotificationHandler: TypeAlias = Callable[[Notification, "Serving"], Awaitable[None]]
"""``async (notification, run)``."""
Middleware: TypeAlias = Callable[[Context[Any], Callable[[], Awaitable[dict[str, Any]]]], Awaitable[dict[str, Any]]]
"""``async (context, call_next) -> result``: see `Server`."""

MAX_ELICITATIONS = 1000
"""Pages that one client has been asked to visit and has not heard of since (2025-11-25)."""


class Connection(ServerSession):
    """A session of a `Server`.

    Attributes:
        serving: The run of the server that it belongs to.
        audience: What its client hears of.
    """

    def __init__(self, serving: Serving, link: Link | tuple[None, SessionSink], *, lasting: bool = True) -> None:
        server, (read, write) = serving.server, link
        given: Any = {"options": server.options, "on_error": server.on_error, "lasting": lasting}
        super().__init__(read, write, server.identity, **given)
        self.serving = serving
        self._server = server
        self._state = serving.states[server]
        self._listener: Listener | None = None
        self.audience = Audience(serving.changes)
        self._announcing = False
        self._elicitations: dict[str, None] = {}  # in order: the oldest are forgotten first
        self._trio_token = trio.lowlevel.current_trio_token()

    def make_context(self, incoming: IncomingRequest) -> Context[Any]:
        return Context(incoming, self._sink, self, self._state)

    async def received_request(self, context: RequestContext) -> Any:
        return await answer_request(self._server, context)

    async def received_notification(self, notification: Notification) -> None:
        handler = self._server._notification_handlers.get(notification.method)
        if handler is not None:
            await handler(notification, self.serving)

    def begin(self, nursery: trio.Nursery) -> None:
        super().begin(nursery)
        self.serving.connections.add(self)

    def finish(self) -> None:
        super().finish()
        self.audience.forget_everything()
        self.serving.connections.discard(self)

    # --- pages that the user is to visit (2025-11-25) -----------------------------------------------------------

    def note_elicitation(self, elicitation_id: str) -> None:
        """Remember which client is asked to visit a page, to tell it and nobody else when that is done."""
        self._elicitations[elicitation_id] = None
        if len(self._elicitations) > MAX_ELICITATIONS:
            del self._elicitations[next(iter(self._elicitations))]

    def complete_elicitation(self, elicitation_id: str) -> None:
        """Tell the client that what it was asked to do on a page is done, if it was asked; from any thread."""
        try:
            self._trio_token.run_sync_soon(self._complete_elicitation, elicitation_id)
        except trio.RunFinishedError:
            pass  # with everyone who could be told

    def _complete_elicitation(self, elicitation_id: str) -> None:
        if elicitation_id in self._elicitations and self._nursery is not None and not self.closed:
            del self._elicitations[elicitation_id]
            self._nursery.start_soon(self._send_completion, elicitation_id)

    async def _send_completion(self, elicitation_id: str) -> None:
        try:
            await self.send_notification("notifications/elicitation/complete", {"elicitationId": elicitation_id})
        except TrioMcpError:
            pass  # the client has gone, or its revision has no such notification

    def send_log_nowait(self, params: dict[str, Any], severity: int) -> None:
        """Send a log message that belongs to no request, if the session of the handshake era wants it."""
        if self.initialized and wants_log(self.client, severity) and self._sink.has_room:
            self._sink.put(SessionMessage(Notification("notifications/message", params)))

    # --- hearing of changes --------------------------------------------------------------------------------------

    def _opened(self) -> None:
        for method in LIST_CHANGES:
            self.hear(method)

    def _note(self, notification: Notification) -> None:
        super()._note(notification)
        if notification.method == "notifications/initialized" and self.initialized and not self._announcing:
            # Before that a server sends no such thing (2025-11-25 `basic/lifecycle`, Initialization): it waits.
            self._announcing = True
            self.listener.open()

    @property
    def listener(self) -> Listener:
        """Tells of what a session of the handshake era hears of."""
        if self._listener is None:
            self._listener = Listener(self._send_change, self._sink.room, self._spawn)
            self.audience.add_lasting(self._listener)
        return self._listener

    def hear(self, method: str, uri: str | None = None) -> None:
        """Tell the session of the handshake era of a topic, unless its handshake has declared no such thing."""
        try:
            self._check_outgoing(method)
        except LocalProtocolError:
            return
        self.serving.changes.add(self.listener, (method, uri))

    @property
    def room(self) -> Callable[[], Awaitable[None]]:
        """Waits until something may be sent."""
        return self._sink.room

    def _send_change(self, topic: Topic) -> bool:
        method, uri = topic
        if not self._sink.has_room:
            return False
        self._sink.put(SessionMessage(Notification(method, None if uri is None else {"uri": uri})))
        return True

    @property
    def changes_waiting(self) -> int:
        """How many changes its client has not been told yet, those that are just being announced aside."""
        return self.audience.waiting

    @property
    def has_listeners(self) -> bool:
        """Whether a ``subscriptions/listen`` is open."""
        return self._peer.listening_count > 0

    async def end_listening(self) -> None:
        """End every ``subscriptions/listen`` with a result (`basic/patterns/subscriptions`, Graceful Closure).

        Waits up to ``close_grace`` seconds for the client to take what it has not been told yet, and the results,
        whether cancelled or not.
        """
        self.audience.end()
        if not self.has_listeners:
            return
        with trio.move_on_after(self.options.close_grace, shield=True):
            await self._handlers.wait_for(lambda: not self._peer.listening_count)
            await self._sink.flush()


async def answer_request(server: ServerCore, context: RequestContext) -> dict[str, Any]:
    """Run the handler of a request, through the server's middleware, and give its result."""
    assert isinstance(context, Context)
    handler = server._methods.get(context.method)
    if handler is None:
        raise McpError(METHOD_NOT_FOUND, f"unknown method {context.method!r}")
    meta = context.meta
    # What this task has inherited is the trace in which the server was started, not that of the request.
    if TRACEPARENT in meta or BAGGAGE in meta or CURRENT_TRACE.get() is not None:
        CURRENT_TRACE.set(TraceContext.from_meta(meta))
    CURRENT.set((context, trio.lowlevel.current_trio_token()))
    if server.middleware:
        return await call_through(server, handler, context)
    return await handler(server, context)


async def call_through(server: ServerCore, handler: Handler, context: Context[Any]) -> dict[str, Any]:
    """Call a server's handler through its middleware."""
    if not server.middleware:
        return await handler(server, context)
    result = await _through(server.middleware, 0, context, lambda: handler(server, context))
    if type(result) is not dict:
        raise TypeError(f"a middleware must return the result, a dict; got {type(result).__name__}")
    return result


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
