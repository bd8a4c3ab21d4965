"""Answer a server's sampling requests with Claude, through Anthropic's SDK.

pip install trio-mcp anthropic
ANTHROPIC_API_KEY=... python with_anthropic.py "three days, no trains"
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import trio
from anthropic import AsyncAnthropic

from trio_mcp import Answers, Client, StdioServerParameters, types

MODELS = ("claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-5-5")
STOPS = {
    "end_turn": "endTurn",
    "max_tokens": "maxTokens",
    "stop_sequence": "stopSequence",
    "tool_use": "toolUse",
}
CHOICES = {"auto": "auto", "required": "any", "none": "none"}


class Claude:
    """A callback for `Answers(sampling=…)`.

    Args:
        client: The SDK's client, which has the key and the retries.
        models: The models to choose from by the server's hints; the first is the default.
    """

    def __init__(self, client: AsyncAnthropic, models: tuple[str, ...] = MODELS) -> None:
        self._client = client
        self._models = models

    async def __call__(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        asked: dict[str, Any] = {
            "model": self._chosen(params.model_preferences),
            "max_tokens": params.max_tokens,
            "messages": [
                {"role": message.role, "content": [block_of(block) for block in message.content_as_list]}
                for message in params.messages
            ],
        }
        if params.system_prompt is not None:
            asked["system"] = params.system_prompt
        if params.stop_sequences:
            asked["stop_sequences"] = params.stop_sequences
        if params.tools:
            asked["tools"] = [
                {"name": tool.name, "description": tool.description or "", "input_schema": tool.input_schema}
                for tool in params.tools
            ]
            if params.tool_choice is not None and params.tool_choice.mode is not None:
                asked["tool_choice"] = {"type": CHOICES[params.tool_choice.mode]}
        # The SDK's API has no temperature any more, so that wish of the server is not passed on.
        message = await self._client.messages.create(**asked)
        blocks: list[Any] = []
        for block in message.content:
            if block.type == "text":
                blocks.append(types.TextContent(text=block.text))
            elif block.type == "tool_use":
                blocks.append(types.ToolUseContent(id=block.id, name=block.name, input=dict(block.input)))
        usage = {"inputTokens": message.usage.input_tokens, "outputTokens": message.usage.output_tokens}
        return types.CreateMessageResult(
            role="assistant",
            content=blocks or types.TextContent(text=""),  # a refusal may be empty
            model=message.model,
            stop_reason=STOPS.get(message.stop_reason or "", message.stop_reason),
            meta={"usage": usage},
        )

    def _chosen(self, preferences: types.ModelPreferences | None) -> str:
        for hint in (preferences and preferences.hints) or ():
            for model in self._models:
                if hint.name and hint.name in model:
                    return model
        return self._models[0]


def block_of(block: Any) -> dict[str, Any]:
    """Turn a block of MCP into one of the Messages API."""
    match block:
        case types.TextContent():
            return {"type": "text", "text": block.text}
        case types.ImageContent():
            source = {"type": "base64", "media_type": block.mime_type, "data": block.data}
            return {"type": "image", "source": source}
        case types.ToolUseContent():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
        case types.ToolResultContent():
            content = [block_of(part) for part in block.content]
            return {
                "type": "tool_result",
                "tool_use_id": block.tool_use_id,
                "content": content,
                "is_error": bool(block.is_error),
            }
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return {"type": "text", "text": text}
    raise ValueError(f"Claude can't be sent a block of type {block.type!r}")


async def main(wish: str) -> None:
    server = StdioServerParameters(sys.executable, [str(Path(__file__).with_name("tour.py"))])
    async with AsyncAnthropic() as client:
        answers = Answers(sampling=Claude(client), sampling_features=("tools",))
        async with Client(server, answers=answers) as tours:
            print((await tours.call_tool("plan", {"wish": wish})).text)


if __name__ == "__main__":
    trio.run(main, " ".join(sys.argv[1:]) or "three days")
