"""A cancellation at every step of listening leaves no record of it, on either side."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.client.listening import (
    LEGACY,
    MODERN,
    TELLS_ALL,
    TOOLS,
    UPDATED,
    acknowledgement,
    end,
    notice,
)
from tests.client.scripted import scripted
from tests.injection import cancel_everywhere
from tests.peer import settle
from trio_mcp import Client, SessionOptions
from trio_mcp._nursery import background_nursery
from trio_mcp.jsonrpc.messages import Response


def nothing_is_left(client: Client) -> bool:
    left = client.statistics()
    assert left.session is not None
    return not any((left.subscriptions, left.subscription_requests, left.watched_resources, left.session.outgoing))


@pytest.mark.parametrize("middleware", [False, True])
async def test_modern(middleware: bool) -> None:
    faults: list[Exception] = []

    async def through(call: Any, call_next: Any) -> Any:
        return await call_next()

    async with scripted(
        {},
        revision=MODERN,
        capabilities=TELLS_ALL,
        options=SessionOptions(on_error=faults.append),
        middleware=[through] if middleware else [],
    ) as (client, asked, wire):

        async def serve() -> None:
            known = len(asked)
            while len(asked) == known:
                await trio.lowlevel.checkpoint()
            await wire.send(acknowledgement(asked[-1]))
            await wire.send(notice(TOOLS, asked[-1].id))
            await wire.send(notice(UPDATED, asked[-1].id, uri="x:/a"))
            await wire.send(Response(asked[-1].id, end(asked[-1])))

        async def scenario() -> None:
            async with background_nursery() as nursery:
                nursery.start_soon(serve)
                async with client.listen(tools_list_changed=True, resources=["x:/a"]) as events:
                    async for _ in events:
                        pass

        async def check() -> None:
            await settle()
            assert nothing_is_left(client)

        assert await cancel_everywhere(scenario, check) >= 10
    assert faults == []


async def test_legacy() -> None:
    subscribed: set[str] = set()

    def subscribe(params: dict[str, Any]) -> dict[str, Any]:
        subscribed.add(params["uri"])
        return {}

    def unsubscribe(params: dict[str, Any]) -> dict[str, Any]:
        subscribed.discard(params["uri"])
        return {}

    answers = {"resources/subscribe": subscribe, "resources/unsubscribe": unsubscribe}
    async with scripted(answers, revision=LEGACY, capabilities=TELLS_ALL) as (client, _, wire):

        async def scenario() -> None:
            async with (
                client.listen(resources=["x:/a", "x:/b"]),
                client.listen(tools_list_changed=True, resources=["x:/b", "x:/c"]) as events,
            ):
                await wire.send(notice(UPDATED, uri="x:/c"))
                await anext(events)

        async def check() -> None:
            await settle()
            assert nothing_is_left(client)
            assert subscribed == set()

        assert await cancel_everywhere(scenario, check) >= 20
