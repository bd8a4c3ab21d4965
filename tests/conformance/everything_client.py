"""The client that the official conformance suite tests, written with the public API.

The suite runs it once for each scenario, with the URL of its server as the last argument and the rest in environment
variables: ``MCP_CONFORMANCE_SCENARIO``, ``MCP_CONFORMANCE_PROTOCOL_VERSION`` and, for some scenarios,
``MCP_CONFORMANCE_CONTEXT``, which is JSON. It prints nothing unless it fails.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from trio_mcp import Answers, Client, types
from trio_mcp.extensions import SkillMismatch, Skills

from .everything_auth import sign_in

REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2026-07-28")

MODE = "auto" if REVISION == "2026-07-28" else "legacy"
"""The suite's servers of the legacy era know no `server/discover`, and fail a client that tries it."""

Scenario = Callable[[str], Awaitable[None]]


async def connect(url: str) -> None:
    """Connect, no more."""
    async with Client(url, mode=MODE) as client:
        assert client.server_info is not None


async def list_tools(url: str) -> None:
    """List the tools."""
    async with Client(url, mode=MODE) as client:
        await client.list_tools()


async def add_numbers(url: str) -> None:
    """Call a tool."""
    async with Client(url, mode=MODE) as client:
        await client.list_tools()
        await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def declare_everything(url: str) -> None:
    """Make a request, as a client with all that a server may ask for."""

    def refuse(params: object) -> str:
        return "decline"

    async with Client(url, mode=MODE, answers=Answers(elicitation=refuse, sampling=refuse, roots=[])) as client:
        await client.request("com.example/anything")  # the server of this scenario declares nothing, and takes anything


async def reconnect(url: str) -> None:
    """Call a tool whose response comes on a different stream from the one it began on."""
    async with Client(url, mode=MODE) as client:
        await client.list_tools()
        await client.call_tool("test_reconnection")


async def fill_in_defaults(url: str) -> None:
    """Accept a form as it is: the library fills in the defaults."""
    async with Client(url, mode=MODE, answers=Answers(elicitation=lambda form: "accept")) as client:
        await client.list_tools()
        await client.call_tool("test_client_elicitation_defaults")


async def answer_rounds(url: str) -> None:
    """Call tools that ask in rounds; the library answers them."""
    async with Client(url, mode=MODE, answers=Answers(elicitation=lambda form: {"confirmed": True})) as client:
        await client.list_tools()
        for tool in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"):
            await client.call_tool(tool)


async def echo_schema(url: str) -> None:
    """Send back a schema as the library has read it."""
    async with Client(url, mode=MODE) as client:
        tools = {tool.name: tool async for tool in client.iter_tools()}
        await client.call_tool("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})


async def call_every_tool(url: str) -> None:
    """Call each tool that is listed, with whatever its schema wants."""
    examples = {"string": "x", "integer": 0, "number": 0, "boolean": False, "object": {}, "array": []}

    def arguments_for(tool: types.Tool) -> dict[str, Any]:
        properties = tool.input_schema.get("properties", {})
        return {name: examples.get(properties[name].get("type")) for name in tool.input_schema.get("required", [])}

    logging.getLogger("trio_mcp").addHandler(logging.NullHandler())  # it logs which tools it leaves out
    async with Client(url, mode=MODE) as client:
        async for tool in client.iter_tools():
            await client.call_tool(tool.name, arguments_for(tool))


async def use_all_that_is_listed(url: str) -> None:
    """Call each tool, read each resource and get each prompt that is listed."""
    async with Client(url, mode=MODE) as client:
        async for tool in client.iter_tools():
            await client.call_tool(tool.name)
        async for resource in client.iter_resources():
            await client.read_resource(resource.uri)
        async for prompt in client.iter_prompts():
            await client.get_prompt(prompt.name)


async def make_the_calls(url: str) -> None:
    """Make the calls that the suite names."""
    calls = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]
    async with Client(url, mode=MODE) as client:
        await client.list_tools()
        for call in calls:
            await client.call_tool(call["name"], call["arguments"])


async def list_skills(url: str) -> None:
    """List the skills, and load none."""
    async with Client(url, mode=MODE, extensions=[Skills()]) as client:
        assert [entry.name for entry in await Skills.of(client).entries()] == ["pdf-processing"]


async def refuse_a_skill(url: str) -> None:
    """Load a skill that is not what was listed."""
    async with Client(url, mode=MODE, extensions=[Skills()]) as client:
        skills = Skills.of(client)
        [entry] = await skills.entries()
        try:
            await skills.load(entry)
        except SkillMismatch:
            return
        raise AssertionError("the skill was loaded")


SCENARIOS: dict[str, Scenario] = {
    "initialize": connect,
    "tools_call": add_numbers,
    "request-metadata": declare_everything,
    "http-standard-headers": use_all_that_is_listed,
    "http-custom-headers": make_the_calls,
    "http-invalid-tool-headers": call_every_tool,
    "sse-retry": reconnect,
    "elicitation-sep1034-client-defaults": fill_in_defaults,
    "sep-2322-client-request-state": answer_rounds,
    "json-schema-2020-12-preservation": echo_schema,
    "json-schema-ref-no-deref": list_tools,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": refuse_a_skill,
    "sep-2640-client-verify-frontmatter": refuse_a_skill,
    "sep-2640-client-verify-size": refuse_a_skill,
}


async def main(url: str) -> None:
    """Play a scenario."""
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if scenario.startswith("auth/"):
        context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
        await sign_in(url, MODE, scenario.removeprefix("auth/"), context)
    else:
        await SCENARIOS[scenario](url)


if __name__ == "__main__":
    trio.run(main, sys.argv[-1])
