"""Prompts: what clients see of them, what comes of their arguments and of what they return (`server/prompts`)."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, Field, Strict

from tests.server.harness import LEGACY, MODERN, both_eras, client_of
from tests.tables import by_outcome
from trio_mcp import Context, McpError, Server
from trio_mcp.testing.strategies import json_values
from trio_mcp.types import (
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    PromptMessage,
    TextContent,
    TextResourceContents,
)
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Point(BaseModel):
    x: int
    y: int = 0


def server_with(function: Callable[..., Any], **options: Any) -> Server:
    server = Server("test", **options)
    server.add_prompt(function, name="prompt")
    return server


async def get(
    function: Callable[..., Any], arguments: Any = None, revision: str = MODERN, **options: Any
) -> dict[str, Any]:
    async with client_of(server_with(function, **options), revision) as client:
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


async def test_a_prompt_without_parameters_has_no_arguments() -> None:
    server = Server("test")
    server.add_prompt(lambda: "", name="prompt", description="Nothing to fill in.")
    async with client_of(server) as client:
        assert (await client.request("prompts/list"))["prompts"] == [
            {"name": "prompt", "description": "Nothing to fill in."}
        ]


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


@by_outcome(
    "text",
    "hint",
    {
        int: ["five", "[1]", "true", ""],
        float: ["false"],
        bool: ["2"],
        int | None: ["true"],
        Color: ["green", '"red"'],
        Size: ["3"],
        Literal[1, 2]: ["3"],
        list[int]: ["true", "1", '["a"]', "[1"],
        Point: ['{"y": 1}'],
        Annotated[str, Field(pattern="^a")]: ['"a"'],
        Annotated[str, Field(max_length=2)]: ["123"],
    },
)
async def test_a_string_that_does_not_fit_the_hint_is_refused(hint: Any, text: str) -> None:
    """-32602, which names the argument and never tells its value."""

    def prompt(value: Any) -> str:
        raise AssertionError("it was called")

    prompt.__annotations__["value"] = hint
    message = await refusal(prompt, {"value": text})
    assert message.startswith("invalid arguments for the prompt 'prompt': value")
    assert len(text) < 3 or text not in message


# --- results -------------------------------------------------------------------------------------------------------

TEXT = TextContent(text="text")
IMAGE = ImageContent(data="aGk=", mime_type="image/png")
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


async def test_a_prompt_that_may_ask_checks_its_arguments_too() -> None:
    assert "language: " in await refusal(review, {"code": "x", "language": "d"})


@both_eras
async def test_the_description_goes_along(revision: str) -> None:
    """The prompt's own, unless the result brings one."""
    assert (await get(review, {"code": "x"}, revision))["description"] == "Review some code."

    def prompt() -> GetPromptResult:
        """Of the docstring."""
        return GetPromptResult(description="of the result", messages=[])

    assert (await get(prompt, None, revision))["description"] == "of the result"


async def test_the_result_is_not_cacheable() -> None:
    """2026-07-28 `server/utilities/caching` lists the cacheable results; prompts/get is not among them."""
    assert {"ttlMs", "cacheScope"}.isdisjoint(await get(lambda: "", None, MODERN))
    assert set(await get(lambda: "", None, LEGACY)) == {"messages"}


@pytest.mark.parametrize("value", [None, 1, {"role": "user"}, ["text", None], [["text"]], b"x"], ids=repr)
async def test_a_result_that_is_not_a_message_is_an_internal_error(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(McpError, match="a prompt must return strings, content blocks") as caught:
        await get(returning(value), expose_errors=True)
    assert caught.value.code == INTERNAL_ERROR
    assert len(caplog.records) == 1
