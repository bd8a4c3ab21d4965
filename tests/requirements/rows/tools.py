"""``server/tools``: what a server that offers tools has to do."""

from __future__ import annotations

import pytest

from tests.requirements.case import Case
from tests.requirements.model import Topic, since, until
from trio_mcp import ListOptions, McpError, Server, ToolError
from trio_mcp.types import error_codes


def server() -> Server:
    made = Server("tools", version="1.0", lists=ListOptions(page_size=2))

    @made.tool
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    @made.tool
    async def fail() -> str:
        """Fail."""
        raise ToolError("it is broken")

    @made.tool
    async def bare() -> str:
        """Return a text."""
        return "text"

    return made


topic = Topic("Tools", server)


@topic.row("server/tools#capabilities", "A server with tools declares the capability.")
async def capability(case: Case) -> None:
    async with case.client() as client:
        assert client.capabilities.tools is not None


@topic.row("server/tools#listing-tools", "tools/list answers with name and inputSchema of each tool.")
async def listed(case: Case) -> None:
    async with case.client() as client:
        tools = [tool async for tool in client.iter_tools()]
    assert sorted(tool.name for tool in tools) == ["add", "bare", "fail"]
    assert all(tool.input_schema["type"] == "object" for tool in tools)


@topic.row("server/tools#listing-tools", "A tool without parameters has a schema that takes no arguments.")
async def schema_without_parameters(case: Case) -> None:
    async with case.client() as client:
        (tool,) = [tool async for tool in client.iter_tools() if tool.name == "bare"]
    assert tool.input_schema.get("properties", {}) == {}
    assert tool.input_schema["additionalProperties"] is False


@topic.row("server/tools#calling-tools", "tools/call answers with content.")
async def called(case: Case) -> None:
    async with case.client() as client:
        result = await client.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert result["content"] == [{"type": "text", "text": "3"}]


@topic.row("server/tools#error-handling", "An unknown tool is refused with -32602.")
async def unknown(case: Case) -> None:
    async with case.client() as client:
        with pytest.raises(McpError) as caught:
            await client.request("tools/call", {"name": "unknown"})
    assert caught.value.code == error_codes.INVALID_PARAMS


@topic.row("server/tools#error-handling", "A tool that fails answers with isError, for the model to see.")
async def failure(case: Case) -> None:
    async with case.client() as client:
        result = await client.request("tools/call", {"name": "fail"})
    assert result["isError"] is True
    assert result["content"] == [{"type": "text", "text": "it is broken"}]


@topic.row(
    "server/tools#error-handling",
    "Arguments that violate the input schema give a result with isError.",
    since("2025-11-25"),
)
async def invalid_arguments(case: Case) -> None:
    async with case.client() as client:
        result = await client.request("tools/call", {"name": "add", "arguments": {"a": "x"}})
    assert result["isError"] is True


@topic.row("server/tools#error-handling", "Invalid arguments are refused with -32602.", until("2025-06-18"))
async def invalid_arguments_refused(case: Case) -> None:
    async with case.client() as client:
        with pytest.raises(McpError) as caught:
            await client.request("tools/call", {"name": "add", "arguments": {"a": "x"}})
    assert caught.value.code == error_codes.INVALID_PARAMS


@topic.row(
    "server/tools#structured-content", "A result with structured content also carries it as text.", since("2025-06-18")
)
async def structure_as_text(case: Case) -> None:
    async with case.client() as client:
        result = await client.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert result["structuredContent"] == {"result": 3}
    assert result["content"] == [{"type": "text", "text": "3"}]


topic.held(
    "names",
    "server/tools#tool-names",
    "A server offers only tool names of 1 to 128 letters, digits, underscores, dashes and dots.",
    "tests/server/test_registration.py::test_other_names_are_refused_when_registered",
    since("2025-11-25"),
)
