"""Ways to reach a server that runs in this process, over a full-duplex connection."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from tests.websocket.ways import serving
from trio_mcp import Server
from trio_mcp._nursery import background_nursery
from trio_mcp.http.server.options import RUNNERS
from trio_mcp.low_level import Link, tcp_client, unix_client, websocket_client

__all__ = ["APART", "MOUNTED", "WAYS", "Way", "each_way", "link_to"]

Way = Callable[[Server], contextlib.AbstractAsyncContextManager[str]]
"""Serves, and gives the URL."""


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
    **{f"WebSocket beside HTTP on {name}": partial(serving, way=name) for name in RUNNERS},
    "WebSocket in an ASGI server": partial(serving, way="mounted"),
}
WAYS: dict[str, Way] = {"WebSocket": serving, **MOUNTED, "TCP": over_tcp, "Unix": over_unix}
APART = {"Unix", *MOUNTED}
"""Those whose code the others run through, too: they are tried with ``-m again``."""


def each_way(*ways: str) -> list[Any]:
    """Return these ways as parameters, or all, some of them apart."""
    return [pytest.param(way, marks=[pytest.mark.again] if way in APART else []) for way in ways or WAYS]


def link_to(url: str) -> contextlib.AbstractAsyncContextManager[Link]:
    """Connect to the URL of a way."""
    clients = {"ws": websocket_client, "tcp": tcp_client, "unix": unix_client}
    return clients[url.partition(":")[0]](url)
