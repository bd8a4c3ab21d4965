"""Questions over HTTP, where each request of the modern era is an exchange of its own."""

from __future__ import annotations

import functools
from typing import Any

import httpx
import pytest
import trio
from pydantic import BaseModel

from tests.server.harness import server_with
from tests.server.input_harness import MODERN, accept, text_of
from trio_mcp import Context
from trio_mcp.types import meta


class Name(BaseModel):
    name: str


@pytest.mark.parametrize("park", [False, True])
async def test_a_question_is_answered_with_the_next_request(park: bool) -> None:
    runs: list[int] = []

    async def greet(ctx: Context) -> str:
        runs.append(1)
        answer = await ctx.elicit("Who?", Name)
        return f"Hello, {answer.data and answer.data.name}"

    stamp = {
        meta.PROTOCOL_VERSION: MODERN,
        meta.CLIENT_CAPABILITIES: {"elicitation": {}},
        meta.CLIENT_INFO: {"name": "test", "version": "1"},
    }
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": "greet",
    }

    async def call(client: httpx.AsyncClient, url: str, **more: Any) -> Any:
        params = {"name": "greet", "arguments": {}, "_meta": stamp, **more}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return (await client.post(url, json=body, headers=headers)).json()["result"]

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery, httpx.AsyncClient() as client:
            url = await nursery.start(functools.partial(server_with(greet, park_input=park).serve_http, port=0))
            asked = await call(client, url)
            assert asked["resultType"] == "input_required"
            answers = {"input-1": accept(name="Ann")}
            result = await call(client, url, requestState=asked["requestState"], inputResponses=answers)
            nursery.cancel_scope.cancel()
    assert text_of(result) == "Hello, Ann"
    assert len(runs) == (1 if park else 2)
