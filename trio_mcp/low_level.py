"""Offers links, sessions and negotiated declarations to programs that need more control than `Client` and `Server`
give, and to transports of your own; and what hosts need that pin tools.

The messages themselves, and their codec, are in `trio_mcp.jsonrpc`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.client.group.pins import Owner as Owner, Pins as Pins, Unapproved as Unapproved
    from trio_mcp.client.targets import failover_client as failover_client
    from trio_mcp.eras.client_negotiation import ServerDeclaration as ServerDeclaration
    from trio_mcp.eras.server_negotiation import (
        ClientDeclaration as ClientDeclaration,
        ServerIdentity as ServerIdentity,
    )
    from trio_mcp.errors import ToolNotApproved as ToolNotApproved
    from trio_mcp.http.client.legacy.sse_client import sse_client as sse_client
    from trio_mcp.http.client.sending.sender import AsyncHttpClient as AsyncHttpClient
    from trio_mcp.http.client.streamable import streamable_http_client as streamable_http_client
    from trio_mcp.http.client.websocket import websocket_client as websocket_client
    from trio_mcp.jsonrpc.messages import SessionMessage as SessionMessage
    from trio_mcp.link import HeaderLink as HeaderLink, Link as Link
    from trio_mcp.memory import memory_link_pair as memory_link_pair
    from trio_mcp.session.client import ClientSession as ClientSession
    from trio_mcp.session.handlers import RequestContext as RequestContext
    from trio_mcp.session.limits import HandlerOptions as HandlerOptions
    from trio_mcp.session.server import ServerSession as ServerSession
    from trio_mcp.session.session import BaseSession as BaseSession
    from trio_mcp.sockets.client import tcp_client as tcp_client, unix_client as unix_client
    from trio_mcp.sockets.listening import PeerCredentials as PeerCredentials
    from trio_mcp.sockets.stream_link import stream_link as stream_link
    from trio_mcp.stdio.client import stdio_client as stdio_client
    from trio_mcp.stdio.server import stdio_server as stdio_server
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
