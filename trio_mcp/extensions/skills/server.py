"""The server's side of the skills extension: its methods, and a resource for every file (SEP-2640)."""

from __future__ import annotations

import base64
import contextlib
import copy
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp.errors import McpError
from trio_mcp.extensions.skills.catalog import Rescan, SkillCatalog, SkillSource, dynamic_text, page_of
from trio_mcp.extensions.skills.rules import DIRECTORY, IDENTIFIER, SKILL_REVISIONS
from trio_mcp.server.changes import RESOURCE_UPDATED, RESOURCES_CHANGED
from trio_mcp.server.context import Context, ServedContext
from trio_mcp.server.extensions import ExtensionRun, ServerExtension
from trio_mcp.server.features.caching import CacheHint
from trio_mcp.server.features.extension_parts import ExtensionMethod
from trio_mcp.server.features.feature import FeatureSettings
from trio_mcp.server.features.resources import (
    RegisteredResource,
    ResourceFeature,
    ResourceNotFound,
    read_uri,
)
from trio_mcp.server.functions.function import Function, read_function
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.resources import BlobResourceContents, Resource, TextResourceContents
from trio_mcp.uri_templates import MAX_URI

__all__ = ["SkillsOnServer"]


class SkillsOnServer(ServerExtension):
    """The server's side of the extension.

    Args:
        source: Where the skills come from.
        cache: How long clients may cache entries and files; None for what the server says about its resources.
    """

    identifier = IDENTIFIER

    def __init__(self, source: SkillSource, cache: CacheHint | None) -> None:
        self.source = source
        self.cache = cache
        # No client has to declare the extension, as only the server has settings (Capability Negotiation).
        self.methods = tuple(
            ExtensionMethod(name=name, function=function, revisions=SKILL_REVISIONS, open=True)
            for name, function in (
                ("skills/list", self._list),
                ("skills/get", self._get),
                ("resources/directory/read", self._directory),
            )
        )
        # The resources stay registered between runs, as those of users do.
        self._hosts: WeakKeyDictionary[ResourceFeature, _Host] = WeakKeyDictionary()
        self._hosting = threading.Lock()

    def settings(self, revision: str) -> Mapping[str, Any] | None:
        return {"directoryRead": True} if revision in SKILL_REVISIONS else None

    @contextlib.asynccontextmanager
    async def lifespan(self, run: ExtensionRun) -> AsyncIterator[_Host]:
        feature = run.resources()
        feature.require()
        host = self._hosts.get(feature)
        if host is None:
            host = self._hosts[feature] = _Host(self, feature, run.server)
        await self._refresh(strict=True)
        yield host

    async def rescan(self) -> Rescan:
        """Read what has changed in the folder; see `Skills.rescan`."""
        found = await self._refresh(strict=False)
        for problem in found.problems:
            logger.warning("skills: %s", problem)
        return found

    async def _refresh(self, *, strict: bool) -> Rescan:
        # The thread only reads. No request runs between the next two steps, so each request sees one state of all
        # skills. If the caller is cancelled, either both steps have been made, or neither.
        scan = await trio.to_thread.run_sync(self.source.scan)
        found = self.source.adopt(scan, strict=strict)
        self.publish()
        return found

    def publish(self) -> None:
        """Register the files of the present catalog in all servers, and tell listeners. Callable from any thread."""
        with self._hosting:
            for host in list(self._hosts.values()):
                host.publish(self.source.catalog)

    # --- the methods ---------------------------------------------------------------------------------------------

    async def _list(self, params: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        assert isinstance(context, ServedContext)
        host: _Host = self.state(context)
        catalog = self.source.catalog
        hidden = False

        def size(uri: str) -> int | None:
            nonlocal hidden
            entry = host.resource(uri)
            hidden = hidden or entry is None or entry.filtered
            return catalog.skills[uri].size if host.shows(entry, context) else None

        uris, cursor = page_of(catalog.listed, params.get("cursor"), size, host.settings.page_size)
        entries = [catalog.skills[uri].entry for uri in uris]
        result: dict[str, Any] = {"skills": host.own(entries, context)}
        if cursor is not None:
            result["nextCursor"] = cursor
        return result | self._hints("resources/list", hidden, host, context)

    async def _get(self, params: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        assert isinstance(context, ServedContext)
        host: _Host = self.state(context)
        uri = read_uri(context)
        entry, skill = host.resource(uri), self.source.catalog.skills.get(uri)
        if skill is None or not host.shows(entry, context):
            raise McpError(INVALID_PARAMS, f"no skill is served at {uri[:MAX_URI]}")
        assert entry is not None
        return {"skill": host.own(skill.entry, context)} | self._hints("resources/read", entry.filtered, host, context)

    def _hints(self, method: str, hidden: bool, host: _Host, context: ServedContext[Any]) -> dict[str, Any]:
        """Return the cache fields of a result, which are those of a similar method of resources."""
        if not context.rules.cache_hints:
            return {}
        hints = host.settings.cache_hints[method] if self.cache is None else self.cache.to_wire()
        return hints | ({"cacheScope": "private"} if hidden else {})

    async def _directory(self, params: dict[str, Any], context: Context[Any]) -> dict[str, Any]:
        assert isinstance(context, ServedContext)
        host: _Host = self.state(context)
        uri = read_uri(context)
        children = self.source.catalog.directories.get(uri)
        if children is None:
            raise McpError(INVALID_PARAMS, f"{uri[:MAX_URI]} is not a directory resource")
        is_directory = dict(children)
        found: dict[str, dict[str, Any]] = {}

        def size(child: str) -> int | None:
            if is_directory[child]:
                found[child] = {"uri": child, "name": _last(child), "mimeType": DIRECTORY}
            else:
                entry = host.resource(child)
                if not host.shows(entry, context):
                    return None
                assert entry is not None
                found[child] = entry.for_revision(context.protocol_version)
            return len(child)

        uris, cursor = page_of(list(is_directory), params.get("cursor"), size, host.settings.page_size)
        result: dict[str, Any] = {"resources": host.own([found[each] for each in uris], context)}
        if cursor is not None:
            result["nextCursor"] = cursor
        # The specification does not ask for these fields here, but the client of the TypeScript SDK 2.4 does.
        return result | self._hints("resources/list", host.settings.visible is not None, host, context)


class _Host:
    """A server that serves the skills: its registered files.

    Args:
        skills: The extension.
        feature: The feature that serves the server's resources.
        settings: The server's settings.
    """

    def __init__(self, skills: SkillsOnServer, feature: ResourceFeature, settings: FeatureSettings) -> None:
        self.settings = settings
        # The extension has the hosts as weak keys, so a host has no reference to the feature.
        self._registry = feature.registry
        self._source = skills.source
        self._cache = skills.cache
        # The fields of the registered resources; they are kept up to date even if a resource is refused.
        self._registered: dict[str, tuple[Any, ...]] = {}
        self._published: SkillCatalog | None = None
        read = read_function(self._read, settings.surroundings, "skill file")
        self._function = attrs.evolve(read, may_ask=False)  # it has a context, which it does not use to ask

    # --- registering ---------------------------------------------------------------------------------------------

    def publish(self, catalog: SkillCatalog) -> None:
        """Register what is new, and remove what is gone. Listeners are told if anything has changed.

        Raises:
            ValueError: If the server has a resource of its own with one of the URIs.
        """
        if catalog is self._published:
            return
        wanted = {uri: self._told(catalog, uri) for uri in (*catalog.files, *catalog.dynamic)}
        own, listed, updated = self._registered, False, []
        for uri in own.keys() - wanted.keys():
            self._remove(uri)
            listed = True
        for uri, told in wanted.items():
            before = own.get(uri)
            if before == told:
                continue
            if before is not None:
                updated.append(uri)
            if before is None or before[:-1] != told[:-1]:
                listed = True
                # A file that the program has disabled stays so.
                enabled = before is None or self._registry.get(uri) is not None
                if before is not None:
                    self._remove(uri)
                self._registry.add(self._resource(catalog, uri, told), enabled)
            own[uri] = told
        self._published = catalog
        if listed:
            self.settings.announce(RESOURCES_CHANGED)
        for uri in updated:
            self.settings.announce(RESOURCE_UPDATED, uri)

    def _remove(self, uri: str) -> None:
        del self._registered[uri]
        with contextlib.suppress(KeyError):  # the program may have removed it
            self._registry.remove(uri)

    @staticmethod
    def _told(catalog: SkillCatalog, uri: str) -> tuple[Any, ...]:
        """Return what the resource of a file says, and last the digest of its content."""
        file = catalog.files.get(uri)
        if file is None:
            fields = catalog.dynamic[uri].fields
            return fields["name"], fields["description"], "text/markdown", None, ""
        return file.name, file.description, file.mime_type, len(file.data), file.resource["digest"]

    def _resource(self, catalog: SkillCatalog, uri: str, told: tuple[Any, ...]) -> RegisteredResource:
        name, description, mime_type, size, _ = told
        definition = Resource(uri=uri, name=name, description=description, mime_type=mime_type, size=size)
        dynamic = catalog.dynamic.get(uri)
        function = self._function if dynamic is None else self._dynamic(uri, dynamic.function)
        return RegisteredResource(definition, function, None, self._cache, filtered=self.settings.visible is not None)

    # --- reading -------------------------------------------------------------------------------------------------

    async def _read(self, context: Context[Any]) -> TextResourceContents | BlobResourceContents:
        """Return the bytes that were hashed."""
        uri = context.params["uri"]
        file = self._source.catalog.files.get(uri)
        if file is None:  # it was removed a moment ago
            raise ResourceNotFound(uri)
        if file.is_text:
            return TextResourceContents(uri=uri, mime_type=file.mime_type, text=file.data.decode())
        return BlobResourceContents(uri=uri, mime_type=file.mime_type, blob=base64.b64encode(file.data).decode())

    def _dynamic(self, uri: str, function: Callable[..., Any]) -> Function:
        own = read_function(function, self.settings.surroundings, f"dynamic skill {uri!r}")

        async def read(context: Context[Any]) -> TextResourceContents:
            skill = self._source.catalog.dynamic[uri]
            text = await dynamic_text(skill, own.bind({}, context))
            return TextResourceContents(uri=uri, mime_type="text/markdown", text=text)

        return attrs.evolve(read_function(read, self.settings.surroundings, uri), may_ask=own.may_ask)

    # --- listing -------------------------------------------------------------------------------------------------

    def resource(self, uri: str) -> RegisteredResource | None:
        """Return the resource of a file; None if the server does not offer it."""
        return self._registry.get(uri)

    def shows(self, entry: RegisteredResource | None, context: ServedContext[Any]) -> bool:
        """Return whether a resource exists for the client of a request."""
        return entry is not None and (not entry.filtered or self.settings.shows(entry, context))

    def own(self, value: Any, context: ServedContext[Any]) -> Any:
        """Return a part of a result that middleware may change without changing the catalog."""
        return copy.deepcopy(value) if self.settings.around(context.method) else value


def _last(uri: str) -> str:
    return unquote(uri.rpartition("/")[2])
