"""`Client`: what people use to talk to a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import attrs
import trio
from pydantic import BaseModel, ValidationError

from trio_mcp._nursery import EnteredOnce
from trio_mcp.client.answers.sources import InputSources
from trio_mcp.client.cache import ResponseCache
from trio_mcp.client.connected_session import ConnectedSession
from trio_mcp.client.connection import Connection, Middleware, check_log_level
from trio_mcp.client.input_rounds import InputRounds
from trio_mcp.client.listen import Listening, wanted_filter
from trio_mcp.client.listing import CachedCalls, every
from trio_mcp.client.subscriptions import Subscription, Subscriptions
from trio_mcp.client.targets import Target
from trio_mcp.client.tool_results import OutputSchemas, ToolResult
from trio_mcp.convert import as_json, as_result, brief
from trio_mcp.eras.capabilities import declared_extensions
from trio_mcp.eras.rules import rules_of
from trio_mcp.errors import LocalProtocolError, RemoteProtocolError
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.session.calls import USE_SESSION, CallLimits, Limit
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.session import SessionStatistics
from trio_mcp.types.capabilities import ClientCapabilities, ServerCapabilities
from trio_mcp.types.common import INPUT_REQUIRED, Implementation
from trio_mcp.types.completion import CompleteResult, PromptReference, ResourceTemplateReference
from trio_mcp.types.meta import checked_meta
from trio_mcp.types.notices import LoggingLevel, LoggingMessageNotificationParams
from trio_mcp.types.prompts import GetPromptResult, ListPromptsResult, Prompt
from trio_mcp.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from trio_mcp.types.tools import ListToolsResult, Tool

if TYPE_CHECKING:  # most clients answer nothing: what they could is loaded by those that do
    from trio_mcp.client.answers.elicitation import ElicitationCallback, ElicitationMode
    from trio_mcp.client.answers.roots import Roots
    from trio_mcp.client.answers.sampling import SamplingCallback, SamplingFeature
    from trio_mcp.types.input_required import InputRequiredResult

__all__ = ["Client", "ClientStatistics"]

ResultT = TypeVar("ResultT", bound=BaseModel)


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


class Client(EnteredOnce):
    """A client of one server. Use it as an async context manager; it can be entered once.

    Entering connects and negotiates. What is raised in the block leaves it as it is; the loss of the server ends the
    calls that wait for it, with the reason, never the block.

    Args:
        target: A URL or `HttpServerParameters`; `StdioServerParameters`; a `Server` (served in memory); or a callable
            that gives an async context manager which yields a `Link`.
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
            server that sends none is not asked. None leaves it to a server of the legacy era what it sends;
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

    def __init__(
        self,
        target: Target,
        *,
        mode: str = "auto",
        client_info: Implementation | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        result_types: Collection[str] = (),
        capabilities: ClientCapabilities | Mapping[str, Any] | None = None,
        elicitation: ElicitationCallback | None = None,
        elicitation_modes: Collection[ElicitationMode] = ("form", "url"),
        sampling: SamplingCallback | None = None,
        sampling_features: Collection[SamplingFeature] = (),
        roots: Roots | None = None,
        max_input_rounds: int = 10,
        options: SessionOptions | None = None,
        connect_timeout: float = 30.0,
        probe_timeout: float = 5.0,
        log_level: LoggingLevel | None = None,
        on_log: Callable[[LoggingMessageNotificationParams], Awaitable[object] | object] | None = None,
        on_error: Callable[[RemoteProtocolError], Awaitable[object] | object] | None = None,
        on_message: Callable[[Notification], Awaitable[object] | object] | None = None,
        middleware: Sequence[Middleware] = (),
        cache: ResponseCache | None = None,
        principal: str | None = None,
    ) -> None:
        if isinstance(max_input_rounds, bool) or not isinstance(max_input_rounds, int) or max_input_rounds < 1:
            raise ValueError(f"max_input_rounds must be a whole number of at least 1, got {max_input_rounds!r}")
        if cache is not None and not isinstance(cache, ResponseCache):
            raise TypeError(f"cache must be a ResponseCache, got {type(cache).__name__}")
        if principal is not None and not isinstance(principal, str):
            raise TypeError(f"principal must be a string, got {type(principal).__name__}")
        self._output_schemas = OutputSchemas(self.iter_tools)
        self._subscriptions = Subscriptions(self._output_schemas.changed)
        self._connection = Connection(
            target,
            inputs=InputSources(
                elicitation=elicitation,
                elicitation_modes=elicitation_modes,
                sampling=sampling,
                sampling_features=sampling_features,
                roots=roots,
            ),
            subscriptions=self._subscriptions,
            mode=mode,
            client_info=client_info,
            extensions=extensions,
            result_types=result_types,
            capabilities=capabilities,
            options=options,
            connect_timeout=connect_timeout,
            probe_timeout=probe_timeout,
            log_level=log_level,
            on_log=on_log,
            on_error=on_error,
            on_message=on_message,
            middleware=middleware,
        )
        self._calls = CachedCalls(self._connection, cache, principal or self)
        self._rounds = InputRounds(self._connection, max_input_rounds)
        self._listening = Listening(self._connection, self._subscriptions)
        if cache is not None:
            cache.attach(target)
            self._subscriptions.hooks.append(cache.changed)

    # --- the connection ------------------------------------------------------------------------------------------

    def _lifetime(self) -> AbstractAsyncContextManager[None]:
        return self._connection.opened()

    async def aclose(self) -> None:
        """End the connection: early, in any order with other clients, from any task; again is a no-op.

        Pending calls raise `SessionClosed`; the server process, if there is one, is asked to exit and then made to.
        When cancelled, the same happens at once, without the asking.
        """
        await self._connection.aclose()

    @property
    def session(self) -> ConnectedSession:
        """The session underneath, for whatever the client has no method for.

        Raises:
            LocalProtocolError: The client has not been entered.
        """
        return self._connection.session

    @property
    def server_info(self) -> Implementation | None:
        """What the server says of itself, which nothing checks; None if it says nothing readable."""
        try:
            return Implementation.from_wire(self._connection.session.server.info)
        except ValidationError:
            return None

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server has declared.

        Raises:
            RemoteProtocolError: It is malformed.
        """
        try:
            return ServerCapabilities.from_wire(self._connection.session.server.capabilities)
        except ValidationError as exc:
            raise RemoteProtocolError(f"the server's capabilities are malformed: {brief(exc)}") from None

    @property
    def extensions(self) -> dict[str, dict[str, Any]]:
        """The settings of each extension that the server has declared, by its identifier."""
        return declared_extensions(self._connection.session.server.capabilities)

    @property
    def instructions(self) -> str | None:
        """The server's guidance for the model, or None."""
        return self._connection.session.server.instructions

    @property
    def protocol_version(self) -> str:
        """The revision that is spoken."""
        return self._connection.session.server.revision

    def statistics(self) -> ClientStatistics:
        """What the client is doing now. Cheap: it only looks at counters, and at each `Client.listen` that is open."""
        return ClientStatistics(
            session=self._connection.session.statistics() if self._connection.is_open else None,
            subscriptions=len(self._subscriptions),
            subscription_requests=self._subscriptions.requests,
            watched_resources=len(self._listening.watches),
            events_waiting=self._subscriptions.waiting,
            known_tools=len(self._output_schemas),
        )

    # --- requests and notifications of any method ------------------------------------------------------------------

    @overload
    async def request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None = ...,
        result_type: None = ...,
        **limits: Unpack[CallLimits],
    ) -> dict[str, Any]: ...

    @overload
    async def request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None,
        result_type: type[ResultT],
        **limits: Unpack[CallLimits],
    ) -> ResultT: ...

    async def request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None = None,
        result_type: type[BaseModel] | None = None,
        **limits: Unpack[CallLimits],
    ) -> Any:
        """Send any request, through the middleware.

        Arguments, errors and cancellation are those of `BaseSession.send_request`.

        Returns:
            The result: a ``result_type``, or plain data.
        """
        result = await self._connection.request(method, params, limits)
        return result if result_type is None else as_result(result, result_type, method)

    async def ping(self, *, timeout: Limit = USE_SESSION) -> None:
        """Ask the server for a sign of life (legacy era only).

        Raises:
            LocalProtocolError: The revision has no ping.
        """
        await self._connection.request("ping", None, {"timeout": timeout})

    async def notify(self, method: str, params: BaseModel | Mapping[str, Any] | None = None) -> None:
        """Send the server a notification of your own. Over Streamable HTTP the modern era has none.

        Arguments, errors and cancellation are those of `BaseSession.send_notification`.
        """
        await self._connection.session.send_notification(method, params)

    # --- tools -----------------------------------------------------------------------------------------------------

    async def list_tools(self, cursor: str | None = None, *, timeout: Limit = USE_SESSION) -> ListToolsResult:
        """One page of the server's tools.

        Args:
            cursor: The ``next_cursor`` of the page before; None for the first page.
            timeout: Seconds to wait.

        Raises:
            CapabilityError: The server offers no tools.
            McpError: The server refused, for example an invalid cursor.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        page = await self._calls.page(ListToolsResult, "tools/list", cursor, timeout)
        self._output_schemas.learn(page.tools)
        return page

    def iter_tools(self, *, timeout: Limit = USE_SESSION) -> AsyncIterator[Tool]:
        """Every tool, page after page: ``async for tool in client.iter_tools()``.

        Args:
            timeout: Seconds to wait for each page.

        A server whose pages never end is given up after `MAX_PAGES` with a `RemoteProtocolError`; errors otherwise as
        in `list_tools`.
        """
        return every(self.list_tools, "tools", timeout)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> ToolResult:
        """Call a tool.

        Structured content is validated against the tool's output schema; the list of tools is asked for once if it
        has not been, and again after it has changed. If the server asks for input, the callbacks of the `Client` give
        it, and the call goes on.

        Args:
            name: The tool's name.
            arguments: Its arguments: JSON data, or anything that pydantic turns into it.
            meta: More entries for the request's ``_meta``; a key has the form ``com.example/name``.
            limits: ``timeout``, ``total_timeout``, ``reset_on_progress``, ``on_progress``: see `CallLimits`. Each
                round of input has ``timeout`` anew; what callbacks take between the rounds does not count (modern era).

        Returns:
            The result. ``is_error`` says that the tool itself failed: that is for the model to see, so nothing is
            raised.

        Raises:
            TypeError: The arguments are no mapping, or can't be turned into JSON.
            ValueError: A key of ``meta`` is malformed, or the protocol keeps it for itself.
            McpError: The server refused, for example because there is no such tool.
            InputError: The server asks for input, and the callback gave none (modern era).
            RemoteProtocolError: The result is malformed, breaks the tool's output schema, or asks for input that it
                may not ask for.
            RequestTimeout, TransportError: As in `BaseSession.send_request`.

        When cancelled, the server is told (with the reason) and the call ends at once.
        """
        params = _tool_params(name, arguments)
        if meta is not None:
            self._add_meta(params, meta, f"the call of {name!r}")
        started = trio.current_time()
        result = await self._connection.request("tools/call", params, limits)
        if result.get("resultType") == INPUT_REQUIRED:
            result = await self._rounds.finish("tools/call", params, result, started, limits)
        answer = as_result(result, ToolResult, "tools/call")
        if "structuredContent" in result and not answer.is_error:
            await self._output_schemas.check(name, result["structuredContent"])
        return answer

    async def call_tool_once(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> ToolResult | InputRequiredResult:
        """Call a tool for one round of input, by hand; no callback is called.

        A server of the modern era may answer with an `InputRequiredResult`. To go on, call again with the same name
        and arguments, with a response for each of its ``input_requests`` and with its very ``request_state``. The
        server asks only for what the client has declared: see ``capabilities`` of the `Client`.

        Args:
            name: As in `call_tool`, like all that follow.
            arguments: Its arguments.
            input_responses: The responses to the round before, by the key of the request: `ElicitResult`,
                `CreateMessageResult`, `ListRootsResult`, or plain data.
            request_state: The ``request_state`` of the round before; None if it had none.
            meta: More entries for the request's ``_meta``.
            limits: As in `call_tool`.

        Raises:
            LocalProtocolError: Responses or a state are given in the legacy era.

        Further errors and cancellation as in `call_tool`.
        """
        params = _tool_params(name, arguments)
        self._add_meta(params, meta, f"the call of {name!r}")
        result, answer = await self._rounds.once(
            "tools/call", ToolResult, params, input_responses, request_state, limits
        )
        if isinstance(answer, ToolResult) and "structuredContent" in result and not answer.is_error:
            await self._output_schemas.check(name, result["structuredContent"])
        return answer

    # --- resources -------------------------------------------------------------------------------------------------

    async def list_resources(self, cursor: str | None = None, *, timeout: Limit = USE_SESSION) -> ListResourcesResult:
        """One page of the server's resources.

        Args:
            cursor: The ``next_cursor`` of the page before; None for the first page.
            timeout: Seconds to wait.

        Raises:
            CapabilityError: The server offers no resources.
            McpError: The server refused, for example an invalid cursor.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        return await self._calls.page(ListResourcesResult, "resources/list", cursor, timeout)

    def iter_resources(self, *, timeout: Limit = USE_SESSION) -> AsyncIterator[Resource]:
        """Every resource, page after page: ``async for resource in client.iter_resources()``.

        Args:
            timeout: Seconds to wait for each page.

        A server whose pages never end is given up after `MAX_PAGES` with a `RemoteProtocolError`; errors otherwise as
        in `list_resources`.
        """
        return every(self.list_resources, "resources", timeout)

    async def list_resource_templates(
        self, cursor: str | None = None, *, timeout: Limit = USE_SESSION
    ) -> ListResourceTemplatesResult:
        """One page of the server's resource templates: URI templates (RFC 6570) that name families of resources.

        Arguments, errors and cancellation as in `list_resources`.
        """
        return await self._calls.page(ListResourceTemplatesResult, "resources/templates/list", cursor, timeout)

    def iter_resource_templates(self, *, timeout: Limit = USE_SESSION) -> AsyncIterator[ResourceTemplate]:
        """Every resource template, page after page. Arguments and errors as in `iter_resources`."""
        return every(self.list_resource_templates, "resource_templates", timeout)

    async def read_resource(
        self,
        uri: str,
        *,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> ReadResourceResult:
        """Read a resource. If the server asks for input, the callbacks of the `Client` give it.

        Args:
            uri: Its URI: one from a list, or made from a template.
            meta: More entries for the request's ``_meta``, as in `call_tool`.
            limits: As in `call_tool`.

        Returns:
            Its ``contents``: `TextResourceContents` with a ``text``, `BlobResourceContents` with a ``blob`` in Base64;
            several where the URI names a group.

        Raises:
            TypeError: The URI is no string.
            ValueError: A key of ``meta`` is malformed, or the protocol keeps it for itself.
            CapabilityError: The server offers no resources.
            McpError: The server refused, for example because there is no such resource.
            InputError: The server asks for input, and the callback gave none (modern era).
            RemoteProtocolError: The result is malformed, or asks for input that it may not ask for.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        params = _uri_params(uri)
        self._add_meta(params, meta, f"the request for {uri!r}")
        started = trio.current_time()
        if meta is None:
            result = await self._calls.request("resources/read", uri, params, limits)
        else:  # what the entries of `meta` do to the result, nobody knows
            result = await self._connection.request("resources/read", params, limits)
        if result.get("resultType") == INPUT_REQUIRED:
            result = await self._rounds.finish("resources/read", params, result, started, limits)
        return self._calls.read(result, ReadResourceResult, "resources/read")

    async def read_resource_once(
        self,
        uri: str,
        *,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> ReadResourceResult | InputRequiredResult:
        """Read a resource for one round of input, by hand: to `read_resource` as `call_tool_once` is to `call_tool`."""
        params = _uri_params(uri)
        self._add_meta(params, meta, f"the request for {uri!r}")
        _, answer = await self._rounds.once(
            "resources/read", ReadResourceResult, params, input_responses, request_state, limits
        )
        return answer

    async def subscribe_resource(self, uri: str, *, timeout: Limit = USE_SESSION) -> None:
        """Ask to be told when a resource changes (legacy era only).

        The server then sends ``notifications/resources/updated``, which ``on_message`` of the `Client` gets.

        Args:
            uri: Its URI.
            timeout: Seconds to wait.

        Raises:
            TypeError: The URI is no string.
            LocalProtocolError: The revision has no such request; 2026-07-28 and later have none.
            CapabilityError: The server takes no subscriptions.
            McpError: The server refused.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        await self._connection.request("resources/subscribe", _uri_params(uri), {"timeout": timeout})

    async def unsubscribe_resource(self, uri: str, *, timeout: Limit = USE_SESSION) -> None:
        """Ask to be told no more. Arguments, errors and cancellation as in `subscribe_resource`."""
        await self._connection.request("resources/unsubscribe", _uri_params(uri), {"timeout": timeout})

    # --- prompts, and completion of arguments -----------------------------------------------------------------------

    async def list_prompts(self, cursor: str | None = None, *, timeout: Limit = USE_SESSION) -> ListPromptsResult:
        """One page of the server's prompts.

        Args:
            cursor: The ``next_cursor`` of the page before; None for the first page.
            timeout: Seconds to wait.

        Raises:
            CapabilityError: The server offers no prompts.
            McpError: The server refused, for example an invalid cursor.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        return await self._calls.page(ListPromptsResult, "prompts/list", cursor, timeout)

    def iter_prompts(self, *, timeout: Limit = USE_SESSION) -> AsyncIterator[Prompt]:
        """Every prompt, page after page: ``async for prompt in client.iter_prompts()``.

        Args:
            timeout: Seconds to wait for each page.

        A server whose pages never end is given up after `MAX_PAGES` with a `RemoteProtocolError`; errors otherwise as
        in `list_prompts`.
        """
        return every(self.list_prompts, "prompts", timeout)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> GetPromptResult:
        """Fill in a prompt. If the server asks for input, the callbacks of the `Client` give it.

        Args:
            name: The prompt's name.
            arguments: Its arguments. They are strings, in every revision.
            meta: More entries for the request's ``_meta``, as in `call_tool`.
            limits: As in `call_tool`.

        Returns:
            The ``messages``, and perhaps a ``description``.

        Raises:
            TypeError: The name is no string, or the arguments are no mapping of strings.
            ValueError: A key of ``meta`` is malformed, or the protocol keeps it for itself.
            CapabilityError: The server offers no prompts.
            McpError: The server refused, for example because there is no such prompt or an argument is missing.
            InputError: The server asks for input, and the callback gave none (modern era).
            RemoteProtocolError: The result is malformed, or asks for input that it may not ask for.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        params = _prompt_params(name, arguments)
        self._add_meta(params, meta, f"the request for the prompt {name!r}")
        started = trio.current_time()
        result = await self._connection.request("prompts/get", params, limits)
        if result.get("resultType") == INPUT_REQUIRED:
            result = await self._rounds.finish("prompts/get", params, result, started, limits)
        return as_result(result, GetPromptResult, "prompts/get")

    async def get_prompt_once(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> GetPromptResult | InputRequiredResult:
        """Fill in a prompt for one round of input, by hand: to `get_prompt` as `call_tool_once` is to `call_tool`."""
        params = _prompt_params(name, arguments)
        self._add_meta(params, meta, f"the request for the prompt {name!r}")
        _, answer = await self._rounds.once(
            "prompts/get", GetPromptResult, params, input_responses, request_state, limits
        )
        return answer

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str = "",
        *,
        context: Mapping[str, str] | None = None,
        timeout: Limit = USE_SESSION,
        meta: Mapping[str, Any] | None = None,
    ) -> CompleteResult:
        """Ask what an argument of a prompt, or a variable of a resource template, could be.

        ``await client.complete(PromptReference(name="review"), "language", "py")``

        Args:
            ref: Which prompt, by its name, or which template, by its URI template.
            argument: The name of the argument.
            value: What has been typed of it.
            context: Other arguments that are known already. Before 2025-06-18 there is no such thing: a server of an
                older revision is not told.
            timeout: Seconds to wait.
            meta: More entries for the request's ``_meta``, as in `call_tool`.

        Returns:
            Its ``completion`` has at most 100 ``values``, the best first, and perhaps says how many there are
            (``total``) or that there are more (``has_more``).

        Raises:
            TypeError: An argument is not what it should be.
            ValueError: A key of ``meta`` is malformed, or the protocol keeps it for itself.
            CapabilityError: The server completes nothing.
            McpError: The server refused, for example because there is no such prompt.
            RemoteProtocolError: The result is malformed.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        if not isinstance(ref, (PromptReference, ResourceTemplateReference)):
            raise TypeError(f"ref must be a PromptReference or a ResourceTemplateReference, got {type(ref).__name__}")
        if not isinstance(argument, str) or not isinstance(value, str):
            raise TypeError(f"the argument's name and value must be strings, got {argument!r}, {value!r}")
        params: dict[str, Any] = {"ref": ref.to_wire(), "argument": {"name": argument, "value": value}}
        if context is not None:
            known = _strings(context, "context")
            if rules_of(self.protocol_version).completion_context:
                params["context"] = {"arguments": known}
        self._add_meta(params, meta, "the request for completion")
        result = await self._connection.request("completion/complete", params, {"timeout": timeout})
        return as_result(result, CompleteResult, "completion/complete")

    # --- changes, log messages, roots --------------------------------------------------------------------------------

    def listen(
        self,
        *,
        tools_list_changed: bool = False,
        prompts_list_changed: bool = False,
        resources_list_changed: bool = False,
        resources: Iterable[str] = (),
        timeout: Limit = USE_SESSION,
    ) -> AbstractAsyncContextManager[Subscription]:
        """Hear of changes: ``async with client.listen(tools_list_changed=True) as events``.

        The loop over ``events`` gives `ToolsListChanged`, `PromptsListChanged`, `ResourcesListChanged` and
        `ResourceUpdated`. Entering waits until the server has agreed; ``events.honored`` says to what. In the legacy
        era it says which of it the server has declared, and entering subscribes to the resources.

        Leaving the block ends it at once, without waiting for the server. So does a cancellation, also while entering.

        Args:
            tools_list_changed: Hear of changes of the list of tools.
            prompts_list_changed: Hear of changes of the list of prompts.
            resources_list_changed: Hear of changes of the lists of resources and of resource templates.
            resources: The URIs of resources to hear of, `MAX_URIS` at most.
            timeout: Seconds to wait for the server to agree; None waits forever; by default the session's. Nothing
                limits how long the block lasts.

        Raises:
            TypeError: An argument is of another type, for example a string instead of a list of URIs.
            ValueError: Nothing was asked for, a URI is empty, or there are too many.
            CapabilityError: A server of the legacy era has declared nothing of what was asked for.
            LocalProtocolError: The client is not connected; entering raises it if it listens too often at once.

        Entering raises `McpError` if the server refuses, `RequestTimeout` if it does not answer in time,
        `RemoteProtocolError` if its answer is malformed, `TransportError` if the link is lost. What the loop raises
        is described at `Subscription`.
        """
        asked = wanted_filter(tools_list_changed, prompts_list_changed, resources_list_changed, resources)
        return self._listening.block(asked, timeout)

    async def set_log_level(self, level: LoggingLevel | None, *, timeout: Limit = USE_SESSION) -> None:
        """Say which log messages the server shall send from now on; ``on_log`` of the `Client` gets them.

        In the legacy era the server is told at once (``logging/setLevel``). In the modern era nothing is sent now:
        every later request asks for the messages that belong to it; None asks for none.

        Args:
            level: The least severe level wanted.
            timeout: Seconds to wait.

        Raises:
            ValueError: There is no such level; or it is None in the legacy era, which has no word for that.
            CapabilityError: A server of the legacy era has not declared that it logs. (In the modern era there are
                servers that log all the same, so they are asked.)
            McpError: The server refused.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        if level is not None:
            check_log_level(level)
        session = self._connection.session
        if session.modern:
            await trio.lowlevel.checkpoint()
            session.set_log_level(level)
        elif level is None:
            raise ValueError("level must not be None: a server of the legacy era can't be asked for no messages at all")
        else:
            await self._connection.request("logging/setLevel", {"level": level}, {"timeout": timeout})

    async def set_roots(self, roots: Roots) -> None:
        """Have other roots from now on.

        A server of the legacy era is told that they have changed, and may ask for them; one of the modern era asks
        whenever it wants to know.

        Args:
            roots: As the ``roots`` of the `Client`.

        Raises:
            TypeError, ValueError: A root is none; the old ones stay.
            LocalProtocolError: The client was made without ``roots``, so it has not declared any.
            TransportError: The link failed or the session was closed; the old ones stay.

        When cancelled, the old roots stay, and the server is not told.
        """
        own = self._connection.inputs.roots
        if own is None:
            raise LocalProtocolError("the client has declared no roots: pass roots= to Client, if only an empty list")
        new = own.checked(roots)
        if self._connection.is_open and not self._connection.session.modern:
            await self._connection.session.send_notification("notifications/roots/list_changed")
        else:
            await trio.lowlevel.checkpoint()
        own.set(new)  # before anybody can read the notification

    # --- what the calls share ----------------------------------------------------------------------------------------

    def _add_meta(self, params: dict[str, Any], meta: Mapping[str, Any] | None, what: str) -> None:
        """Put what the caller wants in the ``_meta`` of a request where it belongs.

        Raises:
            TypeError, ValueError: As `checked_meta` does.
        """
        if meta is not None:
            params["_meta"] = checked_meta(meta, what, of_request=True, revisions=(self.protocol_version,))


def _tool_params(name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    if not isinstance(name, str):
        raise TypeError(f"a tool's name must be a string, got {name!r}")
    params: dict[str, Any] = {"name": name}
    if arguments is not None:
        if not isinstance(arguments, Mapping):
            raise TypeError(f"arguments must be a mapping, got {type(arguments).__name__}")
        params["arguments"] = as_json(dict(arguments), f"the arguments of {name!r}")
    return params


def _uri_params(uri: str) -> dict[str, Any]:
    if not isinstance(uri, str):
        raise TypeError(f"a URI must be a string, got {uri!r}")
    return {"uri": uri}


def _prompt_params(name: str, arguments: Mapping[str, str] | None) -> dict[str, Any]:
    if not isinstance(name, str):
        raise TypeError(f"a prompt's name must be a string, got {name!r}")
    return {"name": name} if arguments is None else {"name": name, "arguments": _strings(arguments, "arguments")}


def _strings(given: Mapping[str, str], what: str) -> dict[str, str]:
    """A mapping of strings as it travels.

    Args:
        given: The mapping.
        what: What it is, for the error message.

    Raises:
        TypeError: It is no mapping, or not of strings.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} must be a mapping of strings, got {type(given).__name__}")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"{what} must be a mapping of strings, got {key!r}: {value!r}")
    return dict(given)
