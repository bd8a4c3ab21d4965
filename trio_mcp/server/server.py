"""`Server`: what people build. It offers tools, resources and prompts, and serves them over any link, in both eras."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack, overload

from pydantic import BaseModel

from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.server.base_server import BaseServer
from trio_mcp.server.features.completion import CompletionFeature
from trio_mcp.server.features.custom import CustomFeature
from trio_mcp.server.features.feature import Feature, Member, check_details
from trio_mcp.server.features.listening import ListeningFeature
from trio_mcp.server.features.logging import LoggingFeature
from trio_mcp.server.features.mounts import Mounts
from trio_mcp.server.features.prompts import PromptDetails, PromptFeature
from trio_mcp.server.features.resources import ResourceDetails, ResourceFeature
from trio_mcp.server.features.tools import ToolDetails, ToolFeature

__all__ = ["Server"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Model = type[BaseModel]


class Server(BaseServer):
    """A server that offers tools, resources and prompts.

    Args:
        name: Its name, for programs.
        version: Its own version.
        title: Its name, for people.
        instructions: Guidance for the model that uses it.
        description: What it is, for people.
        website_url: Where to read more.
        icons: Pictures of it, by https: or data: URI.
        lifespan: ``async with lifespan(server) as state`` surrounds each serving (a stdio process, a listener, an
            in-memory client); handlers find the state in `Context.state`.
        middleware: Each is ``async (context, call_next) -> result`` and surrounds every request that has a handler,
            the first outermost: it may look at or replace ``context.params``, call ``await call_next()`` or not, and
            look at or replace the result (a plain dict). Exceptions travel through it.
        revisions: The protocol revisions to serve.
        expose_errors: Show clients the text of unexpected exceptions. For development: it may hold secrets.
        page_size: How many entries a page of a list has.
        cache_hints: For how long clients of the modern era may keep the results of a method, and for whom:
            ``{"tools/list": CacheHint(ttl=60, scope="public")}``. The methods are ``server/discover``, the four lists,
            and ``resources/read`` for the resources that have no hint of their own. By default nothing may be kept.
        max_sync_tools: How many synchronous functions (tools, resources, prompts, completions) run at once, each in a
            thread; further calls wait.
        extensions: The extensions of the protocol that it declares, each with its settings:
            ``{"com.example/feature": {}}``.
        request_state_key: What signs the state of a request that waits for input (modern era): 32 secret bytes or more,
            the same for all processes that serve one address. Of several, the first signs and any is accepted. By
            default each process has a random one.
        request_state_ttl: How many seconds a client has to come back with the answers.
        principal: ``(context) -> str | None``: on whose behalf a request is made. Nobody else's request may go on
            with its state.
        max_input_rounds: How often one request may ask for input and go on with the answers.
        max_parked: How many handlers with ``park_input`` may wait for input, over all clients.
        options: Limits, timeouts and hooks of each session.
        on_error: Called, sync or async, with what a client sent that belongs to no request.

    Raises:
        TypeError, ValueError: An argument is not what it should be.
    """

    def make_features(self) -> Iterable[Feature]:
        self._tools = ToolFeature(self.settings)
        self._resources = ResourceFeature(self.settings)
        self._prompts = PromptFeature(self.settings)
        self._completion = CompletionFeature(self.settings, self._prompts, self._resources)
        self._custom = CustomFeature(self.settings)
        self._custom.registry.follow(self.dispatch)
        own = (self._tools, self._resources, self._prompts, self._completion, self._custom)
        self._mounts = Mounts(self.settings, self.lifespan, self.dispatch, *own)
        # In the order in which capabilities are declared.
        ordered = (self._tools, self._custom, self._resources, self._prompts, self._completion)
        return (*ordered, LoggingFeature(), ListeningFeature(self.capabilities))

    async def heard(self, notification: Notification, states: Mapping[Any, Any]) -> None:
        own = self._custom.notifications.get(notification.method)
        if own is not None:
            await own.handle(notification, states)

    def family(self) -> Sequence[Member]:
        return self._mounts.family()

    def input_schema(self, tool: str) -> dict[str, Any] | None:
        found = self._tools.registry.get(tool)
        return None if found is None else found.definition.input_schema

    def counts(self) -> dict[str, int]:
        return {
            "tools": len(self._tools.registry),
            "resources": len(self._resources.registry),
            "resource_templates": len(self._resources.templates),
            "prompts": len(self._prompts.registry),
            "completions": len(self._completion),
        }

    # --- tools ---------------------------------------------------------------------------------------------------

    @overload
    def tool(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def tool(self, **details: Unpack[ToolDetails]) -> Callable[[FunctionT], FunctionT]: ...

    def tool(self, function: Any = None, /, **details: Any) -> Any:  # type: ignore[misc]
        """Offer a function as a tool; the function itself stays as it is.

        ``@server.tool`` or ``@server.tool(title=…)``; the arguments are those of `add_tool`.
        """
        return _registering(function, self.add_tool, "tool", ToolDetails, details)

    def add_tool(self, function: Callable[..., Any], **details: Unpack[ToolDetails]) -> None:
        """Offer a function as a tool, also from a tool or another thread. Clients are told that the list has changed.

        Its type hints become the schema of its arguments and of its result, its docstring the description, without
        what it says of parameters (that goes into the schema) and of exceptions. Arguments are validated as pydantic
        does it in its lax mode (``"5"`` is an int); extra ones are refused. An async function runs in the event loop,
        any other in a thread. When a call is cancelled, the former is, too, but a thread can't be: it is left to
        finish, and counts among ``max_sync_tools`` until then.

        Args:
            function: The function, sync or async. A parameter annotated with `Context` is filled by the server.
            details: What else may be said of it: see `ToolDetails`.

        Raises:
            TypeError: The signature can't be offered.
            ValueError: The name is invalid or taken, or a schema can't be used.
        """
        self._tools.add(function, **details)

    def remove_tool(self, name: str) -> None:
        """Stop offering a tool. Clients are told that the list has changed; calls that are running go on.

        Raises:
            KeyError: There is no such tool.
        """
        self._tools.remove(name)

    def notify_tools_changed(self) -> None:
        """Tell the clients that the list of tools has changed, as `add_tool` and `remove_tool` do by themselves.

        For a server that lists by other means, for example in a middleware. Returns at once, from any thread; several
        changes in one go may become one notification.
        """
        self._tools.notify_changed()

    # --- resources -----------------------------------------------------------------------------------------------

    def resource(self, uri: str, **details: Unpack[ResourceDetails]) -> Callable[[FunctionT], FunctionT]:
        """Offer what a function returns as a resource; the function itself stays as it is.

        ``@server.resource("config://app")`` or ``@server.resource("files://{+path}")``; the arguments are those of
        `add_resource`.
        """
        if not isinstance(uri, str):
            raise TypeError('a resource needs a URI: write @server.resource("config://app")')
        check_details(details, ResourceDetails, "resource")
        return _decorator(lambda function: self.add_resource(uri, function, **details))

    def add_resource(self, uri: str, function: Callable[..., Any], **details: Unpack[ResourceDetails]) -> None:
        """Offer what a function returns as a resource, or as a family of resources if the URI is a template.

        Reading a URI calls the function of the resource of that very URI, else of the first template that matches it.
        The variables of the template become arguments; what the type hints don't allow is no resource of this template.
        An async function runs in the event loop, any other in a thread; cancellation is as with `add_tool`. May be
        called from any thread. Clients are told that the list has changed.

        Args:
            uri: An absolute URI, or a URI template (RFC 6570): see `UriTemplate`.
            function: It takes the variables of the template, those of a query with defaults, and maybe a `Context`.
                Strings are text, bytes a blob; `types.TextResourceContents`, `types.BlobResourceContents`, lists with
                one in it, and `types.ReadResourceResult` are as they are; anything else becomes JSON text.
            details: What else may be said of it: see `ResourceDetails`.

        Raises:
            TypeError: The function can't be offered, or does not agree with the template.
            ValueError: The URI is taken, or can't be one; or the template can't be matched.
        """
        self._resources.add(uri, function, **details)

    def remove_resource(self, uri: str) -> None:
        """Stop offering a resource, or a template and completing its variables. Clients are told.

        Reads that are running go on.

        Raises:
            KeyError: There is no such resource.
        """
        self._resources.remove(uri)
        self._completion.forget("ref/resource", uri)

    def notify_resources_changed(self) -> None:
        """Tell the clients that the list of resources, or of templates, has changed; as `notify_tools_changed`."""
        self._resources.notify_changed()

    def notify_resource_updated(self, uri: str) -> None:
        """Tell the clients that have subscribed to this very URI that the resource has changed.

        Returns at once, from any thread; several changes in one go may become one notification.
        """
        self._resources.notify_updated(uri)

    # --- prompts -------------------------------------------------------------------------------------------------

    @overload
    def prompt(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def prompt(self, **details: Unpack[PromptDetails]) -> Callable[[FunctionT], FunctionT]: ...

    def prompt(self, function: Any = None, /, **details: Any) -> Any:  # type: ignore[misc]
        """Offer a function as a prompt; the function itself stays as it is.

        ``@server.prompt`` or ``@server.prompt(title=…)``; the arguments are those of `add_prompt`.
        """
        return _registering(function, self.add_prompt, "prompt", PromptDetails, details)

    def add_prompt(self, function: Callable[..., Any], **details: Unpack[PromptDetails]) -> None:
        """Offer a function as a prompt, at any time and from any thread. Clients are told that the list has changed.

        Its parameters become the prompt's arguments, required unless they have a default; its docstring describes both.
        Clients send strings. Each is validated against the parameter's type hint in pydantic's lax mode (``"5"`` is
        an int, ``"true"`` a bool); one that does not fit as it is is read as JSON, if the hint asks for what
        that gives. Extra arguments are refused. An async function runs in the event loop, any other in a thread, which
        counts among ``max_sync_tools``. When a request is cancelled, the former is, too, but a thread is left to
        finish.

        The function returns a string or a content block (one message of the user's), a `types.PromptMessage`, a list
        of these, or a `types.GetPromptResult`. What else it raises than `McpError` is logged, and the client gets
        -32603.

        Args:
            function: The function, sync or async. A parameter annotated with `Context` is filled by the server.
            details: What else may be said of it: see `PromptDetails`.

        Raises:
            TypeError: The signature can't be offered: a hint has no JSON form, for example.
            ValueError: The name is invalid or taken.
        """
        self._prompts.add(function, **details)

    def remove_prompt(self, name: str) -> None:
        """Stop offering a prompt, and completing its arguments. Clients are told that the list has changed.

        Requests that are running go on.

        Raises:
            KeyError: There is no such prompt.
        """
        self._prompts.remove(name)
        self._completion.forget("ref/prompt", name)

    def notify_prompts_changed(self) -> None:
        """Tell the clients that the list of prompts has changed; as `notify_tools_changed`."""
        self._prompts.notify_changed()

    # --- completion ----------------------------------------------------------------------------------------------

    def completion(
        self, *, argument: str, prompt: str | None = None, resource: str | None = None
    ) -> Callable[[FunctionT], FunctionT]:
        """Let a function suggest values for an argument; the function itself stays as it is.

        ``@server.completion(prompt="review", argument="language")`` or
        ``@server.completion(resource="files://{+path}", argument="path")``; see `add_completion`.
        """
        return _decorator(
            lambda function: self.add_completion(function, argument=argument, prompt=prompt, resource=resource)
        )

    def add_completion(
        self, function: Callable[..., Any], *, argument: str, prompt: str | None = None, resource: str | None = None
    ) -> None:
        """Let a function suggest values for an argument of a prompt or of a resource template.

        The function gets what the user has typed so far and, if it has a second parameter, the other arguments that are
        settled already, a dict of strings (clients tell them since 2025-06-18). It returns the suggestions, the best
        first: a list or tuple of strings, or a `types.Completion`. Of more than 100 the client gets the first 100, and
        how many there are. An async function runs in the event loop, any other in a thread, which counts among
        ``max_sync_tools``. When a request is cancelled, the former is, too, but a thread is left to finish. What else
        it raises than `McpError` is logged, and the client gets -32603.

        An argument of a prompt whose type hint tells its values (an Enum, a Literal, a bool) needs no such function; if
        it has one, the function is asked. Completions go when their prompt or their template is removed.

        Args:
            function: The function, sync or async. A parameter annotated with `Context` is filled by the server.
            argument: The argument's name.
            prompt: The name of the prompt; it may be added later.
            resource: The URI template of the resource; it may be added later.

        Raises:
            TypeError: The function can't be called like that, or there is not exactly one of prompt and resource.
            ValueError: There is no such argument, its completion is there already, or the template can't be used.
        """
        self._completion.add(function, argument, prompt, resource)

    # --- what the protocol does not define -----------------------------------------------------------------------

    def method(
        self, name: str, *, params: Model | None = None, result: Model | None = None, extension: str | None = None
    ) -> Callable[[FunctionT], FunctionT]:
        """Let a function answer a method of your own; the function itself stays as it is.

        ``@server.method("com.example/measure", params=Area, result=Size)``; see `add_method`.
        """
        return _decorator(
            lambda function: self.add_method(name, function, params=params, result=result, extension=extension)
        )

    def add_method(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        params: Model | None = None,
        result: Model | None = None,
        extension: str | None = None,
    ) -> None:
        """Let a function answer a method that the protocol does not define, in both eras.

        It is called with the parameters and the request's `Context`; further parameters may be dependencies. It returns
        a model, a mapping, or None for an empty result. Middleware surrounds it. An async function runs in the event
        loop, any other in a thread, which counts among ``max_sync_tools``. When a request is cancelled, the former is,
        too, but a thread is left to finish. What else it raises than `McpError` is logged, and the client gets -32603.

        Args:
            name: The method. Those of an extension begin with its prefix, as a rule: ``"com.example/measure"``.
            function: ``async (params, ctx) -> result``, or sync.
            params: The model that validates the parameters; invalid ones are answered with -32602. Without it the
                function gets plain data. ``_meta`` is left out, unless the model is one of `types`.
            result: The model of the result; another result is a failure of the function's.
            extension: The extension that the method belongs to, which the server must have declared. A client that has
                not declared it, too, gets -32021 (legacy era: -32601).

        Raises:
            TypeError: The function, its signature or a model can't be used.
            ValueError: The protocol defines the method, it is there already, or the extension is not declared.
        """
        self._custom.add_method(name, function, params, result, extension)

    def notification(self, name: str, *, params: Model | None = None) -> Callable[[FunctionT], FunctionT]:
        """Have a function called for each notification of your own; the function itself stays as it is.

        ``@server.notification("com.example/ping")``; see `add_notification`.
        """
        return _decorator(lambda function: self.add_notification(name, function, params=params))

    def add_notification(
        self, name: str, function: Callable[..., Awaitable[object]], *, params: Model | None = None
    ) -> None:
        """Have a function called for each notification that the protocol does not define.

        A client's notifications are handled one after the other, in the order of arrival, so a slow function holds up
        the next one, and requests overtake it. No middleware surrounds it; what it raises is logged. When the client is
        gone, it is cancelled. In the modern era a client of Streamable HTTP has no way to send a notification.

        Args:
            name: The notification's method.
            function: ``async (params, ctx)``, where the latter is a `NotificationContext`.
            params: The model that validates the parameters, as in `add_method`; invalid ones go to ``on_error``.

        Raises:
            TypeError: The function or the model can't be used.
            ValueError: The protocol defines it, or it is there already.
        """
        self._custom.add_notification(name, function, params)

    # --- mounting ------------------------------------------------------------------------------------------------

    def mount(self, other: Server, *, prefix: str | None = None) -> None:
        """Offer everything that another server offers, now and later; clients are told of its changes.

        Tools and prompts are named ``prefix__name``; where that would be longer than 64 characters or hold others than
        ``A-Z a-z 0-9 _ -``, it is shortened and ends in a hash, as in a `ClientGroup`. Names of resources get the same
        ``prefix__``, but their URIs stay: they are what links and subscriptions refer to. Methods, notifications and
        extensions of your own keep their names, too.

        The other's lifespan is entered once in each run of this server, within this server's; its functions find its
        state in `Context.state`. Its middleware surrounds calls, reads, prompts, completions and methods of its own,
        inside of this server's; lists and subscriptions it does not see. Its ``override``, ``max_sync_tools`` and
        ``expose_errors`` hold for its functions. All else (instructions, options, the ``request_state_…`` settings,
        ``principal``, limits of asking) is this server's. It may still be served by itself, and mounted elsewhere.

        Args:
            other: The server.
            prefix: Up to 32 of the characters ``A-Z a-z 0-9 _ -``, without ``__``, and no ``_`` at the end. Without one
                the names stay.

        Raises:
            TypeError: It is no server, or a proxy.
            ValueError: The prefix is invalid; the server is mounted here already, or would hold itself; both have
                something of the same name or URI; or it has an extension that this server does not declare. Then
                nothing is mounted. Later on, whatever is added to the other and conflicts here is refused there.
            RuntimeError: The other has a lifespan, and this server runs already.
        """
        if isinstance(other, Server):
            self._mounts.add(other._mounts, prefix)
            return
        if isinstance(other, BaseServer):
            what = f"{other.info.name!r} can't be mounted in {self.info.name!r}"
            raise TypeError(f"{what}: a proxy offers what its upstream does; serve it by itself")
        raise TypeError(f"only a Server can be mounted, got {type(other).__name__}")


def _registering(function: Any, add: Callable[..., None], name: str, known: type, details: Mapping[str, Any]) -> Any:
    """Register a function, or make a decorator, for what may be written with or without arguments."""
    check_details(details, known, name)
    if isinstance(function, str):
        raise TypeError(f"write @server.{name}(name={function!r})")
    register = _decorator(lambda given: add(given, **details))
    return register if function is None else register(function)


def _decorator(add: Callable[[Any], None]) -> Callable[[FunctionT], FunctionT]:
    """Make a decorator that registers a function and leaves it as it is."""

    def register(function: FunctionT) -> FunctionT:
        add(function)
        return function

    return register
