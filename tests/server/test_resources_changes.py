"""Clients of the legacy era hear of changes to the list, and to what they have subscribed to."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio.testing

from tests.peer import settle
from tests.server.harness import LEGACY, MODERN, client_of
from tests.server.input_harness import hand_client
from trio_mcp import Client, LocalProtocolError, McpError, Server
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.server import changes
from trio_mcp.types.versions import LEGACY_REVISIONS

LIST_CHANGED = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"


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


@pytest.mark.parametrize("revision", LEGACY_REVISIONS)
async def test_subscribers_hear_of_updates_until_they_unsubscribe(revision: str) -> None:
    seen: list[Notification] = []
    server = with_resources()
    async with client_of(server, revision, on_message=seen.append) as client:
        server.notify_resource_updated("x://a")
        await settle()
        assert seen == []
        await subscribe(client, "x://a")
        await subscribe(client, "x://t/b")
        for uri in ("x://a", "x://t/b", "x://t/c", "x://other"):
            server.notify_resource_updated(uri)
        await settle()
        assert seen == [Notification(UPDATED, {"uri": "x://a"}), Notification(UPDATED, {"uri": "x://t/b"})]
        assert await client.request("resources/unsubscribe", {"uri": "x://a"}) == {}
        assert await client.request("resources/unsubscribe", {"uri": "x://a"}) == {}
        for uri in ("x://a", "x://t/b"):
            server.notify_resource_updated(uri)
        await settle()
        assert seen[2:] == [Notification(UPDATED, {"uri": "x://t/b"})]


async def test_many_updates_at_once_are_one_notification() -> None:
    seen: list[Notification] = []
    server = with_resources()
    async with client_of(server, LEGACY, on_message=seen.append) as client:
        await subscribe(client, "x://a")
        for _ in range(50):
            server.notify_resource_updated("x://a")
        await settle()
        assert len(seen) == 1
        server.notify_resource_updated("x://a")
        await settle()
        assert len(seen) == 2


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


async def test_an_update_may_come_from_another_thread() -> None:
    seen: list[Notification] = []
    server = with_resources()
    async with client_of(server, LEGACY, on_message=seen.append) as client:
        await subscribe(client, "x://a")
        thread = threading.Thread(target=server.notify_resource_updated, args=["x://a"])
        thread.start()
        thread.join()
        await settle()
    assert len(seen) == 1


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


async def test_only_an_existing_resource_can_be_subscribed_to() -> None:
    """2025-11-25 `server/resources`, Error Handling."""
    async with client_of(with_resources(), LEGACY) as client:
        for method in ("resources/subscribe", "resources/unsubscribe"):
            with pytest.raises(McpError, match="needs a uri"):
                await client.request(method, {"uri": 5})
        with pytest.raises(McpError, match="Resource not found") as caught:
            await subscribe(client, "x://none")
        assert (caught.value.code, caught.value.data) == (-32002, {"uri": "x://none"})


async def test_subscriptions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_SUBSCRIPTIONS", 3)
    async with client_of(with_resources(), LEGACY) as client:
        for number in (0, 1, 2, 2):
            await subscribe(client, f"x://t/{number}")
        with pytest.raises(McpError, match="at most 3 resources"):
            await subscribe(client, "x://t/3")
        await client.request("resources/unsubscribe", {"uri": "x://t/0"})
        await subscribe(client, "x://t/3")


@pytest.mark.parametrize("revision", LEGACY_REVISIONS)
async def test_legacy_clients_are_told_of_changes_of_the_list(revision: str) -> None:
    seen: list[str] = []
    server = with_resources()
    async with client_of(server, revision, on_message=lambda message: seen.append(message.method)) as client:
        await client.request("resources/list")  # the server has seen the end of the handshake
        for change in (
            lambda: server.add_resource("x://b", some),
            lambda: server.add_resource("x://b/{c}", lambda c: c, name="c"),
            lambda: server.remove_resource("x://b"),
            lambda: server.remove_resource("x://b/{c}"),
        ):
            seen.clear()
            change()
            await settle()
            assert seen == [LIST_CHANGED]


async def test_the_modern_era_has_neither_the_methods_nor_the_notifications() -> None:
    """2026-07-28: both go through `subscriptions/listen`."""
    seen: list[Any] = []
    server = with_resources()
    async with client_of(server, MODERN, on_message=seen.append) as client:
        with pytest.raises(LocalProtocolError):
            await subscribe(client, "x://a")
        server.add_resource("x://b", some)
        server.notify_resource_updated("x://a")
        await settle()
    assert seen == []


def test_an_update_needs_a_uri() -> None:
    with pytest.raises(TypeError, match="must be a string"):
        with_resources().notify_resource_updated(5)  # type: ignore[arg-type]
