"""Prepares questions to the client's model (`client/sampling`), in the form that each revision defines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

from trio_mcp.eras.rules import rules_of
from trio_mcp.server.input.questions import InputRequest, QuestionContext
from trio_mcp.server.revisions import downgraded_block, wire_for
from trio_mcp.types.content import TextContent, ToolResultContent, ToolUseContent
from trio_mcp.types.sampling import (
    CreateMessageRequestParams,
    CreateMessageResult,
    IncludeContext,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
)
from trio_mcp.types.tools import Tool

__all__ = ["Messages", "SampleDetails", "as_messages", "ask_model"]

Messages: TypeAlias = str | SamplingMessage | Sequence[str | SamplingMessage]


class SampleDetails(TypedDict, total=False):
    """The optional details of a question to the client's model.

    Attributes:
        system_prompt: Instructions for the model.
        model_preferences: Preferences for the client's choice of a model.
        temperature: The randomness of the reply.
        stop_sequences: Strings that end the reply.
        include_context: Which servers' context the client should add; deprecated.
        metadata: Data for the provider of the model.
        key: The key that identifies the question in the modern era; by default the number of the question in the order
            of asking.
        timeout: Seconds that each reply may take; if None, only `InputOptions.ttl` limits the time.
    """

    system_prompt: str | None
    model_preferences: ModelPreferences | Mapping[str, Any] | None
    temperature: float | None
    stop_sequences: Iterable[str] | None
    include_context: IncludeContext | None
    metadata: Mapping[str, Any] | None
    key: str | None
    timeout: float | None


def ask_model(
    context: QuestionContext,
    messages: Messages,
    *,
    max_tokens: int,
    tools: Iterable[Tool | Mapping[str, Any]] | None = None,
    tool_choice: str | ToolChoice | None = None,
    model_preferences: ModelPreferences | Mapping[str, Any] | None = None,
    stop_sequences: Iterable[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    key: str | None = None,
    timeout: float | None = None,
    **details: Any,
) -> InputRequest[CreateMessageResult]:
    """Prepare a question to the client's model; see `Context.sample`."""
    given = as_messages(messages)
    if isinstance(tool_choice, str):
        tool_choice = ToolChoice(mode=tool_choice)  # type: ignore[arg-type]
    if isinstance(model_preferences, Mapping):
        model_preferences = ModelPreferences(**model_preferences)
    params = CreateMessageRequestParams(
        messages=given,
        tools=None if tools is None else [Tool(**each) if isinstance(each, Mapping) else each for each in tools],
        tool_choice=tool_choice,
        model_preferences=model_preferences,
        max_tokens=max_tokens,
        stop_sequences=None if stop_sequences is None else list(stop_sequences),
        metadata=None if metadata is None else dict(metadata),
        **details,
    )
    # Tool uses are checked before the question is sent. Otherwise the client could only refuse the whole request, and
    # the traceback would not show the reason.
    params.check_tool_uses()
    needs = ["sampling"]
    if params.tools is not None or params.tool_choice is not None or any(map(_uses_tools, given)):
        needs.append("sampling.tools")
    if params.include_context not in (None, "none") and "sampling.context" in context.rules.client_capabilities:
        # Since 2025-11-25, a server SHOULD NOT ask for the context of servers if the client lacks this capability;
        # earlier revisions have no such capability.
        needs.append("sampling.context")

    def wire(revision: str) -> dict[str, Any]:
        plain = wire_for(params, revision)
        plain["messages"] = [part for each in plain["messages"] for part in _worded(each, revision)]
        return plain

    return InputRequest(
        context, "sampling/createMessage", tuple(needs), wire, CreateMessageResult.from_wire, key, timeout
    )


def as_messages(messages: Messages) -> list[SamplingMessage]:
    """Return the messages given to `Context.sample` as a list.

    Raises:
        TypeError: If a message is neither a string nor a `types.SamplingMessage`.
        ValueError: If there is no message.
    """
    if isinstance(messages, (str, SamplingMessage)):
        messages = [messages]
    given = [_message(each) for each in messages]
    if not given:
        raise ValueError("sample needs at least one message")
    return given


def _message(message: str | SamplingMessage) -> SamplingMessage:
    if isinstance(message, str):
        return SamplingMessage(role="user", content=TextContent(text=message))
    if isinstance(message, CreateMessageResult):  # of an earlier reply, only the fields of a message are kept
        return SamplingMessage(role=message.role, content=message.content)
    if isinstance(message, SamplingMessage):
        return message
    raise TypeError(f"a message must be a string or a types.SamplingMessage, got {type(message).__name__}")


def _uses_tools(message: SamplingMessage) -> bool:
    return any(isinstance(block, (ToolUseContent, ToolResultContent)) for block in message.content_as_list)


def _worded(message: dict[str, Any], revision: str) -> list[dict[str, Any]]:
    """Return a message as a list, in the form that a revision uses.

    If the revision allows only one block per message, the list has one message per block.
    """
    content = message["content"]
    if rules_of(revision).sampling_lists:
        return [message]
    blocks = content if isinstance(content, list) else [content]
    return [{**message, "content": downgraded_block(block, revision)} for block in blocks]
