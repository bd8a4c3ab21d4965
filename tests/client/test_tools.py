"""Listing and calling tools (`server/tools`)."""

from __future__ import annotations

import contextlib
from datetime import date
from typing import Any

import pytest
import trio
from pydantic import BaseModel

from tests.client.scripted import scripted as by_script
from tests.client.servers import make_server
from trio_mcp import Client, McpError, RemoteProtocolError, Server, ToolResult
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.types.content import TextContent


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_results(mode: str) -> None:
    async with Client(make_server(), mode=mode) as client:
        total = await client.call_tool("add", {"a": 1, "b": 2})
        assert (total.data, total.text, total.structured_content, bool(total.is_error)) == (
            3,
            "3",
            {"result": 3},
            False,
        )
        assert isinstance(total.content[0], TextContent)
        assert (await client.call_tool("count", {"to": 3})).data == [0, 1, 2]
        assert (await client.call_tool("greet", {"name": "Ada"})).text == "Hello, Ada!"
        assert (await client.call_tool("nothing")).data is None


async def test_arguments_are_anything_that_has_a_json_form() -> None:
    server = Server("x")

    class Point(BaseModel):
        x: int

    @server.tool
    async def show(point: dict[str, Any], day: str, numbers: list[int]) -> list[Any]:
        return [point, day, numbers]

    async with Client(server) as client:
        arguments = {"point": Point(x=1), "day": date(2026, 7, 28), "numbers": (1, 2)}
        assert (await client.call_tool("show", arguments)).data == [{"x": 1}, "2026-07-28", [1, 2]]


def scripted(*tools: dict[str, Any], **results: Any) -> contextlib.AbstractAsyncContextManager[Any]:
    """Return a client whose server is a script: these tools, and for each name these results of calls."""
    answers = {"tools/list": {"tools": list(tools)}, "tools/call": lambda params: results[params["name"]]}
    return by_script(answers, capabilities={"tools": {}})


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def tool(name: str, output: Any = None) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **({"outputSchema": output} if output else {})}


def structured(value: Any) -> dict[str, Any]:
    return {"content": [], "structuredContent": value}


async def test_structured_content_is_checked_by_the_output_schema_that_is_known_until_it_changes() -> None:
    """What breaks it is the server's fault; error results are not checked."""
    bad = structured({"n": "one"})
    names = ("good", "bad", "error")
    results = {"good": structured({"n": 1}), "bad": bad, "error": {**bad, "isError": True}}
    async with scripted(*(tool(name, NUMBER) for name in names), **results) as (client, asked, wire):
        for _ in range(2):
            assert (await client.call_tool("good")).data == {"n": 1}
            with pytest.raises(RemoteProtocolError, match=r"'bad' breaks its own output schema: \['n'\].*integer"):
                await client.call_tool("bad")
            assert (await client.call_tool("error")).is_error
        assert [each.method for each in asked].count("tools/list") == 1
        await wire.send(Notification("notifications/tools/list_changed"))
        await trio.testing.wait_all_tasks_blocked()
        await client.call_tool("good")
        assert [each.method for each in asked].count("tools/list") == 2


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        ({"$ref": "https://example.com/schema.json"}, "outside itself"),
        ({"$ref": "file:///etc/passwd"}, "outside itself"),
        ({"type": 7}, "invalid"),
        ({"$schema": "https://example.com/my-dialect"}, "dialect"),
    ],
)
async def test_a_schema_that_cant_be_used_fails_the_call_not_the_client(schema: dict[str, Any], match: str) -> None:
    async with scripted(tool("odd", schema), tool("good"), odd=structured({"n": 1}), good=structured({})) as (c, _, _a):
        with pytest.raises(RemoteProtocolError, match=match):
            await c.call_tool("odd")
        assert (await c.call_tool("good")).data == {}


async def test_a_malformed_result_is_the_servers_fault() -> None:
    async with scripted(bad={"content": "text"}) as (client, _, _a):
        with pytest.raises(RemoteProtocolError, match=r"not a valid ToolResult: content"):
            await client.call_tool("bad")


def test_data_unwraps_only_the_wrapper() -> None:
    def result(value: Any) -> Any:
        return ToolResult(content=[], structured_content=value).data

    assert result({"result": 3}) == 3
    assert result({"result": 3, "more": 4}) == {"result": 3, "more": 4}
    assert result({"other": 3}) == {"other": 3}
    assert result([1]) == [1]
    assert result(None) is None


async def test_middleware_surrounds_every_request_of_the_client() -> None:
    trail: list[str] = []

    def layer(name: str) -> Any:
        async def middleware(call: Any, call_next: Any) -> Any:
            trail.append(f"{name} {call.method}")
            if call.method == "tools/call":
                call.params["arguments"]["a"] += 10
            result = await call_next()
            trail.append(f"{name} done")
            return result

        return middleware

    async with Client(make_server(), middleware=[layer("outer"), layer("inner")]) as client:
        await client.list_tools()
        trail.clear()
        assert (await client.call_tool("greet", {"name": "x", "a": 1})).is_error  # greet takes no sum, which is added
        assert trail == ["outer tools/call", "inner tools/call", "inner done", "outer done"]
        assert (await client.call_tool("add", {"a": 1, "b": 1})).data == 22


async def test_middleware_can_answer_by_itself_and_errors_pass_through_it() -> None:
    seen: list[Exception] = []

    async def cache(call: Any, call_next: Any) -> Any:
        if call.method == "tools/call" and call.params["name"] == "cached":
            return {"content": [{"type": "text", "text": "from the cache"}]}
        try:
            return await call_next()
        except McpError as exc:
            seen.append(exc)
            raise

    async with Client(make_server(), middleware=[cache]) as client:
        assert (await client.call_tool("cached")).text == "from the cache"
        with pytest.raises(McpError, match="unknown tool"):
            await client.call_tool("unknown")
    assert len(seen) == 1
