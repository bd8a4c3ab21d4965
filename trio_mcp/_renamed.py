"""Names from FastMCP and the official SDK (`mcp`) that newcomers may write, and their counterparts in this library.

Keywords have their own table, in `_keywords`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

__all__ = ["ATTRIBUTES", "NAMES", "refuse_attributes", "refused_import"]

_SERVER = "write `from trio_mcp import Server`"
_URL = "write Client('https://…/mcp'), or HttpServerParameters(…) with headers"
_PROCESS = "write Client(StdioServerParameters('python', ['server.py']))"
_CONTEXT = "declare a parameter `ctx: Context` in the function"

NAMES: Final = {
    "FastMCP": _SERVER,
    "MCPServer": _SERVER,
    "ClientSessionGroup": "write ClientGroup",
    "MCPError": "write McpError",
    "create_proxy": "write ProxyServer(target)",
    "FastMCPProxy": "write ProxyServer(target)",
    "streamablehttp_client": "write Client('https://…/mcp'); trio_mcp.low_level has streamable_http_client",
    "StreamableHttpTransport": _URL,
    "SSETransport": _URL,
    "StdioTransport": _PROCESS,
    "PythonStdioTransport": _PROCESS,
    "NodeStdioTransport": _PROCESS,
    "FastMCPTransport": "write Client(server)",
    "create_connected_server_and_client_session": "write Client(server)",
    "get_context": _CONTEXT,
    "CurrentContext": _CONTEXT,
    "get_http_headers": "declare a parameter `ctx: Context` in the function, and read ctx.headers",
    "AcceptedElicitation": "write Accepted",
    "DeclinedElicitation": "write Declined",
    "CancelledElicitation": "write Cancelled",
    "ToolManager": "write server.add_tool(function)",
    "NotificationOptions": "the server declares its capabilities by itself",
    "InitializationOptions": "write server.run(), which negotiates by itself",
}
"""For each name that newcomers may try to import: what to write instead."""

_REGISTER = "register functions with @server.tool, @server.resource and @server.prompt"
_ASK = f"{_REGISTER}; to ask a server: async with Client(server) as client: await client."
_APP = "write server.asgi_app()"
_STATE = (
    "ctx.update_user_state keeps data for the user, and ctx.session_state is a dict for the data of a session, in the"
    " legacy era"
)

ATTRIBUTES: Final = {
    "BaseServer": {
        "call_tool": f"{_ASK}call_tool(name, arguments)",
        **{
            each: f"{_ASK}{each}()"
            for each in ("list_tools", "list_resources", "list_prompts", "list_resource_templates")
        },
        "read_resource": f"{_ASK}read_resource(uri)",
        "get_prompt": f"{_ASK}get_prompt(name, arguments)",
        **{f"get_{each}": f"{_ASK}list_{each}()" for each in ("tools", "resources", "prompts")},
        **dict.fromkeys(("http_app", "sse_app", "streamable_http_app", "session_manager"), _APP),
        "custom_route": "mount server.asgi_app() in an application that has the route",
        "run_async": "write server.serve_stdio() or server.serve_http()",
        "run_stdio_async": "write server.serve_stdio()",
        "run_http_async": "write server.serve_http()",
        "run_streamable_http_async": "write server.serve_http()",
        "run_sse_async": "write server.serve_sse()",
        "import_server": "write server.mount(other, prefix=…)",
        "as_proxy": "write ProxyServer(target)",
        "add_middleware": "write Server(middleware=[…])",
        "get_context": _CONTEXT,
        "request_context": _CONTEXT,
        "create_initialization_options": "write server.run(), which negotiates by itself",
        "resource_template": "write @server.resource('x://{name}')",
    },
    "Context": {
        **dict.fromkeys(("set_state", "get_state", "delete_state"), _STATE),
        "request_context": "the context itself has ctx.meta, ctx.request_id and ctx.state",
        "lifespan_context": "write ctx.state",
        "fastmcp": "the function can use the variable to which its server is assigned",
        "read_resource": "call the resource's function",
        "list_resources": "the function can use the variable to which its server is assigned",
        "get_http_request": "write ctx.headers, or ctx.transport_metadata",
        "client_id": "write ctx.principal",
        "session_id": _STATE,
        "request_state": "write ctx.input_state",
        "enable_components": "write Server(visible=…)",
        "disable_components": "write Server(visible=…)",
    },
    "Client": {
        "initialize": "async with Client(…) connects and negotiates",
        "send_ping": "write client.ping()",
        "call_tool_mcp": "write client.call_tool(name, arguments)",
        **{f"{each}_mcp": f"write client.{each}()" for each in ("list_tools", "list_resources", "list_prompts")},
        "close": "leave the `async with` block, or write client.aclose()",
        "is_connected": "a client is connected inside its `async with` block; see client.statistics()",
        "send_roots_list_changed": "write client.set_roots(…)",
        "set_logging_level": "write client.set_log_level(level)",
    },
}
"""For each class: attributes that newcomers expect, and what to write instead."""


def refused_import(module: str, name: str, find: Callable[[str], str | None]) -> ImportError | None:
    """Return the error for importing a name that a module of this package does not have, if there is advice to give.

    The error is an ImportError because `from trio_mcp import FastMCP` would drop the text of an AttributeError.

    Args:
        module: The module's name.
        name: The missing name.
        find: Returns the module that exports a public name, if any.
    """
    advice = NAMES.get(name)
    if advice is None and (home := find(name)) is not None:
        advice = f"write `from {home} import {name}`"
    if advice is None:
        return None
    return ImportError(f"cannot import name {name!r} from {module!r}: {advice}", name=module)


class _Refused:
    """A descriptor for an attribute that a class does not have; its AttributeError says what to write instead.

    A ``__getattr__`` of the class would make every access to its other attributes slower.
    """

    def __init__(self, name: str, advice: str) -> None:
        self._name = name
        self._advice = advice

    def __get__(self, instance: object, owner: type) -> Any:
        # The error does not get the object, because Python would then suggest a similar name, too.
        text = f"{owner.__name__!r} object has no attribute {self._name!r}: {self._advice}"
        raise AttributeError(text, name=self._name, obj=None)


def refuse_attributes(cls: type) -> None:
    """Make a class refuse the names that `ATTRIBUTES` lists for it; the AttributeError says what to write instead."""
    refused = ATTRIBUTES[cls.__name__]
    for name, advice in refused.items():
        assert not hasattr(cls, name), name
        setattr(cls, name, _Refused(name, advice))

    def __dir__(self: object) -> list[str]:
        # Completion offers none of the refused names, except for one that a subclass has as an attribute.
        return [name for name in object.__dir__(self) if name not in refused or hasattr(self, name)]

    cls.__dir__ = __dir__  # type: ignore[assignment]
