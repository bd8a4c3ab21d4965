"""``server/tools``, from the client's side: what a client does with a server's tools."""

from __future__ import annotations

import pytest

from tests.peer import Peer
from tests.requirements.case import Case
from tests.requirements.model import Topic, since
from trio_mcp import RemoteProtocolError
from trio_mcp.jsonrpc.messages import Request

topic = Topic("Tools, client")


@topic.row(
    "server/tools#output-schema",
    "A client validates structured content against the tool's output schema.",
    since("2025-06-18"),
)
async def output_validated(case: Case) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    answers = {
        "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}, "outputSchema": schema}]},
        "tools/call": {"content": [], "structuredContent": {"n": "no integer"}},
    }

    async def script(wire: Peer) -> None:
        await case.opening(wire, tools={})
        async for message in wire:
            if isinstance(message, Request):
                await wire.respond(message, {**answers[message.method], "ttlMs": 0, "cacheScope": "private"})

    async with case.scripted(script) as client:
        with pytest.raises(RemoteProtocolError, match="schema"):
            await client.call_tool("t")
