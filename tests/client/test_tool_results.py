"""What a client makes of the result of a tool: its type, and whether the tool was there at all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

import pytest
import trio
import trio.testing
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

from tests.client.scripted import scripted
from tests.tables import by_outcome
from trio_mcp import (
    Client,
    ClientGroup,
    Context,
    InputRequired,
    McpError,
    RemoteProtocolError,
    Server,
    ToolError,
    ToolResult,
    UnknownTool,
)
from trio_mcp.jsonrpc.messages import ErrorData
from trio_mcp.types import InputRequiredResult

TOOLS: dict[str, Any] = {"tools": {}}
SCHEMA = {"type": "object"}


def text(*blocks: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": each} for each in blocks], **more}


# --- a result with a type -----------------------------------------------------------------------------------------


class Point(BaseModel, strict=True):
    x: int
    seen: tuple[date, ...] = ()


class Partial(BaseModel):
    x: int = 0


class Wrapper(BaseModel):
    result: dict[str, int] = {}


@dataclass
class Pair:
    x: int


class Row(TypedDict):
    x: int


INNER = {"x": 3}
WRAPPED = {"result": INNER}


@pytest.mark.parametrize(
    ("result_type", "answer", "value"),
    [
        (Point, {"x": 3, "seen": ["2026-07-28"]}, Point(x=3, seen=(date(2026, 7, 28),))),
        (Pair, INNER, Pair(3)),
        (Row, INNER, INNER),
        (dict[str, int], INNER, INNER),
        (list[Pair], {"result": [INNER]}, [Pair(3)]),
        (int, {"result": 3}, 3),
        (int | None, {"result": None}, None),
        (TypeAdapter(date), {"result": "2026-07-28"}, date(2026, 7, 28)),
        (Annotated[int, Field(gt=2)], {"result": 3}, 3),
        (Annotated[int, {"not": "hashable"}], {"result": 3}, 3),
        # Since 2026-07-28 structured content may be any value.
        (list[int], [1, 2], [1, 2]),
        # What is inside of a wrapper comes first, unless the type itself has such a field.
        (Partial | None, WRAPPED, Partial(x=3)),
        (Any, WRAPPED, INNER),
        (Wrapper, WRAPPED, Wrapper(result=INNER)),
        (Wrapper, {"result": WRAPPED}, Wrapper(result=INNER)),
        # Without structured content: the text itself, or JSON.
        (str, '"quoted"', '"quoted"'),
        (Pair, '{"x": 3}', Pair(3)),
        (list[int], "[1, 2]", [1, 2]),
        (int, "3", 3),
    ],
)
async def test_a_result_has_the_type_that_was_asked_for(result_type: Any, answer: Any, value: Any) -> None:
    odd = {"_meta": {"k": 1}, "_fields_set": 1, "cls": 2}
    reply = text(answer, **odd) if isinstance(answer, str) else text("", structuredContent=answer, **odd)
    replies = {"tools/call": reply, "tools/list": {"tools": [], "ttlMs": 0, "cacheScope": "private"}}
    async with scripted(replies, revision="2026-07-28", capabilities=TOOLS) as (client, _, _):
        for result in (
            await client.call_tool("give", result_type=result_type),
            await client.call_tool_once("give", result_type=result_type),
        ):
            assert isinstance(result, ToolResult)
            assert result.data == value
            assert type(result.data) is type(value)
            assert result.structured_content == (None if isinstance(answer, str) else answer)
            assert (result.meta, result.model_extra) == ({"k": 1}, {"_fields_set": 1, "cls": 2})


@pytest.mark.parametrize(
    ("reply", "match"),
    [
        (text("", structuredContent={"x": "three"}), "the tool 'give' does not fit result_type: x: Input should be"),
        (text("", structuredContent={"result": {}}), "does not fit result_type: x: Field required$"),
        (text("three"), "has no structured content, and its text does not fit result_type: value: Invalid JSON"),
        (text('{"x": "three"}'), "its text does not fit result_type: x: Input should be a valid integer"),
    ],
)
async def test_a_result_that_does_not_fit_is_an_error(reply: dict[str, Any], match: str) -> None:
    replies = {"tools/call": reply, "tools/list": {"tools": []}}
    async with scripted(replies, capabilities=TOOLS) as (client, asked, _):
        with pytest.raises(RemoteProtocolError, match=match):
            await client.call_tool("give", result_type=Point)
        asked.clear()
        for wrong in ("Point", 5, object(), list["Nowhere"]):  # type: ignore[name-defined]  # noqa: F821
            with pytest.raises(TypeError, match="result_type must be a type that pydantic can validate, got"):
                await client.call_tool("give", result_type=wrong)
        assert asked == [], "found before the tool runs"


async def test_a_failure_has_no_data_of_the_type_and_a_question_none_yet() -> None:
    server = Server("failing")

    @server.tool
    def fail() -> int:
        raise ToolError("out of order")

    @server.tool
    async def ask(ctx: Context) -> Point | InputRequired:
        return InputRequired({"who": ctx.list_roots()})

    async with (
        Client(server, capabilities={"roots": {}}) as client,
        ClientGroup({"a": server}) as group,
    ):
        for failed in (
            await client.call_tool("fail", result_type=int),
            await group.call_tool("a__fail", result_type=int),
        ):
            assert failed.is_error is True
            with pytest.raises(ToolError, match=r"^out of order$"):
                _ = failed.data
        assert isinstance(await client.call_tool_once("ask", result_type=Point), InputRequiredResult)


@pytest.mark.parametrize(("sent", "seen"), [({}, False), (None, False), (False, False), (True, True)])
async def test_is_error_is_a_bool(sent: Any, seen: bool) -> None:
    reply = text("") if sent == {} else text("", isError=sent)
    async with scripted({"tools/call": reply}, capabilities=TOOLS) as (client, _, _):
        assert (await client.call_tool("give")).is_error is seen


# --- tools that are not there -------------------------------------------------------------------------------------

REFUSALS = [
    "unknown tool: 'prise'",
    'Unknown tool "prise"',
    "unknown tool: prise (error)",
    "MCP error -32602: Tool prise not found",
    "tool not found",
    "Tool 'prise' does not exist",
    "No such tool",
]
OTHERS = [
    "invalid arguments for the tool 'prise': a: Field required",
    "Unknown tool argument 'b'",
    "the price of 'prise' was not found",
    "x" * 2000 + "unknown tool",
]


@by_outcome("message", "unknown", {True: REFUSALS, False: OTHERS})
@pytest.mark.parametrize("code", [-32602, -32603])
async def test_an_error_that_says_so_is_an_unknown_tool(message: str, unknown: bool, code: int) -> None:
    listed = {"tools": [{"name": name, "inputSchema": SCHEMA} for name in ("price", "prise", "other")]}
    replies = {"tools/call": ErrorData(code, message, {"more": 1}), "tools/list": listed}
    async with scripted(replies, capabilities=TOOLS) as (client, asked, _):
        for call in (client.call_tool, client.call_tool_once):
            with pytest.raises(McpError) as refused:
                await call("prise")
            assert (refused.value.message, refused.value.data) == (message, {"more": 1})
            assert isinstance(refused.value, UnknownTool) == unknown
            if isinstance(refused.value, UnknownTool):
                assert (refused.value.code, refused.value.name) == (-32602, "prise")
                assert refused.value.suggestions == ("price",), "without the name itself, which the list has in vain"
                assert str(refused.value) == f"{message}; did you mean 'price'? (error -32602)"
        # The tools are asked for once, however many calls fail, and only if a name is unknown.
        assert [request.method for request in asked].count("tools/list") == unknown


ALONE = [
    "Unknown tool: prise",
    "MCP error -32602: Tool prise not found",
    "Error calling tool prise: unknown tool 'prise'",
]
NOT_ALONE = ["tool not found", "The order says: unknown tool: prise", "no price: unknown tool 'prise'"]


@by_outcome("said", "unknown", {True: ALONE, False: NOT_ALONE})
async def test_a_result_that_says_no_more_is_an_unknown_tool_if_the_list_has_none(said: str, unknown: bool) -> None:
    """Several SDKs send a result, though `server/tools`, Error Handling, names unknown tools as a protocol error."""
    listed = {"tools": [{"name": name, "inputSchema": SCHEMA} for name in ("price", "listed")]}
    replies = {"tools/call": text(said, isError=True), "tools/list": listed}
    async with scripted(replies, capabilities=TOOLS) as (client, _, _):
        if unknown:
            with pytest.raises(UnknownTool, match="; did you mean 'price'") as refused:
                await client.call_tool("prise")
            assert refused.value.message == said
        else:
            assert (await client.call_tool("prise")).text == said
        assert (await client.call_tool("listed")).is_error
    refusing = {**replies, "tools/list": ErrorData(-32603, "no")}
    silent = {**replies, "tools/list": text("not a list")}
    async with scripted(refusing, capabilities=TOOLS) as (client, _, _):
        if unknown:
            with pytest.raises(UnknownTool, match=r"\(error -32602\)$"):
                await client.call_tool("prise")
    async with scripted(silent, capabilities=TOOLS) as (client, _, _):
        assert (await client.call_tool("prise")).text == said, "what the list says is not known"


async def test_a_refused_call_does_not_wait_long_for_suggestions(autojump_clock: trio.testing.MockClock) -> None:
    """The server never answers `tools/list`."""
    began = trio.current_time()
    async with scripted({"tools/call": ErrorData(-32602, "unknown tool: prise")}, capabilities=TOOLS) as (client, _, _):
        with pytest.raises(UnknownTool) as refused:
            await client.call_tool("prise")
    assert refused.value.suggestions == ()
    async with scripted({"tools/call": text("unknown tool: prise", isError=True)}, capabilities=TOOLS) as (
        client,
        _,
        _,
    ):
        assert (await client.call_tool("prise")).is_error
    assert trio.current_time() - began < 10


async def test_an_agent_survives_names_that_a_model_invents() -> None:
    server = Server("shop")

    @server.tool
    def price(item: str) -> int:
        return len(item)

    async with ClientGroup({"shop": server, "bank": server}) as group:
        await group.list_tools()
        near = ("shop__price",)
        for name, suggested in {"shop__prise": near, "shoop__price": near, "price": near, "zzz": (), "": ()}.items():
            with pytest.raises(UnknownTool) as refused:
                await group.call_tool(name)
            assert (refused.value.name, refused.value.suggestions[:1]) == (name, suggested)
        with pytest.raises(McpError, match="the group has no prompt 'shop_x'"):
            await group.get_prompt("shop_x")


# --- whether the server is there ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("revision", "method"), [("2024-11-05", "ping"), ("2025-11-25", "ping"), ("2026-07-28", "server/discover")]
)
async def test_a_ping_is_sent_in_the_form_of_the_era(revision: str, method: str) -> None:
    async with scripted({method: {}}, revision=revision) as (client, asked, _):
        asked.clear()
        await client.ping(timeout=5)
        await client.session.ping(timeout=5)
        assert [request.method for request in asked] == [method, method]
