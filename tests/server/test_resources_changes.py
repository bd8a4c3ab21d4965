"""Clients of the legacy era hear of changes to the list, and to what they have subscribed to."""

from __future__ import annotations

import pytest
import trio.testing

from tests.peer import settle
from tests.server.harness import LEGACY, client_of
from tests.server.input_harness import hand_client
from trio_mcp import Client, McpError, Server
from trio_mcp.server import changes


def some() -> str:
    return "text"


def with_resources() -> Server:
    server = Server("test")
    server.add_resource("x://a", some)
    server.add_resource("x://t/{name}", lambda name: name, name="t")
    return server


async def subscribe(client: Client, uri: str) -> None:
    """2025-11-25 `server/resources`, Subscriptions: the answer is an empty result."""
    assert await client.request("resources/subscribe", {"uri": uri}) == {}


async def test_a_subscription_belongs_to_one_client_and_ends_with_it() -> None:
    seen: list[str] = []
    server = with_resources()
    async with (
        client_of(server, LEGACY, on_message=lambda message: seen.append("first")) as first,
        client_of(server, LEGACY, on_message=lambda message: seen.append("second")),
    ):
        await subscribe(first, "x://a")
        server.notify_resource_updated("x://a")
        await settle()
        assert seen == ["first"]
    server.notify_resource_updated("x://a")
    async with client_of(server, LEGACY, on_message=lambda message: seen.append("third")):
        server.notify_resource_updated("x://a")
        await settle()
    assert seen == ["first"]


async def test_an_update_that_waits_to_be_sent_is_dropped_by_unsubscribing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """After the answer to ``resources/unsubscribe`` nothing comes, however long the link was congested before."""
    server = with_resources()
    async with hand_client(server, LEGACY) as client:
        uris = [f"x://t/{number}" for number in range(500)]  # more than the link and the session's queue hold
        for uri in uris:
            assert await client.ask("resources/subscribe", {"uri": uri}) == {}
        for uri in uris:
            server.notify_resource_updated(uri)
        await settle()
        assert server.statistics().changes_waiting > 1
        assert await client.ask("resources/unsubscribe", {"uri": uris[-1]}) == {}
        while server.statistics().changes_waiting or server.statistics().messages_waiting:
            assert await client.ask("ping", {}) == {}
        assert await client.ask("ping", {}) == {}
    told = [notice.params["uri"] for notice in client.heard if notice.params]
    assert told == uris[:-1]


async def test_subscriptions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_SUBSCRIPTIONS", 3)
    async with client_of(with_resources(), LEGACY) as client:
        for number in (0, 1, 2, 2):
            await subscribe(client, f"x://t/{number}")
        with pytest.raises(McpError, match="at most 3 resources"):
            await subscribe(client, "x://t/3")
        await client.request("resources/unsubscribe", {"uri": "x://t/0"})
        await subscribe(client, "x://t/3")


def test_an_update_needs_a_uri() -> None:
    with pytest.raises(TypeError, match="must be a string"):
        with_resources().notify_resource_updated(5)  # type: ignore[arg-type]
