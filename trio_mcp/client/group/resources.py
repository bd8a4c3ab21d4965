"""The resources of a group: each belongs to the server that lists it, or that has a template for it."""

from __future__ import annotations

from typing import Any

from trio_mcp.client.client import Client
from trio_mcp.client.group.listing import Catalog, GroupListing, Listed, about
from trio_mcp.errors import LocalProtocolError
from trio_mcp.session.requests import USE_SESSION, Limit
from trio_mcp.types.completion import CompleteResult, PromptReference, ResourceTemplateReference
from trio_mcp.types.resources import ReadResourceResult, Resource, ResourceTemplate
from trio_mcp.uri_templates import MAX_URI, UriTemplate

__all__ = ["GroupResources"]

MAX_MATCH_WORK = 1_000_000
"""Characters of a URI times characters of the templates of one server that it is matched against."""


class GroupResources(GroupListing):
    """The part of `ClientGroup` that lists and reads resources."""

    async def list_resources(self, *, timeout: Limit = USE_SESSION) -> Listed[Resource]:
        """Every resource of every server, all pages of it, from all servers at once.

        Args:
            timeout: Seconds to wait for each page.

        Returns:
            The resources by server, as their servers describe them, and the errors of servers that gave no list.

        When cancelled, nothing runs any more.
        """
        return await self._gather(lambda server, client: self._resources_of(server, client, timeout))

    async def list_resource_templates(self, *, timeout: Limit = USE_SESSION) -> Listed[ResourceTemplate]:
        """Every resource template of every server. As `list_resources`."""
        return await self._gather(lambda server, client: self._templates_of(server, client, timeout))

    async def _resources_of(self, server: str, client: Client, timeout: Limit = USE_SESSION) -> list[Resource]:
        found = [resource async for resource in client.iter_resources(timeout=timeout)]
        self._catalog(server).uris = frozenset(resource.uri for resource in found)
        return found

    async def _templates_of(self, server: str, client: Client, timeout: Limit = USE_SESSION) -> list[ResourceTemplate]:
        found = [template async for template in client.iter_resource_templates(timeout=timeout)]
        self._catalog(server).templates = tuple(template.uri_template for template in found)
        return found

    async def read_resource(self, uri: str, *, server: str | None = None, **options: Any) -> ReadResourceResult:
        """Read a resource.

        Args:
            uri: Its URI.
            server: Whose resource it is. None asks the server that lists it; if none does, the one that has a template
                which it matches. Servers that are not connected are not considered, unless they have listed it before.
            options: Those of `Client.read_resource`.

        Raises:
            TypeError: The URI is no string.
            LocalProtocolError: No server has it, or several do; the error names them.
            TransportError: Its server is not connected, or is lost.

        Further errors, which name the server, and cancellation as in `Client.read_resource`.
        """
        if not isinstance(uri, str):
            raise TypeError(f"a URI must be a string, got {uri!r}")
        if server is None:
            server = await self._server_of(uri)
        with about(server):
            return await (await self._client(server)).read_resource(uri, **options)

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str = "",
        *,
        server: str | None = None,
        **options: Any,
    ) -> CompleteResult:
        """Ask what an argument of a prompt, or a variable of a resource template, could be.

        Args:
            ref: Which prompt, by its name in the group, or which template.
            argument: The name of the argument.
            value: What has been typed of it.
            server: Whose template it is; None asks the server that lists it.
            options: Those of `Client.complete`.

        Raises:
            LocalProtocolError: No server has it, or several do; the error names them.

        Further errors, which name the server, and cancellation as in `Client.complete`.
        """
        if isinstance(ref, PromptReference):
            server, name = self.split(ref.name)
            ref = ref.model_copy(update={"name": name})
        elif server is None and isinstance(ref, ResourceTemplateReference):
            server = await self._server_of(ref.uri)
        if server is None:
            raise TypeError(f"ref must be a PromptReference or a ResourceTemplateReference, got {type(ref).__name__}")
        with about(server):
            return await (await self._client(server)).complete(ref, argument, value, **options)

    async def _server_of(self, uri: str) -> str:
        """The one server that has a resource or a template of this URI, or a template for it."""
        connected = list(self.clients)
        unknown = [server for server in connected if not _is_complete(self._catalogs.get(server))]
        await self._learn(unknown)
        found = self._having(uri)
        if not found and unknown != connected:
            await self._learn(connected)  # what was learned before may have changed
            found = self._having(uri)
        if len(found) == 1:
            return found[0]
        if found:
            names = " and ".join(map(repr, found))
            raise LocalProtocolError(f"the servers {names} all have {uri!r}; say which with server={found[0]!r}")
        away = [repr(server) for server in self._members if server not in self.clients]
        asked = f"; not connected, so not asked: {', '.join(away)}" if away else ""
        raise LocalProtocolError(
            f"no server of the group lists {uri!r} or has a template that it matches{asked}; "
            "if it is not listed, say whose it is with server=..."
        )

    def _having(self, uri: str) -> list[str]:
        """The servers that list a URI; if there is none, those with a template that it matches."""
        known = {server: self._catalogs[server] for server in self._members if server in self._catalogs}
        listing = [name for name, each in known.items() if uri in (each.uris or ()) or uri in (each.templates or ())]
        return listing or [name for name, each in known.items() if has_template(uri, each.templates or ())]

    async def _learn(self, servers: list[str]) -> None:
        async def ask(server: str, client: Client) -> list[None]:
            try:
                await self._resources_of(server, client)
                await self._templates_of(server, client)
            except Exception:
                # It has been asked. What it did not tell is asked for again when nothing else is found.
                catalog = self._catalog(server)
                catalog.uris, catalog.templates = catalog.uris or frozenset(), catalog.templates or ()
                raise
            return []

        await self._gather(ask, servers)


def _is_complete(catalog: Catalog | None) -> bool:
    return catalog is not None and catalog.uris is not None and catalog.templates is not None


def has_template(uri: str, templates: tuple[str, ...]) -> bool:
    """Whether a URI matches one of a server's templates. They are the server's, so the work is bounded."""
    work = 0
    for text in templates:
        if len(uri) > MAX_URI or not uri.startswith(text.partition("{")[0]):
            continue
        work += len(text) * len(uri)
        if work > MAX_MATCH_WORK:
            return False
        try:
            if UriTemplate(text).match(uri) is not None:
                return True
        except ValueError:
            pass  # no template, or one whose expansions can't be told from others
    return False
