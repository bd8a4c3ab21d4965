"""Prompts: what clients see of them, what comes of their arguments and of what they return (`server/prompts`)."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, Strict

from tests.server.harness import LEGACY, MODERN, both_eras, client_of, every_revision
from tests.strategies import json_values
from trio_mcp import Context, McpError, Server
from trio_mcp.types import (
    AudioContent,
    EmbeddedResource,
    GetPromptResult,
    Icon,
    ImageContent,
    ListPromptsResult,
    PromptMessage,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.versions import at_least


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Point(BaseModel):
    x: int
    y: int = 0


def server_with(function: Callable[..., Any], **details: Any) -> Server:
    server = Server("test")
    server.add_prompt(function, **{"name": "prompt", **details})
    return server


async def get(function: Callable[..., Any], arguments: Any = None, revision: str = MODERN) -> dict[str, Any]:
    async with client_of(server_with(function), revision) as client:
        params = {"name": "prompt"} if arguments is None else {"name": "prompt", "arguments": arguments}
        return await client.request("prompts/get", params)


async def refusal(function: Callable[..., Any], arguments: Any, revision: str = MODERN) -> str:
    """Return the message with which arguments are refused."""
    with pytest.raises(McpError) as caught:
        await get(function, arguments, revision)
    assert caught.value.code == INVALID_PARAMS
    return caught.value.message


async def received(hint: Any, text: str) -> Any:
    """Return what a parameter with a type hint receives for a string."""
    values: list[Any] = []

    def prompt(value: Any) -> str:
        values.append(value)
        return ""

    prompt.__annotations__["value"] = hint
    await get(prompt, {"value": text})
    (value,) = values
    return value


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": {"type": "text", "text": text}}


# --- what clients see ----------------------------------------------------------------------------------------------


def review(code: str, language: Literal["c", "python"] = "python", ctx: Context | None = None) -> str:
    """Review some code.

    Args:
        code: What to review.
        language: What it is written in.
    """
    return f"Review this {language} code: {code}"


@every_revision
async def test_a_definition_comes_from_the_signature_and_the_docstring(revision: str) -> None:
    """Each revision gets the fields it knows; the Context is not an argument."""
    icon = Icon(src="https://example.com/i.png")
    server = server_with(review, name=None, title="Review", icons=[icon], meta={"example.com/a": 1})
    async with client_of(server, revision) as client:
        result = await client.request("prompts/list")
    expected: dict[str, Any] = {
        "name": "review",
        "description": "Review some code.",
        "arguments": [
            {"name": "code", "description": "What to review.", "required": True},
            {"name": "language", "description": "What it is written in.", "required": False},
        ],
    }
    if at_least(revision, "2025-06-18"):
        expected |= {"title": "Review", "_meta": {"example.com/a": 1}}
    if at_least(revision, "2025-11-25"):
        expected |= {"icons": [{"src": "https://example.com/i.png"}]}
    assert result["prompts"] == [expected]
    assert ListPromptsResult.from_wire(result).prompts[0].name == "review"


async def test_a_prompt_without_parameters_has_no_arguments() -> None:
    async with client_of(server_with(lambda: "", description="Nothing to fill in.")) as client:
        assert (await client.request("prompts/list"))["prompts"] == [
            {"name": "prompt", "description": "Nothing to fill in."}
        ]


async def test_the_decorator_leaves_the_function_as_it_is() -> None:
    server = Server("test")

    @server.prompt
    def plain() -> str:
        return "plain"

    @server.prompt(name="other", title="Other")
    def detailed() -> str:
        return "detailed"

    assert (plain(), detailed()) == ("plain", "detailed")
    async with client_of(server) as client:
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["plain", "other"]


def test_what_is_refused_at_registration() -> None:
    """A prompt that can't work is refused when it is added, with words that help."""
    server = Server("test")

    def opaque(value: Callable[[], int]) -> str:
        return ""

    def variadic(*values: str) -> str:
        return ""

    with pytest.raises(TypeError, match=r"prompt 'opaque': the parameter 'value' has no JSON Schema"):
        server.add_prompt(opaque)
    with pytest.raises(TypeError, match=r"prompt 'variadic': the parameter \*values is variadic"):
        server.add_prompt(variadic)
    with pytest.raises(TypeError, match="a prompt must be a function"):
        server.add_prompt(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"write @server.prompt\(name='x'\)"):
        server.prompt("x")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="is not a valid prompt name"):
        server.add_prompt(review, name="")
    with pytest.raises(ValueError, match="is not a valid prompt name"):
        server.add_prompt(lambda: "")
    server.add_prompt(review)
    with pytest.raises(ValueError, match="there is already a prompt named 'review'"):
        server.add_prompt(review)
    with pytest.raises(KeyError, match="there is no prompt named 'opaque'"):
        server.remove_prompt("opaque")
    assert server.statistics().prompts == 1


# --- arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (str, "5", "5"),
        (str, '"quoted"', '"quoted"'),
        (str | None, "null", "null"),
        (int, "5", 5),
        (float, "0.5", 0.5),
        (bool, "true", True),
        (bool, "false", False),
        (int | None, "5", 5),
        (int | None, "null", None),
        (Color, "blue", Color.BLUE),
        (Size, "2", Size.LARGE),
        (Literal["a", 1, True], "a", "a"),
        (Literal[1, 2], "2", 2),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, bool], '{"a": true}', {"a": True}),
        (Point, '{"x": 1, "y": 2}', Point(x=1, y=2)),
        (list[Point] | None, '[{"x": "1"}]', [Point(x=1)]),
        (Any, "[1]", "[1]"),
        (str | int, "5", "5"),
        (Annotated[int, Strict()], "5", 5),
        (Annotated[bool, Strict()], "true", True),
        (bool | Point, '{"x": 1}', Point(x=1)),
    ],
    ids=str,
)
async def test_a_string_becomes_the_type_of_the_hint(hint: Any, text: str, value: Any) -> None:
    found = await received(hint, text)
    assert (type(found), found) == (type(value), value)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
async def test_a_string_arrives_as_it_is(text: str) -> None:
    """Even if it happens to be JSON: only values for other types are read as JSON."""
    assert await received(str, text) == text
    quoted = json.dumps(text)
    assert await received(str, quoted) == quoted


@given(value=st.lists(json_values(), max_size=3))
async def test_lists_are_read_from_json(value: list[Any]) -> None:
    assert await received(list[Any], json.dumps(value)) == value


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (int, "five"),
        (int, "[1]"),
        (int, "true"),
        (float, "false"),
        (list[int], "true"),
        (int | None, "true"),
        (int, ""),
        (bool, "2"),
        (Color, "green"),
        (Color, '"red"'),
        (Size, "3"),
        (Literal[1, 2], "3"),
        (list[int], "1"),
        (list[int], '["a"]'),
        (list[int], "[1"),
        (Point, '{"y": 1}'),
        (Annotated[str, Field(pattern="^a")], '"a"'),
        (Annotated[str, Field(max_length=2)], "123"),
    ],
    ids=str,
)
async def test_a_string_that_does_not_fit_the_hint_is_refused(hint: Any, text: str) -> None:
    """-32602, which names the argument and never tells its value."""

    def prompt(value: Any) -> str:
        raise AssertionError("it was called")

    prompt.__annotations__["value"] = hint
    message = await refusal(prompt, {"value": text})
    assert message.startswith("invalid arguments for the prompt 'prompt': value")
    assert len(text) < 3 or text not in message


@every_revision
async def test_missing_arguments_are_named(revision: str) -> None:
    """`server/prompts`, Error Handling: missing required arguments are -32602."""

    def prompt(first: str, second: int, third: str = "") -> str:
        return ""

    for arguments in (None, {}, {"third": "x"}):
        assert "first: missing; second: missing" in await refusal(prompt, arguments or {}, revision)
    assert "second: missing" in await refusal(prompt, {"first": "x"}, revision)


@both_eras
async def test_unknown_arguments_and_those_that_are_not_strings_are_refused(revision: str) -> None:
    assert "other: there is no such argument" in await refusal(review, {"code": "x", "other": "y"}, revision)
    others: list[Any] = [1, True, None, ["x"], {}]
    for value in others:
        assert "code: must be a string" in await refusal(review, {"code": value}, revision)
    assert "must be an object" in await refusal(review, ["x"], revision)


@both_eras
async def test_an_unknown_prompt_is_refused(revision: str) -> None:
    """`server/prompts`, Error Handling: an invalid name is -32602."""
    async with client_of(server_with(review), revision) as client:
        for params in ({"name": "nothing"}, {"name": 1}, {"name": ["prompt"]}, {}):
            with pytest.raises(McpError, match=r"unknown prompt: 'nothing'|needs a name") as caught:
                await client.request("prompts/get", params)
            assert caught.value.code == INVALID_PARAMS
        assert (await client.request("prompts/get", {"name": "prompt", "arguments": {"code": "x"}}))["messages"]


async def test_the_context_is_filled_in() -> None:
    async def prompt(ctx: Context, word: str) -> str:
        return f"{ctx.method} {word}"

    assert (await get(prompt, {"word": "x"}))["messages"] == [user("prompts/get x")]


async def test_a_sync_prompt_runs_in_a_thread() -> None:
    """It may block: the event loop goes on, and reaches it."""

    def prompt() -> str:
        return trio.from_thread.run(answer)

    async def answer() -> str:
        await trio.lowlevel.checkpoint()
        return "from the loop"

    assert (await get(prompt))["messages"] == [user("from the loop")]


# --- results -------------------------------------------------------------------------------------------------------

TEXT = TextContent(text="text")
IMAGE = ImageContent(data="aGk=", mime_type="image/png")
AUDIO = AudioContent(data="aGk=", mime_type="audio/wav")
LINK = ResourceLink(uri="file:///a", name="a")
EMBEDDED = EmbeddedResource(resource=TextResourceContents(uri="file:///a", text="a"))


def returning(value: Any) -> Callable[[], Any]:
    return lambda: value


@both_eras
async def test_what_a_prompt_may_return(revision: str) -> None:
    """A string, a block, a message, a list of these, or a whole result."""
    reply = PromptMessage(role="assistant", content=IMAGE)
    answer = {"role": "assistant", "content": IMAGE.to_wire()}
    cases: list[tuple[Any, list[dict[str, Any]]]] = [
        ("hi", [user("hi")]),
        (IMAGE, [{"role": "user", "content": IMAGE.to_wire()}]),
        (EMBEDDED, [{"role": "user", "content": EMBEDDED.to_wire()}]),
        (reply, [answer]),
        (["hi", reply, TEXT], [user("hi"), answer, user("text")]),
        (("hi", "you"), [user("hi"), user("you")]),
        ([], []),
        ("lone \udc80", [user("lone \\udc80")]),
    ]
    for value, messages in cases:
        result = await get(returning(value), None, revision)
        assert result["messages"] == messages
        assert GetPromptResult.from_wire(result).messages is not None


@both_eras
async def test_the_description_goes_along(revision: str) -> None:
    """The prompt's own, unless the result brings one."""
    assert (await get(review, {"code": "x"}, revision))["description"] == "Review some code."

    def prompt() -> GetPromptResult:
        """Of the docstring."""
        return GetPromptResult(description="of the result", messages=[])

    assert (await get(prompt, None, revision))["description"] == "of the result"


@every_revision
async def test_older_revisions_get_content_they_know(revision: str) -> None:
    """Audio came with 2025-03-26, resource links with 2025-06-18; before, they arrive as text."""
    blocks: list[Any] = [PromptMessage(role="assistant", content=AUDIO), LINK]
    for returned in (blocks, GetPromptResult(messages=[blocks[0], PromptMessage(role="user", content=LINK)])):
        result = await get(returning(returned), None, revision)
        audio, link = (message["content"] for message in result["messages"])
        assert audio["type"] == ("audio" if at_least(revision, "2025-03-26") else "text")
        assert link["type"] == ("resource_link" if at_least(revision, "2025-06-18") else "text")
        assert [message["role"] for message in result["messages"]] == ["assistant", "user"]


async def test_the_result_is_not_cacheable() -> None:
    """2026-07-28 `server/utilities/caching` lists the cacheable results; prompts/get is not among them."""
    assert {"ttlMs", "cacheScope"}.isdisjoint(await get(lambda: "", None, MODERN))
    assert set(await get(lambda: "", None, LEGACY)) == {"messages"}
