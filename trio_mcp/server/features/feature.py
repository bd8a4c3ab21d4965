"""The common base of a server's features: their interface, shared settings, entries and lists."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeAlias

import trio
from typing_extensions import TypeVar

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_count, check_flag, check_text, validator
from trio_mcp._log import logger
from trio_mcp._nursery import is_raised_inside, outer_frames
from trio_mcp.errors import McpError
from trio_mcp.server.context import Context, ServedContext
from trio_mcp.server.features.caching import CacheHints, checked_hints
from trio_mcp.server.features.registry import Registry
from trio_mcp.server.functions.function import Function, single
from trio_mcp.server.functions.introspection import bare
from trio_mcp.server.functions.surroundings import Surroundings
from trio_mcp.server.revisions import wire_for
from trio_mcp.server.run import Run
from trio_mcp.server.served_session import ScopesMissing
from trio_mcp.session.middleware import Layers
from trio_mcp.types.common import Implementation
from trio_mcp.types.error_codes import INTERNAL_ERROR
from trio_mcp.types.meta import checked_meta

if TYPE_CHECKING:  # loaded at run time with the first entry, principal or extension
    from trio_mcp.principal import Principal
    from trio_mcp.server.features.extension_parts import ExtensionMethod, ExtensionNotification, ListenField
    from trio_mcp.types.prompts import Prompt
    from trio_mcp.types.resources import Resource, ResourceTemplate
    from trio_mcp.types.tools import Tool

__all__ = [
    "NO_SCOPES",
    "Entry",
    "EntryKind",
    "Feature",
    "FeatureSettings",
    "Handler",
    "Identify",
    "ListOptions",
    "MiddlewareFunction",
    "Mounted",
    "Needs",
    "RegisteredMethod",
    "RunMember",
    "Visible",
    "checked_tags",
    "described",
    "held",
    "name_of",
    "scopes_of",
]

Handler: TypeAlias = Callable[[ServedContext[Any]], Awaitable[dict[str, Any]]]
"""A function that handles a request: ``async (context) -> result``."""
ASYNCIO: Final = (
    " (this server runs on Trio: an asyncio library has no event loop here; use a library for Trio, or"
    " call asyncio.run() in a sync function, which runs in a thread)"
)
"""Advice that is added to the error message "no running event loop"."""

MiddlewareFunction: TypeAlias = Callable[
    [Context[Any], Callable[[], Awaitable[dict[str, Any]]]], Awaitable[dict[str, Any]]
]
"""A function that wraps every request: ``async (context, call_next) -> result``; see `Server`."""
Identify: TypeAlias = "Callable[[Context[Any]], str | Principal | None]"
"""A function that returns the principal of a request: ``(context) -> principal``; see `Server`."""
Needs: TypeAlias = Callable[[Mapping[str, Any]], frozenset[str]]
"""A function that returns the scopes that a request needs: ``(params) -> scopes``."""
Visible: TypeAlias = Callable[[Context[Any], "Entry[Any]"], bool]
"""A function that returns whether an entry exists for a client: ``(context, entry) -> bool``; see `Server`."""
EntryKind: TypeAlias = Literal["tool", "resource", "template", "prompt"]

NO_SCOPES: Final[frozenset[str]] = frozenset()

# With this number, a filter that takes a few microseconds holds up other tasks for about a millisecond.
SLICE = 250
"""The number of entries of a list for which a filter is called before other tasks may run."""


@attrs.frozen(kw_only=True)
class ListOptions:
    """How a server serves its lists.

    Attributes:
        page_size: The maximum number of entries on a page.
        cache_hints: How long clients of the modern era may cache the results of a method, and for whom:
            ``{"tools/list": CacheHint(ttl=60, scope="public")}``. The methods are ``server/discover``, the four lists,
            and ``resources/read`` for resources without a hint of their own. By default nothing may be cached.

    Raises:
        TypeError, ValueError: If a value is invalid.
    """

    page_size: int = attrs.field(default=250, validator=validator(check_count))  # enough for the lists of most servers
    cache_hints: CacheHints | None = attrs.field(default=None, validator=lambda _, __, hints: checked_hints(hints))


class Feature(Protocol):
    """A part of a server: everything of one kind that the server offers, and the methods for it."""

    @property
    def methods(self) -> Mapping[str, Handler]:
        """The feature's handlers, by method."""

    @property
    def needs(self) -> Mapping[str, Needs]:
        """For each method whose requests may need scopes, the function that returns the scopes of a request."""

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities declared to a client of this revision."""


class Extensions(Protocol):
    """The extensions of a server, as its features see them."""

    objects: tuple[Any, ...]
    methods: list[tuple[str, ExtensionMethod]]
    notifications: list[tuple[str, ExtensionNotification]]
    fields: dict[str, tuple[str, ListenField]]

    def __contains__(self, identifier: object) -> bool:
        """Return whether the server declares an extension."""

    def declared(self, revision: str) -> dict[str, Any]:
        """Return the settings that are declared to clients of a revision, by identifier."""

    def read_detail(self, name: str, value: Any, tool: Tool) -> Any:
        """Return what a tool declares with a keyword argument, as its extension wants it kept; None without it."""

    def tool_meta(self, declared: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the extensions add to the ``_meta`` of a tool that declares something for them."""

    def around(self, method: str, middleware: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the middleware around requests with a method, of a server's middleware."""


class RunMember(Protocol):
    """One of the servers of a run: the server that runs, or one that is mounted in it."""

    @property
    def settings(self) -> FeatureSettings:
        """The server's settings."""

    @property
    def lifespan(self) -> Callable[[], contextlib.AbstractAsyncContextManager[Any]] | None:
        """A function that makes the context manager around each run; None without a lifespan."""


class Mounted(Protocol):
    """The origin of an entry that was copied from a mounted server."""

    @property
    def name(self) -> str:
        """The entry's name in the mounted server."""

    async def pass_on(self, context: ServedContext[Any], **changed: Any) -> dict[str, Any]:
        """Let the mounted server handle a request, with these parameters changed."""

    def can_complete(self) -> bool:
        """Return whether the mounted server has completions."""

    def shows(self, context: ServedContext[Any]) -> bool:
        """Return whether the entry exists for the client of a request, according to the mounted server."""


# Settings compare by identity and so are hashable, because the states of a run's lifespans are keyed by them.
@attrs.define(eq=False)
class FeatureSettings:
    """The part of a server that its features can see.

    Attributes:
        info: The server's name, version and description.
        surroundings: The context type, threads and overrides for calls of users' functions.
        page_size: The maximum number of entries on a page of a list.
        cache_hints: For each cacheable method, the fields to add to its result.
        expose_errors: Whether clients see the text of unexpected exceptions.
        middleware: The middleware around every request that has a handler.
        layers: What the server's instances of `Middleware` override.
        principal: Returns the principal on whose behalf a request is made; None without such a function.
        visible: Returns whether an entry exists for the client of a request; None if all entries do.
        extensions: The extensions of the protocol; None without any.
        scoped: An entry that needs scopes, such as ``"tool 'write'"``; empty if no entry has ever needed any.
        runs: The runs of this server, and of the servers in which it is mounted.
    """

    info: Implementation
    surroundings: Surroundings
    page_size: int
    cache_hints: Mapping[str, dict[str, Any]]
    expose_errors: bool
    middleware: tuple[MiddlewareFunction, ...]
    layers: Layers
    principal: Identify | None
    visible: Visible | None
    extensions: Extensions | None
    scoped: str = attrs.field(default="", init=False)
    runs: set[Run] = attrs.field(factory=set, init=False)

    def around(self, method: str) -> tuple[Any, ...]:
        """Return the middleware around requests with a method."""
        return self.middleware if self.extensions is None else self.extensions.around(method, self.middleware)

    # In these methods the set of runs is copied, because another thread may begin or end a run meanwhile.

    def announce(self, method: str, uri: str | None = None) -> None:
        """Notify all clients of this process of a change soon. Returns at once, from any thread."""
        for run in tuple(self.runs):
            run.changes.announce(method, uri)

    def announce_registration(self, method: str) -> None:
        """Notify clients of a list that has changed in this process alone. Returns at once, from any thread."""
        self.announce(method)
        for run in tuple(self.runs):
            if run.bus is not None:
                run.bus.registered()

    def publish(self, method: str, uri: str | None = None) -> None:
        """Notify all clients of a change soon, in all processes. Returns at once, from any thread."""
        self.announce(method, uri)
        for run in tuple(self.runs):
            if run.bus is not None:
                run.bus.publish(method, uri)

    def describe_failure(self, context: ServedContext[Any], text: str, exc: Exception, ours: type[Exception]) -> str:
        """Log an unexpected exception, leave it in the context, and return the text to send to the client.

        Args:
            context: The context of the request.
            text: A text that says which function failed.
            exc: The exception.
            ours: The exception type that this library itself raises for the function; the message of such an exception
                makes sense without the type's name.
        """
        context.failure = exc
        # The frames of this library and of Trio say nothing about an exception that the user's function has raised.
        traceback = exc.__traceback__ if is_raised_inside(exc) else outer_frames(exc.__traceback__)
        advice = ASYNCIO if isinstance(exc, RuntimeError) and "no running event loop" in str(exc) else ""
        # The exception is logged even if the client sees its text, as the server's operator needs the traceback.
        logger.error("%s%s", text, advice, exc_info=(type(exc), exc, traceback))
        if not self.expose_errors:
            return text
        return f"{text}: {exc}" if isinstance(exc, ours) else f"{text}: {type(exc).__name__}: {exc}"

    def failure(self, context: ServedContext[Any], text: str, exc: Exception, ours: type[Exception]) -> McpError:
        """Return the error response for an exception; an `McpError` is meant for the client and returned unchanged."""
        exc = single(exc)  # a handler that uses a nursery raises its McpError inside a group
        if isinstance(exc, McpError):
            return exc
        return McpError(INTERNAL_ERROR, self.describe_failure(context, text, exc, ours))

    def check_scopes(self, needed: Collection[str], context: ServedContext[Any]) -> None:
        """Refuse a request without the scopes that it needs; where there is no HTTP, no request needs scopes.

        Raises:
            ScopesMissing: If the request lacks one of the scopes.
        """
        permit = context.connection.permit
        if permit is None or not needed:
            return
        # This is the principal of the token: `Server(principal=…)` may have set another one in the context.
        principal: Any = context.transport_metadata.get("principal")
        refusal = permit(principal, needed)
        if refusal is not None:
            raise ScopesMissing(refusal)

    def shows(self, entry: Entry[Any], context: ServedContext[Any]) -> bool:
        """Return whether an entry exists for the client of a request; only a `filtered` entry can be hidden."""
        try:
            shown = self.visible is None or self.visible(context, entry)
            # The type is checked, because the coroutine that an async function returns would count as true, and show
            # everything.
            if type(shown) is not bool:
                raise TypeError(f"the visible=… function must return True or False, got {type(shown).__name__}")
        except Exception as exc:
            logger.error("visible=… failed for the %s %r, which stays hidden", entry.kind, entry.name, exc_info=exc)
            return False
        return shown and (entry.mounted is None or entry.mounted.shows(context))

    async def list_page(self, registry: Registry[ListedT], key: str, context: ServedContext[Any]) -> dict[str, Any]:
        """Return the result of a request for a page of a list.

        Raises:
            McpError: If the cursor was not made by this server (-32602).
        """
        page: list[ListedT] = []
        last, next_cursor, private = 0, None, {}
        for number, (serial, each) in enumerate(registry.after(context.params.get("cursor")), 1):
            if each.filtered:
                private = {"cacheScope": "private"}  # the list differs by client, so no cache may share it
                if number % SLICE == 0:
                    await trio.lowlevel.checkpoint()
                if not self.shows(each, context):
                    continue
            # The page ends only after the check: a cursor with nothing visible after it would reveal hidden entries.
            if len(page) == self.page_size:
                next_cursor = registry.cursor_after(last)
                break
            page.append(each)
            last = serial
        revision = context.protocol_version
        definitions = [each.for_revision(revision) for each in page]
        # The definitions are cached in the entries. A middleware may modify the result, but that must not change what
        # the next client sees.
        result: dict[str, Any] = {key: copy.deepcopy(definitions) if self.around(context.method) else definitions}
        if next_cursor is not None:
            result["nextCursor"] = next_cursor
        return result | self.cache_hints[context.method] | private if context.rules.cache_hints else result


@attrs.frozen
class RegisteredMethod:
    """A user-defined method: one that the protocol does not define."""

    name: str
    handle: Handler


DefinitionT = TypeVar("DefinitionT", bound="Tool | Prompt | Resource | ResourceTemplate", default=Any)


@attrs.frozen
class Entry(Generic[DefinitionT]):
    """A registered tool, resource, resource template or prompt.

    Attributes:
        definition: The entry that clients see in the list, such as a `types.Tool`. It must not be changed.
        tags: The tags that the entry was registered with.
        function: The user's function. Not for use in filters.
        mounted: The origin, if the entry is a copy from a mounted server. Not for use in filters.
        filtered: Whether a ``visible=`` function, of this server or of the server that the entry comes from, decides
            whether the entry exists for a client. Not for use in filters.
        scopes: The scopes that a request for the entry needs.
    """

    definition: DefinitionT
    function: Function
    tags: frozenset[str] = attrs.field(default=frozenset(), kw_only=True)
    mounted: Mounted | None = attrs.field(default=None, kw_only=True)
    filtered: bool = attrs.field(default=False, kw_only=True)
    scopes: frozenset[str] = attrs.field(default=frozenset(), kw_only=True)
    # The wire forms are cached by revision, because clients often request lists, and a definition never changes.
    _wire: dict[str, dict[str, Any]] = attrs.field(factory=dict, init=False)

    @property
    def name(self) -> str:
        """The name of a tool or a prompt; the URI of a resource, or the URI template."""
        return self.definition.name

    @property
    def told_scopes(self) -> frozenset[str]:
        """The scopes to require before the entry is looked up; none if a filter is yet to decide whether it exists."""
        return NO_SCOPES if self.filtered else self.scopes

    @property
    def kind(self) -> EntryKind:
        """``"tool"``, ``"resource"``, ``"template"`` or ``"prompt"``."""
        raise NotImplementedError

    def for_revision(self, revision: str) -> dict[str, Any]:
        """Return the definition's wire form, with only the fields that the revision defines."""
        wire = self._wire.get(revision)
        if wire is None:
            wire = self._wire[revision] = self._to_wire(revision)
        return wire

    def _to_wire(self, revision: str) -> dict[str, Any]:
        return wire_for(self.definition, revision)


ListedT = TypeVar("ListedT", bound=Entry[Any])


def scopes_of(registry: Registry[ListedT], name: object) -> frozenset[str]:
    """Return the scopes that a request needs for the entry that it names; none if there is no such entry."""
    entry = registry.get(name) if type(name) is str else None
    return NO_SCOPES if entry is None else entry.told_scopes


def checked_tags(tags: Iterable[str] | None, what: str) -> frozenset[str]:
    """Return the given tags after checking them.

    Raises:
        TypeError, ValueError: If the tags are not a collection of strings, or one is empty.
    """
    return _checked_words("tag", tags, what)


def _checked_words(kind: str, words: Iterable[str] | None, what: str) -> frozenset[str]:
    if isinstance(words, str):  # a string would be taken for a set of its letters
        raise TypeError(f"{what}: {kind}s must be a set of strings; write {kind}s={{{words!r}}}")
    words = frozenset(() if words is None else words)
    for word in words:
        check_text(f"{what}: a {kind}", word)
    return words


def _checked_scopes(scopes: Iterable[str] | None, what: str) -> frozenset[str]:
    found = _checked_words("scope", scopes, what)
    if not found:
        return found
    from trio_mcp.principal import SCOPE  # deferred: few servers need scopes

    for scope in found:
        # A challenge lists scopes in one quoted string, separated by spaces, so a scope must not contain spaces or
        # quotes.
        if not SCOPE.fullmatch(scope):
            raise ValueError(
                f"{what}: {scope!r} is not a valid scope (RFC 6749, section 3.3); pass each scope as a separate string"
            )
    return found


def held(details: Mapping[str, Any], settings: FeatureSettings, what: str) -> dict[str, Any]:
    """Return the fields, other than the definition, that all entries have: tags, scopes, and ``filtered``.

    Raises:
        TypeError, ValueError: If the tags, the scopes or ``enabled`` are invalid.
    """
    check_flag(f"{what}: enabled", details.get("enabled", True))
    scopes = _checked_scopes(details.get("scopes"), what)
    if scopes:
        settings.scoped = what
    return {
        "tags": checked_tags(details.get("tags"), what),
        "scopes": scopes,
        "filtered": settings.visible is not None,
    }


def name_of(kind: str, function: Callable[..., Any], details: Mapping[str, Any]) -> str:
    """Return the given name, or else the function's own; the caller must check the characters of the name.

    Args:
        kind: The kind of entry, for error messages: ``"a tool"``.
        function: The function of the entry.
        details: The details of the entry.

    Raises:
        TypeError: If the function can't be called, or the name is not a string.
    """
    if not callable(function):
        raise TypeError(f"{kind} must be a function, got {type(function).__name__}")
    name = details.get("name")
    if name is None:
        # A partial has no name, but its function does. An instance with `__call__` gets the name of its class.
        name = getattr(bare(function), "__name__", type(function).__name__)
    if not isinstance(name, str):
        raise TypeError(f"{kind}'s name must be a string, got {name!r}")
    return name


def described(details: Mapping[str, Any], function: Function, what: str) -> dict[str, Any]:
    """Return the fields, other than the name, that all definitions have, from the details and the docstring.

    Raises:
        TypeError, ValueError: If an icon or a key of ``_meta`` is invalid.
    """
    description, icons, meta = details.get("description"), details.get("icons"), details.get("meta")
    if icons is not None:
        from trio_mcp.types.icons import checked_icons  # deferred: few servers have icons

        icons = checked_icons(icons, what)
    return {
        "title": details.get("title"),
        "description": function.description if description is None else description,
        "icons": icons,
        "meta": None if meta is None else checked_meta(meta, what),
    }
