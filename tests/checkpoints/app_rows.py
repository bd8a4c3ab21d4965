"""The functions of `AppHost`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from tests.checkpoints.table import Check, call, cancelled_before, effect
from tests.extensions.apps.views import View, client_of, clock, shown
from tests.peer import settle
from trio_mcp._nursery import EnteredOnce
from trio_mcp.extensions import AppHost
from trio_mcp.low_level import Link, memory_link_pair


@call(EnteredOnce.__aenter__, "an AppHost")
@call(EnteredOnce.__aexit__, "an AppHost")
async def host_block(check: Check) -> None:
    for tool in ("show", "never"):
        async with client_of(clock()) as client, check.block(AppHost(client, tool)):
            pass


@call(AppHost.result, "at once, and when the tool returns")
async def result(check: Check) -> None:
    async with client_of(clock()) as client, AppHost(client, "show") as host:
        await check(host.result())
        await check(host.result())


@call(AppHost.teardown, "without a view, and with one")
async def teardown(check: Check) -> None:
    async with client_of(clock()) as client:
        async with AppHost(client, "show") as host:
            await check(host.teardown())
        async with shown(AppHost(client, "show")) as scene:
            await scene.view.greet()
            await check(scene.host.teardown())


@call(AppHost.serve, "a view that leaves at once")
async def serve(check: Check) -> None:
    async with client_of(clock()) as client, AppHost(client, "show") as host, linked() as (ours, view):
        await view.aclose()
        await check(host.serve(ours))


@contextlib.asynccontextmanager
async def linked() -> AsyncIterator[tuple[Link, View]]:
    async with memory_link_pair() as (ours, theirs), View(theirs) as view:
        yield ours, view


@effect(AppHost.result, "the tool goes on")
async def goes_on() -> None:
    async with client_of(clock()) as client, AppHost(client, "show") as host:
        await cancelled_before(host.result())
        assert (await host.result()).structured_content == {"hour": 3}


@effect(AppHost.teardown, "the view stays")
async def stays() -> None:
    async with client_of(clock()) as client, shown(AppHost(client, "show")) as scene:
        await scene.view.greet()
        await cancelled_before(scene.host.teardown())
        await settle()
        assert "resource-teardown" not in scene.view.methods


@effect(AppHost.serve, "the view hears nothing")
async def hears_nothing() -> None:
    async with client_of(clock()) as client, AppHost(client, "show") as host, linked() as (ours, view):
        await cancelled_before(host.serve(ours))
        await settle()
        assert view.heard == []
