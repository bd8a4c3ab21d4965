"""Listing and filling in prompts (`server/prompts`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.scripted import scripted, sent
from trio_mcp import CapabilityError, McpError, RemoteProtocolError, RequestTimeout
from trio_mcp.jsonrpc.messages import ErrorData
from trio_mcp.types.content import EmbeddedResource, TextContent

REVISIONS = ["2024-11-05", "2025-11-25", "2026-07-28"]


def listing(params: dict[str, Any]) -> dict[str, Any]:
    if params.get("cursor") == "2":
        return {"prompts": [{"name": "last"}]}
    review = {"name": "review", "arguments": [{"name": "code", "required": True}, {"name": "style"}]}
    return {"prompts": [review, {"name": "middle"}], "nextCursor": "2"}


@pytest.mark.parametrize("revision", REVISIONS)
async def test_lists_page_by_page_and_all_at_once(revision: str) -> None:
    async with scripted({"prompts/list": listing}, revision=revision) as (client, asked, _):
        page = await client.list_prompts()
        assert page.next_cursor == "2"
        assert page.prompts[0].arguments is not None
        assert [(argument.name, argument.required) for argument in page.prompts[0].arguments] == [
            ("code", True),
            ("style", None),
        ]
        assert [prompt.name for prompt in (await client.list_prompts("2")).prompts] == ["last"]
        assert [prompt.name async for prompt in client.iter_prompts()] == ["review", "middle", "last"]
    assert [sent(request) for request in asked] == [{}, {"cursor": "2"}, {}, {"cursor": "2"}]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_prompt_is_filled_in(revision: str) -> None:
    filled = {
        "description": "A review",
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "Look:"}},
            {
                "role": "assistant",
                "content": {"type": "resource", "resource": {"uri": "file:///a", "text": "x = 1"}},
            },
        ],
    }
    async with scripted({"prompts/get": filled}, revision=revision) as (client, asked, _):
        result = await client.get_prompt("review", {"code": "x = 1"})
        await client.get_prompt("review")
    assert result.description == "A review"
    first, second = result.messages
    assert (first.role, second.role) == ("user", "assistant")
    assert isinstance(first.content, TextContent)
    assert isinstance(second.content, EmbeddedResource)
    assert [sent(request) for request in asked] == [
        {"name": "review", "arguments": {"code": "x = 1"}},
        {"name": "review"},
    ]


async def test_arguments_are_strings() -> None:
    async with scripted({}) as (client, asked, _):
        with pytest.raises(TypeError, match="arguments must be a mapping of strings, got 'n': 7"):
            await client.get_prompt("review", {"n": 7})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="arguments must be a mapping of strings, got list"):
            await client.get_prompt("review", ["n"])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a prompt's name must be a string"):
            await client.get_prompt(7)  # type: ignore[arg-type]
    assert asked == []


@pytest.mark.parametrize("revision", REVISIONS)
async def test_without_the_capability_nothing_is_sent(revision: str) -> None:
    async with scripted({}, revision=revision, capabilities={"tools": {}}) as (client, asked, _):
        with pytest.raises(CapabilityError, match="server capability 'prompts'"):
            await client.list_prompts()
        with pytest.raises(CapabilityError, match="server capability 'prompts'"):
            await client.get_prompt("review")
    assert asked == []


async def test_refusals_and_malformed_answers_cost_one_call() -> None:
    answers = iter([ErrorData(-32602, "Missing required arguments"), {"messages": [{"role": "system"}]}])
    async with scripted({"prompts/get": lambda _: next(answers)}) as (client, _, _wire):
        with pytest.raises(McpError, match="Missing required arguments"):
            await client.get_prompt("review")
        with pytest.raises(RemoteProtocolError, match=r"not a valid GetPromptResult: messages\.0\.role"):
            await client.get_prompt("review")


async def test_timeouts(autojump_clock: Any) -> None:
    async with scripted({}) as (client, _, _wire):
        with pytest.raises(RequestTimeout):
            await client.list_prompts(timeout=3)
        with pytest.raises(RequestTimeout):
            await client.get_prompt("review", timeout=3)
        with pytest.raises(RequestTimeout):
            await client.get_prompt("review", total_timeout=3)
        with pytest.raises(RequestTimeout):
            await anext(aiter(client.iter_prompts(timeout=3)))


async def test_a_list_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.client.listing.MAX_PAGES", 4)
    async with scripted({"prompts/list": {"prompts": [], "nextCursor": "x"}}) as (client, asked, _):
        with pytest.raises(RemoteProtocolError, match="list of prompts has more than 4 pages"):
            async for _prompt in client.iter_prompts():
                pass
    assert len(asked) == 4
