"""A cancellation at any step of a request leaves the store, the leases and the runs consistent."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from pydantic import BaseModel
from trio.testing import MockClock

from tests.extensions.tasks.processes import LEASE, Process, answer, done, get, processes
from tests.injection import cancel_everywhere
from tests.peer import settle
from trio_mcp import Context, Server
from trio_mcp.extensions import TaskPolicy
from trio_mcp.stores import MemoryStores
from trio_mcp.stores.contract import StoredTask


class Name(BaseModel):
    name: str


class Recorder(MemoryStores):
    """Stores that know the keys of all tasks."""

    def __init__(self) -> None:
        super().__init__(now=trio.current_time)
        self.keys: list[str] = []

    async def add_task(self, task: StoredTask, *arguments: Any, **more: Any) -> StoredTask:
        added = await super().add_task(task, *arguments, **more)
        self.keys.append(task.key)
        return added


def define(server: Server) -> None:
    @server.tool(task=TaskPolicy(after=0.5, on_loss="fail"))
    async def work(ctx: Context, seconds: float) -> str:
        await ctx.once("step", trio.sleep, seconds)
        return "done"

    @server.tool(task=TaskPolicy(mode="manual", on_loss="fail"))
    async def detach(ctx: Context) -> str:
        await ctx.once("before", trio.sleep, 0.1)
        await ctx.detach()
        await ctx.once("after", trio.sleep, 0.1)
        return "done"

    @server.tool(task=TaskPolicy(after=0.5, on_loss="fail"))
    async def ask(ctx: Context) -> str:
        found = await ctx.elicit("Who?", Name, key="who")
        await ctx.once("step", trio.sleep, 0.1)
        return found.data.name if found.data else ""


async def _leases(stores: Recorder) -> dict[str, str]:
    found = [await stores.task(key) for key in stores.keys]
    return {task.key: task.token for task in found if task is not None}


@pytest.mark.parametrize(
    ("name", "arguments"), [("work", {"seconds": 0.1}), ("work", {"seconds": 1.0}), ("detach", {}), ("ask", {})]
)
async def test_a_call_that_is_cancelled_leaves_no_task_that_nobody_knows(
    name: str, arguments: dict[str, Any], autojump_clock: MockClock
) -> None:
    stores = Recorder()
    async with processes(define, stores, 1) as (one,):

        async def call() -> None:
            result = await one.client.request("tools/call", {"name": name, "arguments": arguments})
            if result["resultType"] == "task":
                await one.client.request("tasks/cancel", {"taskId": result["taskId"]})

        async def check() -> None:
            await trio.sleep(2)
            await settle()
            for key in stores.keys:
                task = await stores.task(key)
                assert task is not None
                assert (task.status, task.token) in [("cancelled", ""), ("completed", "")]
            stores.keys.clear()

        assert await cancel_everywhere(call, check) > 5


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_request_about_a_task_takes_effect_or_not(method: str, autojump_clock: MockClock) -> None:
    stores = Recorder()
    async with processes(define, stores, 2) as (one, two):
        task_id = await _asking(one)

        async def request() -> None:
            responses = {"who": {"action": "accept", "content": {"name": "Ann"}}}
            await two.client.request(method, {"taskId": task_id, "inputResponses": responses})

        async def check() -> None:
            nonlocal task_id
            await trio.sleep(1)
            state = await get(one.client, task_id)
            if state["status"] == "input_required":
                assert list(state["inputRequests"]) == ["who"]
                await answer(one.client, task_id, who={"name": "Bob"})
                state = await done(one.client, task_id)
            if state["status"] == "completed":
                assert state["result"]["content"][0]["text"] in ("Ann", "Bob")
            else:
                assert (method, state["status"]) == ("tasks/cancel", "cancelled")
            assert not any((await _leases(stores)).values())
            task_id = await _asking(one)

        assert await cancel_everywhere(request, check) > 1


@pytest.mark.again
async def test_a_server_that_ends_at_any_step_leaves_no_lease(autojump_clock: MockClock) -> None:
    """The next server continues at once, without waiting for a lease to expire."""
    stores = Recorder()
    ids: list[str] = []

    def rerun(server: Server) -> None:
        @server.tool(task=TaskPolicy(after=0, on_loss="rerun"))
        async def work(ctx: Context) -> str:
            for number in range(2):
                await ctx.once(f"step-{number}", trio.sleep, 0.1)
            return "done"

    async def live() -> None:
        async with processes(rerun, stores, 1) as (one,):
            ids.append((await one.client.request("tools/call", {"name": "work"}))["taskId"])
            await trio.sleep(0.15)

    async def check() -> None:
        assert not any((await _leases(stores)).values())
        async with processes(rerun, stores, 1) as (one,):
            began = trio.current_time()
            for each in ids:
                assert (await done(one.client, each))["status"] == "completed"
            assert trio.current_time() - began < LEASE / 3
        for key in stores.keys:
            task = await stores.task(key)
            assert task is not None
            assert task.status in ("completed", "cancelled")
        ids.clear()
        stores.keys.clear()

    assert await cancel_everywhere(live, check) > 5


async def _asking(process: Process) -> str:
    result = await process.client.request("tools/call", {"name": "ask"})
    task_id: str = result["taskId"]
    return task_id
