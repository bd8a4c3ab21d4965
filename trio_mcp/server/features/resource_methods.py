"""The part of `Server` that offers resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from trio_mcp.eras.rules import rules_of
from trio_mcp.errors import McpError
from trio_mcp.server.changes import RESOURCE_UPDATED, RESOURCES_CHANGED
from trio_mcp.server.connection import Connection, Handler
from trio_mcp.server.context import Context
from trio_mcp.server.core import ServerCore
from trio_mcp.server.features.caching import CacheHint
from trio_mcp.server.features.pagination import Registry
from trio_mcp.server.features.resources import (
    ContentsError,
    RegisteredResource,
    ResourceNotFound,
    make_resource,
    read_result,
)
from trio_mcp.server.functions.handling import failure, list_page, run, single
from trio_mcp.server.functions.signature import Bound
from trio_mcp.server.input.interactive import run_interactive
from trio_mcp.server.input.rounds import Asked
from trio_mcp.types.common import Annotations, Icon
from trio_mcp.types.error_codes import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
)
from trio_mcp.uri_templates import MAX_URI

__all__ = ["ResourceMethods"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class ResourceMethods(ServerCore):
    """Registering, listing, reading and watching resources."""

    _offers_resources = False

    def _capabilities(self, revision: str) -> dict[str, Any]:
        capabilities = super()._capabilities(revision)
        if not self._offers_resources:
            return capabilities
        return {**capabilities, "resources": {"listChanged": True, "subscribe": True}}

    def _handlers(self) -> dict[str, Handler]:
        own = {
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        return {**super()._handlers(), **own}

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Annotations | Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        cache: CacheHint | None = None,
        park_input: bool = False,
    ) -> Callable[[FunctionT], FunctionT]:
        """Offer what a function returns as a resource; the function itself stays as it is.

        ``@server.resource("config://app")`` or ``@server.resource("files://{+path}")``; the arguments are those of
        `add_resource`.
        """
        if not isinstance(uri, str):
            raise TypeError('a resource needs a URI: write @server.resource("config://app")')

        def decorate(function: FunctionT) -> FunctionT:
            self.add_resource(
                uri,
                function,
                name=name,
                title=title,
                description=description,
                mime_type=mime_type,
                size=size,
                annotations=annotations,
                icons=icons,
                meta=meta,
                cache=cache,
                park_input=park_input,
            )
            return function

        return decorate

    def add_resource(
        self,
        uri: str,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Annotations | Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        cache: CacheHint | None = None,
        park_input: bool = False,
    ) -> None:
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
            name: The resource's name; the function's by default.
            title: Its name for people.
            description: What it is; the docstring by default.
            mime_type: The type of its contents; ``application/json`` by default for what becomes JSON.
            size: Of the contents, in bytes; not for templates.
            annotations: Hints about whom it is for.
            icons: Pictures of it, by https: or data: URI.
            meta: Its ``_meta``; a key has the form ``com.example/name``.
            cache: For how long a client may keep what it read, and for whom; by default as the server's
                ``cache_hints`` say. A returned `types.ReadResourceResult` with a ``ttl_ms`` or ``cache_scope`` counts
                more.

        Raises:
            TypeError: The function can't be offered, or does not agree with the template.
            ValueError: The URI is taken, or can't be one; or the template can't be matched.
        """
        resource = make_resource(
            uri,
            function,
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            size=size,
            annotations=annotations,
            icons=icons,
            meta=meta,
            cache=cache,
            park_input=park_input,
        )
        (self._resources if resource.template is None else self._resource_templates).add(resource)
        self._offers_resources = True
        self._announce(RESOURCES_CHANGED)

    def remove_resource(self, uri: str) -> None:
        """Stop offering a resource, or a template. Clients are told that the list has changed; reading goes on.

        Raises:
            KeyError: There is no such resource.
        """
        (self._resource_templates if uri in self._resource_templates else self._resources).remove(uri)
        self._announce(RESOURCES_CHANGED)

    def notify_resources_changed(self) -> None:
        """Tell the clients that the list of resources, or of templates, has changed; as `notify_tools_changed`."""
        self._announce(RESOURCES_CHANGED)

    def notify_resource_updated(self, uri: str) -> None:
        """Tell the clients that have subscribed to this very URI that the resource has changed.

        Returns at once, from any thread; several changes in one go may become one notification.
        """
        if not isinstance(uri, str):
            raise TypeError(f"uri must be a string, got {type(uri).__name__}")
        self._announce(RESOURCE_UPDATED, uri)

    # --- methods -------------------------------------------------------------------------------------------------

    async def _list_resources(self, server: ServerCore, context: Context[Any]) -> dict[str, Any]:
        return self._page(self._resources, "resources", context)

    async def _list_templates(self, server: ServerCore, context: Context[Any]) -> dict[str, Any]:
        return self._page(self._resource_templates, "resourceTemplates", context)

    def _page(self, registry: Registry[RegisteredResource], key: str, context: Context[Any]) -> dict[str, Any]:
        self._check_offered(context)
        return list_page(self, registry, key, context)

    async def _read_resource(self, server: ServerCore, context: Context[Any]) -> dict[str, Any]:
        uri = self._uri(context)
        resource, bound = self._find(uri, context)
        if resource.mounted is not None:
            return await resource.mounted.mount.pass_on(context)
        revision = context.protocol_version
        try:
            if resource.signature.may_ask:
                value = await run_interactive(self, context, lambda: self._find(uri, context)[1], resource.signature)
                if type(value) is Asked:
                    return value.result
            else:
                value = await run(bound, resource.signature.is_async, self)
            result = read_result(value, uri, resource.definition.mime_type, revision)
        except Exception as exc:
            exc = single(exc)
            if isinstance(exc, ResourceNotFound):
                raise _not_found(uri, revision) from None
            raise failure(self, f"the resource {resource.name!r} failed", exc, ContentsError) from None
        if not context.rules.cache_hints:
            return result
        hints = self.cache_hints[context.method] if resource.cache is None else resource.cache.to_wire()
        return hints | result

    def _find(self, uri: str, context: Context[Any]) -> tuple[RegisteredResource, Bound]:
        if len(uri) <= MAX_URI:
            single = self._resources.get(uri)
            templates = (template for _, template in self._resource_templates.numbered())
            for resource in templates if single is None else (single,):
                if (bound := resource.bind(uri, context)) is not None:
                    return resource, bound
        raise _not_found(uri, context.protocol_version)

    async def _subscribe(self, server: ServerCore, context: Context[Any]) -> dict[str, Any]:
        uri = self._uri(context)
        self._find(uri, context)
        connection, topic = _connection(context), (RESOURCE_UPDATED, uri)
        if not connection.lasting:
            raise McpError(METHOD_NOT_FOUND, f"no {context.method!r} here: without a session there is nobody to tell")
        if topic not in connection.listener.topics:
            connection.audience.check_room_for([topic])
            connection.hear(*topic)
        return {}

    async def _unsubscribe(self, server: ServerCore, context: Context[Any]) -> dict[str, Any]:
        connection, uri = _connection(context), self._uri(context)
        connection.serving.changes.remove(connection.listener, (RESOURCE_UPDATED, uri))
        return {}

    def _uri(self, context: Context[Any]) -> str:
        self._check_offered(context)
        uri = context.params.get("uri")
        if type(uri) is not str:
            raise McpError(INVALID_PARAMS, f"{context.method} needs a uri, which must be a string")
        return uri

    def _check_offered(self, context: Context[Any]) -> None:
        if not self._offers_resources:
            raise McpError(METHOD_NOT_FOUND, f"unknown method {context.method!r}: this server has no resources")


def _connection(context: Context[Any]) -> Connection:
    connection = context.connection
    assert isinstance(connection, Connection)  # what only the handshake era has
    return connection


def _not_found(uri: str, revision: str) -> McpError:
    """`server/resources`, section Error Handling: the code was another one until 2026-07-28."""
    return McpError(rules_of(revision).resource_not_found, "Resource not found", {"uri": uri[:MAX_URI]})
