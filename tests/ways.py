"""Ways to reach a server that runs in this process, over a full-duplex connection."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import hypercorn.trio
import pytest
from hypercorn.config import Config

from trio_mcp import Link, Server, tcp_client, unix_client, websocket_client
from trio_mcp._nursery import background_nursery
from trio_mcp.http.server.options import RUNNERS

__all__ = ["APART", "MOUNTED", "WAYS", "Way", "each_way", "link_to"]

Way = Callable[[Server], contextlib.AbstractAsyncContextManager[str]]
"""Serves, and gives the URL."""


@contextlib.asynccontextmanager
async def over_websocket(server: Server) -> AsyncIterator[str]:
    """Serve WebSocket alone."""
    async with background_nursery() as nursery:
        yield await nursery.start(partial(server.serve_websocket, port=0))


@contextlib.asynccontextmanager
async def beside_http(server: Server, runner: str) -> AsyncIterator[str]:
    """Serve WebSocket and Streamable HTTP at one URL."""
    async with background_nursery() as nursery:
        url = await nursery.start(partial(server.serve_http, port=0, websocket_path="/mcp", runner=runner))
        yield url.replace("http:", "ws:")


@contextlib.asynccontextmanager
async def in_asgi_server(server: Server) -> AsyncIterator[str]:
    """Serve WebSocket as an application in hypercorn as it is, without our own runner."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.websocket_max_message_size = 2**23  # the application's own limit is smaller
    async with server.asgi_app(path=None, websocket_path="/mcp") as app, background_nursery() as nursery:
        (address,) = await nursery.start(partial(hypercorn.trio.serve, app, config))
        yield f"{address.replace('http:', 'ws:')}/mcp"


@contextlib.asynccontextmanager
async def over_tcp(server: Server) -> AsyncIterator[str]:
    """Serve on a TCP port."""
    async with background_nursery() as nursery:
        yield await nursery.start(partial(server.serve_tcp, port=0))


@contextlib.asynccontextmanager
async def over_unix(server: Server) -> AsyncIterator[str]:
    """Serve on a Unix socket."""
    with tempfile.TemporaryDirectory() as folder:
        async with background_nursery() as nursery:
            yield await nursery.start(partial(server.serve_unix, f"{folder}/socket"))


MOUNTED: dict[str, Way] = {
    **{f"WebSocket beside HTTP on {name}": partial(beside_http, runner=name) for name in RUNNERS},
    "WebSocket in an ASGI server": in_asgi_server,
}
WAYS: dict[str, Way] = {"WebSocket": over_websocket, **MOUNTED, "TCP": over_tcp, "Unix": over_unix}


APART = {"Unix", *MOUNTED}
"""Those whose code the others run through, too: they are tried with ``-m again``."""


def each_way(*ways: str) -> list[Any]:
    """Return these ways as parameters, or all, some of them apart."""
    return [pytest.param(way, marks=[pytest.mark.again] if way in APART else []) for way in ways or WAYS]


def link_to(url: str) -> contextlib.AbstractAsyncContextManager[Link]:
    """Connect to the URL of a way."""
    clients = {"ws": websocket_client, "tcp": tcp_client, "unix": unix_client}
    return clients[url.partition(":")[0]](url)
