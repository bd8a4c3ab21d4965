"""Answer a server's sampling requests with Gemini, through Google's SDK.

    pip install trio-mcp google-genai
    GEMINI_API_KEY=... python with_google.py "three days, no trains"

The SDK's async client needs asyncio, so this calls the other one in a thread.
"""

from __future__ import annotations

import base64
import functools
import sys
from pathlib import Path
from typing import Any

import google.genai as genai
import trio
from google.genai import types as google

from trio_mcp import Answers, Client, StdioServerParameters, types
from trio_mcp.schema import ModelSchema

MODELS = ("gemini-3.8-flash", "gemini-3.1-pro-preview")
STOPS = {"STOP": "endTurn", "MAX_TOKENS": "maxTokens"}
CHOICES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
SIGNATURE = "google.genai/thought-signature"
"""The key in a tool call's `_meta`. Gemini wants back what it has signed, and the server keeps `_meta`."""


class Gemini:
    """A callback for `Answers(sampling=…)`.

    Args:
        client: The SDK's client, which has the key and the retries.
        models: The models to choose from by the server's hints; the first is the default.
    """

    def __init__(self, client: genai.Client, models: tuple[str, ...] = MODELS) -> None:
        self._client = client
        self._models = models

    async def __call__(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        config = google.GenerateContentConfig(
            max_output_tokens=params.max_tokens,
            system_instruction=params.system_prompt,
            temperature=params.temperature,
            stop_sequences=params.stop_sequences,
        )
        schemas = {tool.name: ModelSchema(tool.input_schema, "gemini") for tool in params.tools or ()}
        if params.tools:
            declared = [
                google.FunctionDeclaration(
                    name=tool.name, description=tool.description, parameters=parameters_of(schemas[tool.name])
                )
                for tool in params.tools
            ]
            config.tools = [google.Tool(function_declarations=declared)]
            # The server runs the tools, and not the SDK.
            config.automatic_function_calling = google.AutomaticFunctionCallingConfig(disable=True)
            if params.tool_choice is not None and params.tool_choice.mode is not None:
                mode = google.FunctionCallingConfigMode(CHOICES[params.tool_choice.mode])
                config.tool_config = google.ToolConfig(function_calling_config=google.FunctionCallingConfig(mode=mode))
        ask = functools.partial(
            self._client.models.generate_content,
            model=self._chosen(params.model_preferences),
            contents=contents_of(params.messages, schemas),
            config=config,
        )
        # When the request is cancelled, the thread is left to end by itself.
        response = await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
        if not response.candidates:
            raise RuntimeError(f"Gemini refused the prompt: {response.prompt_feedback}")
        candidate = response.candidates[0]
        blocks: list[Any] = []
        for number, part in enumerate((candidate.content and candidate.content.parts) or ()):
            if part.function_call is not None:
                call = part.function_call
                given = call.args or {}
                if call.name in schemas:
                    given = schemas[call.name].from_model(given)
                signature = part.thought_signature and base64.b64encode(part.thought_signature).decode()
                blocks.append(
                    types.ToolUseContent(
                        id=call.id or f"call-{len(params.messages)}-{number}",
                        name=call.name or "",
                        input=given,
                        meta={SIGNATURE: signature} if signature else None,
                    )
                )
            elif part.text and not part.thought:
                blocks.append(types.TextContent(text=part.text))
        calls = any(isinstance(block, types.ToolUseContent) for block in blocks)
        reason = candidate.finish_reason.value if candidate.finish_reason else ""
        counts = response.usage_metadata or google.GenerateContentResponseUsageMetadata()
        usage = {"inputTokens": counts.prompt_token_count, "outputTokens": counts.candidates_token_count}
        return types.CreateMessageResult(
            role="assistant",
            content=blocks or types.TextContent(text=""),
            model=response.model_version or self._models[0],
            stop_reason="toolUse" if calls else STOPS.get(reason, reason.lower()),
            meta={"usage": usage},
        )

    def _chosen(self, preferences: types.ModelPreferences | None) -> str:
        for hint in (preferences and preferences.hints) or ():
            for model in self._models:
                if hint.name and hint.name in model:
                    return model
        return self._models[0]


def parameters_of(schema: ModelSchema) -> google.Schema | None:
    """Turn a schema into one of the SDK; a function without parameters has none."""
    return google.Schema.model_validate(schema.schema) if schema.schema["properties"] else None


def contents_of(messages: list[types.SamplingMessage], schemas: dict[str, ModelSchema]) -> list[google.Content]:
    """Turn messages of MCP into contents of the Gemini API."""
    names: dict[str, str] = {}  # of the calls so far, as a result must name its function
    contents = []
    for message in messages:
        parts = []
        for block in message.content_as_list:
            if isinstance(block, types.ToolUseContent):
                names[block.id] = block.name
            parts.append(part_of(block, names, schemas))
        contents.append(google.Content(role="model" if message.role == "assistant" else "user", parts=parts))
    return contents


def part_of(block: Any, names: dict[str, str], schemas: dict[str, ModelSchema]) -> google.Part:
    """Turn a block of MCP into a part of a content."""
    match block:
        case types.TextContent():
            return google.Part(text=block.text)
        case types.ImageContent() | types.AudioContent():
            return google.Part(inline_data=google.Blob(mime_type=block.mime_type, data=base64.b64decode(block.data)))
        case types.ToolUseContent():
            signature = (block.meta or {}).get(SIGNATURE)
            given = schemas[block.name].for_model(block.input) if block.name in schemas else block.input
            return google.Part(
                function_call=google.FunctionCall(id=block.id, name=block.name, args=given),
                thought_signature=signature and base64.b64decode(signature),
            )
        case types.ToolResultContent():
            texts = "\n".join(part.text for part in block.content if isinstance(part, types.TextContent))
            media = [
                google.FunctionResponsePart(
                    inline_data=google.FunctionResponseBlob(mime_type=part.mime_type, data=base64.b64decode(part.data))
                )
                for part in block.content
                if isinstance(part, (types.ImageContent, types.AudioContent))
            ]
            return google.Part(
                function_response=google.FunctionResponse(
                    id=block.tool_use_id,
                    name=names[block.tool_use_id],
                    response={"error" if block.is_error else "output": texts},
                    parts=media or None,
                )
            )
    raise ValueError(f"Gemini can't be sent a block of type {block.type!r}")


async def main(wish: str) -> None:
    server = StdioServerParameters(sys.executable, [str(Path(__file__).with_name("tour.py"))])
    with genai.Client() as client:
        answers = Answers(sampling=Gemini(client), sampling_features=("tools",))
        async with Client(server, answers=answers) as tours:
            print((await tours.call_tool("plan", {"wish": wish})).text)


if __name__ == "__main__":
    trio.run(main, " ".join(sys.argv[1:]) or "three days")
