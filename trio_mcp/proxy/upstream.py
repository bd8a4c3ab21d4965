"""The upstream connection of a proxy: one for each run, made anew when it was lost."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import trio

from trio_mcp._log import logger
from trio_mcp._nursery import start
from trio_mcp.client.client import Client
from trio_mcp.client.connection import OutgoingCall
from trio_mcp.client.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged
from trio_mcp.eras.capabilities import declares, is_spec_method
from trio_mcp.errors import CapabilityError, LocalProtocolError, McpError, TransportError, TrioMcpError
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.jsonrpc.messages import Notification, RequestId
from trio_mcp.proxy.translation import HandedOn, handed_on
from trio_mcp.proxy.unanswered import UnansweredCalls
from trio_mcp.retrying import Backoff
from trio_mcp.server.base_server import BaseServer
from trio_mcp.server.changes import PROMPTS_CHANGED, RESOURCE_UPDATED, RESOURCES_CHANGED, TOOLS_CHANGED, Topic
from trio_mcp.server.context import Context
from trio_mcp.server.input.rounds import RoundEnded
from trio_mcp.server.log_messages import SEVERITY, wants_log
from trio_mcp.session.calls import Limits, ProgressCallback
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from trio_mcp.types.notices import ProgressNotificationParams

__all__ = ["Upstream"]

_LISTENING = Backoff(longest=60.0, attempts=None)

_LISTS = {
    ToolsListChanged: (TOOLS_CHANGED, "tools_list_changed", "tools"),
    PromptsListChanged: (PROMPTS_CHANGED, "prompts_list_changed", "prompts"),
    ResourcesListChanged: (RESOURCES_CHANGED, "resources_list_changed", "resources"),
}
"""For each event of a list: the notification, the flag that asks for it, the capability that goes with it."""


class Upstream:
    """The server behind a proxy, in one run of it.

    Args:
        proxy: The proxy.
        mirror: Called with the client, each time that it is connected.
        make_client: Makes one.
        given: One to use instead.

    Attributes:
        client: The connection; the last one, if that is lost.
    """

    client: Client

    def __init__(
        self,
        proxy: BaseServer,
        mirror: Callable[[Client], None],
        make_client: Callable[[], Client],
        given: Client | None,
    ) -> None:
        self._proxy = proxy
        self._mirror = mirror
        self._announce = proxy.settings.announce
        self._make_client = make_client
        self._given = given
        self._nursery: trio.Nursery | None = None
        self._connecting = trio.Lock()
        self._connected = False
        self._reconnected = trio.Event()
        self._watches: dict[str, trio.CancelScope] = {}
        self._log_level: str | None = None
        self._setting_level = trio.Lock()

    # --- the connection ------------------------------------------------------------------------------------------

    async def open(self, nursery: trio.Nursery) -> None:
        """Connect.

        Raises:
            TrioMcpError: It can't be done.
        """
        self._nursery = nursery
        await self.connected()

    async def connected(self) -> Client:
        """The connection, made anew if it was lost."""
        if not self._connected:
            async with self._connecting:
                if not self._connected:
                    assert self._nursery is not None
                    await start(self._nursery, self._hold)
        return self.client

    async def aclose(self) -> None:
        """End the connection, unless it is somebody else's."""
        if self._given is None and self._connected:
            await self.client.aclose()

    async def _hold(self, task_status: trio.TaskStatus[None]) -> None:
        again = hasattr(self, "client")
        block: Any = self._make_client() if self._given is None else contextlib.nullcontext(self._given)
        async with block as client:
            session = client.session  # of a client that is not entered, there is none
            if session.closed:
                await session.raise_loss()
            self.client, self._connected, self._log_level = client, True, None
            self._mirror(client)
            assert self._nursery is not None
            if again:
                self._reconnected.set()
                self._reconnected = trio.Event()
                self._announce_lists()
            self._nursery.start_soon(self._hear_lists, client)
            task_status.started()
            try:
                await session.raise_loss()
            except TrioMcpError as exc:
                logger.info("the proxy %r has lost its upstream server: %s", self._proxy.info.name, exc)
            finally:
                self._connected = False

    # --- requests ------------------------------------------------------------------------------------------------

    async def request(self, context: Context[Any], params: dict[str, Any]) -> dict[str, Any]:
        """Pass a request on.

        Raises:
            McpError: The upstream's error as it is; or -32603, which names the upstream, if it did not answer.
        """
        on_progress = _reporter(context) if "progressToken" in context.meta else None
        with self._refusing(context.method):
            client = await self.connected()
            if isinstance(client, UpstreamClient):
                return await client.pass_on(context, params, on_progress)
            return await client.request(
                context.method, params, timeout=None, total_timeout=None, on_progress=on_progress
            )

    async def connected_or_refuse(self, method: str) -> Client:
        """The connection.

        Raises:
            McpError: There is none to be had: -32603, which names the upstream.
        """
        with self._refusing(method):
            return await self.connected()

    @contextlib.contextmanager
    def _refusing(self, method: str) -> Iterator[None]:
        try:
            yield
        except McpError:
            raise
        except CapabilityError:
            text = f"unknown method {method!r}: the upstream server {self.name!r} does not offer it"
            raise McpError(METHOD_NOT_FOUND, text) from None
        except (TrioMcpError, OSError) as exc:
            logger.warning("the upstream server %r did not answer %r", self.name, method, exc_info=exc)
            what = "is not there" if isinstance(exc, (TransportError, OSError)) else "gave no valid answer"
            text = f"the upstream server {self.name!r} {what}: {type(exc).__name__}"
            raise McpError(INTERNAL_ERROR, text) from None

    @property
    def name(self) -> str:
        """What the upstream calls itself, or what the proxy is called."""
        info = self.client.server_info if hasattr(self, "client") else None
        return self._proxy.info.name if info is None else info.name

    async def want_logs(self, level: str | None) -> None:
        """Let an upstream of the legacy era send log messages from a level on, and more if others want more."""
        method = "logging/setLevel"
        client = await self.connected_or_refuse(method)
        if level is None or client.session.modern or not declares(client.session.server.capabilities, "logging"):
            return
        if not self._logs_from(level):
            async with self._setting_level:  # who comes later finds it set, or given up
                if not self._logs_from(level):
                    with self._refusing(method):
                        try:
                            await client.request(method, {"level": level})
                        except McpError:
                            self._log_level = level  # it would refuse again
                            raise
                    self._log_level = level

    def _logs_from(self, level: str) -> bool:
        return self._log_level is not None and SEVERITY[self._log_level] <= SEVERITY[level]

    async def tell(self, method: str) -> None:
        """Send the upstream a notification of the legacy era, if it speaks that."""
        if self._connected and not self.client.session.modern:
            with contextlib.suppress(TrioMcpError):
                await self.client.session.send_notification(method)

    # --- what the upstream asks and says of its own accord -------------------------------------------------------

    async def answer(self, method: str, params: Any, asked: Context[Any] | None) -> dict[str, Any]:
        """Have the client whose call it is about answer a question of an upstream of the legacy era.

        Args:
            method: The question's.
            params: Its parameters.
            asked: The call, if it can be told; nobody shall answer somebody else's question.

        Raises:
            McpError: There is no such call, or its client can't or won't answer.
        """
        if asked is None or asked.rounds is None:
            text = f"nobody knows whom {method!r} is for: no client waits for an answer"
            raise McpError(INVALID_REQUEST, f"{text}, or calls of several have none, those given up included")
        question = handed_on(asked, method, params, self.client.protocol_version)
        try:
            question.check(asked)
        except McpError as exc:
            raise McpError(METHOD_NOT_FOUND, exc.message) from None
        try:
            return await question
        except RoundEnded:
            raise McpError(INVALID_REQUEST, "the request that this is about has ended") from None

    def heard(self, calls: UnansweredCalls, notification: Notification, related: RequestId | None) -> None:
        """Pass a notification of the upstream on to the client that it is for.

        Args:
            calls: What the upstream has not answered.
            notification: What it says.
            related: The request that this came with, where the transport tells.
        """
        method, params = notification.method, notification.params or {}
        if method == "notifications/message":
            self._pass_log(params, calls, related)
        elif method == "notifications/elicitation/complete":
            if isinstance(identity := params.get("elicitationId"), str):
                self._proxy.notify_elicitation_complete(identity)
        elif not is_spec_method(method) and (call := calls.meant(related)) is not None:
            call.send_notification_nowait(method, params)

    def _pass_log(self, params: dict[str, Any], calls: UnansweredCalls, related: RequestId | None) -> None:
        level = params.get("level")
        if not isinstance(level, str) or level not in SEVERITY:
            return
        if (call := calls.meant(related)) is not None:
            if wants_log(call.client, SEVERITY[level]):
                call.send_notification_nowait("notifications/message", params)
        elif related is None:  # it need not be about a call
            connections = [each for run in self._proxy.settings.runs for each in run.connections]
            if len(connections) == 1 and calls.all_of(connections[0]):
                connections[0].send_log_nowait(params, SEVERITY[level])

    # --- changes -------------------------------------------------------------------------------------------------

    async def _hear_lists(self, client: Client) -> None:
        declared = client.session.server.capabilities
        flags: Any = {flag: True for _, flag, name in _LISTS.values() if declares(declared, f"{name}.listChanged")}
        if not flags:
            return
        try:
            await self._listen(
                client, lambda event: self._announce(_LISTS[type(event)][0]), self._announce_lists, **flags
            )
        except TrioMcpError as exc:
            logger.warning("the upstream server %r does not tell of its changes: %s", self.name, exc)

    def _announce_lists(self) -> None:
        for method, _, _ in _LISTS.values():  # nobody knows what has changed meanwhile
            self._announce(method)

    async def _listen(
        self, client: Client, heard: Callable[[Any], None], missed: Callable[[], None], **wanted: Any
    ) -> None:
        """Hear of changes until the connection is lost; what tells of them may end before, in the modern era.

        Args:
            client: The connection.
            heard: Called with each event.
            missed: Called when it is heard again after an end: there may have been some.
            wanted: As for `Client.listen`.

        Raises:
            TrioMcpError: The upstream tells of none.
        """
        attempt = 0
        again = False
        while True:
            try:
                async with client.listen(**wanted) as events:
                    if again:
                        missed()
                    async for event in events:
                        attempt = 0
                        heard(event)
            except TransportError:
                pass
            if client.session.closed:
                return
            await trio.sleep(_LISTENING.wait(attempt, random.random) or 0)
            attempt, again = attempt + 1, True

    def watch(self, topic: Topic, heard: bool) -> None:
        """Hear of a resource as long as somebody listens to it here."""
        method, uri = topic
        if method != RESOURCE_UPDATED or uri is None or self._nursery is None:
            return
        if heard:
            self._watches[uri] = scope = trio.CancelScope()
            self._nursery.start_soon(self._watch, uri, scope)
        else:
            self._watches.pop(uri).cancel("nobody listens any more")

    async def _watch(self, uri: str, scope: trio.CancelScope) -> None:
        def updated(event: Any) -> None:
            self._announce(RESOURCE_UPDATED, getattr(event, "uri", uri))

        with scope:
            while True:
                lost = self._reconnected
                try:
                    await self._listen(
                        self.client, updated, lambda: self._announce(RESOURCE_UPDATED, uri), resources=[uri]
                    )
                except (TrioMcpError, LocalProtocolError) as exc:
                    logger.warning("the upstream server %r does not tell of %r: %s", self.name, uri, exc)
                    return
                await lost.wait()
                self._announce(RESOURCE_UPDATED, uri)  # it may have changed meanwhile


def _reporter(context: Context[Any]) -> ProgressCallback:
    async def report(progress: ProgressNotificationParams) -> None:
        await context.report_progress(progress.progress, progress.total, progress.message)

    return report


class UpstreamClient(Client):
    """A client that hands on what it is asked."""

    def __init__(self, upstream: Upstream, target: Any, settings: dict[str, Any]) -> None:
        super().__init__(target, **settings)
        self._unanswered = calls = UnansweredCalls(upstream.heard)
        self._connection.inputs = HandedOn(upstream.answer, calls)

    async def pass_on(
        self, context: Context[Any], params: dict[str, Any], on_progress: ProgressCallback | None
    ) -> dict[str, Any]:
        """Send a client's call, through the middleware, and wait for its result as long as it takes."""
        session = self.session
        call = OutgoingCall(context.method, params, session.server.revision)

        async def send() -> dict[str, Any]:
            with self._unanswered.entered(context) as entered:

                def opened(outgoing: OutgoingRequest) -> None:
                    call.request_id = outgoing.request.id
                    entered(outgoing)

                return await session.ask(call.method, call.params, opened, Limits(None, None, False, on_progress))

        return await self._connection.through(call, send)
