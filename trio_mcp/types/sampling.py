"""Sampling: a server asks the client's language model."""

from typing import Any, Literal

from trio_mcp.types._base import Number, WireModel, only, since, until
from trio_mcp.types.common import EmbeddableRequestMessage, Role
from trio_mcp.types.content import SamplingMessageContentBlock, ToolResultContent, ToolUseContent
from trio_mcp.types.task_support import TaskMetadata
from trio_mcp.types.tools import Tool

__all__ = [
    "CreateMessageRequest",
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "IncludeContext",
    "ModelHint",
    "ModelPreferences",
    "SamplingMessage",
    "ToolChoice",
]

IncludeContext = Literal["none", "thisServer", "allServers"]


class SamplingMessage(WireModel):
    """A message to or from the model: one block of content or, since 2025-11-25, a list of blocks."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    meta: dict[str, Any] | None = since("2025-11-25")

    @property
    def content_as_list(self) -> list[SamplingMessageContentBlock]:
        """The content as a list, also when it is a single block."""
        return self.content if isinstance(self.content, list) else [self.content]


class ModelHint(WireModel):
    """A model the server would like: any part of its name."""

    name: str | None = None


class ModelPreferences(WireModel):
    """What matters to the server in the choice of a model; priorities go from 0 to 1."""

    hints: list[ModelHint] | None = None
    cost_priority: Number | None = None
    speed_priority: Number | None = None
    intelligence_priority: Number | None = None


class ToolChoice(WireModel, since="2025-11-25"):
    """Whether the model may, must or must not use tools."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageRequestParams(WireModel):
    """What to ask the model."""

    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: IncludeContext | None = None
    temperature: Number | None = None
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Tool] | None = since("2025-11-25")
    tool_choice: ToolChoice | None = since("2025-11-25")
    task: TaskMetadata | None = only("2025-11-25")
    meta: dict[str, Any] | None = until("2025-11-25")

    def check_tool_uses(self) -> None:
        """Check that each use of a tool has its result in the next message, which has nothing else.

        The source is `client/sampling`, section Message Content Constraints.

        Raises:
            ValueError: It is not so.
        """
        open_uses: list[str] = []
        for number, message in enumerate(self.messages):
            blocks = message.content_as_list
            results = [block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)]
            if results and len(results) < len(blocks):
                raise ValueError(f"messages[{number}] mixes tool results with other content")
            if sorted(results) != sorted(open_uses):
                what = "a tool result is missing" if open_uses else "a tool result belongs to no tool use"
                raise ValueError(f"messages[{number}]: {what}; there are uses {open_uses} and results {results}")
            open_uses = [block.id for block in blocks if isinstance(block, ToolUseContent)]
            if (results and message.role != "user") or (open_uses and message.role != "assistant"):
                raise ValueError(
                    f"messages[{number}]: tools are used by the assistant, and their results come from the user"
                )
        if open_uses:
            raise ValueError(f"a tool result is missing: the last message uses tools {open_uses}")


class CreateMessageRequest(EmbeddableRequestMessage):
    """Asks the client to ask its model."""

    method: Literal["sampling/createMessage"] = "sampling/createMessage"
    params: CreateMessageRequestParams


class CreateMessageResult(SamplingMessage):
    """What the model said; known stop reasons are "endTurn", "stopSequence", "maxTokens" and "toolUse"."""

    model: str
    stop_reason: str | None = None
    meta: dict[str, Any] | None = None
