"""Responses that come without a state: answers to what has not been asked yet (2026-07-28 `basic/patterns/mrtr`).

Only a question that the handler has given a key takes one; a number in the order of asking means nothing to a client.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from tests.server.harness import server_with
from tests.server.input_harness import Name, Peer, accept, hand_client, text_of
from trio_mcp import Context, Server


class Age(BaseModel):
    age: int


async def tool(ctx: Context) -> str:
    name = await ctx.elicit("Who?", Name, key="name")
    age = await ctx.elicit("How old?", Age, key="age")
    return f"{name.data and name.data.name} {age.data and age.data.age}"


async def unnamed(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", Name)
    return answer.action


async def early(client: Peer, tool: str = "tool", **responses: Any) -> Any:
    return await client.ask("tools/call", {"name": tool, "inputResponses": responses})


@pytest.fixture(params=[False, True], ids=["replayed", "parked"])
def server(request: pytest.FixtureRequest) -> Server:
    return server_with(tool, unnamed, park_input=request.param)


async def test_a_question_with_a_key_takes_the_response_to_it(server: Server) -> None:
    async with hand_client(server) as client:
        assert text_of(await early(client, name=accept(name="Ada"), age=accept(age=36))) == "Ada 36"


async def test_only_the_missing_answers_are_asked_for_and_the_rest_kept(server: Server) -> None:
    """Error Handling: ask again for what is missing, rather than refuse."""
    async with hand_client(server) as client:
        asked = await early(client, name=accept(name="Ada"), other=accept(name="x"))
        assert set(asked["inputRequests"]) == {"age"}
        retry = {"requestState": asked["requestState"], "inputResponses": {"age": accept(age=36)}}
        assert text_of(await client.ask("tools/call", {"name": "tool", **retry})) == "Ada 36"


async def test_responses_to_unasked_questions_are_ignored(server: Server) -> None:
    async with hand_client(server) as client:
        asked = await early(client, wrong=accept(name="x"), other=7)
        assert set(asked["inputRequests"]) == {"name"}
        asked = await early(client, "unnamed", **{"input-1": accept(name="x")})
        assert set(asked["inputRequests"]) == {"input-1"}


@pytest.mark.parametrize(
    ("response", "text"),
    [(12345, "not a valid answer"), ({}, "not a valid answer"), (accept(name=7), "does not fit the form")],
)
async def test_an_invalid_response_is_refused(server: Server, response: Any, text: str) -> None:
    async with hand_client(server) as client:
        answer = await early(client, name=response)
        assert answer.code == -32602
        assert text in answer.message
