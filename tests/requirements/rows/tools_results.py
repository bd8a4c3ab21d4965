"""``server/tools``: what tool definitions and results may hold, and in which revision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.peer import Peer
from tests.requirements.case import Case
from tests.requirements.model import ALL, MODERN, SECRET, Topic, since, until
from trio_mcp import McpError, Server, ToolError, types

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
        raise RuntimeError(f"the password is {SECRET}")

    @made.tool
    async def fail() -> str:
        raise ToolError("it is broken")

    @made.tool
    async def refuse() -> str:
        raise McpError(-31000, "not today", {"until": "tomorrow"})

    return made


topic = Topic("Tools", server)

PAGE = "server/tools"
TOOL, CALLING, STRUCTURE = f"{PAGE}#tool", f"{PAGE}#calling-tools", f"{PAGE}#structured-content"
OUTPUT, ERRORS = f"{PAGE}#output-schema", f"{PAGE}#error-handling"
LISTED: tuple[Any, ...] = ("tools/list", {}, "tools")
WEATHER, BARE = (*LISTED, 0), (*LISTED, 1)


def called(name: str, arguments: dict[str, Any] | None = None) -> tuple[Any, ...]:
    return "tools/call", {"name": name} if arguments is None else {"name": name, "arguments": arguments}


def failed(result: dict[str, Any]) -> list[Any]:
    """Whether it is an error, whether it is structured, and whether it gives a secret away."""
    return [result.get("isError", False), "structuredContent" in result, SECRET in str(result)]


@topic.row(f"{PAGE}#capabilities", "A server with tools declares the capability, and that it announces changes.")
async def capability(case: Case) -> None:
    async with case.client() as client:
        assert client.capabilities.tools is not None
        assert client.capabilities.tools.list_changed is True


topic.gives(
    f"{PAGE}#listing-tools",
    "tools/list answers with name and inputSchema of each tool, in the order of their registration.",
    (*LISTED, lambda found: [each["name"] for each in found if each["inputSchema"]["type"] == "object"]),
    ["weather", "bare", "Bare", "blocks", "numbers", "wrong", "crash", "fail", "refuse"],
)
for _field, _text, _expected, _revisions in (
    ("description", "A tool may have a description.", "The weather in a city.", ALL),
    (
        "annotations",
        "A tool may have annotations about its behaviour.",
        {"readOnlyHint": True, "openWorldHint": False},
        since("2025-03-26"),
    ),
    ("title", "A tool may have a title for people.", "The weather", since("2025-06-18")),
    ("icons", "A tool may have icons.", [{"src": "https://example.com/i.png"}], since("2025-11-25")),
    ("_meta", "A tool may have _meta.", {"com.example/team": "search"}, since("2025-06-18")),
    ("outputSchema", "A revision without output schemas gets none.", None, until("2025-03-26")),
):
    topic.gives("schema" if _expected is None else TOOL, _text, (*WEATHER, _field), _expected, _revisions)
topic.gives(TOOL, "A tool without a description has none.", (*BARE, "description"), None)
topic.gives(
    TOOL,
    "The schema of a tool says which arguments it needs, and their types.",
    (
        *WEATHER,
        "inputSchema",
        lambda found: [found["required"], {name: each["type"] for name, each in found["properties"].items()}],
    ),
    [["city"], {"city": "string", "days": "integer"}],
)
topic.gives(
    f"{PAGE}#listing-tools",
    "A tool without parameters has a schema that takes no arguments.",
    (*LISTED, 2, "inputSchema", lambda found: [found.get("properties", {}), found["additionalProperties"]]),
    [{}, False],
)
topic.gives(
    OUTPUT,
    "A tool may have a schema of its structured result.",
    (*WEATHER, "outputSchema", lambda found: [found["type"], sorted(found["properties"])]),
    ["object", ["celsius", "rain"]],
    since("2025-06-18"),
)
topic.gives(
    f"{PAGE}#tool-names",
    "Tool names that differ only in case name different tools; a call needs no arguments.",
    (*called("Bare"), "content"),
    [{"type": "text", "text": "another"}],
)
topic.refuses(
    ERRORS,
    "An unknown tool is refused with -32602.",
    "tools/call",
    *({"name": "unknown"}, {"name": "BARE"}),
)
topic.gives(CALLING, "A result without content has an empty list of it.", (*called("bare"), "content"), [])


@topic.row(CALLING, "Arguments may be any JSON value, and a successful result is not marked as an error.")
async def any_argument(hand: Peer) -> None:
    for value in (None, True, -7, 1.5, "ä€😀\u2028", [[]], {"a": {"b": [None]}}):
        assert failed(await hand.call("bare", {"text": value})) == [False, False, False]


AUDIO, LINK = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}, {"type": "resource_link", "uri": "file:///a"}
for _section, _text, _number, _block, _revisions in (
    (
        "text-content",
        "A result may hold text, with annotations: for whom it is, and how important.",
        0,
        {"type": "text", "text": "t", "annotations": {"audience": ["user"], "priority": 0.5}},
        ALL,
    ),
    (
        "image-content",
        "A result may hold images, as base64 with a MIME type.",
        1,
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        ALL,
    ),
    ("audio-content", "A result may hold sound, as base64 with a MIME type.", 2, AUDIO, since("2025-03-26")),
    ("resource-links", "A result may link to resources.", 3, {**LINK, "name": "a"}, since("2025-06-18")),
    (
        "resource-links",
        "In a tool's result, a revision without resource links gets the URI as text.",
        3,
        {"type": "text", "text": "file:///a"},
        until("2025-03-26"),
    ),
    (
        "embedded-resources",
        "A result may embed a resource that is text.",
        4,
        {"type": "resource", "resource": {"uri": "file:///a", "text": "t", "mimeType": "text/plain"}},
        ALL,
    ),
    (
        "embedded-resources",
        "A result may embed a resource that is binary, as base64.",
        5,
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
        ALL,
    ),
):
    topic.gives(f"{PAGE}#{_section}", _text, (*called("blocks"), "content", _number), _block, _revisions)
topic.gives(
    "schema",
    "In a tool's result, a revision without audio content gets text instead.",
    (*called("blocks"), "content", 2, "type"),
    "text",
    until("2024-11-05"),
)

_STRUCTURED = lambda result: [result.get("structuredContent"), result["content"]]  # noqa: E731 - a way into results
_TEXT = [{"type": "text", "text": '{"celsius":21.5,"rain":false}'}]
for _text, _tool, _expected, _revisions in (
    (
        "A structured result is an object that fits the tool's output schema, and is also carried as text.",
        called("weather", {"city": "Ulm"}),
        [{"celsius": 21.5, "rain": False}, _TEXT],
        since("2025-06-18"),
    ),
    (
        "A revision without structured content gets the same as text.",
        called("weather", {"city": "Ulm"}),
        [None, _TEXT],
        until("2025-03-26"),
    ),
    (
        "A structured result may be any JSON value that fits the output schema.",
        called("numbers"),
        [[1, 2], [{"type": "text", "text": "[1,2]"}]],
        MODERN,
    ),
):
    topic.gives(STRUCTURE, _text, (*_tool, _STRUCTURED), _expected, _revisions)

for _section, _text, _tool, _revisions in (
    (
        OUTPUT,
        "A value that violates the tool's output schema is never sent as structured content.",
        called("wrong"),
        since("2025-06-18"),
    ),
    (
        f"{PAGE}#security-considerations",
        "An unexpected exception in a tool is not shown to the client.",
        called("crash"),
        ALL,
    ),
    (ERRORS, "A missing argument gives a result with isError.", called("weather", {"days": 1}), since("2025-11-25")),
    (
        ERRORS,
        "An argument that the schema does not know gives a result with isError.",
        called("weather", {"city": "U", "x": 1}),
        since("2025-11-25"),
    ),
    (
        ERRORS,
        "Arguments that violate the input schema give a result with isError.",
        called("weather", {"city": 7}),
        since("2025-11-25"),
    ),
):
    topic.gives(_section, _text, (*_tool, failed), [True, False, False], _revisions)
topic.gives(
    ERRORS,
    "A tool that fails answers with isError, for the model to see.",
    (*called("fail"), lambda result: [result["isError"], result["content"]]),
    [True, [{"type": "text", "text": "it is broken"}]],
)
topic.refuses(
    ERRORS,
    "Invalid arguments are refused with -32602.",
    "tools/call",
    *[{"name": "weather", "arguments": each} for each in ({"days": 1}, {"city": "U", "x": 1}, {"city": 7})],
    revisions=until("2025-06-18"),
)
topic.refuses(
    ERRORS,
    "A call that names no tool is refused with -32602.",
    "tools/call",
    *({}, {"name": None}, {"name": 7}, {"name": ["bare"]}),
)
topic.refuses(
    ERRORS,
    "A call whose arguments are not an object is refused with -32602.",
    "tools/call",
    *[{"name": "weather", "arguments": each} for each in (["Ulm"], "Ulm", 7)],
)


@topic.row(ERRORS, "A tool may answer with a protocol error, with its own code and data.")
async def protocol_error(hand: Peer) -> None:
    error = await hand.error("tools/call", {"name": "refuse"})
    assert (error.code, error.message, error.data) == (-31000, "not today", {"until": "tomorrow"})


topic.held(
    """
    A server offers only tool names of 1 to 128 letters, digits, underscores, dashes and dots.
        server/tools#tool-names other_names_are_refused_when_registered 2025-11-25+
    """,
    tests="tests/server/test_registration.py::test_",
)
topic.held(
    """
    A tool name can be used only once.
        server/tools#tool-names registration.py::test_a_name_can_be_used_only_once 2025-11-25+
    An input schema that is not a valid JSON Schema of an object is refused when the tool is added.
        server/tools#tool registration.py::test_an_unusable_input_schema_is_refused
    An output schema that can't be used is refused when the tool is added.
        server/tools#output-schema output.py::test_an_unusable_output_schema_is_refused 2025-06-18+
    """,
    tests="tests/server/test_",
)
