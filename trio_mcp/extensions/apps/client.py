"""The client's side of apps: the declaration, and what a host loads: tools, and the page of a tool.

See SEP-1865, Capability Negotiation and Resource Discovery.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs
import trio

from trio_mcp.client.client import Client
from trio_mcp.client.extension import ClientExtension
from trio_mcp.client.listing import is_for
from trio_mcp.errors import McpError
from trio_mcp.extensions.apps.names import IDENTIFIER, MIME_TYPE, SCHEME, AppPageError
from trio_mcp.extensions.apps.policy import PagePolicy
from trio_mcp.types.resources import BlobResourceContents, ResourceContents, TextResourceContents
from trio_mcp.types.tools import Tool

__all__ = ["AppsClientSide", "LoadedPage", "ServerTools", "load_page"]

FRESH: Final = 1.0
"""How many seconds a list of tools is used before the server is asked again (arbitrary): a page may call tools often,
but a tool that is no longer for pages must soon be refused."""


class AppsClientSide(ClientExtension):
    """The client's side of the extension."""

    identifier = IDENTIFIER

    def settings(self, revision: str) -> Mapping[str, Any]:
        return {"mimeTypes": [MIME_TYPE]}


class ServerTools:
    """The tools of the server behind one client, listed again when they may have changed.

    Args:
        client: The client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tools: dict[str, Tool] = {}
        self._until = -math.inf
        self._lock = trio.Lock()

    async def get(self, name: str) -> Tool | None:
        """Return the tool with a name, as its server describes it; None if the server has no such tool.

        Raises:
            TrioMcpError: If the tools can't be listed.
        """
        # One listing serves all calls that wait for it.
        async with self._lock:
            if trio.current_time() >= self._until:
                tools: dict[str, Tool] = {}
                async for tool in self._client.iter_tools():
                    # Of two tools with one name, the one that is not for pages counts.
                    if tool.name not in tools or not is_for(tool, "app"):
                        tools[tool.name] = tool
                self._tools, self._until = tools, trio.current_time() + FRESH
        return self._tools.get(name)


@attrs.frozen
class LoadedPage:
    """The page of a tool.

    Attributes:
        tool: The tool, as its server describes it.
        uri: The URI of the page.
        html: Its text.
        policy: What it is allowed.
    """

    tool: Tool
    uri: str
    html: str
    policy: PagePolicy


async def load_page(
    client: Client,
    tools: ServerTools,
    name: str,
    max_html: int,
    allow: Callable[[str], bool],
    grant: Iterable[str],
) -> LoadedPage:
    """Load the page that a tool names.

    Args:
        client: The client of the tool's server.
        tools: The tools of that server.
        name: The tool's own name.
        max_html: The maximum size of the page, in bytes.
        allow: Returns whether the host allows an origin.
        grant: The permissions that the host grants.

    Raises:
        AppPageError: If there is no such tool, it has no page, or its page can't be shown.
        TrioMcpError: If the server can't be asked.
    """
    tool = await tools.get(name)
    if tool is None:
        raise AppPageError(f"the server has no tool {name!r}")
    uri = _page_of(tool)
    try:
        # "Host MUST use `resources/read` to fetch the referenced resource URI" (Resource Discovery).
        result = await client.read_resource(uri)
    except McpError as exc:
        raise AppPageError(f"the page {uri!r} of the tool {name!r} can't be read: {exc}") from exc
    contents = next((each for each in result.contents if each.uri == uri), None)
    if contents is None:
        raise AppPageError(f"the server's contents for the page {uri!r} are those of another resource")
    if contents.mime_type != MIME_TYPE:
        raise AppPageError(f"the page {uri!r} has the type {contents.mime_type!r}, and must have {MIME_TYPE!r}")
    html = _html(contents, max_html)
    declared = await _declared(client, contents)
    return LoadedPage(tool, uri, html, PagePolicy.of(uri, declared, allow, grant))


def _page_of(tool: Tool) -> str:
    meta = tool.meta or {}
    ui = meta.get("ui")
    uri = ui.get("resourceUri") if type(ui) is dict else None
    if uri is None:
        uri = meta.get("ui/resourceUri")  # the deprecated form
    if uri is None:
        raise AppPageError(f"the tool {tool.name!r} has no page: call it with Client.call_tool")
    if type(uri) is not str or not uri.startswith(SCHEME):
        raise AppPageError(f"the tool {tool.name!r} names the page {uri!r:.200}, which is not a {SCHEME} URI")
    return uri


def _html(contents: ResourceContents, max_html: int) -> str:
    if isinstance(contents, TextResourceContents):
        html = contents.text
        size = len(html.encode("utf-8", "replace"))
    else:
        assert isinstance(contents, BlobResourceContents)
        try:
            data = base64.b64decode(contents.blob, validate=True)
            html = data.decode()
        except (binascii.Error, ValueError) as exc:
            raise AppPageError(f"the page {contents.uri!r} is not UTF-8 in Base64: {exc}") from None
        size = len(data)
    if size > max_html:
        raise AppPageError(f"the page {contents.uri!r} has {size} bytes; max_html={max_html} is the limit")
    return html


async def _declared(client: Client, contents: ResourceContents) -> dict[str, Any]:
    """Return the ``_meta.ui`` of a page: that of its contents, or else that of its entry in the list (draft)."""
    found = _ui(contents.meta)
    if found is None:
        # A server need not list its pages, nor anything else: a page without metadata gets the strictest policy.
        with contextlib.suppress(McpError):
            async for resource in client.iter_resources():
                if resource.uri == contents.uri and found is None:
                    found = _ui(resource.meta)
    return found or {}


def _ui(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    ui = None if meta is None else meta.get("ui")
    return ui if type(ui) is dict else None
