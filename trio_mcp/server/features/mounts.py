"""Mounting: everything that one server offers appears in another server, under a prefix.

The registries of the mounting server contain copies of the mounted server's entries, so lists, pages and name conflicts
need no extra rules. A request for a copy goes to the mounted server, through its middleware and with its state.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from trio_mcp import _attrs as attrs
from trio_mcp.joined_names import JoinedNames
from trio_mcp.server.changes import PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED
from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.completion import CompletionFeature
from trio_mcp.server.features.custom import CustomFeature
from trio_mcp.server.features.dispatch import Dispatch
from trio_mcp.server.features.feature import Entry, FeatureSettings, RegisteredMethod
from trio_mcp.server.features.prompts import PromptFeature, RegisteredPrompt
from trio_mcp.server.features.registry import Named, Registry
from trio_mcp.server.features.resources import RegisteredResource, ResourceFeature
from trio_mcp.server.features.tools import RegisteredTool, ToolFeature
from trio_mcp.types.versions import LATEST

if TYPE_CHECKING:  # few servers have stores
    from trio_mcp.stores.contract import Stores

__all__ = ["Mounts"]

# A prefix has no `__` and no `_` at its end, so that it ends at the first `__` of a joined name. Its maximum length is
# half of what the APIs of models allow for a name (`joined_names.MAX_NAME`).
PREFIX = re.compile(r"(?!.*__)[a-zA-Z0-9_-]{0,31}[a-zA-Z0-9-]")

ItemT = TypeVar("ItemT", bound=Named)
EntryT = TypeVar("EntryT", RegisteredTool, RegisteredPrompt, RegisteredResource)


@attrs.frozen(eq=False)
class Mounts:
    """The part of a server that lets it mount other servers, and be mounted in them.

    Attributes:
        settings: The settings of the server.
        stores: The server's stores; None without any.
        lifespan: Makes the context manager around each run; None without a lifespan.
        dispatch: Handles the server's requests.
        tools, resources, prompts, completion, custom: The features of the server.
        inner: The servers that are mounted in this one.
    """

    settings: FeatureSettings
    stores: Stores | None
    lifespan: Callable[[], contextlib.AbstractAsyncContextManager[Any]] | None
    dispatch: Dispatch
    tools: ToolFeature
    resources: ResourceFeature
    prompts: PromptFeature
    completion: CompletionFeature
    custom: CustomFeature
    inner: list[_Mount] = attrs.field(factory=list, init=False)

    def family(self) -> list[Mounts]:
        """Return the server and all servers mounted in it, each once, nearest first."""
        # The search is breadth-first. Several paths may lead to a server, since it can be mounted in several others.
        found: dict[Mounts, None] = {self: None}
        waiting = [self]
        while waiting:
            for mount in waiting.pop(0).inner:
                if mount.other not in found:
                    found[mount.other] = None
                    waiting.append(mount.other)
        return list(found)

    def add(self, other: Mounts, prefix: str | None) -> None:
        """Mount another server; see `Server.mount`."""
        what = f"{other.settings.info.name!r} can't be mounted in {self.settings.info.name!r}"
        if prefix is not None and (not isinstance(prefix, str) or not PREFIX.fullmatch(prefix)):
            raise ValueError(
                f"{what}: the prefix must consist of 1 to 32 of the characters A-Z a-z 0-9 _ -, contain no '__' and "
                f"not end with '_'; got {prefix!r}"
            )
        # Mounting a server twice under two prefixes would work for tools, but never for the URIs of resources.
        if any(mount.other is other for mount in self.inner):
            raise ValueError(f"{what}: it is already mounted there")
        family = other.family()
        if self in family:
            raise ValueError(f"{what}: a server would contain itself")
        self._check_shared(other, what)
        # The lifespans of a run are nested, so none can be entered after the nursery that the handlers run in.
        if self.settings.runs and any(each.lifespan is not None for each in family):
            raise RuntimeError(
                f"{what} while {self.settings.info.name!r} is running, because {other.settings.info.name!r} has a "
                f"lifespan: mount it earlier, or in the lifespan of {self.settings.info.name!r}"
            )
        mount = _Mount(other, prefix, self.settings)
        # Either all items are copied or none: after a conflict in a later registry, the copies in the earlier ones are
        # removed again.
        with contextlib.ExitStack() as undo:
            try:
                self._follow(undo, mount)
            except ValueError as exc:
                raise ValueError(f"{what}: {exc}") from None
            undo.pop_all()
        # The mount is recorded last: a server whose items were refused must not count as mounted.
        self.inner.append(mount)
        self.completion.mount(other.completion)
        # From now on, changes in the mounted servers are announced to the clients of this server's runs.
        for each in family:
            each.settings.runs |= self.settings.runs
        for method, count in (
            (TOOLS_CHANGED, len(other.tools.registry)),
            (PROMPTS_CHANGED, len(other.prompts.registry)),
            (RESOURCES_CHANGED, len(other.resources.registry) + len(other.resources.templates)),
        ):
            if count:
                self.settings.announce_registration(method)

    def _check_shared(self, other: Mounts, what: str) -> None:
        """Refuse a server that has something of which there is one in a run, and which this server does not have.

        Raises:
            ValueError: If it has stores or an extension that this server does not have.
        """
        names = repr(other.settings.info.name), repr(self.settings.info.name)
        if other.stores is not None and other.stores is not self.stores:
            raise ValueError(
                f"{what}: {names[0]} has stores, and a run of {names[1]} uses only its own; pass the same object as "
                f"stores= to both, or none to {names[0]}"
            )
        # Clients see only the capabilities of this server, and use an extension only if this server declares it.
        theirs, ours = other.settings.extensions, self.settings.extensions
        if theirs is None:
            return
        declared = {} if ours is None else ours.declared(LATEST)
        objects = () if ours is None else [each.identifier for each in ours.objects]
        # The methods, the lifespan and the state of an extension are those of this server.
        for identifier in (each.identifier for each in theirs.objects):
            if identifier not in objects:
                raise ValueError(
                    f"{what}: {names[0]} has the extension {identifier!r}, and {names[1]} has not; pass that extension "
                    f"in extensions= to {names[1]}, too"
                )
        for identifier, settings in theirs.declared(LATEST).items():
            if declared.get(identifier) != settings:
                raise ValueError(
                    f"{what}: {names[0]} has the extension {identifier!r}, which {names[1]} does not declare with the "
                    f"same settings; pass extensions={{{identifier!r}: {settings!r}}} to {names[1]}"
                )

    def _follow(self, undo: contextlib.ExitStack, mount: _Mount) -> None:
        """Copy the mounted server's items: the present ones now, and later ones as they are added.

        Raises:
            ValueError: If a name or URI is taken in the mounting server.
        """
        other = mount.other

        def follow(source: Registry[ItemT], copies: Registry[ItemT], copy: Callable[[ItemT], ItemT]) -> None:
            mirror = _Mirror(copies, self.settings.info.name, copy)
            source.follow(mirror)
            # Undoing removes the copies again, as `unfollow` tells the mirror that all items are removed.
            undo.callback(source.unfollow, mirror)

        # The servers that this one is mounted in follow the copies in turn, so nesting needs nothing more.
        follow(other.custom.registry, self.custom.registry, mount.method)
        follow(other.custom.notifications, self.custom.notifications, lambda item: item)
        follow(other.tools.registry, self.tools.registry, mount.renamed)
        follow(other.prompts.registry, self.prompts.registry, mount.renamed)
        follow(other.resources.registry, self.resources.registry, mount.relabelled)
        follow(other.resources.templates, self.resources.templates, mount.relabelled)


@attrs.frozen(eq=False)
class _Mount:
    """A mounted server, with the prefix for its names.

    Attributes:
        other: The mounted server.
        prefix: The prefix; None if the names stay as they are.
        settings: The settings of the mounting server.
    """

    other: Mounts
    prefix: str | None
    settings: FeatureSettings
    _names: JoinedNames = attrs.field(factory=JoinedNames, init=False)

    def renamed(self, item: EntryT) -> EntryT:
        """Return a copy of a tool or a prompt for the mounting server, with the prefix before its name."""
        name = item.definition.name
        return self._copy(item, name if self.prefix is None else self._names.join(self.prefix, name))

    def relabelled(self, item: RegisteredResource) -> RegisteredResource:
        """Return a copy of a resource for the mounting server, with the prefix before its name."""
        # The name is only for people, so it may be any string.
        name = item.definition.name
        return self._copy(item, name if self.prefix is None else f"{self.prefix}__{name}")

    def _copy(self, item: EntryT, name: str) -> EntryT:
        copy = attrs.evolve(
            item,
            definition=item.definition.model_copy(update={"name": name}),
            mounted=_Mounted(self, item),
            filtered=item.filtered or self.settings.visible is not None,
        )
        if copy.scopes:
            self.settings.scoped = f"{copy.kind} {copy.name!r}"
        return copy

    def method(self, item: RegisteredMethod) -> RegisteredMethod:
        """Return a user-defined method for the mounting server that calls the mounted server's method."""
        return RegisteredMethod(item.name, self.pass_on)

    async def pass_on(self, context: ServedContext[Any], **changed: Any) -> dict[str, Any]:
        """Let the mounted server handle a request, with its state and through its middleware.

        Args:
            context: The request's context.
            changed: Parameters that have a different value in the mounted server, such as the name.
        """
        inner = self.inner(context, changed)
        try:
            # `serve` is skipped, because the trace and the log context belong to the request and are set already.
            return await self.other.dispatch.through(inner)
        finally:
            context.failure = inner.failure

    def inner(self, context: ServedContext[Any], changed: dict[str, Any]) -> ServedContext[Any]:
        """Make the context in which the mounted server sees a request."""
        return context.of_same_request(self.other.settings, context.params | changed)


class _Mounted(NamedTuple):
    """The origin of an entry that was copied from a mounted server; see `Mounted`."""

    mount: _Mount
    item: Entry[Any]

    @property
    def name(self) -> str:
        name: str = self.item.definition.name
        return name

    def shows(self, context: ServedContext[Any]) -> bool:
        if not self.item.filtered:
            return True
        return self.mount.other.settings.shows(self.item, self.mount.inner(context, {}))

    async def pass_on(self, context: ServedContext[Any], **changed: Any) -> dict[str, Any]:
        return await self.mount.pass_on(context, **changed)

    def can_complete(self) -> bool:
        return self.mount.other.completion.can_complete()


class _Mirror(Generic[ItemT]):
    """Keeps copies of a mounted server's entries in a registry of the mounting server.

    Args:
        registry: The registry for the copies.
        where: The name of the mounting server, for error messages.
        copy: Copies an entry.
    """

    def __init__(self, registry: Registry[ItemT], where: str, copy: Callable[[ItemT], ItemT]) -> None:
        self._registry = registry
        self._where = where
        self._copy = copy
        self._copies: dict[str, ItemT] = {}

    def added(self, item: ItemT, enabled: bool) -> None:
        """Copy an entry.

        Raises:
            ValueError: If its name is taken in the mounting server.
        """
        copy = self._copy(item)
        try:
            self._registry.add(copy, enabled, self)
        except ValueError as exc:
            # The name may be taken in a server far from the one that the caller used, so the message names the server.
            raise ValueError(f"in {self._where!r} {exc}") from None
        self._copies[item.name] = copy

    def removed(self, item: ItemT) -> None:
        """Remove the copy of an entry, unless the mounting server has already removed it."""
        copy = self._copies.pop(item.name)
        # The copy is compared by identity: after `remove_tool` on the mounting server, its name may belong to another
        # tool.
        if self._registry.find(copy.name) is copy:
            self._registry.remove(copy.name)

    def switched(self, item: ItemT, enabled: bool) -> None:
        """Enable or disable the copy of an entry; a copy that the mounting server has disabled stays disabled."""
        copy = self._copies[item.name]
        if self._registry.find(copy.name) is copy:
            self._registry.switch(copy.name, enabled, self)
