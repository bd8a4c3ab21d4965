"""Tasks through what stands between a client and a server: a group, a list of ways, and a proxy."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from trio_mcp import Client, ClientGroup, Context, McpError, ProxyServer, Server
from trio_mcp.extensions import TaskPolicy, Tasks
from trio_mcp.types.error_codes import METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY
from trio_mcp.types.versions import LATEST_LEGACY


def studio() -> tuple[Server, list[bool]]:
    """Return a server whose tools may run as tasks, and whether each call did."""
    server, detached = Server("studio", extensions=[Tasks()]), []

    @server.tool(task="manual")
    async def render(scene: str, ctx: Context) -> str:
        detached.append(await ctx.detach())
        return f"{scene} is rendered"

    @server.tool(task=TaskPolicy(mode="required", after=0))
    async def archive() -> None: ...

    return server, detached


async def test_a_group_waits_for_the_tasks_of_its_servers() -> None:
    """Without it they run as ordinary calls."""
    server, detached = studio()
    for extensions in ((), [Tasks()]):
        async with ClientGroup({"studio": server}, extensions=extensions) as group:
            assert (await group.call_tool("studio__render", {"scene": "dawn"})).data == "dawn is rendered"
    assert detached == [False, True]


async def test_a_client_with_a_list_of_ways_waits_for_tasks() -> None:
    server, detached = studio()
    async with trio.open_nursery() as nursery:
        url = await nursery.start(lambda task_status: server.serve_http(port=0, task_status=task_status))
        async with Client(["http://127.0.0.1:1/mcp", url], extensions=[Tasks()]) as client:
            assert (await client.call_tool("render", {"scene": "dawn"})).data == "dawn is rendered"
            task = await Tasks.of(client).start("render", {"scene": "dusk"})
            assert task.id is not None
            assert (await task.result()).data == "dusk is rendered"
        nursery.cancel_scope.cancel()
    assert detached == [True, True]


async def test_behind_a_proxy_a_call_stays_an_ordinary_one_and_what_it_can_not_pass_on_is_refused() -> None:
    """It declares no extension, to neither side (docs/rough_edges.md)."""
    server, detached = studio()
    async with Client(ProxyServer(server), extensions=[Tasks()]) as client:
        assert client.extensions == {}
        assert (await client.call_tool("render", {"scene": "dawn"})).data == "dawn is rendered"
        assert detached == [False]
        with pytest.raises(McpError) as caught:
            await client.call_tool("archive")
        assert caught.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
        with pytest.raises(McpError) as caught:
            await Tasks.of(client).task("some id").get()
        assert caught.value.code == METHOD_NOT_FOUND


@pytest.mark.parametrize("task", ["optional", "manual"])
async def test_a_client_of_the_legacy_era_gets_an_ordinary_call(task: Any) -> None:
    """The tasks of 2025-11-25 are another protocol, which is not offered."""
    server, _ = studio()

    @server.tool(task=task)
    async def step(ctx: Context) -> bool:
        return await ctx.detach()

    async with Client(server, mode=LATEST_LEGACY, extensions=[Tasks()]) as client:
        assert client.extensions == {}
        assert client.capabilities.tasks is None
        assert (await client.call_tool("step")).data is False
        with pytest.raises(McpError, match="only runs as a task, which this revision of the protocol does not have"):
            await client.call_tool("archive")
