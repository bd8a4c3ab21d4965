"""Answer a server's sampling requests with GPT, through OpenAI's SDK, or another model with the same interface.

pip install trio-mcp openai
OPENAI_API_KEY=... python with_openai.py "three days, no trains"
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import trio
from openai import AsyncOpenAI

from trio_mcp import Answers, Client, StdioServerParameters, types
from trio_mcp.schema import ModelSchema

MODELS = ("gpt-6-sol", "gpt-6-luna", "gpt-5.6-luna")
STOPS = {"stop": "endTurn", "length": "maxTokens", "tool_calls": "toolUse"}


class Gpt:
    """A callback for `Answers(sampling=…)`.

    Args:
        client: The SDK's client, which has the key, the address and the retries.
        models: The models to choose from by the server's hints; the first is the default.
    """

    def __init__(self, client: AsyncOpenAI, models: tuple[str, ...] = MODELS) -> None:
        self._client = client
        self._models = models

    async def __call__(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        schemas = {tool.name: ModelSchema(tool.input_schema, "openai-strict") for tool in params.tools or ()}
        messages = [each for message in params.messages for each in messages_of(message, schemas)]
        if params.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": params.system_prompt})
        asked: dict[str, Any] = {
            "model": self._chosen(params.model_preferences),
            "max_completion_tokens": params.max_tokens,
            "messages": messages,
        }
        if params.temperature is not None:
            asked["temperature"] = params.temperature
        if params.stop_sequences:
            asked["stop"] = params.stop_sequences
        if params.tools:
            asked["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description or "",
                        "parameters": schemas[tool.name].schema,
                        "strict": True,
                    },
                }
                for tool in params.tools
            ]
            if params.tool_choice is not None and params.tool_choice.mode is not None:
                asked["tool_choice"] = params.tool_choice.mode  # the words are the same
        completion = await self._client.chat.completions.create(**asked)
        (choice,) = completion.choices
        blocks: list[Any] = []
        if text := choice.message.content or choice.message.refusal:
            blocks.append(types.TextContent(text=text))
        for call in choice.message.tool_calls or ():
            if call.type == "function":
                given = json.loads(call.function.arguments or "{}")
                if call.function.name in schemas:
                    given = schemas[call.function.name].from_model(given)
                blocks.append(types.ToolUseContent(id=call.id, name=call.function.name, input=given))
        usage = completion.usage
        return types.CreateMessageResult(
            role="assistant",
            content=blocks or types.TextContent(text=""),
            model=completion.model,
            stop_reason=STOPS.get(choice.finish_reason, choice.finish_reason),
            meta=usage and {"usage": {"inputTokens": usage.prompt_tokens, "outputTokens": usage.completion_tokens}},
        )

    def _chosen(self, preferences: types.ModelPreferences | None) -> str:
        for hint in (preferences and preferences.hints) or ():
            for model in self._models:
                if hint.name and hint.name in model:
                    return model
        return self._models[0]


def messages_of(message: types.SamplingMessage, schemas: dict[str, ModelSchema]) -> list[dict[str, Any]]:
    """Turn a message of MCP into messages of the Chat Completions API."""
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for block in message.content_as_list:
        if isinstance(block, types.ToolUseContent):
            given = schemas[block.name].for_model(block.input) if block.name in schemas else block.input
            function = {"name": block.name, "arguments": json.dumps(given)}
            calls.append({"type": "function", "id": block.id, "function": function})
        elif isinstance(block, types.ToolResultContent):
            # A result is only text here: pictures follow as a message of the user.
            texts = [part for part in map(part_of, block.content) if part["type"] == "text"]
            parts += [part for part in map(part_of, block.content) if part["type"] != "text"]
            text = "\n".join(part["text"] for part in texts)
            content = f"Error: {text}" if block.is_error else text
            results.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": content})
        else:
            parts.append(part_of(block))
    if message.role == "assistant":
        said = "\n".join(part["text"] for part in parts)
        return [{"role": "assistant", "content": said or None} | ({"tool_calls": calls} if calls else {})]
    return [*results, *([{"role": "user", "content": parts}] if parts else [])]


def part_of(block: Any) -> dict[str, Any]:
    """Turn a block of MCP into a part of a message."""
    match block:
        case types.TextContent():
            return {"type": "text", "text": block.text}
        case types.ImageContent():
            return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}
        case types.AudioContent():
            kind = "wav" if "wav" in block.mime_type else "mp3"
            return {"type": "input_audio", "input_audio": {"data": block.data, "format": kind}}
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return {"type": "text", "text": text}
    raise ValueError(f"GPT can't be sent a block of type {block.type!r}")


async def main(wish: str) -> None:
    server = StdioServerParameters(sys.executable, [str(Path(__file__).with_name("tour.py"))])
    async with AsyncOpenAI() as client:
        answers = Answers(sampling=Gpt(client), sampling_features=("tools",))
        async with Client(server, answers=answers) as tours:
            print((await tours.call_tool("plan", {"wish": wish})).text)


if __name__ == "__main__":
    trio.run(main, " ".join(sys.argv[1:]) or "three days")
