"""`Context`: the information that a handler gets about its request, and the actions that it can take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Unpack, overload

import trio
from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import TypeVar

from trio_mcp._keywords import refuse_unknown
from trio_mcp._renamed import refuse_attributes
from trio_mcp.convert import as_object
from trio_mcp.eras.capabilities import declared_extensions, declares, is_spec_method
from trio_mcp.eras.rules import Rules
from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.errors import LocalProtocolError, McpError
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.server.log_messages import send_log
from trio_mcp.server.served_session import ServedSession, SingleRequest
from trio_mcp.session.handlers import RequestContext
from trio_mcp.session.sink import Sink
from trio_mcp.trace_context import TraceContext
from trio_mcp.types.common import Implementation
from trio_mcp.types.error_codes import MISSING_REQUIRED_CLIENT_CAPABILITY

if TYPE_CHECKING:  # few servers ask for input or check who the client is, and imports take time
    from trio_mcp.principal import Principal
    from trio_mcp.server.input.questions import Elicited, InputRequest
    from trio_mcp.server.input.rounds import AskingSettings, Rounds
    from trio_mcp.server.input.sampling import Messages, SampleDetails
    from trio_mcp.types.common import LoggingLevel
    from trio_mcp.types.input_required import InputResponse
    from trio_mcp.types.roots import Root
    from trio_mcp.types.sampling import CreateMessageResult, ToolChoice
    from trio_mcp.types.tools import Tool

__all__ = ["Context", "ServedContext"]

StateT = TypeVar("StateT", default=Any)
ModelT = TypeVar("ModelT", bound=BaseModel)
ResultT = TypeVar("ResultT")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class Context(RequestContext, Generic[StateT]):
    """One request, as its handler sees it. Declare a parameter of this type, and the server fills it.

    The type argument is the type of the lifespan's state: ``ctx: Context[Database]``.

    Attributes:
        method: The request's method.
        params: The request's parameters, as plain data. A middleware may replace them.
        state: The value that the server's lifespan yielded; None without a lifespan.
        principal: On whose behalf the request is made; None if that is unknown.
        failure: The unexpected exception that a function raised, for middleware; None if there was none. It has been
            logged, and the client sees only an error without its details.
    """

    # Slots keep the class cheap, as each request has a context.
    __slots__ = ("failure", "principal", "state")

    state: StateT
    # The type has Any instead of None, so that tools need not rule out None: where tokens are checked, there always is
    # a principal.
    principal: Principal | Any
    failure: Exception | None

    @property
    def _served(self) -> ServedContext[StateT]:
        """This context, with the attributes that only the library uses."""
        assert isinstance(self, ServedContext)
        return self

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP header fields of the request, by name in lower case; empty if it did not come over HTTP.

        Over WebSocket they are those of the handshake. A field that was sent more than once has its values joined by
        commas, a cookie by semicolons.
        """
        given = self.transport_metadata.get("headers")
        return MappingProxyType({} if given is None else given.as_dict())

    @property
    def session_state(self) -> dict[str, Any]:
        """A dict that lasts as long as the client's session; only the legacy era has sessions.

        All requests of the session share it, including those to mounted servers. It exists in this process only.

        Raises:
            LocalProtocolError: If the request belongs to no session: in the modern era, and over HTTP without sessions.
        """
        session = self._served.connection
        if self._declared.rules.input_in_results or not isinstance(session, ServedSession) or not session.lasting:
            raise LocalProtocolError(
                f"this request (protocol {self.protocol_version}) belongs to no session, so it has no session state: "
                "keep the data for the user, with `ctx.update_user_state`, or return a handle that the model passes to "
                "the next call"
            )
        return session.session_state

    @property
    def _declared(self) -> ClientDeclaration:
        # The `intercept` of the session or exchange sets `client` before any handler sees the context.
        assert self.client is not None
        return self.client

    @property
    def trace_context(self) -> TraceContext | None:
        """The trace named in the request's ``_meta``; None if missing or malformed.

        Requests that the handler sends with this library propagate it.
        """
        return TraceContext.from_meta(self.meta)

    @property
    def protocol_version(self) -> str:
        """The protocol revision of the request."""
        assert self.client is not None
        return self.client.revision

    @property
    def client_info(self) -> Implementation | None:
        """The client's name and version, as it declares them: untrusted. None if missing or malformed."""
        # The client's info is parsed only when it is asked for: most handlers never look at it, and malformed info must
        # not fail a call.
        try:
            return Implementation.from_wire(self._declared.client_info)
        except ValidationError:
            return None

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """The capabilities that the client has declared, as plain data."""
        return self._declared.capabilities

    @property
    def client_extensions(self) -> dict[str, dict[str, Any]]:
        """The extensions that the client has declared: settings by identifier."""
        return declared_extensions(self._declared.capabilities)

    @property
    def client_renders_apps(self) -> bool:
        """Whether the client shows pages of the extension `Apps`, and has declared that it takes HTML (SEP-1865)."""
        settings = self.client_extensions.get("io.modelcontextprotocol/ui", {})
        types = settings.get("mimeTypes")
        return isinstance(types, list) and "text/html;profile=mcp-app" in types

    def require_client_extension(self, identifier: str) -> None:
        """Refuse the request unless the client has declared an extension.

        Raises:
            McpError: If the client has not declared it: -32021, with the extension in its data (2026-07-28
                `basic/index`, Per-request protocol fields).
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
            McpError: If the client has not declared it: -32021, with the capability in its data (2026-07-28
                `basic/index`, Per-request protocol fields).
        """
        if not declares(self.client_capabilities, capability):
            from trio_mcp.server.input.questions import missing_capability

            raise missing_capability(capability)

    async def notify(
        self, method: str, params: BaseModel | Mapping[str, Any] | None = None, *, urgent: bool = False
    ) -> None:
        """Send the client a notification of your own as part of this request; do nothing after the response.

        A `Client` passes it to its ``on_message``. From a sync tool: ``trio.from_thread.run(ctx.notify, "…", {…})``.

        Args:
            method: The notification's method. Names of an extension usually begin with its prefix.
            params: The parameters: a model, or plain JSON data.
            urgent: Whether the notification overtakes other notifications and requests to the client that wait to be
                sent.

        Raises:
            ValueError: If the protocol defines this notification; use the method made for it, if there is one.
            TypeError: If the parameters are neither a model nor a mapping.

        Waits while the client is slow to read. If the call is cancelled during that wait, nothing is sent.
        """
        # The protocol's own notifications depend on the revision and on capabilities, which only the methods made for
        # them check.
        if is_spec_method(method):
            raise ValueError(f"the protocol defines {method!r}; choose a different name for your notification")
        await self.send_notification(method, None if params is None else as_object(params, "params"), urgent=urgent)

    async def log(self, level: LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send the client a log message, if it wants messages of this level (`server/utilities/logging`).

        A client of the legacy era gets messages at or above the level that it has set; by default ``"info"`` and above.
        In the modern era the request itself must ask for log messages. After the response, nothing is sent.

        From a sync tool: ``trio.from_thread.run(ctx.log, "info", "half done")``.

        Args:
            level: ``"debug"``, ``"info"``, ``"notice"``, ``"warning"``, ``"error"``, ``"critical"``, ``"alert"`` or
                ``"emergency"``.
            data: A string, or anything else that pydantic can turn into JSON. Don't include secrets: clients display
                it.
            logger: The name of the logger.

        Raises:
            ValueError: If the level is unknown.
            TypeError: If the data can't be turned into JSON, or ``logger`` is not a string.

        Waits while the client is slow to read. If the call is cancelled during that wait, nothing is sent.
        """
        await send_log(self, level, data, logger)

    async def debug(self, data: Any, logger: str | None = None) -> None:
        """Send the client a log message of the level ``"debug"``: see `log`."""
        await self.log("debug", data, logger)

    async def info(self, data: Any, logger: str | None = None) -> None:
        """Send the client a log message of the level ``"info"``: see `log`."""
        await self.log("info", data, logger)

    async def warning(self, data: Any, logger: str | None = None) -> None:
        """Send the client a log message of the level ``"warning"``: see `log`."""
        await self.log("warning", data, logger)

    async def error(self, data: Any, logger: str | None = None) -> None:
        """Send the client a log message of the level ``"error"``: see `log`."""
        await self.log("error", data, logger)

    def close_stream(self, retry: float | None = None) -> bool:
        """End the HTTP response to this request, so that it isn't held open for long; the client reconnects.

        The client is told when to reconnect, and then gets the messages sent meanwhile, and the result. This needs
        an event store (``HttpOptions(event_store=…)``) and a client that has an event id to resume from: a client of
        2025-11-25, or one of an earlier revision that has received a message (2025-11-25 `basic/transports`, Sending
        Messages, 6).

        Args:
            retry: Seconds until the client should reconnect; ``HttpOptions(retry=…)`` by default.

        Returns:
            Whether there was such a response; if not, nothing happens. Messages sent before this call still go out in
            that response; later ones are kept until the client has reconnected.
        """
        # Only the sink has access to the transport. It returns False if the request has no separate stream.
        return self._sink.close_stream(self.request_id, retry)

    def close_session_stream(self, retry: float | None = None) -> bool:
        """End the response to this session's GET, which carries messages that belong to no request.

        In all other respects, this works like `close_stream`.

        Args:
            retry: Seconds until the client should reconnect; ``HttpOptions(retry=…)`` by default.

        Returns:
            Whether the client had such a response open (2025-11-25 `basic/transports`, Listening for Messages from the
            Server, 4).
        """
        return self._sink.close_stream(None, retry)

    # --- asking the client: docs/how-to/asking.md has the full story -----------------------------------------------

    def elicit(
        self, message: str, model: type[ModelT], *, key: str | None = None, timeout: float | None = None
    ) -> InputRequest[Elicited[ModelT]]:
        """Ask the user to fill in a form: ``answer = await ctx.elicit("Who are you?", Person)`` (`client/elicitation`).

        Important:
            In the modern era a question without an answer ends the function, as a cancellation would. It runs again
            from its start when the answer has arrived, including everything before the question. So ask first, then
            act; or wrap whatever must happen only once in `once`; or register the function with ``park_input=True``.

        Don't ask for secrets: the answer passes through the client. From a sync function:
        ``trio.from_thread.run(ctx.elicit, "Who are you?", Person)``.

        Args:
            message: The question, to be shown to the user.
            model: A flat pydantic model: strings, numbers, booleans, and choices of strings (`Literal`, `enum.Enum`, or
                a list of either). Fields may be optional or have defaults.
            key: The key of the question in the modern era; by default its number in the order of asking.
            timeout: Seconds that the user may take; if None, only `InputOptions.ttl` limits the time.

        Raises:
            TypeError, ValueError: If an argument is invalid, or the model is not flat.

        Awaiting it raises `McpError` if the client has not declared the capability (-32021), if its answer does not fit
        the form (-32602) and, in the legacy era, if the client responds with an error; `RequestTimeout` after
        ``timeout`` (legacy era); and `LocalProtocolError` if the request has ended or was cancelled, or its method does
        not allow questions.

        If the wait for the answer is cancelled in the legacy era, the client is told.
        """
        from trio_mcp.server.input.questions import ask_form

        return ask_form(self._served, message, model, key, timeout)

    def elicit_url(
        self,
        message: str,
        url: str,
        *,
        elicitation_id: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> InputRequest[Elicited[None]]:
        """Ask the user to visit a page, for data that the client must not see (`client/elicitation`, URL mode).

        In the modern era the function runs again from its start when the user has answered: see `elicit`.

        The answer only says whether the user agreed to visit the page; the rest is between the user and your server.
        In all other respects, this works like `elicit`.

        Args:
            message: The reason, to be shown to the user.
            url: The URL of the page.
            elicitation_id: The id to pass to `Server.notify_elicitation_complete` later (2025-11-25 only). A random one
                by default, found in the returned object's ``elicitation_id``.
            key: As in `elicit`.
            timeout: As in `elicit`.
        """
        from trio_mcp.server.input.questions import ask_url

        return ask_url(self._served, message, url, elicitation_id, key, timeout)

    # There is one overload for each kind of `tools`, and two for a `result_type`. With functions or a `result_type`,
    # the model is asked in a loop, so these overloads return a coroutine and not a question.
    @overload
    def sample(
        self,
        messages: Messages,
        *,
        max_tokens: int,
        tools: Iterable[Tool | Mapping[str, Any]] | None = None,
        tool_choice: Literal["auto", "required", "none"] | ToolChoice | None = None,
        **details: Unpack[SampleDetails],
    ) -> InputRequest[CreateMessageResult]: ...
    @overload
    def sample(
        self,
        messages: Messages,
        *,
        max_tokens: int,
        tools: Iterable[Callable[..., Any]],
        tool_choice: Literal["auto", "required", "none"] | ToolChoice | None = None,
        max_rounds: int = 10,
        **details: Unpack[SampleDetails],
    ) -> Coroutine[Any, Any, CreateMessageResult]: ...
    @overload
    def sample(
        self,
        messages: Messages,
        *,
        max_tokens: int,
        result_type: type[ResultT],
        tools: Iterable[Callable[..., Any]] | None = None,
        max_rounds: int = 10,
        **details: Unpack[SampleDetails],
    ) -> Coroutine[Any, Any, ResultT]: ...
    @overload
    def sample(
        self,
        messages: Messages,
        *,
        max_tokens: int,
        result_type: Any,
        tools: Iterable[Callable[..., Any]] | None = None,
        max_rounds: int = 10,
        **details: Unpack[SampleDetails],
    ) -> Coroutine[Any, Any, Any]: ...

    def sample(
        self,
        messages: Messages,
        *,
        max_tokens: int,
        tools: Iterable[Any] | None = None,
        tool_choice: Literal["auto", "required", "none"] | ToolChoice | None = None,
        result_type: Any = None,
        max_rounds: int = 10,
        **details: Unpack[SampleDetails],
    ) -> Coroutine[Any, Any, Any]:
        """Ask the client's model: ``reply = await ctx.sample("Two and two?", max_tokens=10)`` (`client/sampling`).

        In the modern era the function runs again from its start when the reply has arrived: see `elicit`.

        With functions as ``tools``, the model may call them. They run, concurrently if it calls several, and the model
        is asked again with their return values, until it replies without calling one. A function is described like a
        tool of the server, and may take a `Context` and dependencies. A `ToolError`, invalid arguments and the name of
        an unknown tool go back to the model. Return values are kept in the request's state, as with `once`, so a
        function is not called again when yours runs again.

        With a ``result_type``, the model is asked until its answer fits:
        ``city = await ctx.sample("Where to?", max_tokens=100, result_type=City)``.

        Args:
            messages: A string, a `types.SamplingMessage`, or several of them. An earlier reply may be among them.
            max_tokens: The maximum length of each reply.
            tools: Functions that the model may call; or descriptions (`types.Tool`) of tools whose calls you run
                yourself, to ask again with the results. Needs the client capability ``sampling.tools``.
            tool_choice: Whether the model may, must or must not call a tool; with functions, this applies to its first
                reply.
            result_type: The type of the answer: a model, or anything else that pydantic can validate. A client without
                ``sampling.tools`` is asked for JSON as text.
            max_rounds: How many times the model is asked at most, with functions or a ``result_type``.
            details: Further details: see `SampleDetails`.

        Returns:
            A question: await it for the reply, or pass it to `gather`. With functions or a ``result_type``, a
            coroutine: await it for the last reply, or for the answer.

        Raises:
            TypeError, ValueError: If an argument is invalid, or tool uses and results don't match.

        Awaiting it raises what awaiting `elicit` raises. With functions or a ``result_type``, it also raises
        `SamplingError` if there is no answer after ``max_rounds`` rounds, and any `McpError` that a function raises.
        If the coroutine is cancelled, so are the functions.
        """
        # The import is deferred, because few servers use sampling.
        from trio_mcp.server.input.sampling import SampleDetails, ask_model

        refuse_unknown(Context.sample, details, SampleDetails)
        given = None if tools is None else list(tools)
        functions = [each for each in given or () if callable(each)]
        arguments: dict[str, Any] = dict(details, max_tokens=max_tokens, tool_choice=tool_choice)
        if not functions and result_type is None:
            return ask_model(self._served, messages, tools=given, **arguments)
        from trio_mcp.server.input.sampling_loop import sample_with_tools

        if len(functions) < len(given or ()):
            raise TypeError(
                "sample takes either functions, which it calls, or descriptions of tools, which you call, but not both"
            )
        return sample_with_tools(
            self._served, messages, functions=functions, result_type=result_type, max_rounds=max_rounds, **arguments
        )

    def list_roots(self, *, key: str | None = None, timeout: float | None = None) -> InputRequest[list[Root]]:
        """Ask the client for the directories that the server may work in (`client/roots`).

        In the modern era the function runs again from its start when the list has arrived: see `elicit`.
        """
        from trio_mcp.server.input.questions import ask_roots

        return ask_roots(self._served, key, timeout)

    # Python's typing can't map a tuple of InputRequest[T] to a tuple of T, so there is an overload for each number of
    # questions up to three.
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

        In the modern era they are asked in one round, and the function runs again from its start when all answers have
        arrived: see `elicit`. In the legacy era they are concurrent requests; if one fails, the others are cancelled
        and the call fails.
        """
        from trio_mcp.server.input.questions import InputRequest

        for request in requests:
            # Awaiting a question before passing it is an easy mistake, which should not look like an error in the
            # answer.
            if not isinstance(request, InputRequest):
                raise TypeError(f"gather takes questions not awaited yet, such as ctx.elicit(…); got {request!r}")
            # The question is marked as taken even if asking fails below: otherwise it would warn that it was never
            # awaited.
            request.take()
        return tuple(await self._served.asking.ask(requests))

    @overload
    async def once(
        self, key: str, function: Callable[..., Any], *arguments: Any, type: Callable[..., ResultT]
    ) -> ResultT: ...
    @overload
    async def once(self, key: str, function: Callable[..., Any], *arguments: Any, type: Any = ...) -> Any: ...

    async def once(self, key: str, function: Callable[..., Any], *arguments: Any, type: Any = None) -> Any:
        """Call a function once, even if the handler runs again for this request: ``id = await ctx.once("id", new_id)``.

        The value is stored in the request's state with the next question; when the handler runs again, it is returned
        from there. The client can read it, but not change it. In a task it is stored before this method returns, in
        the server's store and unencrypted.

        Args:
            key: The key to store the value under.
            function: The function, sync or async.
            arguments: The function's arguments.
            type: The type of the value: a model, or anything else that pydantic can validate.

        Returns:
            The value as an instance of ``type``; without a type, as plain JSON data.

        Raises:
            TypeError: If the value can't be turned into JSON.
            ValueError: In a task, if its journal would be larger than `TaskOptions.max_size`.
            pydantic.ValidationError: If the value does not fit the type.

        If the call is cancelled while the function runs, nothing is stored.
        """
        value = await self._served.asking.once(key, function, *arguments)
        return value if type is None else TypeAdapter(type).validate_python(value)

    # --- the state of the user: docs/how-to/user_state.md has the full story -----------------------------------------

    async def user_state(self, model: type[ModelT], *, name: str | None = None) -> ModelT:
        """Return the state of this request's user: ``cart = await ctx.user_state(Cart)``.

        To change it, call `update_user_state`; a change to the returned object is not kept. The parameters and errors
        are the same.
        """
        from trio_mcp.server.user_state import name_of_state, states_of_user

        states, user = states_of_user(self._served)
        return await states.read(user, name_of_state(self._served, model, name), model)

    async def update_user_state(
        self, model: type[ModelT], change: Callable[[ModelT], ModelT], *, name: str | None = None
    ) -> ModelT:
        """Change the state of this request's user: ``cart = await ctx.update_user_state(Cart, add_item)``.

        The state lies in the server's stores (``Server(stores=…)``), in clear. All requests of the user share it: in
        both eras, in all processes, and in tasks. No change that another request makes meanwhile is lost.

        From a sync function: ``trio.from_thread.run(ctx.update_user_state, Cart, add_item)``.

        Args:
            model: The class of the state: a pydantic model whose fields all have defaults.
            change: A sync function that gets the state, at first ``model()``, and returns the state to keep.
                After a conflict with another request it is called again, with the new state, up to 8 times. It is
                first called with the state that this process has seen last, if any. It runs in the event loop.
            name: The name of the state. By default it is that of the class; in a mounted server, the server's name and
                a slash precede it.

        Returns:
            The state that is kept.

        Raises:
            LocalProtocolError: If the server has no stores, or the user is unknown or does not count: see
                `trio_mcp.stores.UserStateOptions`.
            trio_mcp.stores.StateConflict: If other requests have changed the state each time.
            trio_mcp.stores.StoreError: If the stored state does not fit the model, or the store fails.
            TypeError: If an argument has the wrong type, or ``change`` returns anything but a model.
            ValueError: If the new state does not fit the model, or is too large.

        If the call is cancelled before the state is stored, nothing changes; once it is stored, the call returns.
        """
        from trio_mcp.server.user_state import name_of_state, states_of_user

        states, user = states_of_user(self._served)
        return await states.update(user, name_of_state(self._served, model, name), model, change)

    async def forget_user(self) -> None:
        """Delete all states of this request's user, under all names.

        Raises:
            LocalProtocolError: If the server has no stores, or the user is unknown or does not count.
            trio_mcp.stores.StoreError: If the store fails.
        """
        from trio_mcp.server.user_state import states_of_user

        states, user = states_of_user(self._served)
        await states.forget(user)

    # --- the caller: docs/how-to/token_exchange.md has the full story ------------------------------------------------

    async def token_for(self, audience: str, *, scopes: Collection[str] | None = None) -> str:
        """Return a token with which this request's caller may call another service (RFC 8693).

        The caller's own token is exchanged for it, as ``ResourceServer(exchange=…)`` allows; nothing shows the
        caller's own token. The new one is remembered, and should not be: ask again for each call.

        From a sync function: ``trio.from_thread.run(lambda: ctx.token_for("https://api.example.com"))``.

        Args:
            audience: The service, as the operator has listed it.
            scopes: The scopes to ask for; by default all that the operator has listed for the service.

        Raises:
            trio_mcp.auth.NoCallerToken: If there is no token of a caller: the request did not come over HTTP with
                ``auth=``, or is over; the token has expired, or is bound to a key.
            trio_mcp.auth.TokenExchangeError: If the operator has not listed the service or a scope, or the
                authorization server refuses.
            TypeError: If an argument is of the wrong type.

        Tasks that need the same token share one exchange; a task that is cancelled leaves it to the others.
        """
        from trio_mcp.server.caller import token_for

        return await token_for(self, audience, scopes)

    async def detach(self) -> bool:
        """Turn this call into a task now, if the tool and the client allow this: see `TaskPolicy`.

        Returns:
            Whether the call is a task. False if the client has not declared the extension, or the tool does not have
            ``task=``: then nothing happens, and the function continues as an ordinary call.

        Raises:
            McpError: If there are too many tasks or the store is busy (-31429), or if the task can't be stored
                (-32603).

        If the call is cancelled before the task is stored, no task is created.
        """
        await trio.lowlevel.checkpoint()
        return False

    def step_key(self, name: str) -> str:
        """Return a key for a step of this task: the same in each run of the task, and different for each step.

        Pass it to another service as an idempotency key: the library ensures that only one run writes to the store,
        but requests that an earlier run has sent to a service may still arrive. With ``task="manual"``, the keys before
        `detach` differ in each round of the call.

        Args:
            name: The name of the step.

        Raises:
            TypeError: If the name is not a string.
            LocalProtocolError: If this call is not a task, and can't become one.
        """
        raise LocalProtocolError(f"step_key({name!r}): this call of {self.method!r} is not a task")

    @property
    def input_responses(self) -> Mapping[str, InputResponse]:
        """The answers received so far, by key, as wire models; for a function that has returned `InputRequired`."""
        # Outside a round, the mapping is empty and there is no error, because a function may look at it before it has
        # asked anything.
        rounds = self._served.rounds
        return {} if rounds is None else rounds.responses

    @property
    def input_state(self) -> Any:
        """The ``state`` of the `InputRequired` that the function last returned; None if it hasn't returned one."""
        rounds = self._served.rounds
        return None if rounds is None else rounds.state


refuse_attributes(Context)


class ServedContext(Context[StateT]):
    """A context with the attributes that only the library uses. Handlers see a `Context`, so that editors
    don't offer these attributes.

    Attributes:
        connection: The client that sent the request.
        ready: The result of a request without a handler, while it passes through middleware; unset for any other.
        rounds: The request's rounds of input; None while nothing can be asked.
        settings: The settings of the server whose handler runs.
    """

    __slots__ = ("connection", "ready", "rounds", "settings")

    ready: dict[str, Any]

    interactive: ClassVar[Any] = None
    """Takes the place of `run_interactive`, in the context of an extension."""

    def __init__(
        self, incoming: IncomingRequest, sink: Sink, connection: ServedSession | SingleRequest, state: StateT
    ) -> None:
        super().__init__(incoming, sink)
        self.connection = connection
        # These attributes are filled in later: the settings and the principal by dispatch, the failure by a feature,
        # and the rounds while a function that may ask runs.
        self.settings: AskingSettings
        self.principal = None
        self.failure = None
        self.rounds: Rounds | None = None
        self.state = state

    @property
    def session(self) -> ServedSession:
        """The legacy-era session that the request belongs to."""
        assert isinstance(self.connection, ServedSession)
        return self.connection

    @property
    def rules(self) -> Rules:
        """The rules of the request's revision."""
        return self._declared.rules

    @property
    def asking(self) -> Rounds:
        """The rounds of input that questions are asked in.

        Raises:
            LocalProtocolError: If the client can't be asked now.
        """
        # `rounds` is set only while a function that may ask runs, so it is None in a middleware or in a stored context.
        if self.rounds is None:
            from trio_mcp.server.input.questions import no_asking

            raise no_asking(self.method)
        return self.rounds

    @property
    def cancelled(self) -> bool:
        """Whether the client has cancelled the request."""
        return self._incoming.cancelled

    def of_same_request(self, settings: Any, params: dict[str, Any]) -> ServedContext[Any]:
        """Make the context in which a mounted server handles this request.

        Args:
            settings: The settings of the mounted server.
            params: The request's parameters, with the names that the mounted server uses.
        """
        # Both contexts share the record of the incoming request, so a cancellation or a response applies to both.
        context: ServedContext[Any] = ServedContext(
            self._incoming, self._sink, self.connection, self.connection.states.get(settings)
        )
        context.client, context.params, context.principal = self.client, params, self.principal
        context.settings = settings
        return context

    def go_on_as(self, other: ServedContext[Any]) -> None:
        """Continue with the client's follow-up request, which supplies the input that the current request asked for."""
        # The handler keeps its context across the rounds, but the messages that it sends must belong to the latest
        # request.
        self._incoming, self._sink, self.client = other._incoming, other._sink, other.client
        # The caller's identity is the same, because the request would have been refused otherwise; but its scopes may
        # have changed.
        self.principal = other.principal


# Python's error about a missing attribute names the class, and users know this class as `Context`.
ServedContext.__name__ = "Context"
