"""Mounting: what one server offers appears in another, under a prefix, and stays what it is.

The registries of the mounting server hold copies of the mounted one's entries, so lists, pages and conflicts need no
rules of their own. A request for a copy goes to the mounted server, through its middleware and with its state.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs

from trio_mcp.joined_names import JoinedNames
from trio_mcp.server.changes import PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED
from trio_mcp.server.connection import call_through
from trio_mcp.server.context import Context
from trio_mcp.server.core import ServerCore
from trio_mcp.server.features.completion import CompletionMethods
from trio_mcp.server.features.custom_methods import CustomMethods
from trio_mcp.server.features.pagination import Registry
from trio_mcp.server.features.prompts import RegisteredPrompt
from trio_mcp.server.features.resources import RegisteredResource
from trio_mcp.server.features.tool_methods import ToolMethods
from trio_mcp.server.features.tools import RegisteredTool
from trio_mcp.server.input.rounds import connection_of

__all__ = ["MountingMethods"]

PREFIX = re.compile(r"(?!.*__)[a-zA-Z0-9_-]{0,31}[a-zA-Z0-9-]")

ItemT = TypeVar("ItemT", RegisteredTool, RegisteredPrompt, RegisteredResource)


class MountingMethods(CompletionMethods, CustomMethods, ToolMethods):
    """Mounting other servers."""

    _has_own_entries = True  # what it offers is in its registries

    def mount(self, other: MountingMethods, *, prefix: str | None = None) -> None:
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
        if not isinstance(other, MountingMethods):
            raise TypeError(f"only a Server can be mounted, got {type(other).__name__}")
        what = f"{other.info.name!r} can't be mounted in {self.info.name!r}"
        if prefix is not None and (not isinstance(prefix, str) or not PREFIX.fullmatch(prefix)):
            raise ValueError(
                f"{what}: the prefix must be 1 to 32 of the characters A-Z a-z 0-9 _ -, without '__' and without '_' "
                f"at its end; got {prefix!r}"
            )
        if not other._has_own_entries:
            raise TypeError(f"{what}: a proxy offers what its upstream does; serve it by itself")
        if any(mount.server is other for mount in self._mounts):
            raise ValueError(f"{what}: it is mounted there already")
        if self in other._family():
            raise ValueError(f"{what}: it would hold itself")
        for extension, settings in other.extensions.items():
            if self.extensions.get(extension) != settings:
                raise ValueError(
                    f"{what}: it has the extension {extension!r}, which {self.info.name!r} does not declare with the "
                    f"same settings; pass extensions={{{extension!r}: {settings!r}}} there"
                )
        if self._servings and any(each.lifespan is not None for each in other._family()):
            raise RuntimeError(
                f"{what} while that runs, because it has a lifespan: mount it before, or in the lifespan"
            )
        self._add_mount(Mount(self, other, prefix), what)

    def _add_mount(self, mount: Mount, what: str) -> None:
        other = mount.server
        assert isinstance(other, MountingMethods)
        custom = {name: handler for name, handler in other._methods.items() if name not in self._handlers()}
        with contextlib.ExitStack() as undo:
            try:
                for name in custom:
                    self._check_method_free(name, f"method {name!r}")
                for name in other._notification_handlers:
                    self._check_notification_free(name, f"notification {name!r}")
                _follow(undo, other._tools, Mirror(self._tools, mount, mount.renamed, lambda: None))
                _follow(undo, other._prompts, Mirror(self._prompts, mount, mount.renamed, self._offer_prompts))
                for source, copies in (
                    (other._resources, self._resources),
                    (other._resource_templates, self._resource_templates),
                ):
                    _follow(undo, source, Mirror(copies, mount, mount.relabelled, self._offer_resources))
            except ValueError as exc:
                raise ValueError(f"{what}: {exc}") from None
            undo.pop_all()
        self._mounts.append(mount)
        other._mounted_in.append(mount)
        for name in custom:
            self._install_method(name, mount.handle)
        for name, handler in other._notification_handlers.items():
            self._install_notification(name, handler)
        for each in other._family():
            each._servings |= self._servings
        for method, count in (
            (TOOLS_CHANGED, len(other._tools)),
            (PROMPTS_CHANGED, len(other._prompts)),
            (RESOURCES_CHANGED, len(other._resources) + len(other._resource_templates)),
        ):
            if count:
                self._announce(method)

    def _offer_prompts(self) -> None:
        self._offers_prompts = True

    def _offer_resources(self) -> None:
        self._offers_resources = True


@attrs.frozen(eq=False)
class Mount:
    """A server in another one.

    Attributes:
        parent: Where it is mounted.
        server: What is mounted.
        prefix: Of the names.
    """

    parent: ServerCore
    server: ServerCore
    prefix: str | None
    _names: JoinedNames = attrs.field(factory=JoinedNames, init=False)

    def renamed(self, name: str) -> str:
        """The name here of a tool or a prompt."""
        return name if self.prefix is None else self._names.join(self.prefix, name)

    def relabelled(self, name: str) -> str:
        """The name here of a resource: for people, so any characters will do."""
        return name if self.prefix is None else f"{self.prefix}__{name}"

    async def handle(self, parent: ServerCore, context: Context[Any]) -> dict[str, Any]:
        """Let the mounted server answer a request as it is."""
        return await self.pass_on(context)

    async def pass_on(self, context: Context[Any], **changed: Any) -> dict[str, Any]:
        """Let the mounted server answer a request, with its state, through its middleware.

        Args:
            context: The request's.
            changed: Parameters that the mounted server knows by another value.
        """
        state = connection_of(context).serving.states.get(self.server)
        inner: Context[Any] = context.handed_to(state)
        inner.params = context.params | changed
        return await call_through(self.server, self.server._methods[context.method], inner)


@attrs.frozen
class Mounted:
    """Where an entry comes from.

    Attributes:
        mount: The server.
        name: Its name there.
    """

    mount: Mount
    name: str


class Mirror(Generic[ItemT]):
    """Keeps copies of a mounted server's entries in a registry of the mounting one.

    Args:
        registry: Where the copies go.
        mount: Where they come from.
        rename: Their names here.
        added: Called when there is one.
    """

    def __init__(
        self,
        registry: Registry[ItemT],
        mount: Mount,
        rename: Callable[[str], str],
        added: Callable[[], None],
    ) -> None:
        self._registry: Registry[ItemT] = registry
        self._mount = mount
        self._rename = rename
        self._added = added
        self._copies: dict[str, ItemT] = {}

    def added(self, item: ItemT) -> None:
        """Copy an entry.

        Raises:
            ValueError: Its name is taken here.
        """
        name = item.definition.name
        definition = item.definition.model_copy(update={"name": self._rename(name)})
        copy = attrs.evolve(item, definition=definition, mounted=Mounted(self._mount, name))
        try:
            self._registry.add(copy)
        except ValueError as exc:
            raise ValueError(f"in {self._mount.parent.info.name!r} {exc}") from None
        self._copies[item.name] = copy
        self._added()

    def removed(self, item: ItemT) -> None:
        """Remove the copy of an entry, unless it has been removed here."""
        copy = self._copies.pop(item.name)
        if self._registry.get(copy.name) is copy:
            self._registry.remove(copy.name)


def _follow(undo: contextlib.ExitStack, source: Registry[ItemT], mirror: Mirror[ItemT]) -> None:
    source.follow(mirror)
    undo.callback(source.unfollow, mirror)
