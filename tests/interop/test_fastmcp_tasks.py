"""The client's side of tasks, with the server of FastMCP: plain tasks, and tasks that ask."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from trio_mcp import Answers, Client, McpError
from trio_mcp.extensions import TaskCancelled, Tasks

from . import python_peers
from .conftest import installed_peers
from .support import DEADLINE, PEERS, Launch

pytestmark = [pytest.mark.interop, pytest.mark.again]


@pytest.fixture(scope="session")
def fastmcp_tasks(request: pytest.FixtureRequest) -> Path:
    """Return the interpreter that has FastMCP with its tasks."""
    return installed_peers(request, lambda say: python_peers.install(say, "fastmcp_tasks"))


@contextlib.asynccontextmanager
async def connected(python: Path, environment: dict[str, str]) -> AsyncIterator[Client]:
    launch = Launch(str(python), [str(PEERS / "fastmcp_tasks_server.py")], environment)
    answers = Answers(elicitation=lambda _: {"name": "Ada"})
    with trio.fail_after(DEADLINE):
        async with Client(launch.for_us(), mode="2026-07-28", answers=answers, extensions=[Tasks()]) as client:
            yield client


async def test_calls_that_become_tasks(fastmcp_tasks: Path, environment: dict[str, str]) -> None:
    """All at the same time, as each is polled every five seconds."""
    async with connected(fastmcp_tasks, environment) as client, trio.open_nursery() as nursery:

        async def adds() -> None:
            assert (await client.call_tool("add", {"a": 1, "b": 2}, result_type=int)).data == 3

        async def fails() -> None:
            result = await client.call_tool("fails")
            assert result.is_error
            assert "no film" in result.text

        async def asks() -> None:
            assert (await client.call_tool("greet")).text == "hello Ada"

        async def is_cancelled() -> None:
            task = await Tasks.of(client).start("forever")
            await task.cancel()
            with pytest.raises(TaskCancelled):
                await task.result()

        async def is_found_again() -> None:
            task = await Tasks.of(client).start("add", {"a": 1, "b": 2})
            assert task.id is not None
            seen = [each.status async for each in task.watch()]
            assert (seen[0], seen[-1]) == ("working", "completed")
            assert (await Tasks.of(client).task(task.id).result(int)).data == 3

        async def is_unknown() -> None:
            with pytest.raises(McpError) as caught:
                await Tasks.of(client).task("unknown").get()
            assert caught.value.code == -32602

        for check in (adds, fails, asks, is_cancelled, is_found_again, is_unknown):
            nursery.start_soon(check)
