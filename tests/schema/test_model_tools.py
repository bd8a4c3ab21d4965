"""A host's list in the dialect of a model: each of its tools, and no tool that can't be called."""

from __future__ import annotations

from typing import Any

import pytest

from trio_mcp import Client, ClientGroup, Server
from trio_mcp.schema import DIALECT_NAMES, ModelSchema, ModelTools
from trio_mcp.types import Tool

from .dialect_rules import broken_rules

BROKEN = {"type": "object", "properties": {"a": {"$ref": "https://elsewhere.example/schema"}}}


def server() -> Server:
    shop = Server("shop")

    @shop.tool
    def order(items: dict[str, int], gift: bool = False) -> dict[str, Any]:
        return {"items": items, "gift": gift}

    return shop


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
async def test_each_call_of_the_model_is_one_of_the_tool(dialect: Any) -> None:
    async with Client(server()) as client:
        page = await client.list_tools()
        tools = ModelTools(page, dialect=dialect)
        (tool,) = tools
        assert (len(tools), tool.name, broken_rules(tool.input_schema, dialect)) == (1, "order", [])
        assert page.tools[0].input_schema != tool.input_schema  # the host's own list is as it was
        meant = {"items": {"apple": 3}}
        said = tools.for_model("order", meant)
        assert said != meant
        assert (await client.call_tool("order", tools.from_model("order", said))).data == {**meant, "gift": False}


async def test_the_list_of_a_group_keeps_its_names() -> None:
    async with ClientGroup({"one": server(), "two": server()}) as group:
        tools = ModelTools(await group.list_tools(), dialect="gemini")
        assert [tool.name for tool in tools] == ["one__order", "two__order"]
        for tool in tools:
            meant = tools.from_model(tool.name, tools.for_model(tool.name, {"items": {"apple": 3}}))
            assert (await group.call_tool(tool.name, meant)).data["items"] == {"apple": 3}


def test_a_tool_whose_schema_is_broken_costs_no_other() -> None:
    given = [Tool(name="good", input_schema={"type": "object"}), Tool(name="bad", input_schema=BROKEN)]
    tools = ModelTools(given, dialect="openai-strict")
    assert [tool.name for tool in tools] == list(tools.schemas) == ["good"]
    assert list(tools.refused) == ["bad"]
    assert "elsewhere.example" in str(tools.refused["bad"])


def test_a_tool_that_the_model_has_made_up_is_left_to_the_server() -> None:
    tools = ModelTools([], dialect="gemini")
    assert tools.from_model("made_up", {"a": 1}) == tools.for_model("made_up", {"a": 1}) == {"a": 1}
    with pytest.raises(ValueError, match="dialect"):
        ModelTools([], dialect="klingon")  # type: ignore[arg-type]
    assert isinstance(ModelTools([Tool(name="a", input_schema={})], dialect="gemini").schemas["a"], ModelSchema)
