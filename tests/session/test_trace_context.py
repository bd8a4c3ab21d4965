"""A session's own requests carry the trace that they are made in, in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.session.harness import session_pair
from trio_mcp import RequestContext, TraceContext

TRACE = TraceContext("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", None, "user=alice")


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_a_request_carries_the_current_trace_and_only_that(mode: str) -> None:
    seen: list[dict[str, Any]] = []

    async def answer(context: RequestContext) -> dict[str, Any]:
        seen.append(context.meta)
        return {}

    async with session_pair(answer, mode=mode) as (client, _):
        with TRACE.use():
            await client.send_request("tools/list")
        await client.send_request("tools/list")
    assert TRACE.to_meta().items() <= seen[0].items()
    assert not TRACE.to_meta().keys() & seen[1].keys()


async def test_a_servers_requests_to_its_client_carry_it_too() -> None:
    seen: list[dict[str, Any]] = []

    async def roots(params: Any, context: RequestContext) -> dict[str, Any]:
        seen.append(context.meta)
        return {"roots": []}

    async with session_pair() as (client, server):
        client.add_request_handler("roots/list", roots)
        with TRACE.use():
            await server.send_request("roots/list")
        await server.send_request("roots/list")
    assert seen == [TRACE.to_meta(), {}]
