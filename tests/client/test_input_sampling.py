"""A server asks the client's language model (`client/sampling`): the same rules in both eras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.asking import MODERN, answered, sample, say, text, use, used
from trio_mcp import Answers, InputError, McpError, types
from trio_mcp.jsonrpc.messages import ErrorData

TOOL = {"name": "weather", "inputSchema": {"type": "object"}}
TEXT = {"role": "assistant", "content": text("hi"), "model": "unknown", "stopReason": "endTurn"}
USES = {"role": "assistant", "content": [use("a"), use("b")], "model": "m", "stopReason": "toolUse"}


async def ask(era: str, params: Any, callback: Callable[[Any], Any], **more: Any) -> Any:
    return await answered(era, "sampling/createMessage", params, Answers(sampling=callback, **more))


def result(*content: Any, **more: Any) -> types.CreateMessageResult:
    wire = {"role": "assistant", "model": "m", "content": content[0] if len(content) == 1 else list(content), **more}
    return types.CreateMessageResult.from_wire(wire)


@pytest.mark.parametrize("era", ["2024-11-05", "2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_text_is_enough(era: str, kind: str) -> None:
    seen: list[Any] = []

    def sync(params: Any) -> str:
        seen.append(params)
        return "hi"

    async def wait(params: Any) -> str:
        return sync(params)

    asked = sample(systemPrompt="be short", temperature=0.5, modelPreferences={"hints": [{"name": "x"}]})
    assert await ask(era, asked, sync if kind == "sync" else wait) == TEXT
    (params,) = seen
    assert isinstance(params, types.CreateMessageRequestParams)
    assert (params.max_tokens, params.system_prompt, params.temperature) == (10, "be short", 0.5)
    assert params.messages[0].content_as_list == [types.TextContent(text="hello")]


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
async def test_a_whole_result_or_plain_data(era: str) -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    expected = {"role": "assistant", "model": "m", "content": [text("look"), image], "stopReason": "maxTokens"}
    made = result(text("look"), image, stopReason="maxTokens")
    assert await ask(era, sample(), lambda _: made) == expected
    assert await ask(era, sample(), lambda _: expected) == expected


async def test_before_lists_of_blocks_a_message_is_one_block() -> None:
    """Lists of content came with 2025-11-25."""
    one = result(text("a"))
    one.content = [types.TextContent(text="a")]
    assert (await ask("2025-06-18", sample(), lambda _: one))["content"] == text("a")
    refused = await ask("2025-06-18", sample(), lambda _: result(text("a"), text("b")))
    assert refused == ErrorData(-32603, "internal error in 'sampling/createMessage'")


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
async def test_tools_reach_a_callback_that_declared_them(era: str) -> None:
    asked = sample(
        say("user", text("weather?")),
        say("assistant", use("1"), use("2")),
        say("user", used("2"), used("1")),
        tools=[TOOL],
        toolChoice={"mode": "auto"},
    )
    seen: list[Any] = []

    def callback(params: types.CreateMessageRequestParams) -> Any:
        seen.append(params)
        return USES

    assert await ask(era, asked, callback, sampling_features=("tools",)) == USES
    assert seen[0].tools[0].name == "weather"
    assert seen[0].tool_choice.mode == "auto"


@pytest.mark.parametrize("era", ["2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize("more", [{"tools": [TOOL]}, {"tools": []}, {"toolChoice": {"mode": "none"}}])
async def test_tools_are_refused_unless_declared(era: str, more: Any) -> None:
    """2025-11-25 schema, CreateMessageRequestParams: the client must return an error."""
    features: Any = ("context", "tools") if era == "2025-06-18" else ("context",)  # not known there
    refused = await ask(
        era, sample(**more), lambda _: pytest.fail("the callback was called"), sampling_features=features
    )
    assert refused.code == -32602
    assert "has not declared sampling.tools" in refused.message


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ([say("assistant", use("1"))], "a tool result is missing"),
        ([say("assistant", use("1")), say("user", text("well?"))], "a tool result is missing"),
        ([say("assistant", use("1"), use("2")), say("user", used("1"))], "a tool result is missing"),
        ([say("assistant", use("1")), say("user", used("1"), used("1"))], "a tool result is missing"),
        ([say("assistant", use("1")), say("user", used("2"))], "a tool result is missing"),
        ([say("assistant", use("1")), say("user", used("1"), text("so"))], "mixes tool results with other content"),
        ([say("user", used("1"))], "result without a tool use"),
        ([say("assistant", use("1")), say("user", used("1")), say("user", used("1"))], "result without a tool use"),
        ([say("user", use("1")), say("user", used("1"))], "tool uses must come from the assistant"),
        ([say("assistant", use("1")), say("assistant", used("1"))], "tool uses must come from the assistant"),
    ],
)
async def test_tool_uses_and_results_must_balance(era: str, messages: Any, what: str) -> None:
    """2025-11-25 `client/sampling`, Error Handling: -32602."""
    refused = await ask(
        era,
        sample(*messages, tools=[TOOL]),
        lambda _: pytest.fail("the callback was called"),
        sampling_features=("tools",),
    )
    assert refused.code == -32602
    assert what in refused.message


@pytest.mark.parametrize(
    ("more", "answer", "match"),
    [
        ({}, USES, "offers the model no tools"),
        ({"tools": []}, USES, "offers the model no tools"),
        ({"tools": [TOOL], "toolChoice": {"mode": "none"}}, USES, "toolChoice is 'none'"),
        ({"tools": [TOOL]}, result(used("1")), "tool_result, which only a server's message may have"),
        ({}, {"role": "assistant"}, "an invalid CreateMessageResult: content: Field required; model: Field required"),
        ({}, None, "TypeError: the sampling callback must return a CreateMessageResult or a text, got NoneType"),
    ],
)
async def test_an_invalid_answer_is_not_sent(more: Any, answer: Any, match: str) -> None:
    features = {"sampling_features": ("tools",)}
    raised = await ask(MODERN, sample(**more), lambda _: answer, **features)
    assert isinstance(raised, InputError)
    assert match in str(raised)
    assert await ask("2025-11-25", sample(**more), lambda _: answer, **features) == ErrorData(
        -32603, "internal error in 'sampling/createMessage'"
    )


async def test_the_user_refuses() -> None:
    """2025-11-25 `client/sampling`, Error Handling: -1. In the modern era nothing is sent, and the call says why."""

    def refuse(params: Any) -> Any:
        raise McpError(-1, "User rejected sampling request", {"by": "Ada"})

    refused = await ask("2025-11-25", sample(), refuse)
    assert refused == ErrorData(-1, "User rejected sampling request", {"by": "Ada"})
    raised = await ask(MODERN, sample(), refuse)
    assert isinstance(raised, InputError)
    assert isinstance(raised.__cause__, McpError)
    assert raised.reason == "McpError: User rejected sampling request (error -1)"


async def test_a_callback_that_fails_gives_nothing_away(caplog: pytest.LogCaptureFixture) -> None:
    def fail(params: Any) -> Any:
        raise KeyError("a secret")

    refused = await ask("2025-11-25", sample(), fail)
    assert refused == ErrorData(-32603, "internal error in 'sampling/createMessage'")
    assert "a secret" in caplog.text
    raised = await ask(MODERN, sample(), fail)
    assert isinstance(raised.__cause__, KeyError)
