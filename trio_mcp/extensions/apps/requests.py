"""Handles the requests of a view: a table of methods, each with its rules (SEP-1865, Communication Protocol)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

import trio
from pydantic import TypeAdapter, ValidationError

from trio_mcp._log import logger
from trio_mcp.client.client import Client
from trio_mcp.client.listing import is_for
from trio_mcp.convert import call_back
from trio_mcp.errors import McpError, RequestTimeout, TrioMcpError
from trio_mcp.extensions.apps.client import LoadedPage, ServerTools
from trio_mcp.extensions.apps.context import MODES, CurrentContext, DisplayMode
from trio_mcp.extensions.apps.names import REFUSED
from trio_mcp.extensions.apps.options import AppHostOptions
from trio_mcp.types.content import ContentBlock, EmbeddedResource, ResourceLink
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.notices import LoggingMessageNotificationParams
from trio_mcp.uri_templates import MAX_URI

__all__ = ["ViewRequests"]

Params = dict[str, Any]

MODALITIES: Final = ("text", "image", "audio", "resource", "resourceLink")
"""The kinds of content that hooks get, as a host declares them."""

_BLOCKS: Final = TypeAdapter(list[ContentBlock])
_FILES: Final = TypeAdapter(list[EmbeddedResource | ResourceLink])


class ViewRequests:
    """Handles what a view asks for, with the client of the page's server and no other.

    Args:
        client: The client.
        tools: The tools of its server.
        page: The page.
        options: The host's options, completed.
        context: The host's context.

    Attributes:
        methods: The handlers of the requests that a view may make, besides ``ui/initialize`` and ``ping``.
        notices: The handlers of its notifications, besides ``ui/notifications/initialized``.
    """

    def __init__(
        self,
        client: Client,
        tools: ServerTools,
        page: LoadedPage,
        options: AppHostOptions,
        context: CurrentContext,
    ) -> None:
        self._client = client
        self._tools = tools
        self._page = page
        self._options = options
        self._context = context
        self.methods: Mapping[str, Callable[[Params, tuple[str, ...] | None], Awaitable[Params | None]]] = {
            "tools/call": self._call_tool,
            "resources/read": self._read_resource,
            "ui/open-link": self._open_link,
            "ui/message": self._say,
            "ui/update-model-context": self._update_model_context,
            "ui/request-display-mode": self._set_display_mode,
            "ui/download-file": self._download,
        }
        self.notices: Mapping[str, Callable[[Params], Awaitable[object]]] = {
            "notifications/message": self._log,
            "ui/notifications/size-changed": self._resize,
        }

    def capabilities(self) -> dict[str, Any]:
        """Return the ``hostCapabilities``: what the host has hooks for, and what it grants the page."""
        options, policy = self._options, self._page.policy
        blocks = {each: dict[str, Any]() for each in MODALITIES}
        declared = {
            "serverTools": {},
            "serverResources": {},
            "openLinks": {} if options["on_open_link"] else None,
            "downloadFile": {} if options["on_download_file"] else None,
            "logging": {} if options["on_log"] else None,
            "message": blocks if options["on_message"] else None,
            "updateModelContext": blocks | {"structuredContent": {}} if options["on_model_context"] else None,
            "sandbox": {"csp": policy.csp.to_wire(), "permissions": {each: {} for each in policy.permissions}},
        }
        return {name: value for name, value in declared.items() if value is not None}

    def host_context(self) -> dict[str, Any]:
        """Return the ``hostContext`` for a view that initializes: the host's context, and the tool."""
        return self._context.value.to_wire() | {"toolInfo": {"tool": self._page.tool.to_wire()}}

    async def may_leave(self) -> bool:
        """Return whether the host agrees to tear down a view that asks for it."""
        hook = self._options["on_request_teardown"]
        return hook is not None and await call_back(hook) is not False

    async def handle(self, method: str, params: Params, modes: tuple[str, ...] | None) -> Params | None:
        """Handle a request of a view, and return its result.

        Args:
            method: One of ``methods``.
            params: Its parameters.
            modes: The display modes that the view has declared; None if it has declared none.

        Raises:
            McpError: To refuse the request.
        """
        # "Log View-initiated RPC calls for security review" (Auditable Communication).
        logger.info("the page %r asks for %r", self._page.uri, method)
        return await self.methods[method](params, modes)

    # --- what goes to the server ---------------------------------------------------------------------------------

    async def _call_tool(self, params: Params, _: object) -> Params:
        name, arguments = params.get("name"), params.get("arguments")
        if type(name) is not str or (arguments is not None and type(arguments) is not dict):
            raise McpError(INVALID_PARAMS, "tools/call needs a name, and arguments that are an object")
        with _relaying():
            tool = await self._tools.get(name)
            # "Host MUST reject `tools/call` requests from apps for tools that don't include "app"" (Visibility). A tool
            # of another server is unknown here, because only the page's own server is asked.
            if tool is None or not is_for(tool, "app"):
                raise McpError(INVALID_PARAMS, f"the page's server has no tool {name[:200]!r} for pages")
            result = await self._client.call_tool(name, arguments)
        return result.to_wire()

    async def _read_resource(self, params: Params, _: object) -> Params:
        uri = params.get("uri")
        if type(uri) is not str:
            raise McpError(INVALID_PARAMS, "resources/read needs a uri, which must be a string")
        with _relaying():
            return (await self._client.read_resource(uri)).to_wire()

    # --- what goes to the hooks ----------------------------------------------------------------------------------

    async def _open_link(self, params: Params, _: object) -> None:
        url = params.get("url")
        if not _is_web_address(url):
            raise McpError(REFUSED, "Invalid URL: only http and https URLs can be opened")
        await self._ask("on_open_link", "Link opening denied", url)

    async def _say(self, params: Params, _: object) -> None:
        content = params.get("content")
        # SEP-1865 has one block of content, the official SDK a list of them.
        blocks = content if type(content) is list else [content]
        if params.get("role") != "user":
            raise McpError(REFUSED, 'Invalid message format: the role must be "user"')
        await self._ask("on_message", "Message sending denied", _read(_BLOCKS, blocks, "Invalid message format"))

    async def _update_model_context(self, params: Params, _: object) -> None:
        content, structured = params.get("content"), params.get("structuredContent")
        if structured is not None and type(structured) is not dict:
            raise McpError(REFUSED, "Invalid content format: structuredContent must be an object")
        blocks = _read(_BLOCKS, [] if content is None else content, "Invalid content format")
        await self._ask("on_model_context", "Context update denied", blocks, structured)

    async def _download(self, params: Params, _: object) -> None:
        files = _read(_FILES, params.get("contents"), "Invalid contents")
        await self._ask("on_download_file", "Download denied", files)

    async def _set_display_mode(self, params: Params, modes: tuple[str, ...] | None) -> Params:
        mode = params.get("mode")
        if mode not in MODES:
            raise McpError(INVALID_PARAMS, f"mode must be one of {', '.join(MODES)}")
        context = self._context.value
        offered = context.available_display_modes or ()
        # "Host MUST return the resulting mode (whether updated or not)", and "MUST NOT switch the View to a display
        # mode that does not appear in its `appCapabilities.availableDisplayModes`, if set" (Display Modes).
        if self._options["on_display_mode"] is not None and mode in offered and (modes is None or mode in modes):
            with contextlib.suppress(McpError):
                chosen = await self._ask("on_display_mode", "Display mode denied", mode)
                result = mode if chosen is None or chosen is True else chosen
                if result in MODES and (modes is None or result in modes):
                    self._context.change({"display_mode": cast("DisplayMode", result)})
        else:
            await trio.lowlevel.checkpoint()
        return {"mode": self._context.value.display_mode or "inline"}

    async def _ask(self, name: str, denied: str, *arguments: object) -> Any:
        """Call a hook, and return what it returns.

        Raises:
            McpError: If there is no such hook, or it refuses.
        """
        hook = self._options[name]  # type: ignore[literal-required]
        if hook is None:
            await trio.lowlevel.checkpoint()
            raise McpError(REFUSED, denied)
        try:
            outcome = await call_back(hook, *arguments)
        except McpError:
            raise
        except Exception:
            logger.exception("the hook %s failed", name)
            raise McpError(REFUSED, denied) from None
        if outcome is False:
            raise McpError(REFUSED, denied)
        return outcome

    # --- notifications -------------------------------------------------------------------------------------------

    async def _log(self, params: Params) -> None:
        hook = self._options["on_log"]
        if hook is not None:
            with contextlib.suppress(ValidationError):
                await call_back(hook, LoggingMessageNotificationParams.from_wire(params))

    async def _resize(self, params: Params) -> None:
        hook = self._options["on_size_changed"]
        if hook is not None:
            await call_back(hook, _length(params.get("width")), _length(params.get("height")))


@contextlib.contextmanager
def _relaying() -> Iterator[None]:
    """Turn the errors of a client into errors for a view.

    Raises:
        McpError: The server's own error, as it is; or an error without details, because those are for the host.
    """
    try:
        yield
    except McpError as exc:
        raise McpError(exc.code, exc.message, exc.data) from None
    except RequestTimeout:
        raise McpError(REFUSED, "the server did not respond in time") from None
    except TrioMcpError as exc:
        logger.warning("a request of a page failed: %s", exc)
        raise McpError(REFUSED, "the server could not be asked, or its response can't be used") from None


def _is_web_address(url: object) -> bool:
    # Spaces and control characters are what browsers drop or rewrite, so the hook would see another URL than they open.
    if type(url) is not str or len(url) > MAX_URI or any(each <= " " or each in "\\\x7f" for each in url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def _read(adapter: TypeAdapter[Any], given: object, what: str) -> Any:
    """Return content as models.

    Raises:
        McpError: If it is malformed.
    """
    try:
        return adapter.validate_python(given, by_alias=True, by_name=False)
    except ValidationError:
        raise McpError(REFUSED, what) from None


def _length(value: object) -> float | None:
    """Return a length in pixels; None if the value can't be one."""
    # A comparison with NaN is false.
    return value if type(value) in (int, float) and 0 <= cast("float", value) < 1e9 else None  # type: ignore[return-value]
