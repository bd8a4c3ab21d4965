"""``server/tools``: what tool definitions and results may hold, and in which revision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.requirements.case import Case
from tests.requirements.model import ALL, MODERN, Topic, since, until
from trio_mcp import McpError, Server, types
from trio_mcp.types import error_codes

NOTES = types.Annotations(audience=["user"], priority=0.5)


@dataclass
class Weather:
    celsius: float
    rain: bool


def server() -> Server:
    made = Server("tools")

    @made.tool(
        title="The weather",
        annotations={"readOnlyHint": True, "openWorldHint": False},
        icons=[types.Icon(src="https://example.com/i.png")],
        meta={"com.example/team": "search"},
    )
    async def weather(city: str, days: int = 1) -> Weather:
        """The weather in a city."""
        return Weather(21.5, rain=False)

    @made.tool
    async def bare(text: Any = None):  # type: ignore[no-untyped-def]
        return None

    @made.tool
    async def Bare() -> str:
        return "another"

    @made.tool
    async def blocks() -> list[types.ContentBlock]:
        return [
            types.TextContent(text="t", annotations=NOTES),
            types.ImageContent(data="aGk=", mime_type="image/png"),
            types.AudioContent(data="aGk=", mime_type="audio/wav"),
            types.ResourceLink(uri="file:///a", name="a"),
            types.EmbeddedResource(
                resource=types.TextResourceContents(uri="file:///a", text="t", mime_type="text/plain")
            ),
            types.EmbeddedResource(resource=types.BlobResourceContents(uri="file:///b", blob="aGk=")),
        ]

    @made.tool(output_schema={"type": "array", "items": {"type": "integer"}})
    async def numbers() -> Any:
        return [1, 2]

    @made.tool
    async def wrong() -> int:
        return "no integer"  # type: ignore[return-value]

    @made.tool
    async def crash() -> str:
        raise RuntimeError("the password is hunter2")

    @made.tool
    async def refuse() -> str:
        raise McpError(-31000, "not today", {"until": "tomorrow"})

    return made


topic = Topic("Tools: definitions and results", server)

TOOL = "server/tools#tool"
RESULT = "server/tools#tool-result"
STRUCTURE = "server/tools#structured-content"
ERRORS = "server/tools#error-handling"


async def listed(case: Case, name: str = "weather") -> dict[str, Any]:
    async with case.client() as client:
        tools = (await client.request("tools/list"))["tools"]
    return dict(next(tool for tool in tools if tool["name"] == name))


async def called(case: Case, name: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    params: dict[str, Any] = {"name": name}
    if arguments is not None:
        params["arguments"] = arguments
    async with case.hand() as hand:
        return await hand.result("tools/call", params)


async def blocks(case: Case) -> list[dict[str, Any]]:
    return list((await called(case, "blocks"))["content"])


@topic.row("server/tools#capabilities", "A server that announces changes of its tools declares listChanged.")
async def list_changed(case: Case) -> None:
    async with case.client() as client:
        assert client.capabilities.tools is not None
        assert client.capabilities.tools.list_changed is True


@topic.row("server/tools#capabilities", "tools/list gives the tools in the same order each time.")
async def same_order(case: Case) -> None:
    async with case.client() as client:
        assert await client.request("tools/list") == await client.request("tools/list")


@topic.row(TOOL, "A tool may have a description.")
async def description(case: Case) -> None:
    assert (await listed(case))["description"] == "The weather in a city."
    assert "description" not in await listed(case, "bare")


@topic.row(TOOL, "The schema of a tool says which arguments it needs, and their types.")
async def input_schema(case: Case) -> None:
    schema = (await listed(case))["inputSchema"]
    assert schema["required"] == ["city"]
    assert {name: each["type"] for name, each in schema["properties"].items()} == {"city": "string", "days": "integer"}


@topic.row(TOOL, "A tool may have annotations about its behaviour.", since("2025-03-26"))
async def annotations(case: Case) -> None:
    assert (await listed(case))["annotations"] == {"readOnlyHint": True, "openWorldHint": False}


@topic.row(TOOL, "A tool may have a title for people.", since("2025-06-18"))
async def title(case: Case) -> None:
    assert (await listed(case))["title"] == "The weather"


@topic.row(TOOL, "A tool may have icons.", since("2025-11-25"))
async def icons(case: Case) -> None:
    assert (await listed(case))["icons"] == [{"src": "https://example.com/i.png"}]


@topic.row("basic#_meta", "A tool may have _meta.", since("2025-06-18"))
async def own_meta(case: Case) -> None:
    assert (await listed(case))["_meta"] == {"com.example/team": "search"}


@topic.row("server/tools#output-schema", "A tool may have a schema of its structured result.", since("2025-06-18"))
async def output_schema(case: Case) -> None:
    schema = (await listed(case))["outputSchema"]
    assert schema["type"] == "object"
    assert set(schema["properties"]) == {"celsius", "rain"}


@topic.row("schema", "A revision without output schemas gets none.", until("2025-03-26"))
async def no_output_schema(case: Case) -> None:
    assert "outputSchema" not in await listed(case)


@topic.row("server/tools#tool-names", "Tool names that differ only in case name different tools.", ALL)
async def case_sensitive(case: Case) -> None:
    assert (await called(case, "bare"))["content"] == []
    assert (await called(case, "Bare"))["content"][0]["text"] == "another"
    async with case.hand() as hand:
        assert (await hand.error("tools/call", {"name": "BARE"})).code == error_codes.INVALID_PARAMS


@topic.row("server/tools#calling-tools", "A tool that needs no arguments is called without any.")
async def no_arguments(case: Case) -> None:
    assert (await called(case, "Bare"))["content"] == [{"type": "text", "text": "another"}]


@topic.row("server/tools#calling-tools", "Arguments may be any JSON value.")
async def any_argument(case: Case) -> None:
    for value in (None, True, -7, 1.5, "ä€😀\u2028", [[]], {"a": {"b": [None]}}):
        assert not (await called(case, "bare", {"text": value})).get("isError", False)


@topic.row("server/tools#text-content", "A result may hold text.")
async def text(case: Case) -> None:
    first = (await blocks(case))[0]
    assert (first["type"], first["text"]) == ("text", "t")


@topic.row("server/resources#annotations", "Content may have annotations: for whom it is, and how important.")
async def content_annotations(case: Case) -> None:
    assert (await blocks(case))[0]["annotations"] == {"audience": ["user"], "priority": 0.5}


@topic.row("server/tools#image-content", "A result may hold images, as base64 with a MIME type.")
async def image(case: Case) -> None:
    assert (await blocks(case))[1] == {"type": "image", "data": "aGk=", "mimeType": "image/png"}


@topic.row("server/tools#audio-content", "A result may hold sound, as base64 with a MIME type.", since("2025-03-26"))
async def audio(case: Case) -> None:
    assert (await blocks(case))[2] == {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}


@topic.row("schema", "In a tool's result, a revision without audio content gets text instead.", until("2024-11-05"))
async def audio_before(case: Case) -> None:
    assert (await blocks(case))[2]["type"] == "text"


@topic.row("server/tools#resource-links", "A result may link to resources.", since("2025-06-18"))
async def resource_link(case: Case) -> None:
    assert (await blocks(case))[3] == {"type": "resource_link", "uri": "file:///a", "name": "a"}


@topic.row("schema", "In a tool's result, a revision without resource links gets the URI as text.", until("2025-03-26"))
async def resource_link_before(case: Case) -> None:
    assert (await blocks(case))[3] == {"type": "text", "text": "file:///a"}


@topic.row("server/tools#embedded-resources", "A result may embed a resource that is text.")
async def embedded_text(case: Case) -> None:
    expected = {"uri": "file:///a", "text": "t", "mimeType": "text/plain"}
    assert (await blocks(case))[4] == {"type": "resource", "resource": expected}


@topic.row("server/tools#embedded-resources", "A result may embed a resource that is binary, as base64.")
async def embedded_blob(case: Case) -> None:
    assert (await blocks(case))[5] == {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}}


@topic.row(RESULT, "A result without content has an empty list of it.")
async def no_content(case: Case) -> None:
    assert (await called(case, "bare"))["content"] == []


@topic.row(STRUCTURE, "A structured result is an object that fits the tool's output schema.", since("2025-06-18"))
async def structure(case: Case) -> None:
    assert (await called(case, "weather", {"city": "Ulm"}))["structuredContent"] == {"celsius": 21.5, "rain": False}


@topic.row("schema", "A revision without structured content gets the same as text.", until("2025-03-26"))
async def no_structure(case: Case) -> None:
    result = await called(case, "weather", {"city": "Ulm"})
    assert "structuredContent" not in result
    assert result["content"] == [{"type": "text", "text": '{"celsius":21.5,"rain":false}'}]


@topic.row(STRUCTURE, "A structured result may be any JSON value that fits the output schema.", MODERN)
async def structured_array(case: Case) -> None:
    result = await called(case, "numbers")
    assert result["structuredContent"] == [1, 2]
    assert result["content"] == [{"type": "text", "text": "[1,2]"}]


@topic.row(
    "server/tools#output-schema",
    "A value that violates the tool's output schema is never sent as structured content.",
    since("2025-06-18"),
)
async def broken_output(case: Case) -> None:
    result = await called(case, "wrong")
    assert result["isError"] is True
    assert "structuredContent" not in result


@topic.row(ERRORS, "A successful result is not marked as an error.")
async def success(case: Case) -> None:
    assert not (await called(case, "Bare")).get("isError", False)


@topic.row("server/tools#security-considerations", "An unexpected exception in a tool is not shown to the client.")
async def crash(case: Case) -> None:
    result = await called(case, "crash")
    assert result["isError"] is True
    assert "hunter2" not in str(result)


@topic.row(ERRORS, "A tool may answer with a protocol error, with its own code and data.")
async def protocol_error(case: Case) -> None:
    async with case.hand() as hand:
        error = await hand.error("tools/call", {"name": "refuse"})
    assert (error.code, error.message, error.data) == (-31000, "not today", {"until": "tomorrow"})


@topic.row(ERRORS, "A call that names no tool is refused with -32602.")
async def no_name(case: Case) -> None:
    async with case.hand() as hand:
        for params in ({}, {"name": None}, {"name": 7}, {"name": ["bare"]}):
            assert (await hand.error("tools/call", params)).code == error_codes.INVALID_PARAMS


@topic.row(ERRORS, "A call whose arguments are not an object is refused with -32602.")
async def malformed_arguments(case: Case) -> None:
    async with case.hand() as hand:
        for arguments in (["Ulm"], "Ulm", 7):
            error = await hand.error("tools/call", {"name": "weather", "arguments": arguments})
            assert error.code == error_codes.INVALID_PARAMS


def _refused(name: str, text: str, arguments: dict[str, Any]) -> None:
    async def scenario(case: Case) -> None:
        assert (await called(case, "weather", arguments))["isError"] is True

    scenario.__name__ = name
    topic.row(ERRORS, text, since("2025-11-25"))(scenario)


_refused("argument_missing", "A missing argument gives a result with isError.", {"days": 1})
_refused(
    "argument_unknown", "An argument that the schema does not know gives a result with isError.", {"city": "U", "x": 1}
)

topic.held(
    "unique_names",
    "server/tools#tool-names",
    "A tool name can be used only once.",
    "tests/server/test_registration.py::test_a_name_can_be_used_only_once",
    since("2025-11-25"),
)
topic.held(
    "usable_schemas",
    TOOL,
    "An input schema that is not a valid JSON Schema of an object is refused when the tool is added.",
    "tests/server/test_registration.py::test_an_unusable_input_schema_is_refused",
)
topic.held(
    "usable_output_schemas",
    "server/tools#output-schema",
    "An output schema that can't be used is refused when the tool is added.",
    "tests/server/test_output.py::test_an_unusable_output_schema_is_refused",
    since("2025-06-18"),
)
