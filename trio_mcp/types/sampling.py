"""Sampling: a server uses the client's language model."""

from typing import Any, Literal

from trio_mcp.types._base import Number, WireModel, only, since, until
from trio_mcp.types.bases import EmbeddableRequestMessage
from trio_mcp.types.common import Role
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

# The context that the client should add to the prompt: none, this server's, or that of all servers.
IncludeContext = Literal["none", "thisServer", "allServers"]


class SamplingMessage(WireModel):
    """A message to or from the model."""

    role: Role
    # One block or, since 2025-11-25, a list of blocks.
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    meta: dict[str, Any] | None = since("2025-11-25")

    @property
    def content_as_list(self) -> list[SamplingMessageContentBlock]:
        """The content as a list, even if it is a single block."""
        return self.content if isinstance(self.content, list) else [self.content]


class ModelHint(WireModel):
    """A hint about the model that the server would prefer."""

    # Any part of the model's name.
    name: str | None = None


class ModelPreferences(WireModel):
    """The server's preferences for the choice of a model; the client need not follow them."""

    # Hints in order of preference, which take precedence over the priorities.
    hints: list[ModelHint] | None = None
    # Each priority is a number from 0 (not important) to 1 (very important).
    cost_priority: Number | None = None
    speed_priority: Number | None = None
    intelligence_priority: Number | None = None


class ToolChoice(WireModel, since="2025-11-25"):
    """Whether the model may, must or must not use tools."""

    mode: Literal["auto", "required", "none"] | None = None


# This class is not a `RequestParams`, which has a required `_meta` in the modern era: there, these parameters are part
# of a result, and have no `_meta`.
class CreateMessageRequestParams(WireModel):
    """The parameters of a sampling request."""

    messages: list[SamplingMessage]
    # An upper bound; the client may sample fewer tokens.
    max_tokens: int
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: IncludeContext | None = None
    temperature: Number | None = None
    stop_sequences: list[str] | None = None
    # Data for the provider of the model, in its own format.
    metadata: dict[str, Any] | None = None
    # `tools` and `tool_choice` may be sent only to a client that declared `sampling.tools`. The server runs the tools
    # itself.
    tools: list[Tool] | None = since("2025-11-25")
    tool_choice: ToolChoice | None = since("2025-11-25")
    task: TaskMetadata | None = only("2025-11-25")
    meta: dict[str, Any] | None = until("2025-11-25")

    def check_tool_uses(self) -> None:
        """Check that the results of tool uses come in the next message, and that this message has no other content.

        This is the rule of `client/sampling`, section Message Content Constraints.

        Raises:
            ValueError: If a message breaks the rule.
        """
        # The ids of the tool uses in the previous message, whose results the current message must contain.
        open_uses: list[str] = []
        for number, message in enumerate(self.messages):
            blocks = message.content_as_list
            # The ids are compared as sorted lists, so that a repeated id counts twice and the order does not matter.
            results = [block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)]
            if results and len(results) < len(blocks):
                raise ValueError(f"messages[{number}] mixes tool results with other content")
            if sorted(results) != sorted(open_uses):
                what = "a tool result is missing" if open_uses else "a tool result has no tool use"
                raise ValueError(
                    f"messages[{number}]: {what}; the tool results {results} must match the preceding tool uses "
                    f"{open_uses}"
                )
            open_uses = [block.id for block in blocks if isinstance(block, ToolUseContent)]
            if (results and message.role != "user") or (open_uses and message.role != "assistant"):
                raise ValueError(
                    f"messages[{number}]: tool uses must come from the assistant, and tool results from the user"
                )
        if open_uses:
            raise ValueError(f"a tool result is missing: the last message has tool uses {open_uses}")


class CreateMessageRequest(EmbeddableRequestMessage):
    """A request to the client for a message from its language model."""

    method: Literal["sampling/createMessage"] = "sampling/createMessage"
    params: CreateMessageRequestParams


class CreateMessageResult(SamplingMessage):
    """The model's reply."""

    # The name of the model that wrote the reply.
    model: str
    # "endTurn", "stopSequence", "maxTokens", "toolUse", or any other text that the provider uses.
    stop_reason: str | None = None
    meta: dict[str, Any] | None = None
