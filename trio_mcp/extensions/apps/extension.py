"""`Apps`: the apps extension, for clients and servers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from trio_mcp._keywords import refuse_unknown

if TYPE_CHECKING:
    from trio_mcp.extensions.apps.client import AppsClientSide
    from trio_mcp.extensions.apps.pages import PageDetails
    from trio_mcp.extensions.apps.server import AppsOnServer

__all__ = ["Apps"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Apps:
    """The apps extension, ``io.modelcontextprotocol/ui``: a host shows a page of the server for the result of a tool.

    For a server, ``Server("clock", extensions=[apps])``: `page` adds the pages, and a tool names its page,
    ``@server.tool(app="ui://clock/face")``. For a host, ``Client(url, extensions=[Apps()])`` declares that it shows
    pages; `AppHost` does. Both eras have the extension. One object may be given to any number of clients and servers.
    """

    def __init__(self) -> None:
        self._client_side: AppsClientSide | None = None
        self._server_side: AppsOnServer | None = None

    # Each side is imported only when it is used: a client does not need the server's side, nor a server the client's.

    @property
    def client_side(self) -> AppsClientSide:
        """The client's side of the extension."""
        if self._client_side is None:
            from trio_mcp.extensions.apps.client import AppsClientSide

            self._client_side = AppsClientSide()
        return self._client_side

    @property
    def server_side(self) -> AppsOnServer:
        """The server's side of the extension."""
        if self._server_side is None:
            from trio_mcp.extensions.apps.server import AppsOnServer

            self._server_side = AppsOnServer()
        return self._server_side

    @overload
    def page(self, uri: str, **details: Unpack[PageDetails]) -> Callable[[FunctionT], FunctionT]: ...

    @overload
    def page(self, uri: str, *, path: str | os.PathLike[str], **details: Unpack[PageDetails]) -> None: ...

    def page(self, uri: str, *, path: str | os.PathLike[str] | None = None, **details: Any) -> Any:
        """Offer a page on all servers of this extension: ``@apps.page("ui://clock/face")``.

        The decorated function returns the HTML as a string or as bytes, and is returned unchanged. It may be sync or
        async, and may take the `Context`, as the function of a resource may. With ``path``, the page is a file, which
        is read each time, and nothing is decorated: ``apps.page("ui://clock/face", path="face.html")``.

        Args:
            uri: The page's URI, which begins with ``ui://``.
            path: The path of the file.
            details: Further details of the page: see `PageDetails`.

        Raises:
            TypeError: If a detail has the wrong type.
            ValueError: If the URI is invalid or taken, a detail is invalid, or there is no such file.
        """
        from trio_mcp.extensions.apps.pages import PageDetails, make_page

        refuse_unknown(Apps.page, details, PageDetails)
        if path is not None:
            self.server_side.add(make_page(uri, path, details))  # type: ignore[arg-type]
            return None

        def add(function: FunctionT) -> FunctionT:
            self.server_side.add(make_page(uri, function, details))  # type: ignore[arg-type]
            return function

        return add
