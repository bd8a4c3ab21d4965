"""The server that the official conformance suite tests: one of everything, with the public API, over HTTP in every era.

The suite prescribes the names, and says in its scenarios what each must do. To run it by hand:
``python -m tests.conformance.everything_server [port | stdio]``; it prints its URL to stderr.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from pathlib import Path
from typing import Annotated, Any

import trio
from pydantic import Field

from tests.round_robin import shared
from trio_mcp import Context, HttpOptions, Server, ToolError, types
from trio_mcp.extensions import Skills, Tasks

from .everything_questions import add_questions
from .everything_tasks import add_tasks

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

server = Server(
    "trio-mcp-everything",
    version="1.0.0",
    instructions="Everything there is to test.",
    extensions=[Tasks(), Skills(Path(__file__).with_name("skills"))],
    **(SHARED := shared()),
)


# --- contents ----------------------------------------------------------------------------------------------------


@server.tool
async def test_simple_text() -> str:
    """Return text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> types.ImageContent:
    """Return a picture."""
    return types.ImageContent(data=PNG, mime_type="image/png")


@server.tool
async def test_audio_content() -> types.AudioContent:
    """Return a sound."""
    return types.AudioContent(data=WAV, mime_type="audio/wav")


def embedded(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=text))


@server.tool
async def test_embedded_resource() -> types.EmbeddedResource:
    """Return a resource."""
    return embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")


@server.tool
async def test_multiple_content_types() -> list[types.TextContent | types.ImageContent | types.EmbeddedResource]:
    """Return text, a picture and a resource."""
    return [
        types.TextContent(text="Multiple content types test:"),
        types.ImageContent(data=PNG, mime_type="image/png"),
        embedded("test://mixed-content-resource", "application/json", '{"test": "data", "value": 123}'),
    ]


@server.tool
async def test_error_handling() -> str:
    """Fail."""
    raise ToolError("this tool fails, to test how errors are told")


@server.tool(input_schema=SCHEMA_2020_12)
async def json_schema_2020_12_tool(**arguments: Any) -> str:
    """Take arguments that only the whole of JSON Schema 2020-12 describes."""
    return json.dumps(arguments)


@server.tool(name="test_x_mcp_header")
async def mirrored(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "none") -> str:
    """Take an argument that HTTP clients mirror into a header."""
    return region


# --- notifications -----------------------------------------------------------------------------------------------


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three messages."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.log("info", text)
    return "Tool with logging executed successfully"


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log a message, which only clients that asked for it get."""
    await ctx.log("info", "a message")
    return "logged"


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress."""
    for progress in (0, 50, 100):
        await ctx.report_progress(progress, 100, f"Completed step {progress} of 100")
    return str(ctx.meta.get("progressToken", 0))


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the stream of events, so that the answer comes only to a client that reconnects."""
    await ctx.log("info", "before the stream is closed")
    ctx.close_stream(retry=0.1)
    await trio.sleep(0.2)  # whatever comes at once is still sent on it
    await ctx.log("info", "after the stream was closed")
    return "reconnected"


def dynamic() -> str:
    """Come and go."""
    return "dynamic"


@server.tool
async def test_trigger_tool_change() -> str:
    """Change the list of tools."""
    if SHARED:  # what is registered changes one process, and is told to its own listeners
        server.notify_tools_changed()
    else:
        server.add_tool(dynamic)
        server.remove_tool("dynamic")
    return "the list of tools has changed"


@server.tool
async def test_trigger_prompt_change() -> str:
    """Change the list of prompts."""
    if SHARED:
        server.notify_prompts_changed()
    else:
        server.add_prompt(dynamic)
        server.remove_prompt("dynamic")
    return "the list of prompts has changed"


# --- resources ---------------------------------------------------------------------------------------------------


@server.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """A picture."""
    return b64decode(PNG)


@server.resource("test://template/{id}/data", mime_type="application/json")
async def template_data(id: str) -> str:
    """A resource template with an id."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@server.resource("test://watched-resource", mime_type="text/plain")
async def watched() -> str:
    """A text that clients subscribe to."""
    return "Watched resource content"


# --- prompts and completion --------------------------------------------------------------------------------------


@server.prompt
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(
    arg1: Annotated[str, Field(description="First test argument")],
    arg2: Annotated[str, Field(description="Second test argument")],
) -> str:
    """A prompt with arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion(prompt="test_prompt_with_arguments", argument="arg1")
async def complete_arg1(value: str) -> list[str]:
    return [word for word in ("paris", "park", "party") if word.startswith(value)]


@server.prompt
async def test_prompt_with_embedded_resource(
    resourceUri: Annotated[str, Field(description="URI of the resource to embed")],
) -> list[types.PromptMessage]:
    """A prompt with a resource in it."""
    return [
        types.PromptMessage(
            role="user", content=embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
        ),
        types.PromptMessage(role="user", content=types.TextContent(text="Please process the embedded resource above.")),
    ]


@server.prompt
async def test_prompt_with_image() -> list[types.PromptMessage]:
    """A prompt with a picture in it."""
    return [
        types.PromptMessage(role="user", content=types.ImageContent(data=PNG, mime_type="image/png")),
        types.PromptMessage(role="user", content=types.TextContent(text="Please analyze the image above.")),
    ]


add_questions(server)
add_tasks(server)


def http_options() -> HttpOptions:
    """With a store of events, for clients of the legacy era that come back; with stores, these have one."""
    if SHARED:
        return HttpOptions()
    try:
        from trio_mcp import MemoryEventStore
    except ImportError:  # see test_without_legacy.py
        return HttpOptions()
    return HttpOptions(event_store=MemoryEventStore())


if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        server.run()
    else:
        port = int(sys.argv[1]) if sys.argv[1:] else 0
        runner = sys.argv[2] if sys.argv[2:] else "hypercorn"
        server.run("http", port=port, options=http_options(), runner=runner)
