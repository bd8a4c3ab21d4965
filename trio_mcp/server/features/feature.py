"""What the features of a server have in common."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import attrs

from trio_mcp._log import logger
from trio_mcp.errors import McpError
from trio_mcp.server.context import Context
from trio_mcp.server.features.registry import Named, Registry
from trio_mcp.server.functions.dependencies import Surroundings
from trio_mcp.server.functions.function import Function, single
from trio_mcp.server.functions.introspection import bare
from trio_mcp.server.revisions import wire_for
from trio_mcp.server.run import Run
from trio_mcp.types.common import Implementation
from trio_mcp.types.error_codes import INTERNAL_ERROR
from trio_mcp.types.icons import checked_icons
from trio_mcp.types.meta import checked_meta
from trio_mcp.types.resources import Resource, ResourceTemplate
from trio_mcp.types.tools import Tool

if TYPE_CHECKING:  # loaded with the first prompt
    from trio_mcp.types.prompts import Prompt

__all__ = [
    "Entry",
    "Feature",
    "Handler",
    "Member",
    "Middleware",
    "Mounted",
    "RegisteredMethod",
    "Settings",
    "check_details",
    "described",
    "name_of",
]

Handler: TypeAlias = Callable[[Context[Any]], Awaitable[dict[str, Any]]]
"""``async (context) -> result``."""
Middleware: TypeAlias = Callable[[Context[Any], Callable[[], Awaitable[dict[str, Any]]]], Awaitable[dict[str, Any]]]
"""``async (context, call_next) -> result``: see `Server`."""


class Feature(Protocol):
    """A part of a server: what it offers of one kind, and the methods for it."""

    @property
    def methods(self) -> Mapping[str, Handler]:
        """Its handlers, by method."""

    def capabilities(self, revision: str) -> dict[str, Any]:
        """What is declared of it to a client of a revision."""


class Member(Protocol):
    """One of the servers of a run: the one that runs, or one that is mounted in it."""

    @property
    def settings(self) -> Settings:
        """Its settings."""

    @property
    def lifespan(self) -> Callable[[], contextlib.AbstractAsyncContextManager[Any]] | None:
        """Gives the context manager that surrounds each run; None if there is none."""


class Mounted(Protocol):
    """Where an entry comes from that is a copy of another server's."""

    @property
    def name(self) -> str:
        """Its name there."""

    async def pass_on(self, context: Context[Any], **changed: Any) -> dict[str, Any]:
        """Let the other server answer a request, with some parameters changed."""

    def can_complete(self) -> bool:
        """Whether the other server has completions."""


@attrs.define(eq=False)
class Settings:
    """What the features of a server know of it.

    Attributes:
        info: What the server is called.
        surroundings: What its functions are called with.
        page_size: How many entries a page of a list has.
        cache_hints: The fields that the result of each cacheable method gets.
        expose_errors: Whether clients see the text of unexpected exceptions.
        middleware: What surrounds every request that has a handler.
        extensions: The extensions that it declares, with their settings.
        runs: Its runs, also those of the servers in which it is mounted.
    """

    info: Implementation
    surroundings: Surroundings
    page_size: int
    cache_hints: Mapping[str, dict[str, Any]]
    expose_errors: bool
    middleware: tuple[Middleware, ...]
    extensions: Mapping[str, Mapping[str, Any]]
    runs: set[Run] = attrs.field(factory=set, init=False)

    def announce(self, method: str, uri: str | None = None) -> None:
        """Tell all clients of a change, soon. Returns at once, from any thread."""
        for run in tuple(self.runs):
            run.changes.announce(method, uri)

    def describe_failure(self, text: str, exc: Exception, ours: type[Exception]) -> str:
        """What a client is told of an unexpected exception, which goes to the log.

        Args:
            text: What failed.
            exc: The exception.
            ours: The kind of exception that this library raises there: its text says enough without its name.
        """
        logger.error(text, exc_info=exc)
        if not self.expose_errors:
            return text
        return f"{text}: {exc}" if isinstance(exc, ours) else f"{text}: {type(exc).__name__}: {exc}"

    def failure(self, text: str, exc: Exception, ours: type[Exception]) -> McpError:
        """The error answer for an exception; one that is meant for the client is that answer itself."""
        exc = single(exc)
        return exc if isinstance(exc, McpError) else McpError(INTERNAL_ERROR, self.describe_failure(text, exc, ours))

    def list_page(self, registry: Registry[ListedT], key: str, context: Context[Any]) -> dict[str, Any]:
        """Answer a request for a page of a list.

        Raises:
            McpError: The cursor is not one of ours (-32602).
        """
        page, next_cursor = registry.page(context.params.get("cursor"), self.page_size)
        revision = context.protocol_version
        definitions = [each.for_revision(revision) for each in page]
        # A middleware may change what it gets, but not what the next client sees.
        result: dict[str, Any] = {key: copy.deepcopy(definitions) if self.middleware else definitions}
        if next_cursor is not None:
            result["nextCursor"] = next_cursor
        return result | self.cache_hints[context.method] if context.rules.cache_hints else result


class Listed(Named, Protocol):
    """What is listed."""

    def for_revision(self, revision: str) -> dict[str, Any]:
        """The definition on the wire, with the fields that a revision knows."""


ListedT = TypeVar("ListedT", bound=Listed)


@attrs.frozen
class RegisteredMethod:
    """A method that the protocol does not define."""

    name: str
    handle: Handler


def check_details(details: Iterable[str], known: type, function: str) -> None:
    """Refuse keyword arguments that a function does not take.

    Args:
        details: Their names.
        known: The typed dictionary of those that it takes.
        function: Its name.

    Raises:
        TypeError: There is another one.
    """
    for name in details:
        if name not in known.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


DefinitionT = TypeVar("DefinitionT", bound="Tool | Prompt | Resource | ResourceTemplate")


@attrs.frozen
class Entry(Generic[DefinitionT]):
    """A tool, a prompt or a resource as the server holds it.

    Attributes:
        definition: What clients see of it.
        function: What is called.
        mounted: Where it comes from, if it is another server's.
    """

    definition: DefinitionT
    function: Function
    mounted: Mounted | None = attrs.field(default=None, kw_only=True)
    _wire: dict[str, dict[str, Any]] = attrs.field(factory=dict, init=False)

    @property
    def name(self) -> str:
        """What it is known by."""
        return self.definition.name

    def for_revision(self, revision: str) -> dict[str, Any]:
        """The definition on the wire, with the fields that a revision knows."""
        wire = self._wire.get(revision)
        if wire is None:
            wire = self._wire[revision] = self._to_wire(revision)
        return wire

    def _to_wire(self, revision: str) -> dict[str, Any]:
        return wire_for(self.definition, revision)


def name_of(function: Callable[..., Any], details: Mapping[str, Any]) -> Any:
    """The name that was given, or the function's own; it is yet to be checked."""
    name = details.get("name")
    return getattr(bare(function), "__name__", type(function).__name__) if name is None else name


def described(details: Mapping[str, Any], function: Function, what: str) -> dict[str, Any]:
    """What every definition says beside its name, out of what was given and the function's docstring.

    Raises:
        TypeError, ValueError: An icon or a key of the ``_meta`` is not what it should be.
    """
    description, icons, meta = details.get("description"), details.get("icons"), details.get("meta")
    return {
        "title": details.get("title"),
        "description": function.description if description is None else description,
        "icons": None if icons is None else checked_icons(icons, what),
        "meta": None if meta is None else checked_meta(meta, what),
    }
