"""Questions to the client's model: what goes out in each revision, and the balance of tool uses and results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.harness import server_with
from tests.server.input_harness import LEGACY, MODERN, hand_client, said, text_of
from tests.types.published import validator
from trio_mcp import Context, Server, types

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY, MODERN)
USE = types.ToolUseContent(id="1", name="add", input={"a": 1})
RESULT = types.ToolResultContent(tool_use_id="1", content=[types.TextContent(text="2")])


def message(role: Any, *content: Any) -> types.SamplingMessage:
    return types.SamplingMessage(role=role, content=list(content) if len(content) > 1 else content[0])


def published(question: Any, revision: str) -> dict[str, Any]:
    """Return a question in the form of the published schema: in the legacy era that is a request of its own."""
    envelope = {"jsonrpc": "2.0", "id": 1} if revision == LEGACY else {}
    return {**envelope, "method": question.method, "params": question.params}


def server_that(ask: Any) -> Server:

    async def tool(ctx: Context) -> str:
        return (await ask(ctx)).model

    return server_with(tool)


@pytest.mark.published
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_question_matches_the_schema_of_each_revision(revision: str) -> None:
    def ask(ctx: Context) -> Any:
        return ctx.sample(
            [
                "one",
                message("assistant", types.TextContent(text="two")),
                message(
                    "user", types.TextContent(text="three"), types.ImageContent(data="eA==", mime_type="image/png")
                ),
                message("user", types.AudioContent(data="eA==", mime_type="audio/wav")),
            ],
            max_tokens=5,
            system_prompt="Be brief.",
            model_preferences={"hints": [types.ModelHint(name="m")], "cost_priority": 0.5},
            temperature=0.1,
            stop_sequences=("x",),
            include_context="thisServer",
            metadata={"a": 1},
        )

    async with hand_client(server_that(ask), revision, lambda _: said("hi")) as client:
        assert text_of(await client.tool("tool")) == "m"
    (question,) = client.questions
    validator(revision, "CreateMessageRequest").validate(published(question, revision))
    params = question.params
    assert params["maxTokens"] == 5
    assert params["modelPreferences"] == {"hints": [{"name": "m"}], "costPriority": 0.5}
    kinds = [each["content"]["type"] for each in params["messages"] if isinstance(each["content"], dict)]
    expected = {"2024-11-05": ["text", "text", "text", "image", "text"]}
    expected["2025-03-26"] = expected["2025-06-18"] = ["text", "text", "text", "image", "audio"]
    assert kinds == expected.get(revision, ["text", "text", "audio"])


@pytest.mark.published
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_loop_of_tools(revision: str) -> None:
    """The model uses a tool, the handler calls it, and the model goes on (`client/sampling`, Multi-turn Tool Loop)."""
    tool = types.Tool(name="add", input_schema={"type": "object"})

    async def solve(ctx: Context) -> str:
        messages: list[Any] = ["1 + 1?"]
        while True:
            reply = await ctx.sample(messages, max_tokens=5, tools=[tool], tool_choice="auto")
            uses = [block for block in reply.content_as_list if isinstance(block, types.ToolUseContent)]
            if not uses:
                (block,) = reply.content_as_list
                return block.text  # type: ignore[union-attr]
            results = [
                types.ToolResultContent(tool_use_id=use.id, content=[types.TextContent(text="2")]) for use in uses
            ]
            messages += [reply, types.SamplingMessage(role="user", content=list(results))]

    def answer(question: Any) -> Any:
        if len(question.params["messages"]) == 1:
            uses = [{"type": "tool_use", "id": each, "name": "add", "input": {}} for each in "ab"]
            return {"role": "assistant", "content": uses, "model": "m", "stopReason": "toolUse"}
        return said("two")

    async with hand_client(server_with(solve), revision, answer) as client:
        assert text_of(await client.tool("solve")) == "two"
    for question in client.questions:
        validator(revision, "CreateMessageRequest").validate(published(question, revision))
    assert "model" not in client.questions[-1].params["messages"][1]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([message("assistant", USE)], "a tool result is missing"),
        ([message("assistant", USE), "go on"], "a tool result is missing"),
        ([message("user", RESULT)], "a tool result without a tool use"),
        ([message("assistant", USE), message("user", RESULT, types.TextContent(text="x"))], "mixes tool results"),
        ([message("assistant", USE), message("assistant", RESULT)], "tool results from the user"),
        ([message("user", USE), message("user", RESULT)], "tool uses must come from the assistant"),
        ([message("assistant", USE), message("user", RESULT, RESULT)], "a tool result is missing"),
    ],
)
async def test_uses_and_results_must_match(messages: Any, text: str) -> None:
    """`client/sampling`, Message Content Constraints."""

    async def tool(ctx: Context) -> str:
        with pytest.raises(ValueError, match=text):
            ctx.sample(messages, max_tokens=1)
        ctx.sample([message("assistant", USE), message("user", RESULT), "thanks"], max_tokens=1).close()
        return "refused"

    async with hand_client(server_with(tool)) as client:
        assert text_of(await client.tool("tool")) == "refused"
