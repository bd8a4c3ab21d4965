"""Registers, lists, reads and watches resources, by URI or URI template (`server/resources`)."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

import trio
from pydantic_core import to_jsonable_python

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_count
from trio_mcp.eras.rules import rules_of
from trio_mcp.errors import McpError, TrioMcpError
from trio_mcp.server.changes import RESOURCE_UPDATED, RESOURCES_CHANGED
from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.caching import MAX_TTL, CacheHint, checked_hint
from trio_mcp.server.features.feature import (
    NO_SCOPES,
    Entry,
    EntryKind,
    FeatureSettings,
    Handler,
    Needs,
    described,
    held,
    name_of,
)
from trio_mcp.server.features.registry import Registry
from trio_mcp.server.functions.function import Call, Function, InvalidArguments, read_function, single
from trio_mcp.server.input.interactive import run_interactive
from trio_mcp.server.input.options import Asked
from trio_mcp.server.media import MEDIA, contents_of
from trio_mcp.server.revisions import wire_for
from trio_mcp.types._base import WireModel
from trio_mcp.types.bases import Annotations
from trio_mcp.types.common import Icon
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from trio_mcp.types.resources import (
    BlobResourceContents,
    ReadResourceResult,
    Resource,
    ResourceContents,
    ResourceTemplate,
    TextResourceContents,
)
from trio_mcp.uri_templates import MAX_URI, UriTemplate, check_uri

__all__ = ["RegisteredResource", "ResourceDetails", "ResourceFeature", "ResourceNotFound", "read_uri", "safe_join"]


class ResourceNotFound(TrioMcpError):
    """Raised by a resource's function to tell the client that there is no resource with this URI."""


class ContentsError(Exception):
    """A resource's function returned something that can't be sent as contents: a fault in the server."""


class ResourceDetails(TypedDict, total=False):
    """The optional details of a resource.

    Attributes:
        name: The resource's name; the function's own by default.
        title: The resource's name for people.
        description: A description of the resource; the docstring by default.
        mime_type: The type of the contents; by default ``application/json`` for values sent as JSON.
        size: The size of the contents in bytes; not for templates.
        annotations: Hints about the intended audience and the importance of the resource.
        icons: Icons, each an https: or data: URI.
        tags: As in `ToolDetails`.
        enabled: As in `ToolDetails`.
        scopes: As in `ToolDetails`; subscriptions and completions of a template's variables need the scopes, too.
        meta: The resource's ``_meta``; a key has the form ``com.example/name``.
        cache: How long clients may cache the contents, and for whom; the server's ``cache_hints`` by default. The
            ``ttl_ms`` or ``cache_scope`` of a returned `types.ReadResourceResult` takes precedence.
        park_input: As in `ToolDetails`.
    """

    name: str | None
    title: str | None
    description: str | None
    mime_type: str | None
    size: int | None
    annotations: Annotations | Mapping[str, Any] | None
    icons: Iterable[Icon] | None
    tags: Iterable[str] | None
    enabled: bool
    scopes: Iterable[str] | None
    meta: Mapping[str, Any] | None
    cache: CacheHint | None
    park_input: bool


@attrs.frozen
class RegisteredResource(Entry[Resource | ResourceTemplate]):
    """A registered resource or resource template of a server.

    Attributes:
        template: The template that matches the URIs; None for a single resource.
        cache: The resource's own cache hint; None to use the server's.
    """

    template: UriTemplate | None
    cache: CacheHint | None

    @property
    def name(self) -> str:
        """The key in the registry: the URI, or the URI template."""
        return self.definition.uri if isinstance(self.definition, Resource) else self.definition.uri_template

    @property
    def kind(self) -> EntryKind:
        return "resource" if self.template is None else "template"

    def bind(self, uri: str, context: ServedContext[Any] | None) -> Call | None:
        """Bind the variables of a URI to the function; None if the URI does not match."""
        values: dict[str, Any] | None = {} if self.template is None else self.template.match(uri)
        try:
            return None if values is None else self.function.bind(values, context)
        except InvalidArguments:
            return None  # the type hints reject a value: if `id` is an int, `users://{id}` does not match `users://x`


class ResourceFeature:
    """The resources of a server, and the handlers of the methods that list, read and watch them.

    Attributes:
        registry: The single resources, by URI.
        templates: The templates of resources, by URI template.
    """

    def __init__(self, settings: FeatureSettings) -> None:
        self.registry: Registry[RegisteredResource] = Registry("resource")
        self.templates: Registry[RegisteredResource] = Registry("resource template")
        self.methods: dict[str, Handler] = {
            "resources/list": functools.partial(self._list, self.registry, "resources"),
            "resources/templates/list": functools.partial(self._list, self.templates, "resourceTemplates"),
            "resources/read": self._read,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        self.needs: Mapping[str, Needs] = {
            "resources/read": self._needed,
            "resources/subscribe": self._needed,
            "subscriptions/listen": self._needed_to_listen,
        }
        self._settings = settings
        self._required = False

    def require(self) -> None:
        """Declare the capability even before there is a resource, as an extension may require it."""
        self._required = True

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities declared to a client of this revision."""
        return {"resources": {"listChanged": True, "subscribe": True}} if self._offered else {}

    @property
    def _offered(self) -> bool:
        return self._required or self.registry.used or self.templates.used

    def add(self, uri: str, function: Callable[..., Any], **details: Unpack[ResourceDetails]) -> None:
        """Add a resource or a template; see `Server.add_resource`."""
        resource = _make_resource(uri, function, self._settings, details)
        # There are two registries, because the protocol lists resources and templates separately; one notification
        # covers both lists.
        (self.registry if resource.template is None else self.templates).add(resource, details.get("enabled", True))
        self.notify_changed()

    def remove(self, uri: str) -> None:
        """Remove a resource or a template; see `Server.remove_resource`."""
        (self.templates if uri in self.templates else self.registry).remove(uri)
        self.notify_changed()

    def notify_changed(self) -> None:
        """Notify clients that the list has changed."""
        self._settings.announce_registration(RESOURCES_CHANGED)

    def notify_updated(self, uri: str) -> None:
        """Notify the subscribers of a URI; see `Server.notify_resource_updated`."""
        if not isinstance(uri, str):
            raise TypeError(f"uri must be a string, got {type(uri).__name__}")
        # The registry is not checked, as the resources of a template are known only by the URIs of their subscribers.
        self._settings.publish(RESOURCE_UPDATED, uri)

    def _needed(self, params: Mapping[str, Any]) -> frozenset[str]:
        uri = params.get("uri")
        # No context is needed, because the function is only bound, and never called.
        found = self._first(uri, None) if type(uri) is str else None
        return NO_SCOPES if found is None else found[0].told_scopes

    def _needed_to_listen(self, params: Mapping[str, Any]) -> frozenset[str]:
        wanted = params.get("notifications")
        uris = wanted.get("resourceSubscriptions") if type(wanted) is dict else None
        return NO_SCOPES.union(*(self._needed({"uri": uri}) for uri in uris)) if type(uris) is list else NO_SCOPES

    async def _list(
        self, registry: Registry[RegisteredResource], key: str, context: ServedContext[Any]
    ) -> dict[str, Any]:
        self._check_offered(context)
        return await self._settings.list_page(registry, key, context)

    async def _read(self, context: ServedContext[Any]) -> dict[str, Any]:
        uri = self._uri(context)
        # The arguments decide which template matches, so finding a resource already binds them.
        resource, call = self._find(uri, context)
        if resource.mounted is not None:
            return _for_this_client(resource, await resource.mounted.pass_on(context))
        revision = context.protocol_version
        try:
            if resource.function.may_ask:
                # The resource is looked up each time that the function runs: it may have been removed while the user
                # was thinking.
                value = await run_interactive(
                    context, lambda: self._find(uri, context)[1], park=resource.function.park_input
                )
                if type(value) is Asked:
                    return value.result
            else:
                value = await call()
            result = _read_result(value, uri, resource.definition.mime_type, revision)
        except Exception as exc:
            # A function that uses a nursery raises its ResourceNotFound inside a group.
            exc = single(exc)
            if isinstance(exc, ResourceNotFound):  # the exception's text is not for clients
                raise _not_found(uri, revision) from None
            raise self._settings.failure(
                context, f"the resource {resource.name!r} failed", exc, ContentsError
            ) from None
        if not context.rules.cache_hints:  # legacy revisions have no fields for cache hints
            return result
        hints = self._settings.cache_hints[context.method] if resource.cache is None else resource.cache.to_wire()
        return _for_this_client(resource, hints | result)  # the result's own fields take precedence

    def _find(self, uri: str, context: ServedContext[Any]) -> tuple[RegisteredResource, Call]:
        found = self._first(uri, context)
        if found is None or not self._offers(found[0], context):
            raise _not_found(uri, context.protocol_version)
        self._settings.check_scopes(found[0].scopes, context)
        return found

    def _first(self, uri: str, context: ServedContext[Any] | None) -> tuple[RegisteredResource, Call] | None:
        """Return the resource that a URI names, offered or not, and the call that reads it."""
        if len(uri) > MAX_URI:  # this bounds the work of matching templates
            return None
        # An exact URI takes precedence over all templates, even if its function raises ResourceNotFound. Likewise, no
        # later match replaces a first match that is disabled or hidden: a mounted server, to which the request may be
        # passed on, would read its own first match.
        exact = self.registry.find(uri)
        for each in self.templates.everything() if exact is None else [exact]:
            if (call := each.bind(uri, context)) is not None:
                return each, call
        return None

    def _offers(self, resource: RegisteredResource, context: ServedContext[Any]) -> bool:
        registry = self.registry if resource.template is None else self.templates
        # Unlike `FeatureSettings.shows`, this checks the registry, because `_first` also finds disabled entries.
        return registry.get(resource.name) is resource and (
            not resource.filtered or self._settings.shows(resource, context)
        )

    async def hidden(self, uris: Collection[str], context: ServedContext[Any]) -> set[str]:
        """Return those of the URIs that name something disabled, or hidden from this client.

        Raises:
            ScopesMissing: If one of the other URIs needs scopes that the request lacks.
        """
        # Most servers hide nothing, and then no URI has to be matched against templates.
        everything = (*self.registry.everything(), *self.templates.everything())
        if len(everything) == len(self.registry) + len(self.templates) and not any(
            each.filtered for each in everything
        ):
            return set()
        hidden = set()
        for uri in uris:
            # Every URI is matched against every template, which takes a while if there are many of both, so other tasks
            # may run in between.
            await trio.lowlevel.checkpoint()
            first = self._first(uri, context)
            if first is not None and not self._offers(first[0], context):
                hidden.add(uri)
            elif first is not None:
                self._settings.check_scopes(first[0].scopes, context)
        return hidden

    async def _subscribe(self, context: ServedContext[Any]) -> dict[str, Any]:
        uri = self._uri(context)
        self._find(uri, context)  # raises if the URI can't be read
        if not context.session.lasting:
            raise McpError(METHOD_NOT_FOUND, f"{context.method!r} needs a session: without one no update can be sent")
        context.session.watch(uri)  # the methods exist in the legacy era only, so there is a session
        return {}

    async def _unsubscribe(self, context: ServedContext[Any]) -> dict[str, Any]:
        context.session.unwatch(self._uri(context))
        return {}

    def _uri(self, context: ServedContext[Any]) -> str:
        self._check_offered(context)
        return read_uri(context)

    def _check_offered(self, context: ServedContext[Any]) -> None:
        if not self._offered:  # the capability was never declared
            raise McpError(METHOD_NOT_FOUND, f"unknown method {context.method!r}: this server has no resources")


def read_uri(context: ServedContext[Any]) -> str:
    """Return the URI that a request names.

    Raises:
        McpError: If the URI is missing or not a string (-32602).
    """
    uri = context.params.get("uri")
    if type(uri) is not str:
        raise McpError(INVALID_PARAMS, f"{context.method} needs a uri, which must be a string")
    return uri


def _for_this_client(resource: RegisteredResource, result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a read, marked as private if the resource may be hidden from other clients."""
    hidden = resource.filtered or resource.scopes
    return result | {"cacheScope": "private"} if hidden and "cacheScope" in result else result


def _not_found(uri: str, revision: str) -> McpError:
    """Make the error for an unknown URI; its code depends on the revision (`server/resources`, Error Handling)."""
    # The URI is cut to the maximum length that is looked up, so that the response can't repeat a longer one.
    return McpError(rules_of(revision).resource_not_found, "Resource not found", {"uri": uri[:MAX_URI]})


def _make_resource(
    uri: str, function: Callable[..., Any], settings: FeatureSettings, details: ResourceDetails
) -> RegisteredResource:
    name, size, cache = name_of("a resource", function, details), details.get("size"), details.get("cache")
    check_uri(uri, "the URI of a resource")
    what = f"resource {uri!r}"
    if not name or name == "<lambda>":
        raise ValueError(f"{what}: {name!r} is not a valid name; pass name=…")
    # Braces are not allowed in a URI (RFC 3986), so either brace means a template; `UriTemplate` refuses a lone one.
    template = UriTemplate(uri) if "{" in uri or "}" in uri else None
    if size is not None:
        check_count(f"{what}: size", size, least=0)
        if template is not None:
            raise ValueError(f"{what}: a resource template can't have a size")
    if cache is not None:
        checked_hint(cache, what)
    own = read_function(function, settings.surroundings, what, park_input=details.get("park_input", False))
    _check_agreement(own, template, what)
    annotations = details.get("annotations")
    told: dict[str, Any] = {  # the fields that resources and templates share
        "name": name,
        "mime_type": details.get("mime_type"),
        "annotations": Annotations(**annotations) if isinstance(annotations, Mapping) else annotations,
        **described(details, own, what),
    }
    definition = ResourceTemplate(uri_template=uri, **told) if template else Resource(uri=uri, size=size, **told)
    return RegisteredResource(definition, own, template, cache, **held(details, settings, what))


def _check_agreement(function: Function, template: UriTemplate | None, what: str) -> None:
    # Whether the variables and the parameters agree is checked at registration, because at run time a mismatch would
    # look like a URI that does not exist.
    parameters = set(function.input_schema.get("properties", ()))
    required = set(function.input_schema.get("required", ()))
    always = set() if template is None else {*template.variables, *filter(None, [template.exploded])}
    sometimes = set() if template is None else set(template.query_variables)
    problems = {
        "the function has no parameter for the variable": (always | sometimes) - parameters,
        "the URI has no variable for the parameter": parameters - always - sometimes,
        "a query variable may be omitted, so give a default to the parameter": sometimes & required,
        # The exploded variable may match nothing, so its parameter may have a default.
        "every URI has a value for the variable, so remove the default of the parameter": (always & parameters)
        - required
        - ({template.exploded} if template is not None else set()),
    }
    for problem, names in problems.items():
        if names:
            raise TypeError(f"{what}: {problem} {', '.join(map(repr, sorted(names)))}")


def _read_result(value: Any, uri: str, mime_type: str | None, revision: str) -> dict[str, Any]:
    """Return the wire form of a `ReadResourceResult` for a function's return value.

    Raises:
        ContentsError: If the value can't be sent as contents.
    """
    if isinstance(value, ReadResourceResult):
        if value.ttl_ms is not None and not 0 <= value.ttl_ms <= MAX_TTL * 1000:
            raise ContentsError(f"its ttl_ms must be from 0 to {MAX_TTL * 1000:.0f} (a year), got {value.ttl_ms}")
        return wire_for(value, revision)
    # A list is sent as several contents only if one of its items is a contents object or media; otherwise it is plain
    # data, and is sent as JSON.
    many = isinstance(value, (list, tuple)) and any(isinstance(item, (ResourceContents, *MEDIA)) for item in value)
    contents = [_contents(item, uri, mime_type) for item in (value if many else [value])]
    return {"contents": [wire_for(each, revision) for each in contents]}


def _contents(value: Any, uri: str, mime_type: str | None) -> ResourceContents:
    if isinstance(value, (TextResourceContents, BlobResourceContents)):
        return value
    if isinstance(value, MEDIA):
        return contents_of(value, uri)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return BlobResourceContents(uri=uri, mime_type=mime_type, blob=base64.b64encode(value).decode())
    if value is None:
        raise ContentsError("it returned None; return the contents, or raise ResourceNotFound")
    if not isinstance(value, str):
        mime_type = mime_type or "application/json"
        # `json.dumps` is used because it can refuse infinity and NaN, which JSON does not have.
        try:
            plain = value.to_wire() if isinstance(value, WireModel) else to_jsonable_python(value, by_alias=True)
            value = json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        except ValueError as exc:
            raise ContentsError(f"its return value can't be turned into JSON: {exc}") from exc
    # File names and captured output may contain lone surrogates, which UTF-8 can't encode.
    return TextResourceContents(uri=uri, mime_type=mime_type, text=value.encode("utf-8", "backslashreplace").decode())


def safe_join(directory: str | Path, path: str) -> Path:
    """Join a path matched by ``{+path}`` to a directory, without leaving the directory.

    This accesses the file system, so call it from a sync function or in a thread. It can't protect against a process
    that modifies the directory at the same time.

    Args:
        directory: The directory that the result must be in.
        path: A relative path, chosen by a client.

    Returns:
        The absolute path, without ``..`` and symbolic links. Nothing need exist there.

    Raises:
        ResourceNotFound: If the path is absolute, leads out of the directory (even through a symbolic link), or can't
            be examined.
    """
    root = Path(directory).resolve()
    try:
        # The path is resolved before it is checked below, because `..` and symbolic links may lead anywhere.
        joined = (root / path).resolve()
        # `resolve` ignores an error for a path that the system refuses, for example because it is too long; `lstat`
        # raises the error.
        joined.lstat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RuntimeError):  # the path is too long, has a NUL, or ends in a loop of links
        raise ResourceNotFound("no such path") from None
    if Path(path).is_absolute() or not joined.is_relative_to(root):
        raise ResourceNotFound("no such path")  # all failures have one message, to reveal nothing
    return joined
