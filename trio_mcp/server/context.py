"""What a handler knows of the request it serves, and what it can do beside returning a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from pydantic import BaseModel, ValidationError
from typing_extensions import TypeVar

from trio_mcp.convert import as_object
from trio_mcp.eras.capabilities import declared_extensions, declares, is_spec_method
from trio_mcp.eras.rules import Rules
from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.errors import McpError
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.server.connection import Connection, Exchange
from trio_mcp.server.input.questions import (
    Elicited,
    InputRequest,
    ask_form,
    ask_roots,
    ask_url,
    missing_capability,
    no_asking,
)
from trio_mcp.server.input.rounds import Rounds
from trio_mcp.server.log_messages import send_log
from trio_mcp.session.handlers import RequestContext
from trio_mcp.session.sink import Sink
from trio_mcp.trace_context import TraceContext
from trio_mcp.types.common import Implementation
from trio_mcp.types.error_codes import MISSING_REQUIRED_CLIENT_CAPABILITY

if TYPE_CHECKING:  # few servers ask models
    from trio_mcp.server.input.sampling import Messages
    from trio_mcp.types.input_required import InputResponse
    from trio_mcp.types.notices import LoggingLevel
    from trio_mcp.types.roots import Root
    from trio_mcp.types.sampling import CreateMessageResult, IncludeContext, ModelPreferences, ToolChoice
    from trio_mcp.types.tools import Tool

__all__ = ["Context"]

StateT = TypeVar("StateT", default=Any)
ModelT = TypeVar("ModelT", bound=BaseModel)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class Context(RequestContext, Generic[StateT]):
    """One request, as its handler sees it. Declare a parameter of this type and the server fills it.

    The type argument is that of the lifespan's state: ``ctx: Context[Database]``.

    Attributes:
        method: The request's method.
        params: The request's parameters, as plain data. A middleware may replace them.
        connection: The client.
        state: What the server's lifespan yielded; None without a lifespan.
        rounds: What its function asks the client in; None where nothing can be asked. Not for handlers.
    """

    __slots__ = ("connection", "rounds", "state")

    def __init__(self, incoming: IncomingRequest, sink: Sink, connection: Connection | Exchange, state: StateT) -> None:
        super().__init__(incoming, sink)
        self.connection = connection
        self.rounds: Rounds | None = None
        self.state = state

    @property
    def session(self) -> Connection:
        """The session of the legacy era that the request belongs to. Not for handlers."""
        assert isinstance(self.connection, Connection)
        return self.connection

    def of_same_request(self, state: Any, params: dict[str, Any]) -> Context[Any]:
        """Make the context for a mounted server.

        Args:
            state: What its lifespan yielded.
            params: The request's parameters, in its words.
        """
        context: Context[Any] = Context(self.incoming, self._sink, self.connection, state)
        context.client, context.params = self.client, params
        return context

    @property
    def _declared(self) -> ClientDeclaration:
        assert self.client is not None
        return self.client

    @property
    def trace_context(self) -> TraceContext | None:
        """The trace that the request belongs to, by its ``_meta``; None if that names none in a valid form.

        Requests that the handler makes carry it, too, if they are made with this library.
        """
        return TraceContext.from_meta(self.meta)

    @property
    def protocol_version(self) -> str:
        """The revision that the request speaks."""
        assert self.client is not None
        return self.client.revision

    @property
    def rules(self) -> Rules:
        """What differs by revision, of the one that the request speaks."""
        return self._declared.rules

    @property
    def client_info(self) -> Implementation | None:
        """What the client says of itself; nothing that a decision may rest on. None if it says nothing readable."""
        try:
            return Implementation.from_wire(self._declared.client_info)
        except ValidationError:
            return None

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """What the client has declared, as plain data."""
        return self._declared.capabilities

    @property
    def client_extensions(self) -> dict[str, dict[str, Any]]:
        """The settings of each extension that the client has declared, by its identifier."""
        return declared_extensions(self._declared.capabilities)

    def require_client_extension(self, identifier: str) -> None:
        """Refuse the request unless the client has declared an extension.

        Raises:
            McpError: It has not: -32021, which names it (2026-07-28 `basic/index`, Per-request protocol fields).
        """
        if identifier not in self.client_extensions:
            raise McpError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"this request needs the extension {identifier!r}, which the client has not declared",
                {"requiredCapabilities": {"extensions": {identifier: {}}}},
            )

    def require_client_capability(self, capability: str) -> None:
        """Refuse the request unless the client has declared a capability.

        Args:
            capability: A dotted path, for example ``"sampling.tools"``.

        Raises:
            McpError: It has not: -32021, which names it (2026-07-28 `basic/index`, Per-request protocol fields).
        """
        if not declares(self.client_capabilities, capability):
            raise missing_capability(capability)

    async def notify(self, method: str, params: BaseModel | Mapping[str, Any] | None = None) -> None:
        """Send the client a notification of your own, which belongs to this request. After the answer nothing is sent.

        A `Client` gives it to its ``on_message``. From a sync tool: ``trio.from_thread.run(ctx.notify, "…", {…})``.

        Args:
            method: The notification's. Those of an extension begin with its prefix, as a rule.
            params: Its parameters: a model, or plain JSON data.

        Raises:
            ValueError: The protocol defines it: then it has a method of its own, or none.
            TypeError: The parameters are neither a model nor a mapping.

        Waits while the client is slow to read. When cancelled before that, nothing is sent.
        """
        if is_spec_method(method):
            raise ValueError(f"the protocol defines {method!r}; a notification of your own needs a name of your own")
        await self.send_notification(method, None if params is None else as_object(params, "params"))

    async def log(self, level: LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send the client a log message, if it wants messages of this level (`server/utilities/logging`).

        A client of the legacy era gets what is at or above the level that it has set; ``"info"`` and above if it has
        set none. In the modern era the request itself has to ask. After the answer nothing is sent.

        From a sync tool: ``trio.from_thread.run(ctx.log, "info", "half done")``.

        Args:
            level: ``"debug"``, ``"info"``, ``"notice"``, ``"warning"``, ``"error"``, ``"critical"``, ``"alert"`` or
                ``"emergency"``.
            data: What to say: a string, or anything else that pydantic turns into JSON. No secrets: clients show it.
            logger: The name of what says it.

        Raises:
            ValueError: There is no such level.
            TypeError: The data can't be turned into JSON, or ``logger`` is no string.

        Waits while the client is slow to read. When cancelled before that, nothing is sent.
        """
        await send_log(self, level, data, logger)

    def close_stream(self, retry: float | None = None) -> bool:
        """End the HTTP response that carries this request, so that none is held open for long: the client comes back.

        It is told when, and gets what was sent meanwhile, and the answer. That takes an event store
        (``HttpOptions(event_store=…)``) and a client that has an event id to come back with: of 2025-11-25, or of an
        earlier revision after a first message (2025-11-25 `basic/transports`, Sending Messages, 6).

        Args:
            retry: Seconds after which the client shall come back; ``HttpOptions(retry=…)`` by default.

        Returns:
            Whether there is such a response; where not, nothing happens. What was sent before goes out on it first,
            what is sent from now on is for the client that has come back.
        """
        return self._sink.close_stream(self.request_id, retry)

    def close_session_stream(self, retry: float | None = None) -> bool:
        """As `close_stream`, for the response to the GET of this session: what belongs to no request goes there.

        Args:
            retry: Seconds after which the client shall come back; ``HttpOptions(retry=…)`` by default.

        Returns:
            Whether the client has one open (2025-11-25 `basic/transports`, Listening for Messages from the Server, 4).
        """
        return self._sink.close_stream(None, retry)

    # --- asking the client; the long way of each is in docs/asking ------------------------------------------------

    def elicit(
        self, message: str, model: type[ModelT], *, key: str | None = None, timeout: float | None = None
    ) -> InputRequest[Elicited[ModelT | None]]:
        """Ask the user to fill in a form: ``answer = await ctx.elicit("Who are you?", Person)`` (`client/elicitation`).

        Nothing secret: what is filled in passes through the client. From a sync function:
        ``trio.from_thread.run(ctx.elicit, "Who are you?", Person)``.

        Args:
            message: What it is about, for the user.
            model: A flat pydantic model: strings, numbers, booleans, and choices of strings (`Literal`, `enum.Enum`, or
                a list of either), with defaults or optional.
            key: What the question is known by in the modern era; by default its number in the order of asking.
            timeout: Seconds that the user may take; None for no limit but ``Server(request_state_ttl=…)``.

        Raises:
            TypeError, ValueError: An argument is not what it should be, or the model is not flat.

        Awaiting it raises `McpError` if the client has not declared it (-32021), if its answer does not fit the form
        (-32602) and, in the legacy era, for an error answer; `RequestTimeout` after ``timeout`` (legacy era); and
        `LocalProtocolError` if the request is answered or cancelled, or its method is none that may ask.

        In the modern era a question without an answer ends the function like a cancellation, and it runs again when the
        answer has come. When cancelled, a client of the legacy era is told.
        """
        return ask_form(self, message, model, key, timeout)

    def elicit_url(
        self,
        message: str,
        url: str,
        *,
        elicitation_id: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> InputRequest[Elicited[None]]:
        """Ask the user to visit a page, for what must not pass through the client (`client/elicitation`, URL mode).

        The answer says only whether the user agrees to; what happens on the page is between the user and your server.
        As `elicit` otherwise.

        Args:
            message: Why, for the user.
            url: The page.
            elicitation_id: What `Server.notify_elicitation_complete` is given later (2025-11-25 only); a random one by
                default, which the attribute of that name tells.
            key: As in `elicit`.
            timeout: As in `elicit`.
        """
        return ask_url(self, message, url, elicitation_id, key, timeout)

    def sample(
        self,
        messages: Messages,
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        model_preferences: ModelPreferences | Mapping[str, Any] | None = None,
        tools: Iterable[Tool | Mapping[str, Any]] | None = None,
        tool_choice: Literal["auto", "required", "none"] | ToolChoice | None = None,
        temperature: float | None = None,
        stop_sequences: Iterable[str] | None = None,
        include_context: IncludeContext | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> InputRequest[CreateMessageResult]:
        """Ask the client's model: ``reply = await ctx.sample("Two and two?", max_tokens=10)`` (`client/sampling`).

        As `elicit` otherwise.

        Args:
            messages: What to say to it: a string, a `types.SamplingMessage`, or several. An earlier reply may be one.
            max_tokens: How much it may say at most.
            system_prompt: Instructions.
            model_preferences: What matters in the choice of a model.
            tools: What it may call; needs the client capability ``sampling.tools``. You call them, and ask again
                with the results.
            tool_choice: Whether it may, must or must not call one.
            temperature: How varied its replies are.
            stop_sequences: What ends a reply.
            include_context: Ask the client to add context of its servers; deprecated.
            metadata: For the provider of the model.
            key: As in `elicit`.
            timeout: As in `elicit`.

        Raises:
            TypeError, ValueError: An argument is not what it should be, or tool uses and results don't match.
        """
        from trio_mcp.server.input.sampling import ask_model  # few servers ask models

        return ask_model(
            self,
            messages,
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            model_preferences=model_preferences,
            tools=tools,
            tool_choice=tool_choice,
            temperature=temperature,
            stop_sequences=None if stop_sequences is None else list(stop_sequences),
            include_context=include_context,
            metadata=None if metadata is None else dict(metadata),
            key=key,
            timeout=timeout,
        )

    def list_roots(self, *, key: str | None = None, timeout: float | None = None) -> InputRequest[list[Root]]:
        """Ask the client for the directories that it wants worked in (`client/roots`). As `elicit` otherwise."""
        return ask_roots(self, key, timeout)

    @overload
    async def gather(self, first: InputRequest[A], /) -> tuple[A]: ...
    @overload
    async def gather(self, first: InputRequest[A], second: InputRequest[B], /) -> tuple[A, B]: ...
    @overload
    async def gather(
        self, first: InputRequest[A], second: InputRequest[B], third: InputRequest[C], /
    ) -> tuple[A, B, C]: ...
    @overload
    async def gather(self, *requests: InputRequest[Any]) -> tuple[Any, ...]: ...

    async def gather(self, *requests: InputRequest[Any]) -> tuple[Any, ...]:
        """Ask several questions at once: ``name, roots = await ctx.gather(ctx.elicit(…), ctx.list_roots())``.

        In the modern era that is one round, in the legacy era they are sent concurrently. If one fails, so does
        this, and the others are cancelled. As `elicit` otherwise.
        """
        for request in requests:
            if not isinstance(request, InputRequest):
                raise TypeError(f"gather takes questions such as ctx.elicit(…), not awaited; got {request!r}")
        return tuple(await self.asking.ask(requests))

    @property
    def asking(self) -> Rounds:
        """What the questions above are asked in. Not for handlers.

        Raises:
            LocalProtocolError: Nothing can be asked now.
        """
        if self.rounds is None:
            raise no_asking(self.method)
        return self.rounds

    async def once(self, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Do something once, however often the function runs for this request: ``id = await ctx.once("id", new_id)``.

        The value is kept in the request's state: when the function runs again, it is there, and nothing is called. It
        is kept from the next question on; the client can read it, but not change it.

        Args:
            key: What it is known by.
            function: Sync or async.
            arguments: Its arguments.

        Returns:
            Its value, as plain JSON data.

        Raises:
            TypeError: The value has no JSON form.

        When cancelled while the function runs, nothing is kept.
        """
        return await self.asking.once(key, function, *arguments)

    @property
    def input_responses(self) -> Mapping[str, InputResponse]:
        """The answers so far, by key, as models of the wire: what a function has after it returned `InputRequired`."""
        return {} if self.rounds is None else self.rounds.responses

    @property
    def input_state(self) -> Any:
        """The ``state`` of the `InputRequired` that the function returned the last time; None before that."""
        return None if self.rounds is None else self.rounds.state
