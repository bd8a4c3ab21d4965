"""The requester of ``@modelcontextprotocol/ext-tasks`` against our server: results, questions, failures, cancelling."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from pydantic import BaseModel

from trio_mcp import Context, McpError, Server
from trio_mcp.extensions import TaskPolicy, Tasks

from .support import DEADLINE, PEERS

if TYPE_CHECKING:
    from .node_peers import NodePeers

pytestmark = pytest.mark.interop

AT_ONCE = TaskPolicy(after=0, poll=0.05)
STEPS = [
    {"name": "plain", "arguments": {"a": 40, "b": 2}},
    {"name": "add", "arguments": {"a": 40, "b": 2}},
    {"name": "travel", "arguments": {}},
    {"name": "refuse", "arguments": {}},
    {"name": "wait", "arguments": {}, "cancel": True},
]


class Trip(BaseModel):
    city: str


def task_server() -> Server:
    server = Server("tasks", extensions=[Tasks()])

    def plain(a: int, b: int) -> int:
        return a + b

    server.add_tool(plain)

    @server.tool(task=AT_ONCE)
    async def add(a: int, b: int) -> int:
        await trio.sleep(0.1)
        return a + b

    @server.tool(task=AT_ONCE)
    async def travel(ctx: Context) -> str:
        answer = await ctx.elicit("Where to?", Trip)
        assert answer.data is not None
        return answer.data.city

    @server.tool(task=AT_ONCE)
    async def refuse() -> str:
        await trio.sleep(0.1)
        raise McpError(-32050, "closed on Sundays")

    @server.tool(task=AT_ONCE)
    async def wait() -> str:
        await trio.sleep_forever()
        return "never"

    return server


async def test_its_session_gets_results_asks_fails_and_cancels(npm: NodePeers) -> None:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(task_server().serve_http, port=0))
        script_input: dict[str, Any] = {
            "modules": str(npm.modules),
            "url": url,
            "elicitations": {"Where to?": {"action": "accept", "content": {"city": "Bergen"}}},
            "steps": STEPS,
        }
        with trio.fail_after(DEADLINE):
            finished = await trio.run_process(
                [str(npm.node), str(PEERS / "ts_tasks.mjs"), json.dumps(script_input)],
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        nursery.cancel_scope.cancel()
    assert finished.returncode == 0, finished.stderr.decode()
    report = json.loads(finished.stdout)
    outcomes = report["outcomes"]
    assert {name: (each["kind"], each["status"]) for name, each in outcomes.items()} == {
        "plain": ("immediate", "completed"),
        "add": ("task", "completed"),
        "travel": ("task", "completed"),
        "refuse": ("task", "failed"),
        "wait": ("task", "cancelled"),
    }
    assert [outcomes[name]["result"]["structuredContent"]["result"] for name in ("plain", "add", "travel")] == [
        *[42, 42],
        "Bergen",
    ]
    assert report["questions"] == ["Where to?"]
    assert "closed on Sundays" in outcomes["refuse"]["error"]
    assert {"tools/call", "tasks/get", "tasks/update", "tasks/cancel"} <= set(report["methods"])
