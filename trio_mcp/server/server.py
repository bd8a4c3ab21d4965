"""`Server`, the class that users build on: it serves tools, resources and prompts over any link, in both eras."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never, TypeVar, Unpack, get_args, overload

from pydantic import BaseModel

from trio_mcp._checks import check_choice
from trio_mcp._keywords import refuse_unknown
from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.server.base_server import BaseServer
from trio_mcp.server.changes import PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED
from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.deferred import Deferred
from trio_mcp.server.features.feature import EntryKind, Feature, RunMember, checked_tags
from trio_mcp.server.features.logging import LoggingFeature
from trio_mcp.server.features.registry import Registry
from trio_mcp.server.features.tools import ToolDetails, ToolFeature

if TYPE_CHECKING:  # each of these modules is loaded when a server first uses it
    from trio_mcp.server.features.completion import CompletionFeature
    from trio_mcp.server.features.custom import CustomFeature
    from trio_mcp.server.features.listening import ListeningFeature
    from trio_mcp.server.features.mounts import Mounts
    from trio_mcp.server.features.prompts import PromptDetails, PromptFeature
    from trio_mcp.server.features.resources import ResourceDetails, ResourceFeature

__all__ = ["Server"]

_RESOURCE_METHODS = (
    *("resources/list", "resources/templates/list", "resources/read"),
    *("resources/subscribe", "resources/unsubscribe"),
)

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Model = type[BaseModel]


class Server(BaseServer):
    """A server that offers tools, resources and prompts.

    Args:
        name: The server's name, for programs; or a `types.Implementation`, which also has a title, a description, a
            website, icons (each an https: or data: URI) and the version.
        settings: The other arguments: those of `ServerOptions`, such as ``instructions`` and ``lifespan``.

    Raises:
        TypeError, ValueError: If an argument is invalid.
    """

    def _make_features(self) -> Iterable[Feature]:
        self._tools = ToolFeature(self._core.settings)
        # Most servers offer only tools, and loading the other features would take a tenth of the time that such a
        # server needs to start.
        add = self._core.dispatch.add
        self._resources = Deferred(self._make_resources, add, _RESOURCE_METHODS)
        self._prompts = Deferred(self._make_prompts, add, ("prompts/list", "prompts/get"))
        self._completion = Deferred(self._make_completion, add, ("completion/complete",))
        self._listening = Deferred(self._make_listening, add, ("subscriptions/listen",))
        # User-defined methods come and go while the server runs, and mounting copies them. So the registry itself keeps
        # the dispatch up to date.
        self._custom = Deferred(self._make_custom, lambda custom: custom.registry.follow(self._core.dispatch))
        self._mounts = Deferred(self._make_mounts)
        if self._core.settings.extensions is not None:
            self._custom.get()  # this feature declares the extensions
        # Capabilities are declared in this order.
        ordered = (self._tools, self._custom, self._resources, self._prompts, self._completion)
        return (*ordered, LoggingFeature(), self._listening)

    def _make_resources(self) -> ResourceFeature:
        from trio_mcp.server.features.resources import ResourceFeature

        return ResourceFeature(self._core.settings)

    def _make_prompts(self) -> PromptFeature:
        from trio_mcp.server.features.prompts import PromptFeature

        return PromptFeature(self._core.settings)

    def _make_completion(self) -> CompletionFeature:
        from trio_mcp.server.features.completion import CompletionFeature

        return CompletionFeature(self._core.settings, self._prompts.get(), self._resources.get())

    def _make_listening(self) -> ListeningFeature:
        from trio_mcp.server.features.listening import ListeningFeature

        extensions = self._core.settings.extensions
        return ListeningFeature(self._capabilities, self._hidden, {} if extensions is None else extensions.fields)

    def _make_custom(self) -> CustomFeature:
        from trio_mcp.server.features.custom import CustomFeature

        return CustomFeature(self._core.settings)

    def _make_mounts(self) -> Mounts:
        from trio_mcp.server.features.mounts import Mounts

        own = (self._tools, self._resources.get(), self._prompts.get(), self._completion.get(), self._custom.get())
        return Mounts(self._core.settings, self._core.stores, self._core.lifespan, self._core.dispatch, *own)

    async def _hidden(self, uris: Collection[str], context: ServedContext[Any]) -> Collection[str]:
        resources = self._resources.made
        return () if resources is None else await resources.hidden(uris, context)

    async def _heard(
        self, notification: Notification, states: Mapping[Any, Any], client: ClientDeclaration | None
    ) -> None:
        # One look-up is enough: the handlers of mounted servers have been copied to this server, and find their own
        # state in `states`.
        custom = self._custom.made
        own = None if custom is None else custom.notification(notification.method, client)
        if own is not None:
            await own.handle(notification, states)

    def _family(self) -> Sequence[RunMember]:
        mounts = self._mounts.made
        return super()._family() if mounts is None else mounts.family()

    def _input_schema(self, tool: str) -> dict[str, Any] | None:
        # The HTTP transport uses this schema to compare the Mcp-Param-* headers of a call with its body.
        found = self._tools.registry.get(tool)
        # Whether a client may see a filtered tool is decided only later, so for such a tool the feature compares the
        # headers itself.
        return None if found is None or found.filtered else found.definition.input_schema

    def _registered_tools(self) -> Any:
        return self._tools.registry

    def _resource_feature(self) -> Any:
        return self._resources.get()

    def _counts(self) -> dict[str, int]:
        resources, prompts = self._resources.made, self._prompts.made
        return {
            "tools": len(self._tools.registry),
            "resources": 0 if resources is None else len(resources.registry),
            "resource_templates": 0 if resources is None else len(resources.templates),
            "prompts": 0 if prompts is None else len(prompts.registry),
            "completions": 0 if self._completion.made is None else len(self._completion.made),
        }

    # --- tools ---------------------------------------------------------------------------------------------------

    # The overloads are for type checkers: a decorated function keeps its type, in both spellings. The implementation
    # takes anything, and checks it at run time.

    @overload
    def tool(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def tool(self, **details: Unpack[ToolDetails]) -> Callable[[FunctionT], FunctionT]: ...

    def tool(self, function: Any = None, /, **details: Any) -> Any:  # type: ignore[misc]
        """Offer a function as a tool, and return it unchanged.

        Write ``@server.tool`` or ``@server.tool(title=…)``, with the arguments of `add_tool`.
        """
        refuse_unknown(Server.tool, details, ToolDetails)  # checked at once, and not only when the decorator is applied
        return _registering(function, self.add_tool, "tool", details)

    def add_tool(self, function: Callable[..., Any], **details: Unpack[ToolDetails]) -> None:
        """Offer a function as a tool, and notify clients that the list has changed. Callable from any thread.

        The type hints become the schemas of the arguments and the result. The docstring becomes the description; its
        parameter entries go into the schema, its ``Raises:`` section is left out. Arguments are validated in pydantic's
        lax mode (``"5"`` is an int); extra ones are refused. An async function runs in the event loop, any other in a
        thread. When a call is cancelled, so is an async function. A thread can't be cancelled: it runs to its end, and
        counts against ``max_sync_threads`` until then.

        Args:
            function: The function, sync or async. The server fills a parameter annotated with `Context`.
            details: Further details of the tool: see `ToolDetails`.

        Raises:
            TypeError: If the signature can't be turned into a schema.
            ValueError: If the name is invalid or taken, or a schema is invalid.
        """
        refuse_unknown(Server.add_tool, details, ToolDetails)
        self._tools.add(function, **details)

    def remove_tool(self, name: str) -> None:
        """Stop offering a tool, and notify clients that the list has changed. Running calls continue.

        Raises:
            KeyError: If there is no tool with this name.
        """
        self._tools.remove(name)

    def notify_tools_changed(self) -> None:
        """Notify clients that the list of tools has changed. `add_tool` and `remove_tool` do this themselves.

        This method is for servers that build the list elsewhere, for example in a middleware. It returns at once, and
        can be called from any thread. Several changes in a row may become one notification.
        """
        self._core.settings.publish(TOOLS_CHANGED)

    # --- resources -----------------------------------------------------------------------------------------------

    def resource(self, uri: str, **details: Unpack[ResourceDetails]) -> Callable[[FunctionT], FunctionT]:
        """Offer the return value of a function as a resource, and return the function unchanged.

        Write ``@server.resource("config://app")`` or ``@server.resource("files://{+path}")``, with the arguments of
        `add_resource`.
        """
        if not isinstance(uri, str):  # without parentheses, @server.resource gets the function as `uri`
            raise TypeError('a resource needs a URI: write @server.resource("config://app")')
        _check_resource(Server.resource, details)
        return _decorator(lambda function: self.add_resource(uri, function, **details))

    def add_resource(self, uri: str, function: Callable[..., Any], **details: Unpack[ResourceDetails]) -> None:
        """Offer the return value of a function as a resource, or as one for each matching URI if ``uri`` is a template.

        Reading a URI calls the function registered for exactly this URI, or else the function of the first template
        that matches. The template's variables become arguments; a URI whose values don't fit the type hints does not
        match. An async function runs in the event loop, any other in a thread; cancellation works as in `add_tool`.
        Callable from any thread. Clients are notified that the list has changed.

        Args:
            uri: An absolute URI, or a URI template (RFC 6570): see `UriTemplate`.
            function: A function of the template's variables (those of a query need defaults) and, optionally, a
                `Context`. A returned string is sent as text, bytes as a blob. `types.TextResourceContents`,
                `types.BlobResourceContents`, lists that contain one of these, and `types.ReadResourceResult` are sent
                as they are. Anything else becomes JSON text.
            details: Further details of the resource: see `ResourceDetails`.

        Raises:
            TypeError: If the function can't be offered, or its parameters don't match the template's variables.
            ValueError: If the URI is invalid or taken, or URIs can't be matched against the template.
        """
        _check_resource(Server.add_resource, details)
        self._resources.get().add(uri, function, **details)

    def remove_resource(self, uri: str) -> None:
        """Stop offering a resource, or a template and the completions of its variables, and notify clients.

        Running reads continue.

        Raises:
            KeyError: If there is no resource or template with this URI.
        """
        self._resources.get().remove(uri)
        # A template that is added later under the same URI must not inherit the completions of this one. The same
        # applies to prompts.
        self._completion.get().forget("ref/resource", uri)

    def notify_resources_changed(self) -> None:
        """Notify clients that the list of resources or templates has changed; like `notify_tools_changed`."""
        self._core.settings.publish(RESOURCES_CHANGED)

    def notify_resource_updated(self, uri: str) -> None:
        """Notify the clients subscribed to exactly this URI that the resource has changed.

        This method returns at once, and can be called from any thread. Several changes in a row may become one
        notification.
        """
        self._resources.get().notify_updated(uri)

    # --- prompts -------------------------------------------------------------------------------------------------

    @overload
    def prompt(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def prompt(self, **details: Unpack[PromptDetails]) -> Callable[[FunctionT], FunctionT]: ...

    def prompt(self, function: Any = None, /, **details: Any) -> Any:  # type: ignore[misc]
        """Offer a function as a prompt, and return it unchanged.

        Write ``@server.prompt`` or ``@server.prompt(title=…)``, with the arguments of `add_prompt`.
        """
        _check_prompt(Server.prompt, details)  # checked at once, and not only when the decorator is applied
        return _registering(function, self.add_prompt, "prompt", details)

    def add_prompt(self, function: Callable[..., Any], **details: Unpack[PromptDetails]) -> None:
        """Offer a function as a prompt, and notify clients that the list has changed. Callable from any thread.

        The parameters become the prompt's arguments, required unless they have a default; the docstring describes both.
        Clients send strings. Each is validated against the parameter's type hint in pydantic's lax mode (``"5"`` is an
        int, ``"true"`` a bool). If that fails, it is parsed as JSON, and the value is used if the hint allows its type.
        Extra arguments are refused. An async function runs in the event loop, any other in a thread, which counts
        against ``max_sync_threads``. When a request is cancelled, so is an async function; a thread runs to its end.

        The function returns a string or a content block (one user message), a `types.PromptMessage`, a list of these,
        or a `types.GetPromptResult`. An exception other than `McpError` is logged, and the client gets -32603.

        Args:
            function: The function, sync or async. The server fills a parameter annotated with `Context`.
            details: Further details of the prompt: see `PromptDetails`.

        Raises:
            TypeError: If the signature can't be turned into arguments: a hint has no JSON form, for example.
            ValueError: If the name is invalid or taken.
        """
        _check_prompt(Server.add_prompt, details)
        # The completion feature suggests the values that a prompt's type hints list, and declares the capability.
        self._completion.get()
        self._prompts.get().add(function, **details)

    def remove_prompt(self, name: str) -> None:
        """Stop offering a prompt and the completions of its arguments, and notify clients that the list has changed.

        Running requests continue.

        Raises:
            KeyError: If there is no prompt with this name.
        """
        self._prompts.get().remove(name)
        self._completion.get().forget("ref/prompt", name)

    def notify_prompts_changed(self) -> None:
        """Notify clients that the list of prompts has changed; like `notify_tools_changed`."""
        self._core.settings.publish(PROMPTS_CHANGED)

    # --- completion ----------------------------------------------------------------------------------------------

    def completion(
        self, *, argument: str, prompt: str | None = None, resource: str | None = None
    ) -> Callable[[FunctionT], FunctionT]:
        """Let a function suggest values for an argument, and return the function unchanged.

        Write ``@server.completion(prompt="review", argument="language")`` or
        ``@server.completion(resource="files://{+path}", argument="path")``; see `add_completion`.
        """
        return _decorator(
            lambda function: self.add_completion(function, argument=argument, prompt=prompt, resource=resource)
        )

    def add_completion(
        self, function: Callable[..., Any], *, argument: str, prompt: str | None = None, resource: str | None = None
    ) -> None:
        """Let a function suggest values for an argument of a prompt or of a resource template.

        The function gets the text typed so far and, if it has a second parameter, the arguments the user has already
        filled in, a dict of strings (clients send them since 2025-06-18). It returns the suggestions, best first: a
        list or tuple of strings, or a `types.Completion`. If there are more than 100, the client gets the first 100 and
        the total. An async function runs in the event loop, any other in a thread, which counts against
        ``max_sync_threads``. When a request is cancelled, so is an async function; a thread runs to its end. An
        exception other than `McpError` is logged, and the client gets -32603.

        A prompt argument whose type hint lists its values (an Enum, a Literal, a bool) needs no such function; if it
        has one, the function decides. Removing a prompt or a template removes its completions.

        Args:
            function: The function, sync or async. The server fills a parameter annotated with `Context`.
            argument: The argument's name.
            prompt: The name of the prompt, which may be added later.
            resource: The URI template of the resource, which may be added later.

        Raises:
            TypeError: If the function can't take these arguments, or not exactly one of prompt and resource is given.
            ValueError: If there is no such argument, it already has a completion, or the template is invalid.
        """
        self._completion.get().add(function, argument, prompt, resource)

    # --- your own methods and notifications ----------------------------------------------------------------------

    def method(
        self, name: str, *, params: Model | None = None, result: Model | None = None, extension: str | None = None
    ) -> Callable[[FunctionT], FunctionT]:
        """Let a function handle a method of your own, and return the function unchanged.

        Write ``@server.method("com.example/measure", params=Area, result=Size)``; see `add_method`.
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
        """Let a function handle a method that the protocol does not define, in both eras.

        The function gets the parameters and the request's `Context`; further parameters may be dependencies. It returns
        a model, a mapping, or None for an empty result. Middleware runs around it. An async function runs in the event
        loop, any other in a thread, which counts against ``max_sync_threads``. When a request is cancelled, so is an
        async function; a thread runs to its end. An exception other than `McpError` is logged, and the client gets
        -32603.

        Args:
            name: The method. Names of an extension usually begin with its prefix: ``"com.example/measure"``.
            function: ``async (params, ctx) -> result``, or sync.
            params: The model that validates the parameters; invalid ones are refused with -32602. Without it the
                function gets plain data. ``_meta`` is left out, unless the model is one of `types`.
            result: The model of the result; a result that does not fit it counts as a failure of the function.
            extension: The extension that the method belongs to, which the server must have declared. A client that has
                not declared it as well gets -32021 (legacy era: -32601).

        Raises:
            TypeError: If the function, its signature or a model is unusable.
            ValueError: If the protocol defines the method, it is already registered, or the extension is not declared.
        """
        self._custom.get().add_method(name, function, params, result, extension)

    def notification(self, name: str, *, params: Model | None = None) -> Callable[[FunctionT], FunctionT]:
        """Let a function handle a notification of your own, and return the function unchanged.

        Write ``@server.notification("com.example/ping")``; see `add_notification`.
        """
        return _decorator(lambda function: self.add_notification(name, function, params=params))

    def add_notification(
        self, name: str, function: Callable[..., Awaitable[object]], *, params: Model | None = None
    ) -> None:
        """Let a function handle a notification that the protocol does not define.

        A client's notifications are handled one by one, in the order of arrival, so a slow function delays those that
        follow; requests may overtake them. An instance of `trio_mcp.middleware.Middleware` sees them first; a plain
        function given as middleware does not. Exceptions are logged. The function is cancelled when the session ends.
        In the modern era, a client on Streamable HTTP can't send notifications.

        Args:
            name: The notification's method.
            function: ``async (params, ctx)``, with a `NotificationContext` as ``ctx``.
            params: The model that validates the parameters, as in `add_method`; invalid ones are reported to the
                ``on_error`` hook.

        Raises:
            TypeError: If the function or the model is unusable.
            ValueError: If the protocol defines the notification, or it is already registered.
        """
        self._custom.get().add_notification(name, function, params)

    # --- enabling and disabling ----------------------------------------------------------------------------------

    def enable(
        self, *which: str, tags: Iterable[str] | None = None, kind: EntryKind | None = None, **unknown: Never
    ) -> None:
        """Offer disabled entries again, and notify clients: the reverse of `disable`, with the same arguments.

        Entries that a mounted server has disabled stay disabled.
        """
        refuse_unknown(Server.enable, unknown)
        self._switch(True, which, tags, kind)

    def disable(
        self, *which: str, tags: Iterable[str] | None = None, kind: EntryKind | None = None, **unknown: Never
    ) -> None:
        """Stop offering tools, resources and prompts for a while, and notify clients. Callable from any thread.

        Write ``server.disable("delete_all")`` or ``server.disable(tags={"admin"})``. For clients it is as if the
        entries had been removed; in the server they keep their names and their places. Running calls continue. Later
        additions are not affected, whatever their tags; add those with ``enabled=False``.

        Args:
            which: Names of tools and prompts, URIs of resources, and URI templates.
            tags: Tags; everything that has at least one of them is disabled.
            kind: ``"tool"``, ``"resource"``, ``"template"`` or ``"prompt"``, to leave out the others.

        Raises:
            TypeError: If not exactly one of names and tags is given.
            KeyError: If there is no entry with one of the names; nothing changes then.
        """
        refuse_unknown(Server.disable, unknown)
        self._switch(False, which, tags, kind)

    def _switch(
        self, enabled: bool, names: tuple[str, ...], tags: Iterable[str] | None, kind: EntryKind | None
    ) -> None:
        if bool(names) == (tags is not None) or not all(isinstance(name, str) for name in names):
            raise TypeError(
                'pass either names or tags=…, as in server.disable("a", "b") or server.disable(tags={"beta"})'
            )
        if kind is not None:
            check_choice("kind", kind, get_args(EntryKind))
        wanted = checked_tags(tags, "tags")
        registries: list[tuple[Registry[Any], Callable[[], None]]] = [
            (self._tools.registry, self._tools.notify_changed)
        ]
        if (resources := self._resources.made) is not None:
            registries += [(each, resources.notify_changed) for each in (resources.registry, resources.templates)]
        if (prompts := self._prompts.made) is not None:
            registries.append((prompts.registry, prompts.notify_changed))
        found = [
            (registry, entry.name, notify)
            for registry, notify in registries
            for entry in registry.everything()
            if kind in (None, entry.kind) and (entry.name in names or wanted & entry.tags)
        ]
        if missing := set(names) - {name for _, name, _ in found}:
            raise KeyError(f"there is no {kind or 'tool, resource or prompt'} named {min(missing)!r}")
        for notify in {notify: None for registry, name, notify in found if registry.switch(name, enabled)}:
            notify()

    # --- mounting ------------------------------------------------------------------------------------------------

    def mount(self, other: Server, *, prefix: str | None = None, **unknown: Never) -> None:
        """Offer everything that another server offers, now and later, and notify clients of its changes.

        Tools and prompts are named ``prefix__name``. If that is longer than 64 characters or contains characters other
        than ``A-Z a-z 0-9 _ -``, it is shortened and ends in a hash, as in a `ClientGroup`. Resource names get the same
        ``prefix__``, but URIs don't change, because links and subscriptions refer to them. Your own methods,
        notifications and extensions keep their names, too.

        The other server's lifespan is entered once per run of this server, inside this server's own; its functions find
        its state in `Context.state`. Its middleware runs around its calls, reads, prompts, completions and own methods,
        inside this server's middleware, but not around lists, subscriptions and requests without a handler; and it sees
        no notifications, as these belong to the server that runs. Its ``override``, ``functions``
        and ``expose_errors`` apply to its functions. Everything else (instructions, ``options``, ``lists``, ``input``,
        ``principal``) is this server's. The other server may still be served by itself and mounted elsewhere.

        Args:
            other: The server to mount.
            prefix: Up to 32 of the characters ``A-Z a-z 0-9 _ -``, without ``__`` and without ``_`` at the end. Without
                a prefix the names don't change.

        Raises:
            TypeError: If ``other`` is not a server, or is a proxy.
            ValueError: If the prefix is invalid, the server is already mounted here or would contain itself, both have
                an entry with the same name or URI, or ``other`` has an extension or stores that this server does not
                have. Nothing is mounted then. After mounting, ``other`` refuses additions that conflict with this
                server.
            RuntimeError: If ``other`` has a lifespan and this server is already running.
        """
        refuse_unknown(Server.mount, unknown)
        if isinstance(other, Server):
            self._mounts.get().add(other._mounts.get(), prefix)
            return
        # A proxy can't be mounted, because it has no registries to copy from, only an upstream to ask.
        if isinstance(other, BaseServer):
            raise TypeError(
                f"{other.info.name!r} can't be mounted in {self.info.name!r}, "
                "because it is a proxy: serve the proxy by itself"
            )
        raise TypeError(f"only a Server can be mounted, got {type(other).__name__}")


def _check_resource(function: Callable[..., Any], details: Mapping[str, Any]) -> None:
    from trio_mcp.server.features.resources import ResourceDetails

    refuse_unknown(function, details, ResourceDetails)


def _check_prompt(function: Callable[..., Any], details: Mapping[str, Any]) -> None:
    from trio_mcp.server.features.prompts import PromptDetails

    refuse_unknown(function, details, PromptDetails)


def _registering(function: Any, add: Callable[..., None], name: str, details: Mapping[str, Any]) -> Any:
    """Register a function, or return a decorator: users may write the decorator with or without parentheses."""
    if isinstance(function, str):  # FastMCP allows @server.tool("name")
        raise TypeError(f"write @server.{name}(name={function!r})")
    register = _decorator(lambda given: add(given, **details))
    return register if function is None else register(function)


def _decorator(add: Callable[[Any], None]) -> Callable[[FunctionT], FunctionT]:
    """Make a decorator that registers a function and returns it unchanged."""

    def register(function: FunctionT) -> FunctionT:
        add(function)
        return function

    return register
