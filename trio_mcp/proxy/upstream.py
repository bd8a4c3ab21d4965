"""The upstream connection of a proxy: one per run, reconnected when it is lost."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

import trio

from trio_mcp._log import logger
from trio_mcp._nursery import start
from trio_mcp.client.client import Client
from trio_mcp.client.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged
from trio_mcp.eras.capabilities import declares, is_spec_method
from trio_mcp.errors import (
    AuthorizationError,
    CapabilityError,
    LocalProtocolError,
    McpError,
    TransportError,
    TrioMcpError,
)
from trio_mcp.jsonrpc.messages import Notification, RequestId
from trio_mcp.proxy.translation import HandedOn, handed_on
from trio_mcp.proxy.unanswered import UnansweredCalls
from trio_mcp.retrying import Backoff
from trio_mcp.server.base_server import BaseServer, core_of
from trio_mcp.server.changes import PROMPTS_CHANGED, RESOURCE_UPDATED, RESOURCES_CHANGED, TOOLS_CHANGED, Topic
from trio_mcp.server.context import ServedContext
from trio_mcp.server.input.rounds import RoundEnded
from trio_mcp.server.log_messages import CURRENT, SEVERITY, wants_log
from trio_mcp.session.calls import UNLIMITED, Limits, ProgressCallback
from trio_mcp.session.client import ClientSession
from trio_mcp.session.middleware import OutgoingCall
from trio_mcp.types.common import COMPLETE, INPUT_REQUIRED
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from trio_mcp.types.notices import ProgressNotificationParams

__all__ = ["Upstream"]

# The delays before subscribing again. The attempts go on for as long as the connection lasts.
_LISTENING = Backoff(longest=60.0, attempts=None)

_LISTS = {
    ToolsListChanged: (TOOLS_CHANGED, "tools_list_changed", "tools"),
    PromptsListChanged: (PROMPTS_CHANGED, "prompts_list_changed", "prompts"),
    ResourcesListChanged: (RESOURCES_CHANGED, "resources_list_changed", "resources"),
}
"""For each list event: the topic to announce, the flag of `Client.listen`, and the capability that offers the list."""


class Upstream:
    """The server behind a proxy, during one run of the proxy.

    Args:
        proxy: The proxy.
        mirror: Called with the client each time a connection is made.
        make_client: Makes a client for each new connection, with further arguments.
        given: A client to use instead of making one.
        per_call: Whether each call has a connection of its own, since the client's ``auth=`` signs for one caller only.
        handled: The notifications of extensions that the client handles itself.

    Attributes:
        client: The current connection, or the last one if it has been lost.
    """

    client: Client

    def __init__(
        self,
        proxy: BaseServer,
        mirror: Callable[[Client], None],
        make_client: Callable[[Mapping[str, Any]], Client],
        given: Client | None,
        handled: Collection[str] = (),
        *,
        per_call: bool = False,
    ) -> None:
        self._proxy = proxy
        self._handled = handled
        self._mirror = mirror
        self._settings = core_of(proxy).settings
        self._announce = self._settings.announce
        self._make_client = make_client
        self._given = given
        self._per_call = per_call
        self._nursery: trio.Nursery | None = None
        self._connecting = trio.Lock()
        self._connected = False
        self._reconnected = trio.Event()
        self._watches: dict[str, trio.CancelScope] = {}
        self._log_level: str | None = None
        self._setting_level = trio.Lock()

    # --- the connection ------------------------------------------------------------------------------------------

    async def open(self, nursery: trio.Nursery) -> None:
        """Connect to the upstream.

        Raises:
            TrioMcpError: If connecting fails.
        """
        self._nursery = nursery
        await self.connected()

    async def connected(self) -> Client:
        """Return the connection, after reconnecting if it was lost."""
        if not self._connected:
            async with self._connecting:
                if not self._connected:  # another call may have reconnected while this one waited
                    assert self._nursery is not None
                    # The connection runs in the nursery of the proxy's run, because it outlives the call that opens it.
                    await start(self._nursery, self._hold)
        return self.client

    async def aclose(self) -> None:
        """Close the connection, unless the program has provided the client."""
        if self._given is None and self._connected:
            await self.client.aclose()

    async def _hold(self, task_status: trio.TaskStatus[None]) -> None:
        # A call may have started this task, but the connection is that of all calls, and so of no caller.
        CURRENT.set(None)
        again = hasattr(self, "client")  # after a reconnection, the proxy's clients may have missed changes
        block: Any = self._make_client({}) if self._given is None else contextlib.nullcontext(self._given)
        async with block as client:
            session = client.session  # raises an error if the given client has not been entered
            # A given client may already be closed. The reason is raised, because the proxy can't reconnect a given
            # client.
            if session.closed:
                await session.raise_loss()
            # No log level has been set on the new connection; the next call from a client that wants log messages sets
            # it.
            self.client, self._connected, self._log_level = client, True, None
            self._mirror(client)
            assert self._nursery is not None
            if again:
                # Setting the event wakes the tasks that follow resources; the new event is for the next reconnection.
                self._reconnected.set()
                self._reconnected = trio.Event()
                self._announce_lists()
            # Subscribing must not delay the first request, so another task does it.
            self._nursery.start_soon(self._hear_lists, client)
            task_status.started()
            try:
                await session.raise_loss()
            except TrioMcpError as exc:
                logger.info(
                    "the proxy %r has lost the connection to its upstream server: %s", self._proxy.info.name, exc
                )
            finally:
                self._connected = False

    # --- requests ------------------------------------------------------------------------------------------------

    async def request(
        self, context: ServedContext[Any], params: dict[str, Any], unfinished: Collection[str] = ()
    ) -> dict[str, Any]:
        """Forward a request to the upstream, and return the result.

        Args:
            context: The context of the request.
            params: The parameters for the upstream.
            unfinished: The types of result, beside those of the core protocol, to return as the upstream sent them.

        Raises:
            McpError: The upstream's error, unchanged; or -32603, naming the upstream, if it did not respond.
        """
        on_progress = _reporter(context) if "progressToken" in context.meta else None
        try:
            # The connection is nearly always there, and every call comes through here.
            client = self.client if self._connected else await self.connected()
            if not self._per_call:
                return await self._sent(client, context, params, on_progress, unfinished)
            # A shared connection would send the calls of all with one token: that of the caller for whom its session
            # and its tasks were opened. So this connection is opened here, in the task of the call, and closed with it.
            own: dict[str, Any] = {"mode": client.protocol_version}
            if not client.session.modern and context.client is not None and context.client.log_level is not None:
                own["log_level"] = context.client.log_level
            async with self._make_client(own) as client_of_call:
                return await self._sent(client_of_call, context, params, on_progress, unfinished)
        except (TrioMcpError, OSError) as exc:
            raise self._refusal(context.method, exc) from None

    async def _sent(
        self,
        client: Client,
        context: ServedContext[Any],
        params: dict[str, Any],
        on_progress: ProgressCallback | None,
        unfinished: Collection[str],
    ) -> dict[str, Any]:
        # The proxy sets no time limit: its client has limits of its own, and cancels the request when they are reached.
        if isinstance(client, UpstreamClient):
            result = await client.pass_on(context, params, on_progress)
        else:
            result = await client.request(
                context.method, params, timeout=None, total_timeout=None, on_progress=on_progress
            )
        if result.get("resultType", COMPLETE) in (COMPLETE, INPUT_REQUIRED, *unfinished):
            return result
        # The proxy's client does not know this extension of the upstream, so that of the proxy finishes the result.
        return await client.finish(context.method, params, result, timeout=None, total_timeout=None)

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request that may be repeated on another way to the upstream, and return the result.

        Raises:
            McpError: As `request` raises it.
        """
        try:
            client = await self.connected()
            return await client.request(method, params, timeout=None, total_timeout=None, retry=True)
        except (TrioMcpError, OSError) as exc:
            raise self._refusal(method, exc) from None

    async def connected_or_refuse(self, method: str) -> Client:
        """Return the connection, after reconnecting if it was lost.

        Raises:
            McpError: If the upstream is unavailable: -32603, naming the upstream.
        """
        if self._connected:  # nearly always, and every call comes through here
            return self.client
        try:
            return await self.connected()
        except (TrioMcpError, OSError) as exc:
            raise self._refusal(method, exc) from None

    def _refusal(self, method: str, exc: Exception) -> McpError:
        """Return what the proxy's client gets for an error on the way to the upstream; the upstream's own unchanged."""
        if isinstance(exc, McpError):
            return exc
        name = self.name
        # The upstream `Client` refused the method before it was sent. To the proxy's client, such a method is unknown.
        if isinstance(exc, CapabilityError):
            text = f"unknown method {method!r}: the upstream server {name!r} does not offer it"
            return McpError(METHOD_NOT_FOUND, text)
        if isinstance(exc, AuthorizationError):  # a traceback would bury the text, which says what to do
            logger.warning("the request %r to the upstream server %r failed: %s", method, name, exc)
        else:
            logger.warning("the request %r to the upstream server %r failed", method, name, exc_info=exc)
        what = "is unavailable" if isinstance(exc, (TransportError, OSError)) else "gave no valid response"
        # The client gets only the exception's type, because the details belong in the log.
        return McpError(INTERNAL_ERROR, f"the upstream server {name!r} {what}: {type(exc).__name__}")

    @property
    def name(self) -> str:
        """The name that the upstream gives itself, or else the proxy's name."""
        info = self.client.server_info if hasattr(self, "client") else None
        return self._proxy.info.name if info is None else info.name

    async def want_logs(self, level: str | None) -> None:
        """Make a legacy upstream send log messages of a level, and less severe ones if another client wants them."""
        if self._per_call:  # the connection of each call has its own level
            await trio.lowlevel.checkpoint()
            return
        method = "logging/setLevel"
        client = await self.connected_or_refuse(method)
        # A modern upstream gets the level with each request instead.
        if level is None or client.session.modern or not declares(client.session.server.capabilities, "logging"):
            return
        if not self._logs_from(level):
            async with self._setting_level:  # another task may set the level during the wait
                if not self._logs_from(level):
                    try:
                        await client.request(method, {"level": level})
                    except McpError:
                        # The level counts as set even if the upstream refuses it: otherwise every call would ask again,
                        # and be refused again.
                        self._log_level = level
                        raise
                    except (TrioMcpError, OSError) as exc:
                        raise self._refusal(method, exc) from None
                    self._log_level = level

    def _logs_from(self, level: str) -> bool:
        return self._log_level is not None and SEVERITY[self._log_level] <= SEVERITY[level]

    async def tell(self, method: str) -> None:
        """Send the upstream a notification, if it is connected and speaks a legacy revision."""
        if self._connected and not self.client.session.modern:
            with contextlib.suppress(TrioMcpError):
                await self.client.session.send_notification(method)

    # --- the upstream's questions and notifications --------------------------------------------------------------

    async def answer(self, method: str, params: Any, asked: ServedContext[Any] | None) -> dict[str, Any]:
        """Answer a legacy upstream's question by asking the client whose call it is about.

        Args:
            method: The method of the question.
            params: The parameters of the question.
            asked: The call, if it is known; no client may be asked a question that another client's call caused.

        Raises:
            McpError: If there is no such call, or its client can't or won't answer.
        """
        if asked is None or asked.rounds is None:
            raise McpError(
                INVALID_REQUEST,
                f"can't tell which client the request {method!r} is for: no call is waiting, "
                "or several clients have unanswered calls, some of them perhaps given up",
            )
        question = handed_on(asked, method, params, self.client.protocol_version)
        try:
            question.check(asked)
        except McpError as exc:
            # In the legacy era, a question that needs a capability that the client lacks gets the error for an unknown
            # method.
            raise McpError(METHOD_NOT_FOUND, exc.message) from None
        try:
            return await question
        except RoundEnded:
            raise McpError(INVALID_REQUEST, "the request that this question is about has ended") from None
        except TransportError as exc:
            raise McpError(INVALID_REQUEST, f"the client can't be asked: {exc}") from None

    def heard(self, calls: UnansweredCalls, notification: Notification, related: RequestId | None) -> None:
        """Forward a notification from the upstream to the client that it is meant for.

        Args:
            calls: The calls that the upstream has not responded to.
            notification: The notification.
            related: The request that the notification came with, if the transport knows it.
        """
        method, params = notification.method, notification.params or {}
        if method == "notifications/message":
            self._pass_log(params, calls, related)
        elif method == "notifications/elicitation/complete":
            if isinstance(identity := params.get("elicitationId"), str):
                self._proxy.notify_elicitation_complete(identity)
        # All other notifications that the specification defines are handled elsewhere. A notification of an extension
        # goes to the call that it belongs to, unless the proxy hands the extension on in another way.
        elif not is_spec_method(method) and method not in self._handled and (call := calls.meant(related)) is not None:
            call.send_notification_nowait(method, params)

    def _pass_log(self, params: dict[str, Any], calls: UnansweredCalls, related: RequestId | None) -> None:
        level = params.get("level")
        if not isinstance(level, str) or level not in SEVERITY:
            return  # a malformed message is dropped
        if (call := calls.meant(related)) is not None:
            if wants_log(call.client, SEVERITY[level]):
                call.send_notification_nowait("notifications/message", params)
        elif related is None:  # the message need not belong to a call
            connections = [each for run in self._settings.runs for each in run.connections]
            # The message might be about any pending call. So it is sent only if there is a single client and every
            # pending call is this client's.
            if len(connections) == 1 and calls.all_of(connections[0]):
                connections[0].send_log_nowait(params, SEVERITY[level])

    # --- changes -------------------------------------------------------------------------------------------------

    async def _hear_lists(self, client: Client) -> None:
        declared = client.session.server.capabilities
        flags: Any = {flag: True for _, flag, name in _LISTS.values() if declares(declared, f"{name}.listChanged")}
        # Without flags, there is nothing to listen for: the upstream announces no changes to its lists.
        if not flags:
            return
        try:
            await self._listen(
                client, lambda event: self._announce(_LISTS[type(event)][0]), self._announce_lists, **flags
            )
        except TrioMcpError as exc:
            logger.warning("the upstream server %r does not announce its changes: %s", self.name, exc)

    def _announce_lists(self) -> None:
        for method, _, _ in _LISTS.values():  # any list may have changed while the connection was lost
            self._announce(method)

    async def _listen(
        self, client: Client, heard: Callable[[Any], None], missed: Callable[[], None], **wanted: Any
    ) -> None:
        """Listen for changes until the connection is lost; resubscribe if a subscription ends earlier (modern era).

        Args:
            client: The connection.
            heard: Called with each event.
            missed: Called after resubscribing, when events may have been missed.
            wanted: As for `Client.listen`.

        Raises:
            TrioMcpError: If the upstream announces no such changes.
        """
        attempt = 0
        again = False
        while True:
            try:
                async with client.listen(**wanted) as events:
                    if again:
                        missed()
                    async for event in events:
                        # An event shows that the subscription works, so if it ends, the next one need not wait long.
                        attempt = 0
                        heard(event)
            except TransportError:
                pass  # the subscription's stream or the link broke; in the latter case the session is closed
            if client.session.closed:
                return
            # The delay keeps the proxy from spinning if a server ends each subscription at once. `wait` never returns
            # None, as there is no limit on attempts; `or 0` only satisfies the type checker.
            await trio.sleep(_LISTENING.wait(attempt, random.random) or 0)
            attempt, again = attempt + 1, True

    def watch(self, topic: Topic, heard: bool) -> None:
        """Follow a resource of the upstream as long as a client of the proxy listens to it."""
        method, uri = topic
        if method != RESOURCE_UPDATED or uri is None or self._nursery is None:
            return
        if heard:
            self._watches[uri] = scope = trio.CancelScope()
            self._nursery.start_soon(self._watch, uri, scope)
        else:
            self._watches.pop(uri).cancel("no client is listening any more")

    async def _watch(self, uri: str, scope: trio.CancelScope) -> None:
        CURRENT.set(None)  # a request has started this task, which follows the resource for all clients

        def updated(event: Any) -> None:
            self._announce(RESOURCE_UPDATED, getattr(event, "uri", uri))

        with scope:
            while True:
                # The event is read before listening, so that a reconnection is not missed if it happens while the
                # subscription ends.
                lost = self._reconnected
                try:
                    await self._listen(
                        self.client, updated, lambda: self._announce(RESOURCE_UPDATED, uri), resources=[uri]
                    )
                except (TrioMcpError, LocalProtocolError) as exc:
                    logger.warning("the upstream server %r does not announce changes to %r: %s", self.name, uri, exc)
                    return
                await lost.wait()
                self._announce(RESOURCE_UPDATED, uri)  # the resource may have changed while the connection was lost


# The upstream is asked for progress only if the proxy's client has asked for it.
def _reporter(context: ServedContext[Any]) -> ProgressCallback:
    async def report(progress: ProgressNotificationParams) -> None:
        await context.report_progress(progress.progress, progress.total, progress.message)

    return report


class UpstreamClient(Client):
    """A client that passes the server's questions on instead of answering them."""

    def __init__(self, upstream: Upstream, target: Any, settings: dict[str, Any]) -> None:
        super().__init__(target, **settings)
        # Each connection gets its own `UnansweredCalls`, because an upstream that was restarted knows nothing of
        # earlier calls.
        self._unanswered = calls = UnansweredCalls(upstream.heard)
        self._connection.inputs = HandedOn(upstream.answer, calls)

    def pass_on(
        self, context: ServedContext[Any], params: dict[str, Any], on_progress: ProgressCallback | None
    ) -> Awaitable[dict[str, Any]]:
        """Send a client's call, through the middleware, and wait for its result without a time limit."""
        session = self.session
        call = OutgoingCall(context.method, params, session.server.revision)
        limits = UNLIMITED if on_progress is None else Limits(None, None, False, on_progress)
        return self._connection.through(call, partial(self._send, session, context, call, limits))

    async def _send(
        self, session: ClientSession, context: ServedContext[Any], call: OutgoingCall, limits: Limits
    ) -> dict[str, Any]:
        with self._unanswered.entered(context, call) as opened:
            return await session.ask(call.method, call.params, opened, limits)
