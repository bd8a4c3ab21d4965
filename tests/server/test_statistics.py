"""`statistics()`: what an operator sees of a server and its clients (docs/how-to/watching.md)."""

from __future__ import annotations

import attrs
import pytest
import trio

from tests.server.harness import LEGACY, MODERN, client_of
from tests.server.http.harness import Made, Raw, served
from trio_mcp import Client, HttpOptions, MemoryEventStore, Server


def offering() -> Server:
    server = Server("test")
    server.add_tool(lambda: None, name="tool")
    server.add_resource("x://a", lambda: "a", name="a")
    server.add_resource("x://t/{name}", lambda name: name, name="t")
    server.add_prompt(lambda who: who, name="prompt")
    server.add_completion(lambda value: [value], prompt="prompt", argument="who")
    return server


def test_what_is_offered_is_counted_and_so_is_what_is_mounted() -> None:
    server, outer = offering(), Server("outer")
    outer.mount(server, prefix="in")
    for each in (server, outer):
        offered = each.statistics()
        assert (offered.tools, offered.resources, offered.resource_templates, offered.prompts) == (1, 1, 1, 1)
        assert (offered.runs, offered.sessions, offered.http) == (0, 0, ())
    assert server.statistics().completions == 1
    assert Client(server).statistics().session is None  # it is not connected
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        server.statistics().tools = 2  # type: ignore[misc]


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_request_is_counted_on_both_sides_while_it_runs(revision: str) -> None:
    server, release = Server("test"), trio.Event()

    @server.tool
    async def wait() -> None:
        await release.wait()

    async with client_of(server, revision) as client, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(client.call_tool, "wait")
        await trio.testing.wait_all_tasks_blocked()
        now, ours = server.statistics(), client.statistics().session
        assert ours is not None
        assert (now.runs, now.sessions, now.incoming, now.running, now.queued, ours.outgoing) == (1, 1, 3, 3, 0, 3)
        release.set()
    now = server.statistics()
    assert (now.runs, now.sessions, now.incoming, now.running) == (0, 0, 0, 0)


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_listening_is_counted_on_both_sides(revision: str) -> None:
    server = offering()
    async with client_of(server, revision) as client:
        quiet = server.statistics()
        async with client.listen(tools_list_changed=True, resources=["x://a"]) as events:
            now, ours = server.statistics(), client.statistics()
            assert (now.listening, now.watched_resources) == (int(revision == MODERN), 1)
            assert ours.subscriptions == 1
            assert (ours.subscription_requests, ours.watched_resources) == ((1, 0) if revision == MODERN else (0, 1))
            server.notify_resource_updated("x://a")
            server.notify_resource_updated("x://a")
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert client.statistics().events_waiting == events.waiting == 1
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert server.statistics() == quiet
        assert client.statistics().subscriptions == client.statistics().events_waiting == 0


async def test_an_endpoint_is_counted_with_its_server() -> None:
    made = Made()
    async with (
        served(HttpOptions(event_store=MemoryEventStore()), made) as (_, http, _),
        trio.open_nursery() as nursery,
    ):
        raw, other = Raw(http), Raw(http)
        await raw.initialize()
        await other.initialize()
        nursery.start_soon(raw.post, "tools/call", {"name": "wait"})
        await made.started.wait()
        (endpoint,) = made.server.statistics().http
        assert (endpoint.sessions, endpoint.idle_sessions, endpoint.sse_sessions) == (2, 1, 0)
        assert (endpoint.requests, endpoint.exchanges, endpoint.streams, endpoint.unanswered) == (1, 1, 1, 1)
        assert (endpoint.listening, endpoint.ending) == (0, False)
        async with raw.listen():
            assert made.server.statistics().http[0].listening == 1
        made.go.set()
    assert made.server.statistics().http == ()
