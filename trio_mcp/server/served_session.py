"""Serves one client in a run of a server: a session, or a single request of the modern era outside any session."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import trio

from trio_mcp._log import logger
from trio_mcp.eras.server_negotiation import ClientDeclaration, ServerIdentity
from trio_mcp.errors import LocalProtocolError, McpError, TrioMcpError
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.jsonrpc.messages import ErrorData, Notification, RequestId, SessionMessage
from trio_mcp.link import Link
from trio_mcp.server.changes import LIST_CHANGES, RESOURCE_UPDATED, Audience, Changes, Listener, Topic, text_of
from trio_mcp.server.input.options import InputRun
from trio_mcp.server.log_messages import wants_log
from trio_mcp.session.calls import CallLimits
from trio_mcp.session.handlers import RequestContext, error_for
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.middleware import Layers, OutgoingCall, OutgoingNotifications, surround
from trio_mcp.session.server import WATCHED, ServerSession
from trio_mcp.session.sink import SessionSink, Sink
from trio_mcp.types.error_codes import OVERLOADED
from trio_mcp.types.methods import facts_of

if TYPE_CHECKING:  # a server on stdio never loads HTTP
    from trio_mcp.http.rules.statuses import Refusal
    from trio_mcp.http.server.host import ExchangeSink
    from trio_mcp.principal import Principal
    from trio_mcp.session.statistics import SessionStatistics
    from trio_mcp.stores.contract import Stores

Permit: TypeAlias = "Callable[[Principal, Collection[str]], Refusal | None]"
"""A function ``(principal, scopes) -> refusal`` that checks scopes: see `Protection.permit`."""

__all__ = ["Permit", "ScopesMissing", "Served", "ServedSession", "SharedByClients", "SingleRequest"]

# An arbitrary choice. Ids must be forgotten at some point, because the protocol can't say that a page will never be
# completed.
MAX_ELICITATIONS = 1000
"""How many of the pages that a client was asked to visit are remembered until the user has finished (2025-11-25)."""


class Served(Protocol):
    """The part of a `BaseServer` that its clients use."""

    identity: ServerIdentity
    options: SessionOptions
    layers: Layers

    @property
    def settings(self) -> Any: ...

    def make_context(self, incoming: IncomingRequest, sink: Sink, connection: Any, state: Any) -> RequestContext: ...

    async def answer(self, context: Any) -> dict[str, Any]: ...

    async def heard(
        self, notification: Notification, states: Mapping[Any, Any], client: ClientDeclaration | None
    ) -> None: ...

    def input_schema(self, tool: str) -> dict[str, Any] | None: ...

    @property
    def scoped(self) -> str: ...

    @property
    def stores(self) -> Stores | None: ...

    @property
    def user_states(self) -> Any: ...

    @property
    def inherited(self) -> Any: ...

    def needed_scopes(self, method: str, params: Mapping[str, Any]) -> frozenset[str]: ...


class SharedByClients(Protocol):
    """The part of a `Run` that its clients use."""

    served: Served
    states: Mapping[Any, Any]
    changes: Changes
    input: InputRun
    permit: Permit | None

    @property
    def connections(self) -> set[Any]: ...


class ScopesMissing(McpError):
    """A request needs scopes that its token does not have.

    Attributes:
        refusal: The HTTP response to send if nothing has been sent yet.
    """

    def __init__(self, refusal: Refusal) -> None:
        error = refusal.error.error
        super().__init__(error.code, error.message, error.data)
        self.args = (refusal,)  # copying an exception passes `args` to __init__
        self.refusal = refusal


class ServedSession(ServerSession):
    """A server's session with one of its clients.

    Args:
        run: The run of the server.
        link: The channels to read from and write to; or None and a sink, if messages are fed to the session.
        lasting: Whether messages can still reach the client after the response to its request.

    Attributes:
        served: The server.
        states: The states that the lifespans yielded, keyed by the settings of their servers.
        input: The run's shared state for asking clients for input.
        permit: Checks the scopes of requests; None where there is no HTTP.
        trio_token: The token of the Trio run that the session belongs to.
        audience: The client's listeners for changes.
        ending: Whether further requests are refused, because the server is ending.
        session_state: The data that functions keep for the session: see `Context.session_state`.
    """

    def __init__(self, run: SharedByClients, link: Link | tuple[None, SessionSink], *, lasting: bool = True) -> None:
        served, (read, write) = run.served, link
        self._layers = served.layers
        super().__init__(read, write, served.identity, options=served.options, lasting=lasting)
        self._connections = run.connections
        self.states = run.states
        self.input = run.input
        self.permit = run.permit
        self.trio_token = trio.lowlevel.current_trio_token()
        self.served = served
        self._state = run.states.get(served.settings)
        self.audience = Audience(run.changes)
        self.ending = False
        self.session_state: dict[str, Any] = {}
        self._changes = run.changes
        self._listener: Listener | None = None
        self._announcing = False
        # The topics of a session that several processes serve, which one of them hears at a time; None if this process
        # serves the session alone.
        self._topics: dict[Topic, None] | None = None
        self._hearing = False
        self._lists: dict[Topic, int] = {}
        self._elicitations: dict[str, None] = {}  # an ordered set: the oldest ids are forgotten first
        # This is decided once, so that a request costs nothing more if the server has no middleware for it.
        if self._layers.handle_request:
            self.intercept = self._intercept_through  # type: ignore[method-assign]

    def make_context(self, incoming: IncomingRequest) -> RequestContext:
        return self.served.make_context(incoming, self._sink, self, self._state)

    def _intercept_through(self, context: RequestContext) -> dict[str, Any] | None:
        return _held_back(context, ServedSession.intercept(self, context))

    # These hooks of the session forward everything to the server, which knows nothing of sessions.

    async def received_request(self, context: RequestContext) -> Any:
        # The error tells the client that the request was not carried out, so the client may send it elsewhere.
        if self.ending and not hasattr(context, "ready"):  # a request without a handler, such as a ping, has its result
            raise McpError(OVERLOADED, "the server is ending and accepts no further requests", {"ending": True})
        return await self.served.answer(context)

    async def received_notification(self, notification: Notification) -> None:
        await self.served.heard(notification, self.states, self.client)

    async def ask(self, wire: dict[str, Any], timeout: float | None, related: RequestId) -> Any:
        """Send a question from a request's function to a client of the legacy era, and wait for the answer.

        Args:
            wire: The question's method and parameters.
            timeout: Seconds that the client may take, or None for no limit.
            related: The id of the request whose function asks.
        """
        method, params, layers = wire["method"], wire.get("params"), self._layers.send_request
        # The session's total_timeout does not apply, because the question may be for a person, who may take any time.
        limits = CallLimits(timeout=timeout, total_timeout=None)
        if not layers:
            return await self.send_request(method, params, related_request_id=related, **limits)
        assert self.client is not None
        call = OutgoingCall(method, dict(params or {}), self.client.revision)

        async def send() -> dict[str, Any]:
            call.request_id = self.next_request_id
            return await self.send_request(call.method, call.params, related_request_id=related, **limits)

        return await surround(layers, call, send)

    # `begin` and `finish` are for a session that gets its messages through `feed` (HTTP, legacy era). For a session
    # with a link, `Run` does the same.

    def begin(self, nursery: trio.Nursery) -> None:
        super().begin(nursery)
        self._connections.add(self)

    def finish(self) -> None:
        super().finish()
        self.audience.forget_everything()
        self._connections.discard(self)

    # --- pages that the user is to visit (2025-11-25) -----------------------------------------------------------

    def note_elicitation(self, elicitation_id: str) -> None:
        """Remember that this client is asked to visit a page, so that only this client is told of the completion."""
        # A completion may be sent only to the client that was asked to visit the page (2025-11-25 `client/elicitation`,
        # Completion Notifications for URL Mode Elicitation).
        self._elicitations[elicitation_id] = None
        if len(self._elicitations) > MAX_ELICITATIONS:
            del self._elicitations[next(iter(self._elicitations))]

    def complete_elicitation(self, elicitation_id: str) -> None:
        """Tell the client that the user has finished on a page, if it was asked to visit it; thread-safe."""
        try:
            self.trio_token.run_sync_soon(self._complete_elicitation, elicitation_id)
        except trio.RunFinishedError:
            pass  # the Trio run has ended, and with it all connections

    def _complete_elicitation(self, elicitation_id: str) -> None:
        if elicitation_id in self._elicitations and self._nursery is not None and not self.closed:
            # The entry is deleted first, because sending may take a while, and a second call for the same page must
            # send nothing.
            del self._elicitations[elicitation_id]
            # The notification is sent in a task of its own, because sending waits while the client is slow to read.
            self._nursery.start_soon(self._send_completion, elicitation_id)

    async def _send_completion(self, elicitation_id: str) -> None:
        try:
            await self.send_notification("notifications/elicitation/complete", {"elicitationId": elicitation_id})
        except TrioMcpError:
            pass  # the client has disconnected, or its revision lacks this notification

    def send_log_nowait(self, params: dict[str, Any], severity: int) -> None:
        """Send a log message that belongs to no request, if this legacy-era session wants it and has room."""
        # If there is no room, the message is dropped, because it belongs to no request that could wait for room.
        if self.initialized and wants_log(self.client, severity) and self._sink.has_room:
            try:
                self._sink.put(SessionMessage(Notification("notifications/message", params)))
            except Exception:  # a middleware failed, and no function waits that could be told
                logger.exception("a middleware failed for 'notifications/message'")

    # --- notifications of changes --------------------------------------------------------------------------------

    def _opened(self) -> None:
        # The legacy era has no subscriptions to lists: each session gets the notifications that the server declared in
        # the handshake.
        for method in LIST_CHANGES:
            self._hear(method)

    def _note(self, notification: Notification) -> None:
        # The method of the base class comes first, because it decides whether the notification is accepted: without a
        # handshake, `initialized` stays unset.
        super()._note(notification)
        if notification.method == "notifications/initialized" and self.initialized and not self._announcing:
            # Before ``notifications/initialized``, the server must not send notifications other than log messages
            # (2025-11-25 `basic/lifecycle`, Initialization). So changes since ``initialize`` have waited in the
            # listener until now.
            self._announcing = True
            if self._topics is None:
                self.listener.open()

    @property
    def listener(self) -> Listener:
        """The listener for changes of this legacy-era session, made on first use."""
        if self._listener is None:  # a session on a modern link never needs one, so it is made late
            self._listener = Listener(self._send_change, self._sink.room, self._spawn)
            self.audience.add_lasting(self._listener)
        return self._listener

    def watch(self, uri: str) -> None:
        """Notify this legacy-era session of changes to a resource from now on.

        Raises:
            McpError: If the client watches too many resources.
        """
        topic = (RESOURCE_UPDATED, uri)
        known = self.listener.topics if self._topics is None else self._topics
        if topic not in known:  # subscribing twice is allowed, and counts once
            # While another process hears, the audience of this one does not know what the client watches.
            elsewhere = () if self._topics is None or self._hearing else self._topics
            self.audience.check_room_for([*elsewhere, topic])
            self._hear(*topic)

    def unwatch(self, uri: str) -> None:
        """Stop notifying the session of changes to a resource."""
        topic = (RESOURCE_UPDATED, uri)
        self._changes.remove(self.listener, topic)
        if self._topics is not None:
            self._topics.pop(topic, None)

    def _hear(self, method: str, uri: str | None = None) -> None:
        """Notify the session of changes to a topic from now on, unless the protocol forbids such notifications."""
        # Whether the protocol allows such notifications depends on the handshake: on the negotiated revision, and on
        # the capabilities that the server declared.
        try:
            self._check_outgoing(method)
        except LocalProtocolError:
            return
        if self._topics is not None:
            self._topics[method, uri] = None
            if not self._hearing:
                return
        self._changes.add(self.listener, (method, uri))

    # --- a session that several processes serve ------------------------------------------------------------------

    def roam(self) -> None:
        """Prepare for a session that several processes serve; called before the handshake or `resume`."""
        self._topics = {}
        # The lists belong to this process, so the store does not know of all their changes.
        self._lists = dict(self._changes.list_changes)

    def fields(self) -> dict[str, bytes]:
        watched = [uri for _, uri in self._topics or () if uri is not None]
        return {**super().fields(), **{WATCHED + text_of(RESOURCE_UPDATED, uri): b"" for uri in watched}}

    def take_fields(self, fields: Mapping[str, bytes]) -> Collection[str]:
        was_initialized = self.initialized
        super().take_fields(fields)
        assert self._topics is not None
        if self._hearing and self.initialized and not was_initialized:
            self.listener.open()
        prefix = WATCHED + text_of(RESOURCE_UPDATED, "")
        watched = {name.removeprefix(prefix) for name in fields if name.startswith(prefix)}
        for uri in [uri for _, uri in self._topics if uri is not None and uri not in watched]:
            self.unwatch(uri)
        new = [uri for uri in watched if (RESOURCE_UPDATED, uri) not in self._topics]
        for uri in new:
            self._hear(RESOURCE_UPDATED, uri)
        return [text_of(RESOURCE_UPDATED, uri) for uri in new] if self._hearing else ()

    def hear(self) -> Collection[str]:
        assert self._topics is not None
        self._hearing = True
        for topic in self._topics:
            self._changes.add(self.listener, topic)
        if self.initialized:
            self.listener.open()
        now = self._changes.list_changes
        for topic in self._topics:
            if self._lists.get(topic) != now.get(topic):
                self.listener.tell(topic)
        return [text_of(*topic) for topic in self._topics]

    def tell(self, topics: Collection[str]) -> None:
        for topic in self._topics or ():
            if text_of(*topic) in topics:
                self.listener.tell(topic)

    def stop_hearing(self) -> bool:
        self._hearing = False
        complete = not self.listener.waiting
        if complete and self._changes.settled:
            self._lists = dict(self._changes.list_changes)
        self._changes.remove_all(self.listener)
        self.listener.pause()
        return complete

    @property
    def room(self) -> Callable[[], Awaitable[None]]:
        """An async function that waits until there is room to send."""
        return self._sink.room

    def _send_change(self, topic: Topic) -> bool:
        method, uri = topic
        # If there is no room, the listener keeps the topic, and its own task waits: other listeners must not be
        # delayed.
        if not self._sink.has_room:
            return False
        # There is room, so this neither waits nor exceeds the bound of the sink.
        try:
            self._sink.put(SessionMessage(Notification(method, None if uri is None else {"uri": uri})))
        except Exception:  # a middleware failed; an exception here would end the task that tells all listeners
            logger.exception("a middleware failed for %r", method)
        return True

    @property
    def changes_waiting(self) -> int:
        """The number of changes pending for this client, not counting those that the run has not yet passed on."""
        return self.audience.waiting

    @property
    def has_listeners(self) -> bool:
        """Whether a ``subscriptions/listen`` request is open."""
        return self._peer.listening_count > 0

    async def end_listening(self) -> None:
        """Respond to every open ``subscriptions/listen`` request (`basic/patterns/subscriptions`, Graceful Closure).

        Wait up to ``close_grace`` seconds for the client to take the remaining notifications and the results, even when
        cancelled.
        """
        self.audience.end()
        if not self.has_listeners:
            return
        # The wait is shielded, because the server is being cancelled. The deadline keeps a client that does not read
        # from holding up the shutdown.
        with trio.move_on_after(self.options.close_grace, shield=True):
            # Waiting for the handlers is not enough: when a handler ends, it has only passed its result to the link,
            # which may be cancelled once this method returns.
            await self._handlers.wait_for(lambda: not self._peer.listening_count)
            await self._sink.flush()


class SingleRequest:
    """The hooks that handle a single request, outside any session.

    Args:
        run: The run of the server.
        sink: The sink for all messages of the request.
        incoming: The request.
        client: The client's declaration from the request, already checked.

    Attributes:
        served, states, input, permit, trio_token: As in `ServedSession`.
        refusal: The HTTP response to send instead of an error, if nothing has been sent yet.
    """

    refusal: Refusal | None = None

    def __init__(
        self, run: SharedByClients, sink: ExchangeSink, incoming: IncomingRequest, client: ClientDeclaration
    ) -> None:
        self.states = run.states
        self.input = run.input
        self.permit = run.permit
        self.trio_token = trio.lowlevel.current_trio_token()
        self.served = run.served
        self._changes = run.changes
        self._sink = sink
        self._incoming = incoming
        self._client = client
        self._audience: Audience | None = None

    def make_context(self, incoming: IncomingRequest) -> RequestContext:
        return self.served.make_context(incoming, self._sink, self, self.states.get(self.served.settings))

    def intercept(self, context: RequestContext) -> dict[str, Any] | None:
        # The rules for HTTP have already checked the declaration in the request. server/discover is handled here,
        # because every server has it, and it involves neither middleware nor a handler.
        context.client = self._client
        return self.served.identity.discover(self._client) if context.method == "server/discover" else None

    async def received_request(self, context: RequestContext) -> Any:
        return await self.served.answer(context)

    def error_for(self, exc: Exception, context: RequestContext) -> ErrorData:
        if isinstance(exc, ScopesMissing):
            self.refusal = exc.refusal
        return error_for(exc, context.method)

    # --- for handlers --------------------------------------------------------------------------------------------

    @property
    def room(self) -> Callable[[], Awaitable[None]]:
        """An async function that waits until there is room to send."""
        return self._sink.room

    @property
    def audience(self) -> Audience:
        """The client's listeners for changes."""
        if self._audience is None:  # made on demand: few requests listen, and making it takes time
            self._audience = Audience(self._changes)
        return self._audience

    # --- for the run ---------------------------------------------------------------------------------------------

    @property
    def changes_waiting(self) -> int:
        """The number of changes pending for this client."""
        return 0 if self._audience is None else self._audience.waiting

    def statistics(self) -> SessionStatistics:
        """Return the same statistics as for a session; counts that a single request can't have are 0."""
        from trio_mcp.session.statistics import SessionStatistics

        incoming = self._incoming
        return SessionStatistics(
            outgoing=0,
            incoming=int(incoming.open),
            running=int(incoming.running and not self.has_listeners),
            queued=0,
            listening=int(self.has_listeners),
            bulk_waiting=self._sink.waiting,
            control_waiting=0,
            flushed=not self._sink.waiting,
            notices_waiting=0,
            closed=not incoming.running,
        )

    @property
    def has_listeners(self) -> bool:
        """Whether the request is an open ``subscriptions/listen`` request."""
        return self._incoming.running and facts_of(self._incoming.request.method).lasting

    async def end_listening(self) -> None:
        """Respond to a ``subscriptions/listen`` request, and wait up to ``close_grace`` seconds for it to be sent."""
        self.audience.end()
        if self.has_listeners:
            # The wait is shielded and has a deadline, as for a session: the server is being cancelled, and the client
            # may not be reading.
            with trio.move_on_after(self.served.options.close_grace, shield=True):
                await self._sink.flush()


class LayeredRequest(SingleRequest):
    """The hooks that handle a single request whose messages pass through instances of `Middleware`."""

    def make_context(self, incoming: IncomingRequest) -> RequestContext:
        served, sink = self.served, self._sink
        if served.layers.send_notification:
            notifications = OutgoingNotifications(sink, served.layers.send_notification)
            return served.make_context(incoming, notifications, self, self.states.get(served.settings))
        return super().make_context(incoming)

    def intercept(self, context: RequestContext) -> dict[str, Any] | None:
        return _held_back(context, super().intercept(context))


def _held_back(context: Any, result: dict[str, Any] | None) -> dict[str, Any] | None:
    """Keep the result of a request without a handler in its context, so that it first passes through middleware."""
    # Middleware may wait, so it runs in a task for the request, as it does around a handler. A ping before the
    # handshake skips it, since its context knows nothing of the client.
    if result is None or context.client is None:
        return result
    context.ready = copy.deepcopy(result)  # parts of it belong to the server, and a middleware may modify what it gets
    return None
