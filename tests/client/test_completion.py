"""Asking for suggestions (`server/utilities/completion`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.scripted import scripted, sent
from trio_mcp import CapabilityError, RemoteProtocolError, RequestTimeout
from trio_mcp.types.completion import PromptReference, ResourceTemplateReference

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
FOUND: dict[str, Any] = {"completion": {"values": ["python", "pytorch"], "total": 10, "hasMore": True}}


@pytest.mark.parametrize("revision", REVISIONS)
async def test_suggestions_for_prompts_and_templates(revision: str) -> None:
    async with scripted({"completion/complete": FOUND}, revision=revision) as (client, asked, _):
        result = await client.complete(PromptReference(name="review"), "language", "py")
        await client.complete(ResourceTemplateReference(uri="file:///{path}"), "path")
    assert (result.completion.values, result.completion.total, result.completion.has_more) == (
        ["python", "pytorch"],
        10,
        True,
    )
    assert [sent(request) for request in asked] == [
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "language", "value": "py"}},
        {"ref": {"type": "ref/resource", "uri": "file:///{path}"}, "argument": {"name": "path", "value": ""}},
    ]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_context_goes_to_those_who_know_it(revision: str) -> None:
    """`context` came with 2025-06-18; before, the request is made without it."""
    async with scripted({"completion/complete": FOUND}, revision=revision) as (client, asked, _):
        await client.complete(PromptReference(name="review"), "framework", "fla", context={"language": "python"})
    expected = {"arguments": {"language": "python"}} if revision >= "2025-06-18" else None
    assert sent(asked[0]).get("context") == expected


@pytest.mark.parametrize("revision", REVISIONS[1:])
async def test_without_the_capability_nothing_is_sent(revision: str) -> None:
    async with scripted({}, revision=revision, capabilities={"prompts": {}}) as (client, asked, _):
        with pytest.raises(CapabilityError, match="server capability 'completions'"):
            await client.complete(PromptReference(name="review"), "language")
    assert asked == []


async def test_the_first_revision_has_no_capability_for_it() -> None:
    capabilities: dict[str, Any] = {"prompts": {}}
    async with scripted({"completion/complete": FOUND}, revision="2024-11-05", capabilities=capabilities) as (c, _, _w):
        assert (await c.complete(PromptReference(name="review"), "language")).completion.values


async def test_arguments_are_checked() -> None:
    async with scripted({}) as (client, asked, _):
        with pytest.raises(TypeError, match="ref must be a PromptReference or a ResourceTemplateReference, got str"):
            await client.complete("review", "language")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="must be strings, got 'n', 7"):
            await client.complete(PromptReference(name="review"), "n", 7)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="context must be a mapping of strings"):
            await client.complete(PromptReference(name="x"), "n", context={"a": 1})  # type: ignore[dict-item]
    assert asked == []


async def test_a_malformed_answer_and_a_timeout(autojump_clock: Any) -> None:
    answers = iter([{"completion": ["python"]}])
    async with scripted({"completion/complete": lambda _: next(answers, None)}) as (client, _, _wire):
        with pytest.raises(RemoteProtocolError, match="not a valid CompleteResult: completion"):
            await client.complete(PromptReference(name="review"), "language")
        with pytest.raises(RequestTimeout):
            await client.complete(PromptReference(name="review"), "language", timeout=3)
