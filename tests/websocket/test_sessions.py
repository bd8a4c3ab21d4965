"""Sessions over a WebSocket, however it is served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from hypercorn.config import Config

from tests.listening import local_config
from tests.server.harness import every_revision
from tests.server.http.certificate import over_tls
from tests.waiting import eventually
from tests.websocket.ways import Raw, Tools, every_way, on_our_runners, serving, tasks
from trio_mcp import Answers, Client, McpError
from trio_mcp.low_level import websocket_client


def client_of(url: str, mode: str = "auto", **options: Any) -> Client:
    answers = Answers(elicitation=lambda request: {"name": "Ada"})
    return Client(lambda: websocket_client(url, **options), mode=mode, answers=answers)


@every_way
@every_revision
async def test_every_revision_speaks_in_both_directions(way: str, revision: str) -> None:
    tools, progress = Tools(), []

    def extra() -> None: ...

    async with serving(tools.server, way) as url, client_of(url, revision) as client:
        async with client.listen(tools_list_changed=True) as events:
            result = await client.call_tool("count", {"to": 3}, on_progress=lambda each: progress.append(each.progress))
            tools.server.add_tool(extra)
            assert "ToolsListChanged" in repr(await anext(aiter(events)))
        if revision >= "2025-06-18":  # the first with elicitation
            assert "Ada" in str((await client.call_tool("greet")).content)
    assert (progress, result.is_error) == ([1, 2, 3], result.is_error and None)


@every_way
async def test_messages_of_any_size_and_many_at_once(way: str) -> None:
    text, got = "\N{LINE SEPARATOR}\0é" * 300_000, []
    async with serving(Tools().server, way) as url, client_of(url, max_message_size=10**7) as client:
        (content,) = (await client.call_tool("echo", {"text": text})).content
        assert content.text == text

        async def call(number: int) -> None:
            got.append((await client.call_tool("add", {"a": number, "b": 1})).structured_content["result"])

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(call, number)
    assert sorted(got) == list(range(1, 101))


@every_way
async def test_handlers_see_the_headers_and_the_query_of_the_handshake(way: str) -> None:
    async with (
        serving(Tools().server, way) as url,
        client_of(f"{url}?room=1%202", headers={"X-User": "Ada"}) as client,
    ):
        result = await client.call_tool("seen")
    assert result.structured_content["result"] == ["Ada", "room=1%202", "127.0.0.1"]


@every_way
async def test_a_handler_that_fails_ends_nothing(way: str) -> None:
    async with serving(Tools().server, way) as url, client_of(url) as client:
        assert (await client.call_tool("fail")).is_error
        with pytest.raises(McpError):
            await client.request("nothing/like/it", {})
        assert not (await client.call_tool("add", {"a": 1, "b": 2})).is_error


@every_way
async def test_a_client_that_leaves_ends_its_handlers_alone(way: str) -> None:
    tools = Tools()
    async with serving(tools.server, way) as url, client_of(url) as other:
        async with client_of(url) as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "wait")
            await tools.started.wait()
            nursery.cancel_scope.cancel()
        await tools.cancelled.wait()
        assert not (await other.call_tool("add", {"a": 1, "b": 2})).is_error
        await eventually(lambda: tools.server.statistics().sessions == 1)


@pytest.mark.parametrize("runner", ["h11", "hypercorn"])
async def test_over_tls(runner: str, tmp_path: Path) -> None:
    config, trusted = over_tls(tmp_path)
    async with serving(Tools().server, runner, config=config) as url, client_of(url, ssl_context=trusted) as client:
        assert url.startswith("wss://")
        assert not (await client.call_tool("add", {"a": 1, "b": 2})).is_error


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    config = Config()
    config.bind = [f"unix:{tmp_path}/socket"]
    async with serving(Tools().server, config=config) as url:
        assert url.startswith("ws+unix://%2F")
        async with client_of("ws://localhost/mcp", unix_socket=tmp_path / "socket") as client:
            assert not (await client.call_tool("add", {"a": 1, "b": 2})).is_error


@on_our_runners
async def test_http_and_websocket_share_a_port(way: str) -> None:
    async with serving(Tools().server, way) as url:
        over_http = Client(url.replace("ws://", "http://"))
        if way == "alone":
            with pytest.raises(McpError, match="only WebSockets are served"):
                async with over_http:
                    pass
        else:
            async with over_http as client, client_of(url) as other:
                for each in (client, other):
                    assert not (await each.call_tool("add", {"a": 1, "b": 2})).is_error


@every_way
async def test_statistics_count_what_is_open(way: str) -> None:
    tools = Tools()

    def websockets() -> int:
        return tools.server.statistics().http[0].websockets

    async with serving(tools.server, way) as url:
        async with client_of(url), client_of(url):
            assert (websockets(), tools.server.statistics().sessions) == (2, 2)
        await eventually(lambda: not websockets())


@pytest.mark.again
@pytest.mark.parametrize("way", ["alone", "hypercorn"])
async def test_a_thousand_clients_that_open_and_leave_at_once_leave_nothing(way: str) -> None:
    """None of them answers a ping, or closes its WebSocket in order."""
    tools, left = Tools(), 0
    config = local_config()
    config.backlog = 1000

    async def come_and_go(url: str, number: int) -> None:
        nonlocal left
        async with Raw.open(url) as raw:
            if number % 3 == 0:  # others leave with a request under way, or at once
                assert await raw.add(1) == 2
            elif number % 3 == 1:
                await raw.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait"}})
        left += 1

    async with (
        serving(tools.server, way, config=config, keep_alive=1000, ping_timeout=1000) as url,
        Raw.open(url) as raw,
    ):
        assert await raw.add(1) == 2
        before = tasks()
        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(come_and_go, url, number)
        assert left == 1000
        await eventually(lambda: tools.server.statistics().sessions == 1 and tasks() == before)
        assert tools.server.statistics().http[0].websockets == 1
        assert await raw.add(1) == 2
