"""``server/tools``, from the client's side: what a client has to do with what a server offers."""

from __future__ import annotations

import pytest

from tests.requirements.case import Case
from tests.requirements.model import Topic, since
from tests.session.harness import Wire
from trio_mcp import RemoteProtocolError
from trio_mcp.jsonrpc.messages import Notification, Response

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

    async def script(wire: Wire) -> None:
        await case.opening(wire, tools={})
        async for item in wire.read:
            if isinstance(item.message, Notification):
                continue
            await wire.send(
                Response(item.message.id, {**answers[item.message.method], "ttlMs": 0, "cacheScope": "private"})
            )

    async with case.scripted(script) as client:
        with pytest.raises(RemoteProtocolError, match="schema"):
            await client.call_tool("t")
