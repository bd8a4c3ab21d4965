"""`Client`: what people use to talk to a server."""

from __future__ import annotations

import attrs

from trio_mcp.client.answers.root_methods import RootMethods
from trio_mcp.client.completion import CompletionMethods
from trio_mcp.client.listen import ListenMethods
from trio_mcp.client.logging import LoggingMethods
from trio_mcp.client.prompts import PromptMethods
from trio_mcp.client.resources import ResourceMethods
from trio_mcp.client.tools import ToolMethods
from trio_mcp.session.session import SessionStatistics

__all__ = ["Client", "ClientStatistics"]


@attrs.frozen
class ClientStatistics:
    """What a client is doing.

    Attributes:
        session: What its session is doing; None before it is connected.
        subscriptions: Blocks of `Client.listen` that are open.
        subscription_requests: How many of them have a request at the server: modern era only.
        watched_resources: Resources that the client is subscribed to: legacy era only.
        events_waiting: Events that have come and that no loop has taken.
        known_tools: Tools whose output schema is known from a list.
    """

    session: SessionStatistics | None
    subscriptions: int
    subscription_requests: int
    watched_resources: int
    events_waiting: int
    known_tools: int


class Client(
    ToolMethods, ResourceMethods, PromptMethods, CompletionMethods, ListenMethods, LoggingMethods, RootMethods
):
    """A client of one server. Use it as an async context manager; it can be entered once.

    Entering connects and negotiates. What is raised in the block leaves it as it is; the loss of the server ends the
    calls that wait for it, with the reason, never the block.

    Args:
        target: `StdioServerParameters`, a `Server` (served in memory), or a callable that gives an async context
            manager which yields a `Link`.
        mode: ``"auto"`` finds out which era the server speaks; ``"legacy"`` does the handshake; a revision does what
            that revision asks for, and accepts no other.
        client_info: What the client says of itself.
        extensions: The extensions of the protocol that the client declares, each with its settings:
            ``{"com.example/feature": {}}``.
        result_types: The values of ``resultType`` that those extensions add; a result of a type that the client does
            not know is an error.
        capabilities: More capabilities to declare, as `ClientCapabilities` or plain data: of extensions, or of what the
            program answers by itself. Those of the callbacks below are declared without it.
        elicitation: Called, sync or async, when the server asks the user something, with `ElicitRequestFormParams` or
            `ElicitRequestURLParams`. Returns an `ElicitResult`; or the content of an accepted form, as a mapping or
            model; or ``"accept"``, ``"decline"`` or ``"cancel"``; or None to decline. Defaults of the form are
            filled in, and what does not fit it is not sent.
        elicitation_modes: Which kinds the callback takes: ``"form"``, ``"url"`` or both.
        sampling: Called, sync or async, when the server asks the client's language model, with
            `CreateMessageRequestParams`. Returns a `CreateMessageResult`, or just a text. To refuse, raise
            ``McpError(-1, "…")``.
        sampling_features: What the callback can do beyond plain messages: ``"tools"``, ``"context"``.
        roots: The directories and files that the server may work in: each a `Root`, a `pathlib.Path` or a ``file://``
            URI; or a sync or async function that gives them. See `Client.set_roots`.
        max_input_rounds: How many times in one call a server of the modern era may ask for input.
        options: Limits, timeouts and hooks of the session.
        connect_timeout: Seconds for starting, connecting and negotiating together.
        probe_timeout: Seconds after which, in ``"auto"``, a silent server is taken for a legacy one.
        log_level: The least severe level of log messages that the server shall send; see `Client.set_log_level`. A
            server that sends none is not asked. None leaves it to a server of the handshake era what it sends;
            one of the modern era then sends nothing.
        on_log: Called, sync or async, with each `LoggingMessageNotificationParams` of the server.
        on_error: Called, sync or async, with what arrived and belongs to no request.
        on_message: Called, sync or async, with every `Notification` of the server.
        cache: Keeps lists and what `read_resource` has read for as long as the server allows. None, the default, keeps
            nothing: each call asks the server.
        principal: On whose behalf the client acts: of the clients that share a cache, those with the same principal
            share what is private. Without one it shares none of it.
        middleware: Each is ``async (call, call_next) -> result`` and surrounds every request, the first outermost.

    Raises:
        TypeError, ValueError: An argument is not what it should be.
    """

    def statistics(self) -> ClientStatistics:
        """What the client is doing now. Cheap: it only looks at counters, and at each `Client.listen` that is open."""
        return ClientStatistics(
            session=None if self._session is None else self._session.statistics(),
            subscriptions=len(self._subscriptions),
            subscription_requests=self._subscriptions.requests,
            watched_resources=0 if self._resource_watches is None else len(self._resource_watches),
            events_waiting=self._subscriptions.waiting,
            known_tools=len(self._output_schemas),
        )
