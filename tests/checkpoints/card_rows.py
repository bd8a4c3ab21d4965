"""The function that reads a server card, from an endpoint that counts who asks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import trio

from tests.checkpoints.table import Check, call, cancelled_before, effect
from trio_mcp import Client, Server
from trio_mcp.server_card import CardSettings, discover_card


@contextlib.asynccontextmanager
async def published() -> AsyncIterator[tuple[str, list[str]]]:
    """Yield the URL of an endpoint with a card, and the paths that it was asked for."""
    asked: list[str] = []
    card = CardSettings(name="com.example/weather", url="https://weather.example.com/mcp", description="Weather.")
    async with Server("weather", version="1.0").asgi_app(card=card) as app, trio.open_nursery() as nursery:

        async def noting(scope: Any, receive: Any, send: Any) -> None:
            asked.append(scope["path"])
            await app(scope, receive, send)

        from trio_mcp.http.runner.serving import serve_asgi
        from trio_mcp.http.runner.settings import ServerLimits, settings_at

        limits = ServerLimits(10, 5, 5, 5)
        serve = partial(serve_asgi, noting, settings_at("127.0.0.1", 0), runner="h11", limits=limits)
        idle = trio.lowlevel.checkpoint
        urls = await nursery.start(partial(serve, shutdown=trio.sleep_forever, leaving=trio.sleep_forever, idle=idle))
        yield f"{urls[0]}/mcp", asked
        nursery.cancel_scope.cancel()


@call(discover_card, "from an endpoint that publishes one")
async def found(check: Check) -> None:
    async with published() as (url, _):
        await check(discover_card(url))


@call(Client.discover_card, "from an endpoint that publishes one")
async def found_by_the_client(check: Check) -> None:
    async with published() as (url, _):
        await check(Client.discover_card(url))


@effect(Client.discover_card, "nothing is asked")
async def nothing_is_asked_by_the_client() -> None:
    async with published() as (url, asked):
        await cancelled_before(Client.discover_card(url))
        assert asked == []


@effect(discover_card, "nothing is asked")
async def nothing_is_asked() -> None:
    async with published() as (url, asked):
        await cancelled_before(discover_card(url))
        assert asked == []
