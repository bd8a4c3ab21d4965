"""`Client`: what people use to talk to a server."""

from __future__ import annotations

from trio_mcp.client.completion import CompletionMethods
from trio_mcp.client.listen import ListenMethods
from trio_mcp.client.logging import LoggingMethods
from trio_mcp.client.prompts import PromptMethods
from trio_mcp.client.resources import ResourceMethods
from trio_mcp.client.tools import ToolMethods

__all__ = ["Client"]


class Client(ToolMethods, ResourceMethods, PromptMethods, CompletionMethods, ListenMethods, LoggingMethods):
    """A client of one server. Use it as an async context manager; it can be entered once.

    Entering connects and negotiates. What is raised in the block leaves it as it is; the loss of the server ends the
    calls that wait for it, with the reason, never the block.

    Args:
        target: `StdioServerParameters`, a `Server` (served in memory), or a callable that gives an async context
            manager which yields a `Link`.
        mode: ``"auto"`` finds out which era the server speaks; ``"legacy"`` does the handshake; a revision does what
            that revision asks for, and accepts no other.
        client_info: What the client says of itself.
        extensions: The extensions of the protocol that the client declares, each with its settings:
            ``{"com.example/feature": {}}``.
        result_types: The values of ``resultType`` that those extensions add; a result of a type that the client does
            not know is an error.
        options: Limits, timeouts and hooks of the session.
        connect_timeout: Seconds for starting, connecting and negotiating together.
        probe_timeout: Seconds after which, in ``"auto"``, a silent server is taken for a legacy one.
        log_level: The least severe level of log messages that the server shall send; see `Client.set_log_level`. A
            server that sends none is not asked. None leaves it to a server of the handshake era what it sends;
            one of the modern era then sends nothing.
        on_log: Called, sync or async, with each `LoggingMessageNotificationParams` of the server.
        on_error: Called, sync or async, with what arrived and belongs to no request.
        on_message: Called, sync or async, with every `Notification` of the server.
        middleware: Each is ``async (call, call_next) -> result`` and surrounds every request, the first outermost.

    Raises:
        TypeError, ValueError: An argument is not what it should be.
    """
