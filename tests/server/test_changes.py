"""What a server offers changes while clients are connected: who of the legacy era is told, and of what."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tests.peer import Peer, settle
from tests.server.harness import LEGACY, MODERN, client_of, server_with
from tests.server.input_harness import hand_client
from trio_mcp import Client, ListOptions, McpError, Server, memory_link_pair
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.server import changes
from trio_mcp.server.changes import Listener

CHANGED = "notifications/tools/list_changed"


def one() -> int:
    return 1


async def test_legacy_clients_are_told_of_each_change_of_a_list() -> None:
    seen: list[str] = []
    server = Server("test")
    server.add_prompt(one, name="first")
    server.add_resource("x://first", one)
    changes: dict[str, list[Callable[[], object]]] = {
        "tools": [lambda: server.add_tool(one), lambda: server.remove_tool("one")],
        "prompts": [lambda: server.add_prompt(one), lambda: server.remove_prompt("one")],
        "resources": [
            lambda: server.add_resource("x://b", one),
            lambda: server.add_resource("x://b/{c}", lambda c: c, name="c"),
            lambda: server.remove_resource("x://b"),
            lambda: server.remove_resource("x://b/{c}"),
        ],
    }
    async with client_of(server, LEGACY, on_message=lambda message: seen.append(message.method)) as client:
        await client.list_tools()  # the server has seen the end of the handshake
        for kind, made in changes.items():
            assert client.session.server.capabilities[kind]["listChanged"] is True
            for change in made:
                seen.clear()
                change()
                await settle()
                assert seen == [f"notifications/{kind}/list_changed"]


async def test_nothing_is_sent_before_the_handshake_is_complete() -> None:
    """2025-11-25 `basic/lifecycle`: before ``notifications/initialized`` only pings and logging."""
    server = Server("test")
    async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, theirs)
        await trio.testing.wait_all_tasks_blocked()
        server.add_tool(one)
        peer = Peer(ours, LEGACY)
        await peer.result("initialize", peer.hello())
        server.remove_tool("one")
        await trio.testing.wait_all_tasks_blocked()
        assert peer.arrived() == []
        # Changes since the result of initialize are announced then: the client can't know them.
        await peer.notify("notifications/initialized")
        assert await peer.receive() == Notification(CHANGED, None)
        await trio.testing.wait_all_tasks_blocked()
        assert peer.arrived() == []
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_call_in_progress_goes_on_after_the_tool_is_removed(revision: str) -> None:
    started, go = trio.Event(), trio.Event()

    async def slow() -> str:
        started.set()
        await go.wait()
        return "done"

    server = server_with(slow)
    results: list[Any] = []
    async with client_of(server, revision) as client, trio.open_nursery() as nursery:

        async def use() -> None:
            results.append((await client.call_tool("slow")).content[0].text)

        nursery.start_soon(use)
        await started.wait()
        server.remove_tool("slow")
        with pytest.raises(McpError, match="unknown tool"):
            await client.call_tool("slow")
        go.set()
    assert results == ["done"]


async def test_no_change_from_another_thread_is_lost() -> None:
    server = Server("test", lists=ListOptions(page_size=7))
    stop = threading.Event()

    def add(start: int) -> None:
        for number in range(start, start + 40):
            server.add_tool(one, name=f"tool{number}")

    async with client_of(server, LEGACY) as client:

        async def list_all() -> None:
            while not stop.is_set():
                names = [tool.name async for tool in client.iter_tools()]
                assert len(names) == len(set(names))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(list_all)
            async with trio.open_nursery() as adders:
                for start in range(0, 200, 40):
                    adders.start_soon(trio.to_thread.run_sync, add, start)
            stop.set()
        names = [tool.name async for tool in client.iter_tools()]
    assert sorted(names) == sorted(f"tool{number}" for number in range(200))


def test_a_change_after_the_last_run_is_harmless() -> None:
    """A server is often a module's global, and outlives its runs."""
    server = Server("test")
    kept: list[Any] = []

    async def main() -> None:
        async with server.open_run() as run:
            kept.append(run.changes)
            run.changes.add(Listener(lambda topic: False, trio.lowlevel.checkpoint), (CHANGED, None))

    trio.run(main)
    (changes,) = kept
    changes.announce(CHANGED)
    server.add_tool(one)


def with_resources() -> Server:
    server = Server("test")
    server.add_resource("x://a", one)
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


async def test_unsubscribing_needs_a_uri() -> None:
    async with client_of(with_resources(), LEGACY) as client:
        with pytest.raises(McpError, match="needs a uri"):
            await client.request("resources/unsubscribe", {"uri": 5})
