"""Our client answers our server's questions: one handler and one set of callbacks, in both eras."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_mcp import Answers, Client, Server, StdioServerParameters, ToolError, types
from trio_mcp.server.context import Context

ROOT = Path(__file__).parents[2]
PEER = ROOT / "tests" / "interop" / "peers" / "our_server.py"
WAYS = [("2025-11-25", "interview"), ("2026-07-28", "interview"), ("2026-07-28", "parked_interview")]
every_way = pytest.mark.parametrize(("revision", "tool"), WAYS, ids=["legacy", "replayed", "parked"])


class User:
    """Answers everything, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def answers(self) -> Answers:
        return Answers(elicitation=self.elicitation, sampling=self.sampling, roots=[Path("/srv")])

    async def elicitation(self, params: Any) -> Any:
        self.asked.append(params.message)
        return {"Which colour?": {"colour": "red"}, "How long?": {"nights": 2}}[params.message]

    async def sampling(self, params: types.CreateMessageRequestParams) -> str:
        self.asked.append("sampling")
        return "hello"


@every_way
async def test_a_process_asks_and_gets_the_same_answers_in_each_era(revision: str, tool: str) -> None:
    """Two forms, then the model and the roots in one round; nothing is asked twice."""
    user = User()
    target = StdioServerParameters(sys.executable, [str(PEER)], env={"PYTHONPATH": str(ROOT)})
    with trio.fail_after(30):
        async with Client(target, mode=revision, answers=user.answers()) as client:
            result = await client.call_tool(tool)
    assert result.data == "red, 2, [], hello, file:///srv"
    assert user.asked == ["Which colour?", "How long?", "sampling"]


@pytest.mark.parametrize(("revision", "park"), [("2025-11-25", False), ("2026-07-28", False), ("2026-07-28", True)])
async def test_cancelling_the_call_while_the_user_thinks_ends_the_handler(revision: str, park: bool) -> None:
    """Nothing is left: neither the callback nor, where it waits, the handler."""
    server, thinking, ended = Server("asks"), trio.Event(), trio.Event()

    @server.tool(park_input=park)
    async def ask(ctx: Context) -> str:
        try:
            (root,) = await ctx.list_roots()
        finally:
            ended.set()
        return root.uri

    async def roots() -> Any:
        thinking.set()
        await trio.sleep_forever()

    async with Client(server, mode=revision, answers=Answers(roots=roots)) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "ask")
            await thinking.wait()
            nursery.cancel_scope.cancel()
        if not park:  # a parked handler waits for its deadline, or for the end of the run
            with trio.fail_after(10):
                await ended.wait()
    with trio.fail_after(10):
        await ended.wait()


async def test_a_tool_error_after_an_answer_is_the_result() -> None:
    """Once answered, it is an ordinary call."""
    server = Server("asks")

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.list_roots()
        raise ToolError("none of these")

    async with Client(server, answers=Answers(roots=[])) as client:
        result = await client.call_tool("ask")
    assert result.is_error
