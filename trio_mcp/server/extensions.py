"""`ServerExtension`, what an extension adds to a server, and the extensions of one server, checked against each other.

An extension goes beyond the protocol, and is declared by both sides (2026-07-28 `basic/versioning`, Extension
Negotiation).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
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


class ServerExtension:
    """An extension of the protocol on a server. Subclass it, and pass an instance in ``Server(extensions=[…])``.

    Attributes:
        identifier: The extension's identifier, such as ``"com.example/feature"``.
        requires: Identifiers of extensions that the server must have, too, in any order.
        methods: The methods that it adds.
        notifications: The notifications that clients may send.
        listen: The fields that it adds to the filter of ``subscriptions/listen``.
        details: The keyword arguments of a tool that are meant for it: ``("task",)``.
        middleware: ``async (context, call_next) -> result`` around every request that has a handler, or None. In
            ``Server(middleware=[…])`` it may be given a place; if it is not named there, it stands outside all that
            are, in the order of the extensions.
        surrounds: The methods whose requests the middleware surrounds; None for all. Requests with other methods cost
            what they cost without it.
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
        """Return the settings to declare to clients of a revision; None if the extension is not offered to them."""
        return {}

    def read_detail(self, name: str, value: Any, tool: Tool) -> Any:
        """Check what a tool declares for this extension, and return the value to keep.

        Args:
            name: One of ``details``.
            value: The argument given to `Server.add_tool`.
            tool: The tool, as clients see it.

        Raises:
            TypeError, ValueError: If the value is invalid; the tool is not added then.
        """
        return value

    @contextlib.asynccontextmanager
    async def lifespan(self, run: ExtensionRun) -> AsyncIterator[Any]:
        """Stay open for as long as the server runs. What is yielded is the extension's `state` in this run.

        Tasks started in ``run.nursery`` are cancelled at the end of the run.
        """
        await trio.lowlevel.checkpoint()
        yield None
        await trio.lowlevel.checkpoint()

    def state(self, context: Context[Any]) -> Any:
        """Return what `lifespan` yielded in the run that a request belongs to."""
        assert isinstance(context, ServedContext)
        return context.connection.states.get(self)


@attrs.frozen(eq=False)
class ExtensionRun:
    """One run of a server, as an extension sees it.

    Attributes:
        nursery: For tasks of the extension, which may outlive requests but not the run.
        stores: The server's stores; None without any.
    """

    nursery: trio.Nursery
    stores: Stores | None
    _run: Run
    _core: RunningServer
    _extension: ServerExtension
    _tools: Registry[RegisteredTool]

    def announce(self, method: str, key: str | None = None) -> None:
        """Send a notification to those who listen for it, soon; see `ListenField`. Callable from any thread."""
        self._run.changes.announce(method, key)

    def listened(self, method: str) -> list[str]:
        """Return the keys for which clients listen to a notification."""
        return [key for name, key in self._run.changes.topics if name == method and key is not None]

    async def call(self, context: ServedContext[Any]) -> dict[str, Any]:
        """Handle a request as the server would, without the extension's middleware and what is outside of it."""
        await trio.lowlevel.checkpoint()  # not every handler is one
        return await self._core.dispatch.inside(self._extension.middleware, context)

    def tool(self, name: object) -> RegisteredTool | None:
        """Return the tool with a name, if the server offers it."""
        return self._tools.get(name) if type(name) is str else None

    def declaring(self, detail: str) -> list[str]:
        """Return the names of the tools that are offered and declare something with this keyword argument."""
        return [each.name for each in self._tools if detail in each.declared]

    def shared(self) -> SharedByClients:
        """Return what the requests of this run share, for a context that no client's request has made."""
        return self._run

    def check_scopes(self, scopes: Collection[str], context: ServedContext[Any]) -> None:
        """Refuse a request whose token lacks one of these scopes; where there is no HTTP, no request needs scopes."""
        self._core.settings.check_scopes(scopes, context)

    @property
    def server(self) -> FeatureSettings:
        """The settings of the server that runs."""
        return self._core.settings


class ServerExtensions:
    """The extensions of one server.

    Args:
        objects: The extensions that add something.
        plain: The settings of those that are only declared, by identifier.

    Attributes:
        objects: The extensions that add something, in order.
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
        """Return what a tool declares with a keyword argument, as its extension wants it kept; None without it."""
        owner = self._details.get(name)
        return None if owner is None else owner.read_detail(name, value, tool)

    def around(self, method: str, middleware: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the middleware around requests with a method, of a server's middleware."""
        # The chains are kept, because every request needs one. Only methods that have a handler are asked for.
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
        """Return the middleware of a server with that of its extensions.

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
        ValueError: If an identifier is malformed or given twice, a name is taken, or a required extension is missing.
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
