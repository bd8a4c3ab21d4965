"""``server/prompts``: what a server that offers prompts has to do."""

from __future__ import annotations

from typing import Any

from tests.requirements.case import Case
from tests.requirements.model import Topic, since, until
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
        return [
            PromptMessage(role="user", content=types.TextContent(text="Hello")),
            PromptMessage(role="assistant", content=types.ImageContent(data="aGk=", mime_type="image/png")),
            PromptMessage(
                role="user",
                content=types.EmbeddedResource(
                    resource=types.TextResourceContents(uri="x://y", text="embedded", mime_type="text/plain")
                ),
            ),
        ]

    @made.prompt
    async def sound() -> list[PromptMessage]:
        """Let hear."""
        return [PromptMessage(role="user", content=types.AudioContent(data="aGk=", mime_type="audio/wav"))]

    @made.prompt
    async def link() -> list[PromptMessage]:
        """Point to it."""
        return [PromptMessage(role="user", content=types.ResourceLink(uri="file:///a", name="a"))]

    @made.prompt
    async def broken() -> str:
        """Fail."""
        raise RuntimeError("the password is hunter2")

    return made


topic = Topic("Prompts", server)

LISTING = "server/prompts#listing-prompts"
GETTING = "server/prompts#getting-a-prompt"
DATA = "server/prompts#prompt"
MESSAGE = "server/prompts#promptmessage"
ERRORS = "server/prompts#error-handling"


async def listed(case: Case, name: str = "plan") -> dict[str, Any]:
    async with case.client() as client:
        found = (await client.request("prompts/list"))["prompts"]
    return dict(next(each for each in found if each["name"] == name))


async def messages(case: Case, name: str, arguments: dict[str, str] | None = None) -> list[dict[str, Any]]:
    async with case.client() as client:
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = arguments
        return list((await client.request("prompts/get", params))["messages"])


async def refused(case: Case, params: dict[str, Any]) -> Any:
    async with case.hand() as hand:
        return await hand.error("prompts/get", params)


@topic.row(
    "server/prompts#capabilities", "A server with prompts declares the capability, and that it announces changes."
)
async def capability(case: Case) -> None:
    async with case.client() as client:
        assert client.capabilities.prompts is not None
        assert client.capabilities.prompts.list_changed is True


@topic.row(LISTING, "prompts/list answers with each prompt, in the same order each time.")
async def names(case: Case) -> None:
    async with case.client() as client:
        for _ in range(2):
            found = (await client.request("prompts/list"))["prompts"]
            assert [each["name"] for each in found] == ["plan", "talk", "sound", "link", "broken"]


@topic.row(DATA, "A prompt may have a description.")
async def description(case: Case) -> None:
    assert (await listed(case))["description"] == "Plan a trip to a city."


@topic.row(DATA, "A prompt says which arguments it takes, and which of them it needs.")
async def arguments(case: Case) -> None:
    found = (await listed(case))["arguments"]
    assert [(each["name"], each.get("required", False)) for each in found] == [("city", True), ("days", False)]


@topic.row(DATA, "An argument of a prompt may have a description.")
async def described_argument(case: Case) -> None:
    city, days = (await listed(case))["arguments"]
    assert city["description"] == "Its name, in English."
    assert "description" not in days


@topic.row(DATA, "A prompt may have a title for people.", since("2025-06-18"))
async def title(case: Case) -> None:
    assert (await listed(case))["title"] == "Plan a trip"


@topic.row(DATA, "A prompt may have icons.", since("2025-11-25"))
async def icons(case: Case) -> None:
    assert (await listed(case))["icons"] == [{"src": "https://example.com/i.png"}]


@topic.row("basic#_meta", "A prompt may have _meta.", since("2025-06-18"))
async def own_meta(case: Case) -> None:
    assert (await listed(case))["_meta"] == {"com.example/team": "travel"}


@topic.row(GETTING, "prompts/get answers with messages that have a role and content.")
async def got(case: Case) -> None:
    found = await messages(case, "plan", {"city": "Ulm", "days": "2"})
    assert found == [{"role": "user", "content": {"type": "text", "text": "Plan 2 days in Ulm."}}]


@topic.row(GETTING, "An argument that is not required may be left out.")
async def optional_argument(case: Case) -> None:
    (message,) = await messages(case, "plan", {"city": "Ulm"})
    assert message["content"]["text"] == "Plan 3 days in Ulm."


@topic.row(GETTING, "A prompt without arguments can be fetched without any.")
async def no_arguments(case: Case) -> None:
    assert len(await messages(case, "talk")) == 3


@topic.row(MESSAGE, "The messages of a prompt may be the user's and the assistant's, in order.")
async def roles(case: Case) -> None:
    assert [each["role"] for each in await messages(case, "talk")] == ["user", "assistant", "user"]


@topic.row(MESSAGE, "A message may hold an image, as base64 with a MIME type.")
async def image(case: Case) -> None:
    assert (await messages(case, "talk"))[1]["content"] == {"type": "image", "data": "aGk=", "mimeType": "image/png"}


@topic.row(MESSAGE, "A message may embed a resource, with URI, MIME type and text.")
async def embedded(case: Case) -> None:
    assert (await messages(case, "talk"))[2]["content"] == {
        "type": "resource",
        "resource": {"uri": "x://y", "text": "embedded", "mimeType": "text/plain"},
    }


@topic.row(MESSAGE, "A message may hold sound, as base64 with a MIME type.", since("2025-03-26"))
async def audio(case: Case) -> None:
    assert (await messages(case, "sound"))[0]["content"] == {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}


@topic.row("schema", "A revision without audio content gets text instead.", until("2024-11-05"))
async def audio_before(case: Case) -> None:
    assert (await messages(case, "sound"))[0]["content"]["type"] == "text"


@topic.row(MESSAGE, "A message may link to a resource.", since("2025-06-18"))
async def linked(case: Case) -> None:
    assert (await messages(case, "link"))[0]["content"] == {"type": "resource_link", "uri": "file:///a", "name": "a"}


@topic.row("schema", "In a prompt, a revision without resource links gets the URI as text.", until("2025-03-26"))
async def linked_before(case: Case) -> None:
    assert (await messages(case, "link"))[0]["content"] == {"type": "text", "text": "file:///a"}


@topic.row(ERRORS, "An unknown prompt is refused with -32602.")
async def unknown(case: Case) -> None:
    assert (await refused(case, {"name": "unknown"})).code == error_codes.INVALID_PARAMS


@topic.row(ERRORS, "A request for a prompt that names none is refused with -32602.")
async def unnamed(case: Case) -> None:
    async with case.hand() as hand:
        for params in ({}, {"name": None}, {"name": 7}):
            assert (await hand.error("prompts/get", params)).code == error_codes.INVALID_PARAMS


@topic.row(ERRORS, "A prompt that lacks a required argument is refused with -32602, which names it.")
async def argument_missing(case: Case) -> None:
    error = await refused(case, {"name": "plan", "arguments": {"days": "2"}})
    assert error.code == error_codes.INVALID_PARAMS
    assert "city" in error.message


@topic.row(
    "server/prompts#implementation-considerations",
    "A prompt argument that does not fit its type is refused with -32602.",
)
async def argument_invalid(case: Case) -> None:
    error = await refused(case, {"name": "plan", "arguments": {"city": "Ulm", "days": "many"}})
    assert error.code == error_codes.INVALID_PARAMS


@topic.row(
    "server/prompts#implementation-considerations",
    "Prompt arguments that are not an object of strings are refused with -32602.",
)
async def arguments_malformed(case: Case) -> None:
    async with case.hand() as hand:
        for given in (["Ulm"], "Ulm", {"city": 7}):
            error = await hand.error("prompts/get", {"name": "plan", "arguments": given})
            assert error.code == error_codes.INVALID_PARAMS


@topic.row(
    "server/prompts#implementation-considerations", "An argument that a prompt does not have is refused with -32602."
)
async def argument_unknown(case: Case) -> None:
    error = await refused(case, {"name": "plan", "arguments": {"city": "Ulm", "country": "DE"}})
    assert error.code == error_codes.INVALID_PARAMS


@topic.row(ERRORS, "A prompt that fails is refused with -32603, without internal details.")
async def failure(case: Case) -> None:
    error = await refused(case, {"name": "broken"})
    assert error.code == error_codes.INTERNAL_ERROR
    assert "hunter2" not in f"{error.message} {error.data}"
