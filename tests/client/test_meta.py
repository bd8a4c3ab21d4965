"""`meta=`: what a caller adds to the `_meta` of a request (`basic`, section _meta)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.client.scripted import scripted
from trio_mcp import Client
from trio_mcp.types import PromptReference, meta

ANSWERS: dict[str, dict[str, Any]] = {
    "tools/call": {"content": []},
    "resources/read": {"contents": []},
    "prompts/get": {"messages": []},
    "completion/complete": {"completion": {"values": []}},
}
CALLS: dict[str, Callable[..., Awaitable[Any]]] = {
    "tools/call": lambda client, **given: client.call_tool("x", **given),
    "resources/read": lambda client, **given: client.read_resource("x://y", **given),
    "prompts/get": lambda client, **given: client.get_prompt("x", **given),
    "completion/complete": lambda client, **given: client.complete(PromptReference(name="x"), "a", **given),
}
EVERYTHING = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}
calls = pytest.mark.parametrize(("method", "call"), CALLS.items(), ids=CALLS)


@calls
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_it_travels_beside_what_the_era_adds(
    method: str, call: Callable[..., Awaitable[Any]], revision: str
) -> None:
    given = {"com.example/x": [1], meta.LOG_LEVEL: "debug", "io.modelcontextprotocol/ui": 2}
    async with scripted(ANSWERS, revision=revision, capabilities=EVERYTHING) as (client, asked, _):
        await call(client, meta=given)
    (request,) = asked
    assert request.method == method
    sent = (request.params or {})["_meta"]
    assert given.items() <= sent.items()
    assert (meta.PROTOCOL_VERSION in sent) is (revision == "2026-07-28")


@calls
async def test_a_bad_key_is_refused_and_nothing_is_sent(method: str, call: Callable[..., Awaitable[Any]]) -> None:
    async with scripted(ANSWERS, capabilities=EVERYTHING, revision="2026-07-28") as (client, asked, _):
        rules = {"_x": "is malformed", "com.mcp/x": "is reserved", "progressToken": "pass on_progress"}
        for key, rule in rules.items():
            with pytest.raises(ValueError, match=f"the _meta key {key!r}.*{rule}"):
                await call(client, meta={key: 1})
        with pytest.raises(TypeError, match="meta must be a mapping"):
            await call(client, meta=5)
    assert asked == []


@pytest.mark.parametrize(("revision", "reserved"), [("2025-06-18", "mcp.dev/x"), ("2025-11-25", "dev.mcp/x")])
async def test_the_rule_is_that_of_the_revision_that_is_spoken(revision: str, reserved: str) -> None:
    other = {"mcp.dev/x": "dev.mcp/x", "dev.mcp/x": "mcp.dev/x"}[reserved]
    async with scripted(ANSWERS, revision=revision, capabilities=EVERYTHING) as (client, asked, _):
        with pytest.raises(ValueError, match=f"is reserved: {revision} reserves"):
            await client.call_tool("x", meta={reserved: 1})
        await client.call_tool("x", meta={other: 1})
    assert len(asked) == 1


async def test_results_with_odd_keys_are_taken() -> None:
    """A peer's message is never refused because of a key."""
    odd = {"-x": 1, "com.mcp/x": 2}
    async with scripted({"tools/call": {"content": [], "_meta": odd}}, capabilities=EVERYTHING) as (client, _, _):
        assert isinstance(client, Client)
        assert (await client.call_tool("x")).meta == odd
