"""Tasks through what stands between a client and a server: a group, a list of ways, and a proxy."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from pydantic import BaseModel
from trio.testing import MockClock

from tests.client.group_servers import AT_ONCE, Flaky, Statuses
from tests.extensions.task_server import ID
from tests.waiting import eventually
from trio_mcp import Answers, Client, ClientGroup, Context, McpError, ProxyServer, Server, TransportError
from trio_mcp.errors import LocalProtocolError
from trio_mcp.extensions import TaskPolicy, Tasks
from trio_mcp.stores import MemoryStores
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


class Trip(BaseModel):
    city: str


def asking(name: str, stores: MemoryStores | None = None, ended: list[str] | None = None) -> Server:
    """Return a server with a tool that asks as a task, and one whose task only ends when it is cancelled."""
    server, policy = Server(name, stores=stores, extensions=[Tasks()]), TaskPolicy(after=0, poll=0.5)

    @server.tool(task=policy)
    async def ask(ctx: Context) -> str:
        found = await ctx.elicit(f"Where to from {name}?", Trip)
        return "nowhere" if found.data is None else f"{name} to {found.data.city}"

    @server.tool(task=policy)
    async def forever() -> None:
        try:
            await trio.sleep_forever()
        finally:
            if ended is not None:
                ended.append(name)

    return server


async def test_each_server_of_a_group_asks_its_own_questions_in_its_tasks(autojump_clock: MockClock) -> None:
    """Both at the same time; the clients share the extension's object, but not what they know of tasks."""
    asked, ended = list[str](), list[str]()

    async def answer(question: Any) -> dict[str, str]:
        asked.append(question.message)
        await trio.sleep(10)
        return {"city": "Oslo" if "north" in question.message else "Rome"}

    found: dict[str, Any] = {}
    tasks = Tasks()
    servers = {name: asking(name, ended=ended) for name in ("north", "south")}
    async with ClientGroup(servers, extensions=[tasks], answers=Answers(elicitation=answer)) as group:

        async def call(name: str) -> None:
            found[name] = (await group.call_tool(f"{name}__ask")).data

        async with trio.open_nursery() as nursery:
            for name in servers:
                nursery.start_soon(call, name)
        assert found == {"north": "north to Oslo", "south": "south to Rome"}
        assert sorted(asked) == ["Where to from north?", "Where to from south?"]
        with trio.move_on_after(5):
            await group.call_tool("north__forever")
        await eventually(lambda: ended == ["north"])
        north, south = (Tasks.of(group.clients[name]) for name in servers)
        task = await south.start("ask")
        with pytest.raises(McpError, match="unknown task"):
            await north.task(str(task.id)).get()
        assert (await task.result()).data == "south to Rome"


async def test_a_task_is_found_again_when_its_server_is_back(autojump_clock: MockClock) -> None:
    """The wait for it fails with the connection, as any call of a group, but the task goes on."""
    statuses = Statuses()
    answers = Answers(elicitation=lambda question: {"city": "Oslo"})
    async with MemoryStores() as stores:
        flaky = Flaky(asking("north", stores))
        settings: dict[str, Any] = {"reconnect": AT_ONCE, "on_status": statuses, "extensions": [Tasks()]}
        async with ClientGroup({"north": flaky}, answers=answers, **settings) as group:
            task = await Tasks.of(group.clients["north"]).start("ask")
            flaky.cut()
            with pytest.raises(TransportError):
                await task.get()
            await statuses.until("north", "connecting")
            await statuses.until("north", "connected")
            assert (await Tasks.of(group.clients["north"]).task(str(task.id)).result()).text == "north to Oslo"


async def test_a_member_without_the_extension_has_no_tasks() -> None:
    settings: Any = {"south": {"extensions": []}}
    servers = {name: asking(name) for name in ("north", "south")}
    async with ClientGroup(servers, extensions=[Tasks()], per_server=settings) as group:
        Tasks.of(group.clients["north"]).task(ID)
        with pytest.raises(LocalProtocolError, match="made without the extension"):
            Tasks.of(group.clients["south"])


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


async def test_behind_a_proxy_without_the_extension_a_call_stays_an_ordinary_one_or_is_refused() -> None:
    """It declares no extension, to neither side; see test_proxied_tasks.py for one that does."""
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
        # In a result, which a model sees, and not in an error.
        refused = await client.call_tool("archive")
        assert refused.is_error
        assert "only runs as a task, which this revision of the protocol does not have" in refused.text
