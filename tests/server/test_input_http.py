"""Questions over HTTP, where each request of the modern era is an exchange of its own."""

from __future__ import annotations

import functools

import pytest
import trio

from tests.server.harness import server_with
from tests.server.input_harness import Name
from trio_mcp import Answers, Client, Context


@pytest.mark.parametrize("park", [False, True])
async def test_a_question_is_answered_with_the_next_request(park: bool) -> None:
    runs: list[int] = []

    async def greet(ctx: Context) -> str:
        runs.append(1)
        answer = await ctx.elicit("Who?", Name)
        return f"Hello, {answer.data.name}"

    server = server_with(greet, park_input=park)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(functools.partial(server.serve_http, port=0))
            answers = Answers(elicitation=lambda params: {"name": "Ann"})
            async with Client(url, mode="2026-07-28", answers=answers) as client:
                assert (await client.call_tool("greet")).data == "Hello, Ann"
            nursery.cancel_scope.cancel()
    assert len(runs) == (1 if park else 2)
