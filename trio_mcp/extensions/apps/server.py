"""Apps on a server: its pages, and the tools that name them (SEP-1865)."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp.extensions.apps.names import IDENTIFIER, MIME_TYPE
from trio_mcp.extensions.apps.pages import Page, check_page_uri
from trio_mcp.server.extensions import ExtensionRun, ServerExtension

if TYPE_CHECKING:
    from trio_mcp.server.features.tools import RegisteredTool
    from trio_mcp.types.tools import Tool

__all__ = ["AppsOnServer"]

AUDIENCES = ("model", "app")


class AppsOnServer(ServerExtension):
    """The server's side of the extension."""

    identifier = IDENTIFIER
    details = ("app", "visibility")

    def __init__(self) -> None:
        self._pages: dict[str, Page] = {}
        # A server that is no longer used must not be kept by its extension.
        self._servers: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, page: Page) -> None:
        """Add a page to all servers of the extension, those of now and later ones.

        Raises:
            ValueError: If the URI is taken.
        """
        if page.uri in self._pages:
            raise ValueError(f"page {page.uri!r} is already registered")
        for server in list(self._servers):
            _offer(page, server)
        self._pages[page.uri] = page

    def attach(self, server: Any) -> None:
        for page in self._pages.values():
            _offer(page, server)
        self._servers.add(server)

    def read_detail(self, name: str, value: Any, tool: Tool) -> Any:
        what = f"tool {tool.name!r}: {name}"
        return check_page_uri(value, what) if name == "app" else _checked_audiences(what, value)

    def tool_meta(self, declared: Mapping[str, Any]) -> Mapping[str, Any]:
        ui: dict[str, Any] = {}
        if "app" in declared:
            ui["resourceUri"] = declared["app"]
        if "visibility" in declared:
            ui["visibility"] = list(declared["visibility"])
        return {"ui": ui} if ui else {}

    @contextlib.asynccontextmanager
    async def lifespan(self, run: ExtensionRun) -> AsyncIterator[None]:
        await trio.lowlevel.checkpoint()
        # The pages are checked now and not when a tool is added, because a page may be added after its tool.
        for name in run.declaring("app"):
            tool = run.tool(name)
            assert tool is not None
            _check_page(name, tool.declared["app"], run)
            _check_content(name, tool)
        yield
        await trio.lowlevel.checkpoint()


def _offer(page: Page, server: Any) -> None:
    server.add_resource(page.uri, page.function, **page.details)


def _check_page(name: str, uri: str, run: ExtensionRun) -> None:
    """Refuse a tool whose page does not exist (SEP-1865, Resource Discovery: "Resource MUST exist on the server").

    Raises:
        ValueError: If there is no such page, or it has another type.
    """
    page = run.resources().registry.get(uri)
    if page is None:
        raise ValueError(
            f"the tool {name!r} has app={uri!r}, but there is no such page: add it with @apps.page({uri!r})"
        )
    if page.definition.mime_type != MIME_TYPE:
        raise ValueError(
            f"the tool {name!r} has app={uri!r}, but that resource has the type {page.definition.mime_type!r} and must "
            f"have {MIME_TYPE!r}: add it with @apps.page({uri!r})"
        )


def _check_content(name: str, tool: RegisteredTool) -> None:
    """Refuse a tool for the model that returns nothing.

    "Tools MUST return meaningful content array even when UI is available" (SEP-1865, Graceful Degradation). A tool that
    only pages call may return nothing.

    Raises:
        ValueError: If the return type of the function is None.
    """
    if tool.function.returns in (None, type(None)) and "model" in tool.declared.get("visibility", AUDIENCES):
        raise ValueError(
            f"the tool {name!r} has a page and returns None, so a model would learn nothing of the call: "
            'return a text that says what was done, or give the tool visibility=["app"]'
        )


def _checked_audiences(what: str, value: Any) -> tuple[str, ...]:
    """Return who may call a tool.

    Raises:
        TypeError: If the value is not a list of strings.
        ValueError: If it is empty, or names anyone else.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f'{what} must be a list such as ["app"], got {value!r}')
    audiences = tuple(dict.fromkeys(value))
    if not audiences or any(each not in AUDIENCES for each in audiences):
        raise ValueError(f"{what} must have some of {', '.join(map(repr, AUDIENCES))}, got {value!r}")
    return audiences
