"""`Client.listen` and the servers of this library: in both eras."""

from __future__ import annotations

import contextlib

import pytest
import trio

from tests.client.listening import LEGACY, MODERN
from tests.peer import settle
from trio_mcp import (
    Client,
    ResourceUpdated,
    Server,
    SessionOptions,
    ToolsListChanged,
    memory_link_pair,
)


def desk() -> Server:
    server = Server("desk")

    @server.resource("desk://calendar")
    async def calendar() -> str:
        return "tea at five"

    @server.tool
    async def change() -> None:
        server.notify_tools_changed()
        server.notify_resource_updated("desk://calendar")
        server.notify_resource_updated("desk://elsewhere")

    return server


@pytest.mark.parametrize("mode", [MODERN, LEGACY, "2024-11-05"])
async def test_each_listener_hears_of_what_it_asked_for(mode: str) -> None:
    faults: list[Exception] = []
    async with (
        Client(desk(), mode=mode, options=SessionOptions(on_error=faults.append)) as client,
        client.listen(tools_list_changed=True, resources=["desk://calendar"]) as everything,
    ):
        async with client.listen(tools_list_changed=True) as tools:
            await client.call_tool("change")
            heard = {await anext(everything) for _ in range(2)}
            assert heard == {ToolsListChanged(), ResourceUpdated("desk://calendar")}
            assert await anext(tools) == ToolsListChanged()
        await settle()
        assert everything.waiting == 0
    assert faults == []


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_leaving_ends_the_subscription_at_the_server(mode: str) -> None:
    server = desk()
    seen: list[object] = []
    async with Client(server, mode=mode, on_message=seen.append) as client:
        for _ in range(3):
            async with client.listen(tools_list_changed=True, resources=["desk://calendar"]):
                pass
        await settle()
        assert client.statistics().subscriptions == 0
        assert (server.statistics().listening, server.statistics().watched_resources) == (0, 0)
        seen.clear()
        server.notify_resource_updated("desk://calendar")
        await settle()
        assert seen == []


async def test_a_server_that_ends_by_itself_ends_the_loop() -> None:
    """It answers the subscription before it goes, so the loop ends without an error."""
    server = desk()
    events_seen: list[object] = []
    async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
        stop = trio.CancelScope()

        async def serve() -> None:
            with stop:
                await server.serve(theirs)

        nursery.start_soon(serve)

        async with (
            Client(lambda: contextlib.nullcontext(ours), mode=MODERN) as client,
            client.listen(tools_list_changed=True) as events,
        ):
            server.notify_tools_changed()
            events_seen.append(await anext(events))
            stop.cancel()
            events_seen += [event async for event in events]
            assert events.ended
    assert events_seen == [ToolsListChanged()]
