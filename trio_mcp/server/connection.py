"""One client of a server's run: a session, or one request of the modern era that comes alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import trio

from trio_mcp.eras.server_negotiation import ClientDeclaration, ServerIdentity
from trio_mcp.errors import LocalProtocolError, RemoteProtocolError, TrioMcpError
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.jsonrpc.messages import ErrorData, Notification, RequestId, SessionMessage
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.link import Link
from trio_mcp.server.changes import LIST_CHANGES, RESOURCE_UPDATED, Audience, Changes, Listener, Topic
from trio_mcp.server.input.rounds import InputRun
from trio_mcp.server.log_messages import wants_log
from trio_mcp.session.handlers import RequestContext, error_for
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.server import ServerSession
from trio_mcp.session.session import SessionStatistics
from trio_mcp.session.sink import SessionSink, Sink

if TYPE_CHECKING:  # a server on stdio needs nothing of HTTP
    from trio_mcp.http.server.host import ExchangeSink

__all__ = ["Connection", "Exchange", "Served", "SharedByClients"]

MAX_ELICITATIONS = 1000
"""Pages that one client has been asked to visit and has not heard of since (2025-11-25)."""


class Served(Protocol):
    """What is known of the server that runs: see `BaseServer`."""

    identity: ServerIdentity
    options: SessionOptions
    on_error: Callable[[RemoteProtocolError], object] | None

    @property
    def settings(self) -> Any: ...

    def make_context(self, incoming: IncomingRequest, sink: Sink, connection: Any, state: Any) -> RequestContext: ...

    async def answer(self, context: Any) -> dict[str, Any]: ...

    async def heard(self, notification: Notification, states: Mapping[Any, Any]) -> None: ...

    def input_schema(self, tool: str) -> dict[str, Any] | None: ...


class SharedByClients(Protocol):
    """What is known of the run: see `Run`."""

    served: Served
    states: Mapping[Any, Any]
    changes: Changes
    input: InputRun

    @property
    def connections(self) -> set[Any]: ...


class Connection(ServerSession):
    """A session with a client of a server.

    Args:
        run: The run of the server.
        link: Where messages come from and go; or None and a sink.
        lasting: Whether the client can still be told things when its request is answered.

    Attributes:
        states: What the lifespans yielded, by the settings of their servers.
        input: What those who ask share.
        trio_token: Of the run of Trio that it belongs to.
        audience: What its client hears of.
    """

    def __init__(self, run: SharedByClients, link: Link | tuple[None, SessionSink], *, lasting: bool = True) -> None:
        served, (read, write) = run.served, link
        given: Any = {"options": served.options, "on_error": served.on_error, "lasting": lasting}
        super().__init__(read, write, served.identity, **given)
        self._connections = run.connections
        self.states = run.states
        self.input = run.input
        self.trio_token = trio.lowlevel.current_trio_token()
        self._served = served
        self._state = run.states.get(served.settings)
        self.audience = Audience(run.changes)
        self._changes = run.changes
        self._listener: Listener | None = None
        self._announcing = False
        self._elicitations: dict[str, None] = {}  # in order: the oldest are forgotten first

    def make_context(self, incoming: IncomingRequest) -> RequestContext:
        return self._served.make_context(incoming, self._sink, self, self._state)

    async def received_request(self, context: RequestContext) -> Any:
        return await self._served.answer(context)

    async def received_notification(self, notification: Notification) -> None:
        await self._served.heard(notification, self.states)

    async def ask(self, wire: dict[str, Any], timeout: float | None, related: RequestId) -> Any:
        """Put a question of a request's function to a client of the legacy era.

        Args:
            wire: Its method and parameters.
            timeout: Seconds that the client may take, or None.
            related: The request.
        """
        return await self.send_request(
            wire["method"], wire.get("params"), related_request_id=related, timeout=timeout, total_timeout=None
        )

    def begin(self, nursery: trio.Nursery) -> None:
        super().begin(nursery)
        self._connections.add(self)

    def finish(self) -> None:
        super().finish()
        self.audience.forget_everything()
        self._connections.discard(self)

    # --- pages that the user is to visit (2025-11-25) -----------------------------------------------------------

    def note_elicitation(self, elicitation_id: str) -> None:
        """Remember which client is asked to visit a page, to tell it and nobody else when that is done."""
        self._elicitations[elicitation_id] = None
        if len(self._elicitations) > MAX_ELICITATIONS:
            del self._elicitations[next(iter(self._elicitations))]

    def complete_elicitation(self, elicitation_id: str) -> None:
        """Tell the client that what it was asked to do on a page is done, if it was asked; from any thread."""
        try:
            self.trio_token.run_sync_soon(self._complete_elicitation, elicitation_id)
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
        """Send a log message that belongs to no request, if the session of the legacy era wants it."""
        if self.initialized and wants_log(self.client, severity) and self._sink.has_room:
            self._sink.put(SessionMessage(Notification("notifications/message", params)))

    # --- hearing of changes --------------------------------------------------------------------------------------

    def _opened(self) -> None:
        for method in LIST_CHANGES:
            self._hear(method)

    def _note(self, notification: Notification) -> None:
        super()._note(notification)
        if notification.method == "notifications/initialized" and self.initialized and not self._announcing:
            # Before that a server sends no such thing (2025-11-25 `basic/lifecycle`, Initialization): it waits.
            self._announcing = True
            self.listener.open()

    @property
    def listener(self) -> Listener:
        """Tells of what a session of the legacy era hears of."""
        if self._listener is None:
            self._listener = Listener(self._send_change, self._sink.room, self._spawn)
            self.audience.add_lasting(self._listener)
        return self._listener

    def watch(self, uri: str) -> None:
        """Tell the session of the legacy era of changes of a resource.

        Raises:
            McpError: It watches too many.
        """
        topic = (RESOURCE_UPDATED, uri)
        if topic not in self.listener.topics:
            self.audience.check_room_for([topic])
            self._hear(*topic)

    def unwatch(self, uri: str) -> None:
        """Tell it no more of changes of a resource."""
        self._changes.remove(self.listener, (RESOURCE_UPDATED, uri))

    def _hear(self, method: str, uri: str | None = None) -> None:
        """Tell it of a topic, unless its handshake has declared no such thing."""
        try:
            self._check_outgoing(method)
        except LocalProtocolError:
            return
        self._changes.add(self.listener, (method, uri))

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
