"""`Client`: the public client of one server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import trio
from pydantic import BaseModel, ValidationError

from trio_mcp import _attrs as attrs
from trio_mcp._checks import given_or_default
from trio_mcp._keywords import refuse_unknown
from trio_mcp._nursery import EnteredOnce
from trio_mcp._renamed import refuse_attributes
from trio_mcp._settings import completed
from trio_mcp.client.answers.sources import Answers, InputSources
from trio_mcp.client.connection import ClientConnection
from trio_mcp.client.failover.parameters import TransportStatus
from trio_mcp.client.input_rounds import InputRounds
from trio_mcp.client.listen import Listening, wanted_filter
from trio_mcp.client.listing import Audience, CachedCalls, check_audience, every, is_for
from trio_mcp.client.options import ClientOptions, check_log_level
from trio_mcp.client.subscriptions import Subscription, Subscriptions
from trio_mcp.client.targets import Target, authorized
from trio_mcp.client.tool_results import DataT, OutputSchemas, ToolResult, adapter_of, tool_params, typed
from trio_mcp.convert import as_result, brief
from trio_mcp.eras.capabilities import declared_extensions
from trio_mcp.eras.rules import rules_of
from trio_mcp.errors import LocalProtocolError, McpError, RemoteProtocolError
from trio_mcp.principal import as_principal
from trio_mcp.session.calls import USE_SESSION, CallLimits, Limit
from trio_mcp.session.client import ClientSession
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.statistics import SessionStatistics
from trio_mcp.types.capabilities import ServerCapabilities
from trio_mcp.types.common import COMPLETE, Implementation, LoggingLevel
from trio_mcp.types.completion import CompleteResult, PromptReference, ResourceTemplateReference
from trio_mcp.types.meta import checked_meta
from trio_mcp.types.prompts import GetPromptResult, ListPromptsResult, Prompt
from trio_mcp.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from trio_mcp.types.tool_messages import ListToolsResult
from trio_mcp.types.tools import Tool

if TYPE_CHECKING:  # most clients answer no questions of the server: only those that do load these modules
    from pydantic import TypeAdapter

    from trio_mcp.auth.rules.urls import UrlPolicy
    from trio_mcp.client.answers.roots import Roots
    from trio_mcp.server_card.models import ServerCard
    from trio_mcp.types.input_required import InputRequiredResult

__all__ = ["Client", "ClientStatistics", "connection_of"]

ResultT = TypeVar("ResultT", bound=BaseModel)


@attrs.frozen
class ClientStatistics:
    """A snapshot of what a client is doing.

    Attributes:
        session: The statistics of the client's session; None before it is connected.
        subscriptions: The number of open `Client.listen` blocks.
        subscription_requests: How many of those have a request open at the server (modern era only).
        watched_resources: The number of resources that the client is subscribed to (legacy era only).
        events_waiting: The number of events received but not yet taken by a loop.
        known_tools: The number of tools whose output schema is known from a list.
    """

    session: SessionStatistics | None
    subscriptions: int
    subscription_requests: int
    watched_resources: int
    events_waiting: int
    known_tools: int


class Client(EnteredOnce):
    """A client of one server. Use it as an async context manager; it can be entered once.

    Entering connects and negotiates. An exception raised in the block passes through unchanged. If the connection is
    lost, pending calls raise an exception that says why; the block itself is never cancelled.

    Args:
        target: A URL or `HttpServerParameters`; `StdioServerParameters`; a `Server` (served in memory); or a callable
            that returns an async context manager yielding a `Link`; or that context manager, which connects once. A
            list of these, or `FailoverParameters`, describes several ways to reach one server, the best first.
        settings: The other arguments: those of `ClientOptions`, such as ``auth``, ``timeout`` and ``answers``.

    Raises:
        TypeError, ValueError: If an argument is invalid.
    """

    def __init__(self, target: Target, **settings: Unpack[ClientOptions]) -> None:
        refuse_unknown(Client, settings, ClientOptions)
        given = completed(ClientOptions, settings)
        target = authorized(target, given["auth"])
        answers = given_or_default("answers", given["answers"], Answers)
        options = given_or_default("options", given["options"], SessionOptions)
        timeout, cache = given["timeout"], given["cache"]
        if timeout is not USE_SESSION:
            # The options are copied, and the copy is checked: the caller's object may be used for several clients.
            options = attrs.evolve(options, calls=attrs.evolve(options.calls, timeout=timeout))
        # The parts of a client know one another only through the arguments that the client passes to them.
        self._output_schemas = OutputSchemas(self.iter_tools, all_apart=given["request_headers"] is not None)
        self._subscriptions = Subscriptions(self._output_schemas.changed)
        self._connection = ClientConnection(
            target, given, options=options, inputs=InputSources(answers), subscriptions=self._subscriptions
        )
        # Without a principal the client itself is the owner, so that its private results are shared with no other
        # client.
        self._calls = CachedCalls(self._connection, cache, as_principal(given["principal"], "principal") or self)
        self._rounds = InputRounds(self._connection, answers.max_input_rounds)
        self._listening = Listening(self._connection, self._subscriptions)
        if cache is not None:
            # `attach` raises an error if the cache belongs to another server.
            cache.attach(target)
            self._subscriptions.hooks.append(cache.changed)
        if self._connection.extensions is not None:
            from trio_mcp.client.access import ClientAccess

            # The extensions come last, when nothing can be refused any more.
            access = ClientAccess(self._connection, self._rounds, self._output_schemas, self._listening)
            self._connection.attach(self, access)

    # --- the connection ------------------------------------------------------------------------------------------

    def _lifetime(self) -> AbstractAsyncContextManager[None]:
        return self._connection.opened()

    async def aclose(self) -> None:
        """Close the connection before the block ends. Any task may call this, and clients may be closed in any order.
        Closing again does nothing.

        Pending calls raise `SessionClosed`. A server process, if there is one, is asked to exit, and killed if it does
        not. If the call is cancelled, the connection is closed at once, without asking.
        """
        await self._connection.aclose()

    @property
    def session(self) -> ClientSession:
        """The underlying session, for anything that the client has no method for.

        Raises:
            LocalProtocolError: If the client has not been entered.
        """
        return self._connection.session

    @property
    def transport(self) -> TransportStatus:
        """The status of the link that carries the session, and of all ways to reach the server if there are several.

        See `FailoverParameters`.
        """
        return self._connection.transport

    @property
    def server_info(self) -> Implementation | None:
        """The server's name and version, which are not verified; None if missing or malformed."""
        try:
            # The info is parsed only when it is read: a server whose info is malformed can still be used.
            return Implementation.from_wire(self._connection.session.server.info)
        except ValidationError:
            return None

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server has declared.

        Raises:
            RemoteProtocolError: If they are malformed.
        """
        try:
            return ServerCapabilities.from_wire(self._connection.session.server.capabilities)
        except ValidationError as exc:
            # `brief`: a validation error quotes its input, which comes from the server and may be long.
            raise RemoteProtocolError(f"the server's capabilities are malformed: {brief(exc)}") from None

    @property
    def extensions(self) -> dict[str, dict[str, Any]]:
        """The extensions that the server has declared: their settings, by identifier."""
        return declared_extensions(self._connection.session.server.capabilities)

    def attached(self, identifier: str) -> Any:
        """Return the object that an extension of this client keeps for it: see `ClientExtension.attach`.

        Args:
            identifier: The extension's identifier.

        Raises:
            LocalProtocolError: If the client was made without that extension.
        """
        extensions = self._connection.extensions
        if extensions is None or identifier not in extensions.attached:
            raise LocalProtocolError(
                f"the client was made without the extension {identifier!r}: pass it in Client(…, extensions=[…])"
            )
        return extensions.attached[identifier]

    @property
    def instructions(self) -> str | None:
        """The server's guidance for the model, or None."""
        return self._connection.session.server.instructions

    @property
    def protocol_version(self) -> str:
        """The negotiated revision of the protocol."""
        return self._connection.session.server.revision

    def statistics(self) -> ClientStatistics:
        """Return a snapshot of the client.

        This is cheap: it reads counters, and visits each open `Client.listen`.
        """
        return ClientStatistics(
            session=self._connection.session.statistics() if self._connection.is_open else None,
            subscriptions=len(self._subscriptions),
            subscription_requests=self._subscriptions.requests,
            watched_resources=len(self._listening.watches),
            events_waiting=self._subscriptions.waiting,
            known_tools=len(self._output_schemas),
        )

    @staticmethod
    async def discover_card(url: str, *, urls: UrlPolicy | None = None) -> ServerCard:
        """Read the card that a server publishes about itself, before there is a client: experimental (SEP-2127).

        Arguments, errors and cancellation are those of `trio_mcp.server_card.discover_card`.
        """
        from trio_mcp.server_card.discovery import discover_card  # late: few programs read cards

        return await discover_card(url, urls=urls)

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
        """Send a request with any method, through the middleware.

        Arguments, errors and cancellation are those of `BaseSession.send_request`.

        Returns:
            The result: an instance of ``result_type``, or plain data without one.
        """
        if limits:
            refuse_unknown(Client.request, limits, CallLimits)
        result = await self._connection.request(method, params, limits)
        return result if result_type is None else as_result(result, result_type, method)

    async def finish(
        self, method: str, params: Mapping[str, Any], result: dict[str, Any], **limits: Unpack[CallLimits]
    ) -> dict[str, Any]:
        """Finish a result that `request` returned and whose type an extension of this client has added.

        `call_tool`, `read_resource` and `get_prompt` finish such results by themselves: the result of a tool call that
        became a task is waited for, for example.

        Args:
            method: The method of the request.
            params: The parameters of the request.
            result: The result. If it asks for input, the client's answers provide it, and the request is sent again.
            limits: As in `call_tool`; ``total_timeout`` counts from now.

        Returns:
            The final result, as plain data; ``result`` itself, if there is nothing to finish.

        Errors and cancellation as in `call_tool`.
        """
        if limits:
            refuse_unknown(Client.finish, limits, CallLimits)
        await trio.lowlevel.checkpoint()
        return await self._rounds.finish(method, dict(params), result, trio.current_time(), limits)

    async def ping(self, *, timeout: Limit = USE_SESSION, headers: Mapping[str, str] | None = None) -> None:
        """Check that the server responds: with ``ping``, or ``server/discover`` in the modern era, which has no ping.

        Raises:
            RequestTimeout: If the server does not respond in time.
            McpError: If the server refuses.
            TransportError: If the link is lost.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        method = "server/discover" if self._connection.session.modern else "ping"
        await self._connection.request(method, None, {"timeout": timeout, "headers": headers})

    async def notify(
        self, method: str, params: BaseModel | Mapping[str, Any] | None = None, *, urgent: bool = False
    ) -> None:
        """Send the server a notification with any method. In the modern era, Streamable HTTP allows none.

        Arguments, errors and cancellation are those of `BaseSession.send_notification`.
        """
        await self._connection.session.send_notification(method, params, urgent=urgent)

    # --- tools -----------------------------------------------------------------------------------------------------

    async def list_tools(
        self,
        cursor: str | None = None,
        *,
        timeout: Limit = USE_SESSION,
        audience: Audience | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ListToolsResult:
        """Return one page of the server's tools; iterating over it yields its tools.

        Args:
            cursor: The ``next_cursor`` of the previous page; None for the first page.
            timeout: Seconds to wait.
            audience: Leave out tools that are not meant for ``"model"`` or ``"app"`` (SEP-1865, Visibility); None for
                every tool. A host must not show a model the tools that are only for pages.
            headers: HTTP header fields for this request: see `CallLimits`.

        Raises:
            ValueError: If the audience is neither.
            CapabilityError: If the server offers no tools.
            McpError: If the server refuses, for example because the cursor is invalid.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        # The output schemas are learned from every page, so that calls need not list the tools again.
        check_audience(audience)
        limits = CallLimits(timeout=timeout, headers=headers)
        page = await self._calls.page(ListToolsResult, "tools/list", cursor, limits)
        if not self._connection.is_apart(limits):
            self._output_schemas.learn(page, cursor)
        if audience is not None:
            page = page.model_copy(update={"tools": [tool for tool in page.tools if is_for(tool, audience)]})
        return page

    def iter_tools(
        self,
        *,
        timeout: Limit = USE_SESSION,
        audience: Audience | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Tool]:
        """Iterate over every tool, page by page: ``async for tool in client.iter_tools()``.

        Args:
            timeout: Seconds to wait for each page.
            audience: As in `list_tools`.
            headers: HTTP header fields for each of the requests: see `CallLimits`.

        Nothing is yielded if the server has not declared that it offers tools. More than `MAX_PAGES` pages raise
        `RemoteProtocolError`. Other errors as in `list_tools`.
        """
        # The pages come through `list_tools`, so that each is cached, and the output schemas are learned from it.
        check_audience(audience)
        return every(partial(self.list_tools, audience=audience, headers=headers), "tools", timeout)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = ...,
        *,
        result_type: type[DataT] | TypeAdapter[DataT] | None = ...,
        meta: Mapping[str, Any] | None = ...,
        **limits: Unpack[CallLimits],
    ) -> ToolResult[DataT]: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = ...,
        *,
        result_type: Any,
        meta: Mapping[str, Any] | None = ...,
        **limits: Unpack[CallLimits],
    ) -> ToolResult[Any]: ...

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        result_type: Any = None,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> ToolResult:
        """Call a tool.

        Structured content is validated against the tool's output schema, so the list of tools is fetched if it has not
        been yet, or has changed; but not if the call has HTTP headers of its own, which may select other tools. If the
        server asks for input, the `Client`'s answers provide it and the call continues.

        Args:
            name: The tool's name.
            arguments: Its arguments: JSON data, or anything that pydantic can turn into JSON.
            result_type: The type of what the tool returns: a pydantic model, a dataclass, ``list[int]``, or anything
                else that pydantic can validate, or a `pydantic.TypeAdapter`. The result's ``data`` is then an
                instance of that type. If the server sends no structured content, the text of the result is read: as it
                is if the type takes a string, else as JSON.
            meta: Further entries for the request's ``_meta``; a key has the form ``com.example/name``.
            limits: ``timeout``, ``total_timeout``, ``reset_on_progress``, ``on_progress``, ``retry``, ``urgent`` and
                ``headers``: see `CallLimits`. Each round of input restarts ``timeout``; time spent in callbacks between
                the rounds does not count (modern era).

        Returns:
            The result. If the tool itself failed, ``is_error`` is set and nothing is raised: such a failure is for the
            model to see.

        Raises:
            TypeError: If the arguments are not a mapping, or can't be turned into JSON; or if pydantic can't validate
                the ``result_type``.
            ValueError: If a key of ``meta`` is malformed or reserved by the protocol.
            UnknownTool: If the server has no such tool. To suggest others, the tools are listed if they have not been
                yet. A result that says only that the tool is unknown raises this, too.
            McpError: If the server refuses for another reason.
            InputError: If the server asks for input and the callback provides none (modern era).
            RemoteProtocolError: If the result is malformed, breaks the tool's output schema, does not fit the
                ``result_type``, or asks for input that the client has not declared.
            RequestTimeout, TransportError: As in `BaseSession.send_request`.

        When cancelled, the call tells the server (with the reason) and ends at once.
        """
        if limits:
            refuse_unknown(Client.call_tool, limits, CallLimits)
        # The adapter is made before the tool runs, because making it may raise.
        adapter = None if result_type is None else adapter_of(result_type)
        params = tool_params(name, arguments)
        if meta is not None:
            self._add_meta(params, meta, f"the call of {name!r}")
        # The clock is read before the first round, because `total_timeout` covers all rounds.
        started, refused = trio.current_time(), None
        try:
            result = await self._connection.request("tools/call", params, limits)
        except McpError as exc:
            refused = exc
        if refused is not None:
            raise await self._output_schemas.of(limits).refusal(name, refused)
        # The result is tested before `finish` is called, so that a call without rounds, the usual case, needs no
        # further coroutine.
        if result.get("resultType", COMPLETE) != COMPLETE:
            result = await self._rounds.finish("tools/call", params, result, started, limits)
        answer = as_result(result, ToolResult, "tools/call")
        if answer.is_error:
            await self._output_schemas.of(limits).check_failure(name, answer.text)
        # A tool that failed need not match its output schema, which describes success (`server/tools`).
        elif "structuredContent" in result:
            await self._output_schemas.of(limits).check(name, result["structuredContent"])
        return answer if adapter is None else typed(result, name, adapter)

    @overload
    async def call_tool_once(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = ...,
        *,
        result_type: type[DataT] | TypeAdapter[DataT] | None = ...,
        input_responses: Mapping[str, Any] | None = ...,
        request_state: str | None = ...,
        meta: Mapping[str, Any] | None = ...,
        **limits: Unpack[CallLimits],
    ) -> ToolResult[DataT] | InputRequiredResult: ...

    @overload
    async def call_tool_once(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = ...,
        *,
        result_type: Any,
        input_responses: Mapping[str, Any] | None = ...,
        request_state: str | None = ...,
        meta: Mapping[str, Any] | None = ...,
        **limits: Unpack[CallLimits],
    ) -> ToolResult[Any] | InputRequiredResult: ...

    async def call_tool_once(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        result_type: Any = None,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> ToolResult | InputRequiredResult:
        """Call a tool, and return the server's request for input instead of answering it; callbacks are not used.

        A server of the modern era may respond with an `InputRequiredResult`. To continue, call again with the same
        name and arguments, a response to each of its ``input_requests``, and its ``request_state`` unchanged. The
        server asks only for what the client has declared: see ``capabilities`` of the `Client`.

        Args:
            name: The tool's name.
            arguments: Its arguments, as in `call_tool`.
            result_type: The type of what the tool returns in the end.
            input_responses: The responses to the previous round, by the key of the request: `ElicitResult`,
                `CreateMessageResult`, `ListRootsResult`, or plain data.
            request_state: The ``request_state`` of the previous round; None if it had none.
            meta: Further entries for the request's ``_meta``.
            limits: As in `call_tool`.

        Raises:
            LocalProtocolError: If responses or a state are given in the legacy era.

        Further errors and cancellation as in `call_tool`.
        """
        if limits:
            refuse_unknown(Client.call_tool_once, limits, CallLimits)
        adapter = None if result_type is None else adapter_of(result_type)
        params = tool_params(name, arguments)
        self._add_meta(params, meta, f"the call of {name!r}")
        refused = None
        try:
            result, answer = await self._rounds.once(
                "tools/call", ToolResult, params, input_responses, request_state, limits
            )
        except McpError as exc:
            refused = exc
        if refused is not None:
            raise await self._output_schemas.of(limits).refusal(name, refused)
        # Only a final result is checked; one that asks for input has nothing that a schema describes.
        if not isinstance(answer, ToolResult):
            return answer
        if answer.is_error:
            await self._output_schemas.of(limits).check_failure(name, answer.text)
        elif "structuredContent" in result:
            await self._output_schemas.of(limits).check(name, result["structuredContent"])
        return answer if adapter is None else typed(result, name, adapter)

    # --- resources -------------------------------------------------------------------------------------------------

    async def list_resources(
        self,
        cursor: str | None = None,
        *,
        timeout: Limit = USE_SESSION,
        headers: Mapping[str, str] | None = None,
    ) -> ListResourcesResult:
        """Return one page of the server's resources; iterating over it yields its resources.

        Args:
            cursor: The ``next_cursor`` of the previous page; None for the first page.
            timeout: Seconds to wait.
            headers: HTTP header fields for this request: see `CallLimits`.

        Raises:
            CapabilityError: If the server offers no resources.
            McpError: If the server refuses, for example because the cursor is invalid.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        limits = CallLimits(timeout=timeout, headers=headers)
        return await self._calls.page(ListResourcesResult, "resources/list", cursor, limits)

    def iter_resources(
        self, *, timeout: Limit = USE_SESSION, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Resource]:
        """Iterate over every resource, page by page: ``async for resource in client.iter_resources()``.

        Args:
            timeout: Seconds to wait for each page.
            headers: HTTP header fields for each of the requests: see `CallLimits`.

        Nothing is yielded if the server has not declared that it offers resources. More than `MAX_PAGES` pages raise
        `RemoteProtocolError`. Other errors as in `list_resources`.
        """
        return every(partial(self.list_resources, headers=headers), "resources", timeout)

    async def list_resource_templates(
        self,
        cursor: str | None = None,
        *,
        timeout: Limit = USE_SESSION,
        headers: Mapping[str, str] | None = None,
    ) -> ListResourceTemplatesResult:
        """Return one page of the server's resource templates: URI templates (RFC 6570) that name families of resources.

        Arguments, errors and cancellation as in `list_resources`.
        """
        limits = CallLimits(timeout=timeout, headers=headers)
        return await self._calls.page(ListResourceTemplatesResult, "resources/templates/list", cursor, limits)

    def iter_resource_templates(
        self, *, timeout: Limit = USE_SESSION, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[ResourceTemplate]:
        """Iterate over every resource template, page by page. Arguments and errors as in `iter_resources`."""
        return every(partial(self.list_resource_templates, headers=headers), "resource_templates", timeout)

    async def read_resource(
        self,
        uri: str,
        *,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> ReadResourceResult:
        """Read a resource. If the server asks for input, the `Client`'s answers provide it.

        Args:
            uri: Its URI: one from a list, or expanded from a template.
            meta: Further entries for the request's ``_meta``, as in `call_tool`.
            limits: As in `call_tool`.

        Returns:
            The resource's ``contents``: `TextResourceContents` with a ``text``, `BlobResourceContents` with a ``blob``
            in Base64; several if the URI names a group.

        Raises:
            TypeError: If the URI is not a string.
            ValueError: If a key of ``meta`` is malformed or reserved by the protocol.
            CapabilityError: If the server offers no resources.
            McpError: If the server refuses, for example because there is no such resource.
            InputError: If the server asks for input and the callback provides none (modern era).
            RemoteProtocolError: If the result is malformed, or asks for input that the client has not declared.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        if limits:
            refuse_unknown(Client.read_resource, limits, CallLimits)
        params = _uri_params(uri)
        self._add_meta(params, meta, f"the request for {uri!r}")
        started = trio.current_time()
        if meta is None:
            # Of the calls that may need rounds of input, only the reading of a resource may be served by the cache,
            # which never keeps a result that asks for input.
            result = await self._calls.request("resources/read", uri, params, limits)
        else:  # entries of `meta` may change the result in ways that the cache can't know of
            result = await self._connection.request("resources/read", params, limits)
        if result.get("resultType", COMPLETE) != COMPLETE:
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
        """Read a resource, and return the server's request for input instead of answering it: see `call_tool_once`."""
        if limits:
            refuse_unknown(Client.read_resource_once, limits, CallLimits)
        params = _uri_params(uri)
        self._add_meta(params, meta, f"the request for {uri!r}")
        _, answer = await self._rounds.once(
            "resources/read", ReadResourceResult, params, input_responses, request_state, limits
        )
        return answer

    async def subscribe_resource(self, uri: str, *, timeout: Limit = USE_SESSION) -> None:
        """Subscribe to changes to a resource (legacy era only).

        The server then sends ``notifications/resources/updated``, which the `Client` passes to ``on_message``.

        Args:
            uri: Its URI.
            timeout: Seconds to wait.

        Raises:
            TypeError: If the URI is not a string.
            LocalProtocolError: If the revision has no such request: 2026-07-28 and later have none.
            CapabilityError: If the server does not support subscriptions.
            McpError: If the server refuses.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        await self._connection.request("resources/subscribe", _uri_params(uri), {"timeout": timeout})

    async def unsubscribe_resource(self, uri: str, *, timeout: Limit = USE_SESSION) -> None:
        """Unsubscribe from a resource. Arguments, errors and cancellation as in `subscribe_resource`."""
        await self._connection.request("resources/unsubscribe", _uri_params(uri), {"timeout": timeout})

    # --- prompts, and completion of arguments -----------------------------------------------------------------------

    async def list_prompts(
        self,
        cursor: str | None = None,
        *,
        timeout: Limit = USE_SESSION,
        headers: Mapping[str, str] | None = None,
    ) -> ListPromptsResult:
        """Return one page of the server's prompts; iterating over it yields its prompts.

        Args:
            cursor: The ``next_cursor`` of the previous page; None for the first page.
            timeout: Seconds to wait.
            headers: HTTP header fields for this request: see `CallLimits`.

        Raises:
            CapabilityError: If the server offers no prompts.
            McpError: If the server refuses, for example because the cursor is invalid.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        limits = CallLimits(timeout=timeout, headers=headers)
        return await self._calls.page(ListPromptsResult, "prompts/list", cursor, limits)

    def iter_prompts(
        self, *, timeout: Limit = USE_SESSION, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Prompt]:
        """Iterate over every prompt, page by page: ``async for prompt in client.iter_prompts()``.

        Args:
            timeout: Seconds to wait for each page.
            headers: HTTP header fields for each of the requests: see `CallLimits`.

        Nothing is yielded if the server has not declared that it offers prompts. More than `MAX_PAGES` pages raise
        `RemoteProtocolError`. Other errors as in `list_prompts`.
        """
        return every(partial(self.list_prompts, headers=headers), "prompts", timeout)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> GetPromptResult:
        """Get a prompt with its arguments filled in. If the server asks for input, the `Client`'s answers provide it.

        Args:
            name: The prompt's name.
            arguments: Its arguments: strings, in every revision.
            meta: Further entries for the request's ``_meta``, as in `call_tool`.
            limits: As in `call_tool`.

        Returns:
            The ``messages``, and perhaps a ``description``.

        Raises:
            TypeError: If the name is not a string, or the arguments are not a mapping of strings.
            ValueError: If a key of ``meta`` is malformed or reserved by the protocol.
            CapabilityError: If the server offers no prompts.
            McpError: If the server refuses, for example because there is no such prompt or an argument is missing.
            InputError: If the server asks for input and the callback provides none (modern era).
            RemoteProtocolError: If the result is malformed, or asks for input that the client has not declared.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        if limits:
            refuse_unknown(Client.get_prompt, limits, CallLimits)
        params = _prompt_params(name, arguments)
        self._add_meta(params, meta, f"the request for the prompt {name!r}")
        started = trio.current_time()
        result = await self._connection.request("prompts/get", params, limits)
        if result.get("resultType", COMPLETE) != COMPLETE:
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
        """Get a prompt, and return the server's request for input instead of answering it: see `call_tool_once`."""
        if limits:
            refuse_unknown(Client.get_prompt_once, limits, CallLimits)
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
        headers: Mapping[str, str] | None = None,
    ) -> CompleteResult:
        """Ask for completions of a prompt's argument or a resource template's variable.

        ``await client.complete(PromptReference(name="review"), "language", "py")``

        Args:
            ref: Which prompt, by its name, or which template, by its URI template.
            argument: The name of the argument.
            value: The part typed so far.
            context: Other arguments whose values are known. Revisions before 2025-06-18 have no such field, so it is
                not sent there.
            timeout: Seconds to wait.
            meta: Further entries for the request's ``_meta``, as in `call_tool`.
            headers: HTTP header fields for this request: see `CallLimits`.

        Returns:
            A ``completion`` with at most 100 ``values``, the best first; it may say how many there are (``total``)
            or that there are more (``has_more``).

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If a key of ``meta`` is malformed or reserved by the protocol.
            CapabilityError: If the server offers no completion.
            McpError: If the server refuses, for example because there is no such prompt.
            RemoteProtocolError: If the result is malformed.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        if not isinstance(ref, (PromptReference, ResourceTemplateReference)):
            raise TypeError(f"ref must be a PromptReference or a ResourceTemplateReference, got {type(ref).__name__}")
        if not isinstance(argument, str) or not isinstance(value, str):
            raise TypeError(f"the argument's name and value must be strings, got {argument!r}, {value!r}")
        params: dict[str, Any] = {"ref": ref.to_wire(), "argument": {"name": argument, "value": value}}
        if context is not None:
            # The context is checked in every revision, so that a mistake does not show up only with a newer server.
            known = _strings(context, "context")
            if rules_of(self.protocol_version).completion_context:
                params["context"] = {"arguments": known}
        self._add_meta(params, meta, "the request for completion")
        limits = CallLimits(timeout=timeout, headers=headers)
        result = await self._connection.request("completion/complete", params, limits)
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
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[Subscription]:
        """Listen for changes: ``async with client.listen(tools_list_changed=True) as events``.

        Iterating over ``events`` yields `ToolsListChanged`, `PromptsListChanged`, `ResourcesListChanged` and
        `ResourceUpdated`. Entering waits until the server has agreed; ``events.honored`` says which changes it will
        announce. In the legacy era these are the requested changes that the server has declared, and entering
        subscribes to the resources.

        Leaving the block ends the subscription at once, without waiting for the server. So does a cancellation, even
        while entering.

        Args:
            tools_list_changed: Listen for changes to the list of tools.
            prompts_list_changed: Listen for changes to the list of prompts.
            resources_list_changed: Listen for changes to the lists of resources and resource templates.
            resources: The URIs of resources to listen to, at most `MAX_URIS`.
            timeout: Seconds to wait for the server to agree; None waits forever; the default is the session's. The
                block itself has no time limit.
            headers: HTTP header fields for the request, as in `CallLimits`; only in the modern era, as in the legacy
                era all subscriptions belong to the session.

        Raises:
            TypeError: If an argument has the wrong type, for example a string instead of a list of URIs.
            ValueError: If nothing was asked for, a URI is empty, or there are too many.
            CapabilityError: If a server of the legacy era has declared none of the requested changes.
            LocalProtocolError: If the client is not connected, or can't send the headers; on entering, if too many
                blocks are already open.

        Entering raises `McpError` if the server refuses, `RequestTimeout` if it does not respond in time,
        `RemoteProtocolError` if its response is malformed, `TransportError` if the link is lost. For the exceptions
        that the loop raises, see `Subscription`.
        """
        # The filter is made here rather than on entering, so that a mistake shows where `listen` is called.
        asked = wanted_filter(tools_list_changed, prompts_list_changed, resources_list_changed, resources)
        return self._listening.block(asked, {"timeout": timeout, "headers": headers})

    async def set_log_level(self, level: LoggingLevel | None, *, timeout: Limit = USE_SESSION) -> None:
        """Set which log messages the server should send; the `Client` passes them to ``on_log``.

        In the legacy era the server is told at once (``logging/setLevel``). In the modern era nothing is sent now:
        each later request asks for the messages that belong to it; with None, it asks for none.

        Args:
            level: The least severe level wanted.
            timeout: Seconds to wait.

        Raises:
            ValueError: If there is no such level; or if it is None in the legacy era, which can't express that.
            CapabilityError: If a server of the legacy era has not declared logging. (In the modern era some servers
                log without declaring it, so they are asked regardless.)
            McpError: If the server refuses.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        if level is not None:
            check_log_level(level)
        session = self._connection.session
        # In the modern era no request is sent, but a public async function is always a checkpoint.
        if session.modern:
            await trio.lowlevel.checkpoint()
            session.set_log_level(level)
        elif level is None:
            raise ValueError("level must not be None: a legacy-era server can't be asked to send no log messages")
        else:
            await self._connection.request("logging/setLevel", {"level": level}, {"timeout": timeout})

    async def set_roots(self, roots: Roots) -> None:
        """Replace the client's roots.

        A server of the legacy era is told that they have changed, and may ask for them; one of the modern era asks
        whenever it needs them.

        Args:
            roots: The new roots, in any form that the ``roots`` of `Answers` take.

        Raises:
            TypeError, ValueError: If a root is invalid; the old roots stay.
            LocalProtocolError: If the client's answers were made without ``roots``, so it has not declared any.
            TransportError: If the link failed or the session was closed; the old roots stay.

        If the call is cancelled, the old roots stay, and the server is not notified.
        """
        own = self._connection.inputs.roots
        if own is None:
            raise LocalProtocolError("the client has declared no roots: create it with answers=Answers(roots=[])")
        # The roots are checked before anything is sent: an invalid one must leave everything unchanged.
        new = own.checked(roots)
        if self._connection.is_open and not self._connection.session.modern:
            # The notification goes first: if the link has failed, the old roots stay, as the docstring promises.
            await self._connection.session.send_notification("notifications/roots/list_changed")
        else:
            await trio.lowlevel.checkpoint()
        # There has been no checkpoint since the notification was handed over, so no task can send the server the old
        # roots.
        own.set(new)

    # --- what the calls share ----------------------------------------------------------------------------------------

    def _add_meta(self, params: dict[str, Any], meta: Mapping[str, Any] | None, what: str) -> None:
        """Put the caller's entries into the ``_meta`` of a request.

        Raises:
            TypeError, ValueError: As `checked_meta` raises them.
        """
        if meta is not None:
            # Only the caller's entries are added here. The protocol's own are added when the request is sent, according
            # to the era.
            params["_meta"] = checked_meta(meta, what, of_request=True, revisions=(self.protocol_version,))


def _uri_params(uri: str) -> dict[str, Any]:
    if not isinstance(uri, str):
        raise TypeError(f"a URI must be a string, got {uri!r}")
    return {"uri": uri}


def _prompt_params(name: str, arguments: Mapping[str, str] | None) -> dict[str, Any]:
    if not isinstance(name, str):
        raise TypeError(f"a prompt's name must be a string, got {name!r}")
    return {"name": name} if arguments is None else {"name": name, "arguments": _strings(arguments, "arguments")}


def _strings(given: Mapping[str, str], what: str) -> dict[str, str]:
    """Check a mapping of strings, and return a copy of it.

    Args:
        given: The mapping.
        what: Its description, for the error message.

    Raises:
        TypeError: If it is not a mapping of strings.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} must be a mapping of strings, got {type(given).__name__}")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"{what} must be a mapping of strings, got {key!r}: {value!r}")
    return dict(given)


refuse_attributes(Client)


connection_of: Callable[[Client], ClientConnection] = attrgetter("_connection")
"""Return the connection of a client: a function, not a method, because programs must not use it."""
