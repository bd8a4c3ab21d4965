"""``server/prompts``: the duties of a server that offers prompts."""

from __future__ import annotations

from typing import Any

from tests.requirements.case import Case
from tests.requirements.model import SECRET, Topic, since, until
from trio_mcp import Server, types
from trio_mcp.types import PromptMessage, error_codes

ICON = types.Icon(src="https://example.com/i.png")


def server() -> Server:
    made = Server("prompts")

    @made.prompt(title="Plan a trip", icons=[ICON], meta={"com.example/team": "travel"})
    async def plan(city: str, days: int = 3) -> str:
        """Plan a trip to a city.

        Args:
            city: Its name, in English.
        """
        return f"Plan {days} days in {city}."

    @made.prompt
    async def talk() -> list[PromptMessage]:
        """Talk about it."""
        embedded = types.TextResourceContents(uri="x://y", text="embedded", mime_type="text/plain")
        return [
            PromptMessage(role="user", content=types.TextContent(text="Hello")),
            PromptMessage(role="assistant", content=types.ImageContent(data="aGk=", mime_type="image/png")),
            PromptMessage(role="user", content=types.EmbeddedResource(resource=embedded)),
            PromptMessage(role="user", content=types.AudioContent(data="aGk=", mime_type="audio/wav")),
            PromptMessage(role="user", content=types.ResourceLink(uri="file:///a", name="a")),
        ]

    @made.prompt
    async def broken() -> str:
        """Fail."""
        raise RuntimeError(f"the password is {SECRET}")

    return made


topic = Topic("Prompts", server)

LISTING, GETTING = "server/prompts#listing-prompts", "server/prompts#getting-a-prompt"
DATA, MESSAGE = "server/prompts#prompt", "server/prompts#promptmessage"
ERRORS, CONSIDERATIONS = "server/prompts#error-handling", "server/prompts#implementation-considerations"
LISTED: tuple[Any, ...] = ("prompts/list", {}, "prompts")
PLAN = (*LISTED, 0)


def got(name: str, arguments: dict[str, str] | None = None) -> tuple[Any, ...]:
    return "prompts/get", {"name": name} if arguments is None else {"name": name, "arguments": arguments}, "messages"


def content(number: int) -> tuple[Any, ...]:
    return (*got("talk"), number, "content")


@topic.row(
    "server/prompts#capabilities", "A server with prompts declares the capability, and that it announces changes."
)
async def capability(case: Case) -> None:
    async with case.client() as client:
        assert client.capabilities.prompts is not None
        assert client.capabilities.prompts.list_changed is True


topic.gives(
    LISTING,
    "prompts/list answers with each prompt, in the order of their registration.",
    (*LISTED, lambda found: [each["name"] for each in found]),
    ["plan", "talk", "broken"],
)
topic.gives(DATA, "A prompt may have a description.", (*PLAN, "description"), "Plan a trip to a city.")
topic.gives(
    DATA,
    "A prompt says which arguments it takes, which of them it needs, and what they are.",
    (*PLAN, "arguments"),
    [{"name": "city", "description": "Its name, in English.", "required": True}, {"name": "days", "required": False}],
)
topic.gives(DATA, "A prompt may have a title for people.", (*PLAN, "title"), "Plan a trip", since("2025-06-18"))
topic.gives(
    DATA, "A prompt may have icons.", (*PLAN, "icons"), [{"src": "https://example.com/i.png"}], since("2025-11-25")
)
topic.gives(
    "basic#_meta", "A prompt may have _meta.", (*PLAN, "_meta"), {"com.example/team": "travel"}, since("2025-06-18")
)
topic.gives(
    GETTING,
    "prompts/get answers with messages that have a role and content.",
    got("plan", {"city": "Ulm", "days": "2"}),
    [{"role": "user", "content": {"type": "text", "text": "Plan 2 days in Ulm."}}],
)
topic.gives(
    GETTING,
    "An argument that is not required may be left out.",
    (*got("plan", {"city": "Ulm"}), 0, "content", "text"),
    "Plan 3 days in Ulm.",
)
topic.gives(
    MESSAGE,
    "The messages of a prompt may be the user's and the assistant's, in order; it may be fetched without arguments.",
    (*got("talk"), lambda found: [each["role"] for each in found]),
    ["user", "assistant", "user", "user", "user"],
)
topic.gives(
    MESSAGE,
    "A message may hold an image, as base64 with a MIME type.",
    content(1),
    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
)
topic.gives(
    MESSAGE,
    "A message may embed a resource, with URI, MIME type and text.",
    content(2),
    {"type": "resource", "resource": {"uri": "x://y", "text": "embedded", "mimeType": "text/plain"}},
)
topic.gives(
    MESSAGE,
    "A message may hold sound, as base64 with a MIME type.",
    content(3),
    {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    since("2025-03-26"),
)
topic.gives(
    "schema", "A revision without audio content gets text instead.", (*content(3), "type"), "text", until("2024-11-05")
)
topic.gives(
    MESSAGE,
    "A message may link to a resource.",
    content(4),
    {"type": "resource_link", "uri": "file:///a", "name": "a"},
    since("2025-06-18"),
)
topic.gives(
    "schema",
    "In a prompt, a revision without resource links gets the URI as text.",
    content(4),
    {"type": "text", "text": "file:///a"},
    until("2025-03-26"),
)
topic.refuses(ERRORS, "An unknown prompt is refused with -32602.", "prompts/get", {"name": "unknown"})
topic.refuses(
    ERRORS,
    "A request for a prompt that names none is refused with -32602.",
    "prompts/get",
    *({}, {"name": None}, {"name": 7}),
)
topic.refuses(
    ERRORS,
    "A prompt that lacks a required argument is refused with -32602, which names it.",
    "prompts/get",
    {"name": "plan", "arguments": {"days": "2"}},
    says="city",
)
for _text, *_given in (
    ("A prompt argument that does not fit its type is refused with -32602.", {"city": "Ulm", "days": "many"}),
    ("Prompt arguments that are not an object of strings are refused with -32602.", ["Ulm"], "Ulm", {"city": 7}),
    ("An argument that a prompt does not have is refused with -32602.", {"city": "Ulm", "country": "DE"}),
):
    topic.refuses(CONSIDERATIONS, _text, "prompts/get", *[{"name": "plan", "arguments": each} for each in _given])
topic.refuses(
    ERRORS,
    "A prompt that fails is refused with -32603, without internal details.",
    "prompts/get",
    {"name": "broken"},
    code=error_codes.INTERNAL_ERROR,
)
