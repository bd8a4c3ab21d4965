"""The upstream connection of a proxy: one for each run, made anew when it was lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import trio

from trio_mcp._log import logger
from trio_mcp._nursery import start
from trio_mcp.client.client import Client
from trio_mcp.client.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged
from trio_mcp.eras.capabilities import declares, is_spec_method
from trio_mcp.errors import CapabilityError, LocalProtocolError, McpError, TransportError, TrioMcpError
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.proxy.translation import HandedOn, handed_on
from trio_mcp.server.base_server import BaseServer
from trio_mcp.server.changes import PROMPTS_CHANGED, RESOURCE_UPDATED, RESOURCES_CHANGED, TOOLS_CHANGED, Topic
from trio_mcp.server.context import Context
from trio_mcp.server.input.rounds import RoundEnded
from trio_mcp.server.log_messages import SEVERITY, wants_log
from trio_mcp.session.calls import ProgressCallback
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from trio_mcp.types.notices import ProgressNotificationParams

__all__ = ["Upstream"]

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
        self._calls: dict[Context[Any], None] = {}  # in flight, in order
        self._watches: dict[str, trio.CancelScope] = {}
        self._log_level: str | None = None

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
                for method, _, _ in _LISTS.values():  # nobody knows what has changed meanwhile
                    self._announce(method)
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
        with self._refusing(context.method), self._in_flight(context):
            client = await self.connected()
            return await client.request(
                context.method,
                params,
                timeout=None,
                total_timeout=None,
                on_progress=_reporter(context) if "progressToken" in context.meta else None,
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

    @contextlib.contextmanager
    def _in_flight(self, context: Context[Any]) -> Iterator[None]:
        self._calls[context] = None
        try:
            yield
        finally:
            del self._calls[context]

    @property
    def name(self) -> str:
        """What the upstream calls itself, or what the proxy is called."""
        info = self.client.server_info if hasattr(self, "client") else None
        return self._proxy.info.name if info is None else info.name

    async def want_logs(self, level: str | None) -> None:
        """Let an upstream of the handshake era send log messages from a level on, and more if others want more."""
        client = await self.connected()
        if level is None or client.session.modern or not declares(client.session.server.capabilities, "logging"):
            return
        if self._log_level is None or SEVERITY[level] < SEVERITY[self._log_level]:
            self._log_level = level
            await client.request("logging/setLevel", {"level": level})

    async def tell(self, method: str) -> None:
        """Send the upstream a notification of the handshake era, if it speaks that."""
        if self._connected and not self.client.session.modern:
            with contextlib.suppress(TrioMcpError):
                await self.client.session.send_notification(method)

    # --- what the upstream asks and says of its own accord -------------------------------------------------------

    async def answer(self, method: str, params: Any) -> dict[str, Any]:
        """Have the client whose request it is about answer a question of an upstream of the handshake era.

        Over most links such a question does not say which request that is: it is that of the last request in flight.
        If requests of several clients are in flight, it is refused, for nobody shall answer somebody else's question.

        Raises:
            McpError: There is no such client, or it can't or won't answer.
        """
        asked = self._only_clients_call()
        if asked is None or asked.rounds is None:
            text = f"nobody knows whom {method!r} is for: no client's request is in flight, or those of several are"
            raise McpError(INVALID_REQUEST, text)
        question = handed_on(asked, method, params, self.client.protocol_version)
        try:
            question.check(asked)
        except McpError as exc:
            raise McpError(METHOD_NOT_FOUND, exc.message) from None
        try:
            return await question
        except RoundEnded:
            raise McpError(INVALID_REQUEST, "the request that this is about has ended") from None

    def _only_clients_call(self) -> Context[Any] | None:
        """The last call in flight, if all of them are one client's."""
        clients = {context.connection for context in self._calls}
        return next(reversed(self._calls)) if len(clients) == 1 else None

    def heard(self, notification: Notification) -> None:
        """Pass a notification of the upstream on to the client that it is for."""
        method, params = notification.method, notification.params or {}
        if method == "notifications/message":
            self._pass_log(params)
        elif method == "notifications/elicitation/complete":
            if isinstance(identity := params.get("elicitationId"), str):
                self._proxy.notify_elicitation_complete(identity)
        elif not is_spec_method(method) and (context := self._only_clients_call()) is not None:
            context.send_notification_nowait(method, params)

    def _pass_log(self, params: dict[str, Any]) -> None:
        level = params.get("level")
        if not isinstance(level, str) or level not in SEVERITY:
            return
        context = self._only_clients_call()
        if context is not None:
            if wants_log(context.client, SEVERITY[level]):
                context.send_notification_nowait("notifications/message", params)
        elif not self._calls:
            connections = [each for run in self._proxy.settings.runs for each in run.connections]
            if len(connections) == 1:
                connections[0].send_log_nowait(params, SEVERITY[level])

    # --- changes -------------------------------------------------------------------------------------------------

    async def _hear_lists(self, client: Client) -> None:
        declared = client.session.server.capabilities
        flags: Any = {flag: True for _, flag, name in _LISTS.values() if declares(declared, f"{name}.listChanged")}
        if not flags:
            return
        try:
            async with client.listen(**flags) as events:
                async for event in events:
                    self._announce(_LISTS[type(event)][0])
        except TransportError:
            pass  # it is told when there is another connection
        except TrioMcpError as exc:
            logger.warning("the upstream server %r does not tell of its changes: %s", self.name, exc)

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
        with scope:
            while True:
                lost = self._reconnected
                try:
                    async with self.client.listen(resources=[uri]) as events:
                        async for event in events:
                            self._announce(RESOURCE_UPDATED, getattr(event, "uri", uri))
                except TransportError:
                    pass
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
        self._connection.inputs = HandedOn(upstream.answer, upstream.heard)
