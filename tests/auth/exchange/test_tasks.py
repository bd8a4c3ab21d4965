"""A task that outlives its request acts for its caller no longer, in this process and in the next one."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from tests.auth.exchange.world import API, World
from tests.auth.server.guarded import MODERN, ask, modern
from trio_mcp import Context, Server
from trio_mcp.auth import NoCallerToken
from trio_mcp.extensions import TaskPolicy, Tasks
from trio_mcp.stores import MemoryStores

META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


async def test_a_task_has_a_token_only_as_long_as_its_request(autojump_clock: MockClock) -> None:
    world, reasons, asked = World(), list[str](), trio.Event()
    stores, token = MemoryStores(), world.token()

    async def work(ctx: Context[Any]) -> str:
        try:
            world.claims(await ctx.token_for(API))
            reasons.append("")
        except NoCallerToken as error:
            reasons.append(error.problem)
        if len(reasons) < 3:
            await trio.sleep(5)  # by now the client has the task
            try:
                await ctx.token_for(API)
            except NoCallerToken as error:
                reasons.append(error.problem)
            asked.set()
            await trio.sleep_forever()
        return "done"

    def server() -> Server:
        made = Server("files", stores=stores, extensions=[Tasks()])
        made.tool(work, name="call", task=TaskPolicy(on_loss="rerun", after=2))
        return made

    world.server = server()
    async with world.serving() as app:
        answer = await ask(app, modern(token, "tools/call", META, name="call", arguments={}))
        assert answer.json["result"]["resultType"] == "task"
        await asked.wait()
    assert reasons[0] == ""
    assert "is over, and with it the caller's token" in reasons[1]
    world.server = server()
    async with world.serving():  # another process goes on with the task
        while len(reasons) < 3:  # noqa: ASYNC110 - the task has no event for its second run
            await trio.sleep(1)
    assert reasons[2] == "this run continues a task without the request that created it"
    assert world.exchanges == 1
