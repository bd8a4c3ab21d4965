"""What clients are told of changes: by ``subscriptions/listen`` (2026-07-28 `basic/patterns/subscriptions`) or not."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.injection import cancel_everywhere
from tests.peer import Peer, client_peer, process_peer, settle
from tests.server.harness import ACKNOWLEDGED, LEGACY, MODERN, client_of, news_of, server_with
from tests.server.input_harness import hand_client
from trio_mcp import Client, ListOptions, McpError, Server, SessionOptions
from trio_mcp.jsonrpc.messages import Notification, Response
from trio_mcp.low_level import memory_link_pair
from trio_mcp.server import changes
from trio_mcp.server.base_server import core_of
from trio_mcp.server.changes import Listener
from trio_mcp.types import meta
from trio_mcp.types.error_codes import INVALID_PARAMS, OVERLOADED

TOOLS, PROMPTS, RESOURCES = (f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))


def full_server(**options: Any) -> Server:
    server = server_with(one, **options)
    server.add_resource("x://a", lambda: "text", name="a")
    server.add_prompt(lambda: "text", name="prompt")
    return server


def stamp(subscription: int | str) -> dict[str, Any]:
    return {meta.SUBSCRIPTION_ID: subscription}


def acknowledgement(subscription: int | str, **honored: Any) -> Notification:
    return Notification(ACKNOWLEDGED, {"_meta": stamp(subscription), "notifications": honored})


def change_everything(server: Server) -> None:
    server.notify_tools_changed()
    server.notify_prompts_changed()
    server.notify_resources_changed()
    server.notify_resource_updated("x://a")
    server.notify_resource_updated("x://b")


async def test_declined_or_repeated_topics_are_left_out_of_the_acknowledgement() -> None:
    async with client_peer(full_server()) as wire:
        wanted = {"toolsListChanged": False, "promptsListChanged": True, "resourceSubscriptions": []}
        assert await wire.listen(1, **wanted) == acknowledgement(1, promptsListChanged=True)
        twice = {"resourceSubscriptions": ["x://a", "x://b", "x://a"], "somethingNew": 5}
        assert await wire.listen(2, **twice) == acknowledgement(2, resourceSubscriptions=["x://a", "x://b"])


async def test_topics_that_the_server_does_not_declare_are_not_honored() -> None:
    """Section Acknowledgment: "Notification types the server does not support are omitted"."""
    server = Server("tools only")
    wanted = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["x://a"],
    }
    async with client_peer(server) as wire:
        assert await wire.listen(1, **wanted) == acknowledgement(1, toolsListChanged=True)
        change_everything(server)
        assert await news_of(wire) == [(TOOLS, 1, None)]


async def test_changes_in_one_go_are_one_notification_and_later_changes_a_second() -> None:
    server = full_server()
    async with client_peer(server) as wire:
        await wire.listen(1, toolsListChanged=True)
        for number in range(50):
            server.add_tool(one, name=f"tool{number}")
        assert await news_of(wire) == [(TOOLS, 1, None)]
        server.remove_tool("tool1")
        assert await news_of(wire) == [(TOOLS, 1, None)]


async def test_a_change_while_the_acknowledgement_waits_is_told_after_it() -> None:
    """A client that reads late must neither miss it nor see it first."""
    server = full_server(options=SessionOptions(max_outgoing_messages=1))
    async with client_peer(server) as wire:
        for number in range(70):  # more than the link and the session hold
            await wire.request("tools/call", {"name": "unknown"}, number)
            await settle()
        await wire.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "s")
        await settle()
        server.notify_tools_changed()
        await settle()
        news: list[Any] = []
        while len(news) < 2:
            message = await wire.receive()
            if isinstance(message, Notification):
                news.append(message.method)
        assert news == [ACKNOWLEDGED, TOOLS]


async def test_the_resources_that_one_client_watches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all of its subscriptions: a bound for each alone could be multiplied."""
    monkeypatch.setattr(changes, "MAX_SUBSCRIPTIONS", 3)
    async with client_peer(full_server()) as wire:
        await wire.listen(1, resourceSubscriptions=["x://a", "x://b"], toolsListChanged=True)
        refusal = await wire.listen(2, resourceSubscriptions=["x://c", "x://d"])
        assert refusal.error.code == OVERLOADED
        too_long = await wire.listen(2, resourceSubscriptions=["x" * 8193])
        assert too_long.error.code == INVALID_PARAMS
        assert await wire.listen(3, resourceSubscriptions=["x://c"]) == acknowledgement(
            3, resourceSubscriptions=["x://c"]
        )


# --- the end ---------------------------------------------------------------------------------------------------------


async def serve_and_listen(server: Server, count: int, stalled: bool = False) -> list[Any]:
    """Open subscriptions, close the server's side, and return what arrives until the link is closed."""
    seen: list[Any] = []
    async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def serve(task_status: trio.TaskStatus[None]) -> None:
            with scope:
                await server.serve(theirs, task_status=task_status)

        await nursery.start(serve)
        wire = Peer(ours, MODERN)
        for number in range(count):
            await wire.listen(number, toolsListChanged=True)
        scope.cancel("shutting down")
        if stalled:
            return seen
        async for message in ours.read:
            seen.append(message.message)
    return seen


@pytest.mark.parametrize("count", [1, 100], ids=["one", "more than the link holds"])
async def test_when_the_server_closes_each_subscription_gets_a_result(count: int) -> None:
    """Section Graceful Closure: so that a client can tell it from the loss of the link."""
    seen = await serve_and_listen(full_server(), count)
    assert sorted(message.id for message in seen) == list(range(count))
    for message in seen:
        assert isinstance(message, Response)
        assert message.result["resultType"] == "complete"
        assert message.result["_meta"][meta.SUBSCRIPTION_ID] == message.id


async def test_changes_before_the_close_are_told_before_it() -> None:
    server = full_server()
    async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: server.serve(theirs, task_status=task_status))
        await Peer(ours, MODERN).listen(1, toolsListChanged=True)
        server.notify_tools_changed()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            seen = [message.message async for message in ours.read]
    assert [type(message) for message in seen] == [Notification, Response]


async def test_a_client_that_does_not_read_delays_the_close_by_the_grace_only(autojump_clock: MockClock) -> None:
    server = full_server(options=SessionOptions(close_grace=3.0))
    started = trio.current_time()
    await serve_and_listen(server, 100, stalled=True)
    assert trio.current_time() - started == 3.0
    assert server.statistics().runs == 0


async def test_without_subscriptions_the_close_does_not_wait(autojump_clock: MockClock) -> None:
    started = trio.current_time()
    assert await serve_and_listen(full_server(), 0) == []
    assert trio.current_time() == started


async def test_a_disconnect_ends_the_clients_subscriptions_at_once(autojump_clock: MockClock) -> None:
    """Unlike calls, they are given no time to finish."""
    server = full_server()
    started = trio.current_time()
    async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, theirs)
        await Peer(ours, MODERN).listen(1, toolsListChanged=True)
        for channel in ours:
            await channel.aclose()
    assert trio.current_time() == started


async def test_listening_can_be_cancelled_at_every_step() -> None:
    """Wherever the server is cut off, no listener stays behind."""
    server = full_server()

    async def scenario() -> None:
        async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: server.serve(theirs, task_status=task_status))
            wire = Peer(ours, MODERN)
            await wire.listen(1, toolsListChanged=True)
            await wire.listen(2, resourceSubscriptions=["x://a"])
            change_everything(server)
            await wire.receive()
            await wire.cancel(1)
            await wire.receive()
            for channel in ours:
                await channel.aclose()

    async def check() -> None:
        assert server.statistics().runs == 0

    assert await cancel_everywhere(scenario, check) > 10


STOPPING = """
import trio
from trio_mcp import Server

server = Server("test")

async def main():
    with trio.CancelScope() as scope:
        @server.tool
        async def stop() -> None:
            scope.cancel("told to")
        await server.serve_stdio()

trio.run(main)
"""


def test_over_stdio_the_result_leaves_before_the_link_is_closed() -> None:
    """The link is cancelled together with the server: it must outlive the subscriptions."""

    def request(request_id: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        stamp = {meta.PROTOCOL_VERSION: MODERN, meta.CLIENT_CAPABILITIES: {}}
        return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": stamp}}

    with process_peer([sys.executable, "-c", STOPPING], handshake=False) as peer:
        peer.send(request(1, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        assert peer.receive()["method"] == ACKNOWLEDGED
        peer.send(request(2, "tools/call", {"name": "stop", "arguments": {}}))
        assert peer.exit() == 0  # our end is open
        messages = [json.loads(text) for text in peer.received.splitlines()]
    (result,) = (message["result"] for message in messages if message.get("id") == 1)
    assert result["_meta"][meta.SUBSCRIPTION_ID] == 1


# --- the legacy era --------------------------------------------------------------------------------------------------


CHANGED = "notifications/tools/list_changed"


def one() -> int:
    return 1


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
        async with core_of(server).open_run() as run:
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


async def test_an_update_that_waits_to_be_sent_is_dropped_by_unsubscribing(autojump_clock: MockClock) -> None:
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


async def test_an_update_and_the_end_of_a_subscription_need_a_uri() -> None:
    with pytest.raises(TypeError, match="must be a string"):
        with_resources().notify_resource_updated(5)  # type: ignore[arg-type]
    async with client_of(with_resources(), LEGACY) as client:
        with pytest.raises(McpError, match="needs a uri"):
            await client.request("resources/unsubscribe", {"uri": 5})
