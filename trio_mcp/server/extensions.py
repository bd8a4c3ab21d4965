"""`ServerExtension`, the additions of an extension to a server; and the extensions of one server, checked together.

See 2026-07-28 `basic/versioning`, Extension Negotiation.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import trio

from trio_mcp import _attrs as attrs
from trio_mcp.eras.capabilities import checked_extensions
from trio_mcp.server.context import Context, ServedContext
from trio_mcp.server.features.extension_parts import ExtensionMethod, ExtensionNotification, ListenField
from trio_mcp.server.run import Run
from trio_mcp.types.methods import method_spec

if TYPE_CHECKING:  # few servers have stores
    from trio_mcp.server.features.dispatch import Dispatch
    from trio_mcp.server.features.feature import FeatureSettings, MiddlewareFunction
    from trio_mcp.server.features.registry import Registry
    from trio_mcp.server.features.resources import ResourceFeature
    from trio_mcp.server.features.tools import RegisteredTool
    from trio_mcp.server.served_session import SharedByClients
    from trio_mcp.stores.contract import Stores
    from trio_mcp.types.tools import Tool

__all__ = [
    "ExtensionRun",
    "ServerExtension",
    "ServerExtensions",
    "read_extensions",
]


class RunningServer(Protocol):
    """The part of a server's `Core` that its extensions use."""

    @property
    def settings(self) -> FeatureSettings: ...

    @property
    def dispatch(self) -> Dispatch: ...

    @property
    def resource_feature(self) -> Callable[[], ResourceFeature]: ...


class ServerExtension:
    """An extension of the protocol on a server. Subclass it, and pass an instance in ``Server(extensions=[…])``.

    Attributes:
        identifier: The extension's identifier, such as ``"com.example/feature"``.
        requires: Identifiers of extensions that the server must have, too, in any order.
        methods: The methods that the extension adds.
        notifications: The notifications that clients may send.
        listen: The fields that the extension adds to the filter of ``subscriptions/listen``.
        details: The keyword arguments of `Server.tool` that the extension reads: some of ``"task"``, ``"app"`` and
            ``"visibility"``.
        middleware: ``async (context, call_next) -> result`` around every request that has a handler, or None. To
            choose its position, name it in ``Server(middleware=[…])``; otherwise it is outside that list, in the
            order of the extensions.
        surrounds: The methods whose requests the middleware surrounds; None for all. For other methods it has no cost.
    """

    identifier: str = ""
    requires: Collection[str] = ()
    methods: Iterable[ExtensionMethod] = ()
    notifications: Iterable[ExtensionNotification] = ()
    listen: Iterable[ListenField] = ()
    details: Collection[str] = ()
    middleware: MiddlewareFunction | None = None
    surrounds: Collection[str] | None = None

    def settings(self, revision: str) -> Mapping[str, Any] | None:
        """Return the settings to declare to clients of a revision; None to not declare the extension to them."""
        return {}

    def attach(self, server: Any) -> None:
        """Add to a new server what the extension offers, such as resources.

        The constructor of the server calls this last, once all arguments have been accepted. One object may be attached
        to several servers.

        Args:
            server: The `Server`.
        """

    def read_detail(self, name: str, value: Any, tool: Tool) -> Any:
        """Check an argument of a tool that is meant for this extension, and return the value to keep.

        Args:
            name: The name of the argument, one of ``details``.
            value: The value given to `Server.add_tool`.
            tool: The tool, as clients see it.

        Raises:
            TypeError, ValueError: If the value is invalid; the tool is then not added.
        """
        return value

    def tool_meta(self, declared: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return entries for the ``_meta`` of a tool that declares something for an extension.

        Args:
            declared: What `read_detail` has returned, by the name of the argument, for all extensions of the server.
        """
        return {}

    @contextlib.asynccontextmanager
    async def lifespan(self, run: ExtensionRun) -> AsyncIterator[Any]:
        """Yield the extension's `state` for one run of the server; the block ends when the run ends.

        Tasks started in ``run.nursery`` are cancelled after this block has been left. A cancelled run raises
        `trio.Cancelled` at the ``yield``.

        Args:
            run: The parts of the server that the extension may use.
        """
        await trio.lowlevel.checkpoint()
        yield None
        await trio.lowlevel.checkpoint()

    def state(self, context: Context[Any]) -> Any:
        """Return the value that `lifespan` yielded in the run that serves a request."""
        assert isinstance(context, ServedContext)
        return context.connection.states.get(self)


@attrs.frozen(eq=False)
class ExtensionRun:
    """One run of a server, as an extension sees it.

    Attributes:
        nursery: For Trio tasks of the extension, which may outlive a request, but not the run.
        stores: The server's stores; None if it has none.
    """

    nursery: trio.Nursery
    stores: Stores | None
    _run: Run
    _core: RunningServer
    _extension: ServerExtension
    _tools: Registry[RegisteredTool]

    def announce(self, method: str, key: str | None = None) -> None:
        """Schedule a notification to all clients that listen for it; see `ListenField`. May be called in any thread.

        Args:
            method: The method of the notification: that of a `ListenField`.
            key: The key for which clients listen.
        """
        self._run.changes.announce(method, key)

    def listened(self, method: str) -> list[str]:
        """Return the keys for which clients listen to a notification."""
        return [key for name, key in self._run.changes.topics if name == method and key is not None]

    async def call(self, context: ServedContext[Any]) -> dict[str, Any]:
        """Handle a request, starting inside the extension's middleware.

        Raises:
            McpError: If the request fails, as it is raised to middleware.

        If the call is cancelled, the handler is cancelled.
        """
        await trio.lowlevel.checkpoint()  # because some handlers have no checkpoint
        return await self._core.dispatch.inside(self._extension.middleware, context)

    def tool(self, name: object) -> RegisteredTool | None:
        """Return the tool with a name; None if the server does not offer it."""
        return self._tools.get(name) if type(name) is str else None

    def resources(self) -> ResourceFeature:
        """Return the feature that serves the server's resources, to which an extension may add its own."""
        return self._core.resource_feature()

    def declaring(self, detail: str) -> list[str]:
        """Return the names of the tools that were added with an argument that is one of `ServerExtension.details`."""
        return [each.name for each in self._tools if detail in each.declared]

    def shared(self) -> SharedByClients:
        """Return the state that all requests of this run share, for a context without a client's request."""
        return self._run

    def check_scopes(self, scopes: Collection[str], context: ServedContext[Any]) -> None:
        """Refuse a request whose token lacks one of these scopes. Only requests over HTTP need scopes.

        Raises:
            McpError: If a scope is missing; the client gets status 403, with the scopes that it needs.
        """
        self._core.settings.check_scopes(scopes, context)

    @property
    def server(self) -> FeatureSettings:
        """The settings of the server that runs."""
        return self._core.settings


class ServerExtensions:
    """The extensions of one server.

    Args:
        objects: The extensions that are objects.
        plain: The settings of extensions that are only declared, by identifier.

    Attributes:
        objects: The extensions that are objects, in order.
        methods: Their methods, each with the identifier of its extension.
        notifications: Their notifications, each with the identifier of its extension.
        fields: Their fields of the filter of ``subscriptions/listen``, by name, with the identifier.
        names: For each of the methods, by revision: the parameter that ``Mcp-Name`` repeats, or None.
    """

    def __init__(self, objects: Sequence[ServerExtension], plain: Mapping[str, dict[str, Any]]) -> None:
        self.objects = tuple(objects)
        self._plain = plain
        self._chained: Sequence[Any] = ()
        self._chains: dict[str, tuple[Any, ...]] = {}
        self._details = {name: each for each in objects for name in each.details}
        self.methods = [(each.identifier, method) for each in objects for method in each.methods]
        self.notifications = [
            (each.identifier, notification) for each in objects for notification in each.notifications
        ]
        self.fields = {field.name: (each.identifier, field) for each in objects for field in each.listen}
        self.names: dict[str, dict[str, str | None]] = {}
        for _, method in self.methods:
            for revision in method.revisions:
                self.names.setdefault(revision, {})[method.name] = method.name_parameter

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._plain or any(each.identifier == identifier for each in self.objects)

    def declared(self, revision: str) -> dict[str, Any]:
        """Return the settings that are declared to clients of a revision, by identifier."""
        found: dict[str, Any] = copy.deepcopy(dict(self._plain))
        for each in self.objects:
            settings = each.settings(revision)
            if settings is not None:
                found[each.identifier] = copy.deepcopy(dict(settings))
        return found

    def read_detail(self, name: str, value: Any, tool: Tool) -> Any:
        """Return the value that an extension keeps of a tool's argument; None without the extension."""
        owner = self._details.get(name)
        return None if owner is None else owner.read_detail(name, value, tool)

    def tool_meta(self, declared: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the extensions add to the ``_meta`` of a tool that declares something for them."""
        return {key: value for each in self.objects for key, value in each.tool_meta(declared).items()}

    def around(self, method: str, middleware: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return those of a server's middleware that surround requests with a method."""
        # The chains are cached, because every request needs one. The cache is bounded: only methods with a handler get
        # here.
        if self._chained is not middleware:
            self._chained, self._chains = middleware, {}
        chain = self._chains.get(method)
        if chain is None:
            idle = [
                each.middleware for each in self.objects if each.surrounds is not None and method not in each.surrounds
            ]
            chain = self._chains[method] = tuple(each for each in middleware if each not in idle)
        return chain

    def placed(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """Return the middleware of a server, with that of its extensions in front, unless it is named already.

        Raises:
            ValueError: If the middleware of an extension is given, but not the extension.
        """
        for each in given:
            owner = getattr(each, "__self__", None)
            if isinstance(owner, ServerExtension) and owner not in self.objects:
                raise ValueError(
                    f"middleware has that of the extension {owner.identifier!r}: pass the extension in extensions=, too"
                )
        own = [each.middleware for each in self.objects if each.middleware is not None]
        return (*(each for each in own if each not in given), *given)


def read_extensions(given: Any, what: str) -> ServerExtensions:
    """Check the extensions given to a server: objects, mappings of settings, or one mapping.

    Args:
        given: What ``Server(extensions=…)`` was given.
        what: The server, for error messages.

    Raises:
        TypeError: If something else was given.
        ValueError: If an identifier is malformed or given twice, a required extension is missing, or a name is taken:
            by the protocol, or by another extension.
    """
    if isinstance(given, Mapping):
        given = (given,)
    elif isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"{what}: extensions must be a list of extensions, or a mapping, got {type(given).__name__}")
    objects: list[ServerExtension] = []
    plain: dict[str, dict[str, Any]] = {}
    known: set[str] = set()
    for each in given:
        each = getattr(each, "server_side", each)  # an extension for both sides has a part for each
        if isinstance(each, ServerExtension):
            new = checked_extensions({each.identifier: {}}, what)
            objects.append(each)
        elif isinstance(each, Mapping):
            new = checked_extensions(each, what)
            plain.update(new)
        else:
            raise TypeError(f"{what}: an extension must be a ServerExtension or a mapping, got {each!r}")
        if twice := known & new.keys():
            raise ValueError(f"{what}: the extension {min(twice)!r} is given twice")
        known |= new.keys()
    for each in objects:
        for needed in each.requires:
            if needed not in known:
                raise ValueError(
                    f"{what}: the extension {each.identifier!r} requires {needed!r}: pass that extension, too"
                )
    _check_names(objects, what)
    return ServerExtensions(objects, plain)


def _check_names(objects: Sequence[ServerExtension], what: str) -> None:
    """Refuse names that are taken, by the protocol or by another extension."""
    from trio_mcp.server.features.listening import FLAGS, URIS  # imported late, as few servers have extensions

    taken: dict[tuple[str, str], str] = {("field", name): "the protocol" for name in (*FLAGS, URIS)}
    for each in objects:
        names = [("method", method.name) for method in each.methods]
        names += [("notification", notification.name) for notification in each.notifications]
        names += [("field", field.name) for field in each.listen]
        names += [("detail", name) for name in each.details]
        for kind, name in names:
            if (kind, name) in taken:
                raise ValueError(
                    f"{what}: the {kind} {name!r} of the extension {each.identifier!r} is taken by {taken[kind, name]}"
                )
            taken[kind, name] = each.identifier
        methods = [(method.name, method.revisions) for method in each.methods]
        methods += [(notification.name, notification.revisions) for notification in each.notifications]
        for name, revisions in methods:
            if any(method_spec(revision, name) is not None for revision in revisions):
                raise ValueError(
                    f"{what}: the protocol defines {name!r}; the extension {each.identifier!r} can't replace it"
                )
