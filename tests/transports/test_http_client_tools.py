"""Arguments that are repeated as headers, from the client's side.

2026-07-28 `basic/transports/streamable-http`, section Custom Headers from Tool Parameters.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from tests.http_peer import DISCOVERED, Asked, HttpPeer, giving
from tests.transports.http_calls import serving
from trio_mcp import Client, McpError, TransportError
from trio_mcp.http.client import heads as http_heads
from trio_mcp.jsonrpc.messages import Request

TEXT = {"resultType": "complete", "content": []}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


REGION = tool("where", region={"type": "string", "x-mcp-header": "Region"})


class Tools:
    """A server with the tools that the test chooses, which refuses a call without the headers that they declare."""

    def __init__(self, *tools: dict[str, Any], page: int = 100) -> None:
        self.tools = list(tools)
        self.page = page
        self.wanted: set[str] = set()

    async def list(self, asked: Asked) -> None:
        first = int(asked.body["params"].get("cursor", "0"))
        found: dict[str, Any] = {"tools": self.tools[first : first + self.page]}
        if first + self.page < len(self.tools):
            found["nextCursor"] = str(first + self.page)
        await asked.result({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **found})

    async def call(self, asked: Asked) -> None:
        if self.wanted - asked.headers.keys():
            await asked.error(400, -32020, "Header mismatch: missing")
        else:
            await asked.result(TEXT)

    def handlers(self) -> dict[str, Any]:
        discover = giving(DISCOVERED)
        return {"server/discover": discover, "tools/list": self.list, "tools/call": self.call}


@contextlib.asynccontextmanager
async def connected(tools: Tools) -> AsyncIterator[tuple[HttpPeer, Client]]:
    async with serving(tools.handlers()) as server, Client(server.url) as client:
        yield server, client


async def test_a_listed_tool_has_its_arguments_repeated() -> None:
    """Client Behavior, 3 to 5; a value that is not there or null has no header."""
    async with connected(Tools(REGION)) as (server, client):
        await client.list_tools()
        for arguments in ({"region": "eu-west"}, {"region": "zürich"}, {"region": None}, {}):
            await client.call_tool("where", arguments)
        sent = [asked.headers.get("mcp-param-region") for asked in server.asked if asked.rpc == "tools/call"]
    assert sent == ["eu-west", "=?base64?esO8cmljaA==?=", None, None]


async def test_a_tool_that_breaks_the_rules_is_left_out_and_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Clients MUST exclude it from the result of tools/list, and SHOULD log a warning with name and reason."""
    bad = tool("bad", number={"type": "number", "x-mcp-header": "Number"})
    async with connected(Tools(REGION, bad, tool("plain"))) as (_, client):
        with caplog.at_level(logging.WARNING, "trio_mcp"):
            assert [found.name for found in (await client.list_tools()).tools] == ["where", "plain"]
    (record,) = caplog.records
    assert "'bad' is left out" in record.getMessage()
    assert "'number'" in record.getMessage()


async def test_a_tool_that_was_never_listed_is_listed_when_the_server_wants_headers() -> None:
    """Client Behavior: on HeaderMismatch, call tools/list, every page of it, and retry; once for all who call."""
    tools = Tools(*(tool(f"other-{number}") for number in range(5)), REGION, page=2)
    tools.wanted = {"mcp-param-region"}
    async with connected(tools) as (server, client), trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(client.call_tool, "where", {"region": "eu"})
    methods = server.methods()
    assert methods.count("tools/list") == 3
    assert 11 <= methods.count("tools/call") <= 20  # a call that is sent after the list is not refused
    listed = next(asked for asked in server.asked if asked.rpc == "tools/list")
    assert listed.headers["mcp-method"] == "tools/list"
    assert listed.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"


async def test_a_tool_that_changed_is_listed_again() -> None:
    """The latest list counts: the old header is no longer sent."""
    tools = Tools(REGION)
    async with connected(tools) as (server, client):
        await client.list_tools()
        tools.tools = [tool("where", region={"type": "string", "x-mcp-header": "Place"})]
        tools.wanted = {"mcp-param-place"}
        await client.call_tool("where", {"region": "eu"})
        last = server.asked[-1].headers
    assert (last.get("mcp-param-place"), last.get("mcp-param-region")) == ("eu", None)


async def test_a_mismatch_that_listing_does_not_mend_is_the_callers() -> None:
    tools = Tools(REGION)
    tools.wanted = {"mcp-param-other"}
    async with connected(tools) as (server, client):
        with pytest.raises(McpError, match="Header mismatch") as caught:
            await client.call_tool("where", {"region": "eu"})
        assert caught.value.code == -32020
        assert server.methods().count("tools/call") == 2


async def test_a_server_that_lists_no_tools_gives_its_refusal() -> None:
    tools = Tools()
    tools.wanted = {"mcp-param-x"}
    async with connected(tools) as (server, client):

        async def refused(asked: Asked) -> None:
            await asked.error(404, -32601)

        server.handlers["tools/list"] = refused
        with pytest.raises(McpError, match="Header mismatch"):
            await client.call_tool("where", {"region": "eu"})


@pytest.mark.parametrize("arguments", [{"n": 2**53}, {"n": "\ud800"}])
async def test_a_value_that_no_header_can_carry_is_not_sent(arguments: dict[str, Any]) -> None:
    """It fails its own call, with an explanation."""
    async with connected(Tools(tool("count", n={"type": "integer", "x-mcp-header": "N"}))) as (server, client):
        await client.list_tools()
        with pytest.raises((TransportError, TypeError)):
            await client.call_tool("count", arguments)
        await client.call_tool("count", {"n": 1})
        assert server.methods().count("tools/call") == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_heads, "MAX_TOOLS", 3)
    headers = http_heads.RequestHeaders()
    for number in range(10):
        schema = tool(f"t{number}", a={"type": "string", "x-mcp-header": "A"})
        headers.learn({"tools": [schema]})

    def is_known(number: int) -> bool:
        call = Request(1, "tools/call", {"name": f"t{number}", "arguments": {"a": "x"}})
        return "Mcp-Param-A" in headers.of(call, "2026-07-28")

    assert [number for number in range(10) if is_known(number)] == [7, 8, 9]


@pytest.mark.parametrize("result", [{}, {"tools": 7}, {"tools": [7, {}, {"name": 1}, {"name": "x", "inputSchema": 3}]}])
def test_a_malformed_list_of_tools_is_passed_on_to_the_caller(result: dict[str, Any]) -> None:
    assert http_heads.RequestHeaders().learn(result) == result
