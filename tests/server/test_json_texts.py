"""Arguments that arrive as JSON text: some models and hosts send "[1, 2]" for a list."""

import datetime
import decimal
import enum
import json
import uuid
from typing import Annotated, Any, Literal, get_origin

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BeforeValidator, Field, Strict, TypeAdapter, ValidationError

from tests.effort import examples
from tests.server.harness import call, client_of, server_with, text_of, tool_of
from tests.server.test_schemas import Colour, Level, Node, Point, annotations, conforming
from trio_mcp.testing.strategies import json_values

NOT_READ = object()
"""The string is refused, or taken as it is."""


class Mixed(enum.Enum):
    ONE = 1
    TWO = "2"


def taking(annotation: Any, *default: Any) -> Any:
    def tool(x: Any) -> str:
        return repr(x)

    tool.__annotations__["x"] = annotation
    tool.__defaults__ = default
    return tool


CASES: list[tuple[Any, str, Any]] = [
    (list[int], "[1, 2]", [1, 2]),
    (list[str], '["a"]', ["a"]),
    (list, " [1]\n", [1]),
    (set[int], "[1, 1]", {1}),
    (tuple[int, str], '[1, "a"]', (1, "a")),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (Point, '{"x": 1}', Point(x=1)),
    (Point | None, '{"x": 1}', Point(x=1)),
    (Point | None, "null", None),
    (int | None, "null", None),
    (int | list[int], "[1]", [1]),
    (int | list[int], "1", 1),  # fits as it is
    (Node, '{"next": {"next": null}}', Node(next=Node())),
    (Literal[1, 2], "2", 2),
    (Level, "1", Level.LOW),
    (Annotated[list[int], Field(min_length=2)], "[1, 2]", [1, 2]),
    (Annotated[list[int], Strict()], "[1]", [1]),
    (list[datetime.date], '["2020-01-02"]', [datetime.date(2020, 1, 2)]),
    # Refused all the same: not JSON, JSON of another type, JSON in JSON, a value that does not fit.
    (list[int], "1, 2", NOT_READ),
    (list[int], "[1, 2", NOT_READ),
    (list[int], '{"a": 1}', NOT_READ),
    (list[int], '"[1]"', NOT_READ),
    (list[int], '["[1]"]', NOT_READ),
    (list[int], "null", NOT_READ),
    (list[list[int]], '["[1]"]', NOT_READ),
    (list[float], "[NaN]", NOT_READ),
    (list[int], "[" * 100_000, NOT_READ),
    (list[int], "[\udc80]", NOT_READ),
    (Point, '{"x": "no"}', NOT_READ),
    (Literal[1, 2], "true", NOT_READ),
    (Annotated[int, Strict()], "1", NOT_READ),  # a strict type wants no string in place of a number
    (Annotated[bool, Strict()], "true", NOT_READ),
    (int, "[1]", NOT_READ),
    # Never for what takes a string, even one that does not fit.
    (str, "[1]", "[1]"),
    (str | list[int], "[1]", "[1]"),
    (list[int] | str | None, "null", "null"),
    (Any, "[1]", "[1]"),
    (object, "[1]", "[1]"),
    (Annotated[str, Field(max_length=2)] | list[int], "[1]", NOT_READ),
    (Annotated[str, Field(pattern="^a")] | list[int], "[1]", NOT_READ),
    (Literal["a"] | list[int], "[1]", NOT_READ),
    (Colour | list[int], "[1]", NOT_READ),
    (Mixed, "1", NOT_READ),
    (datetime.date | list[int], "[1]", NOT_READ),
    (uuid.UUID | list[int], "[1]", NOT_READ),
    (decimal.Decimal | list[int], "[1]", NOT_READ),
    (bytes | list[int], "[1]", b"[1]"),
]


@pytest.mark.parametrize(("annotation", "text", "read"), CASES, ids=map(str, range(len(CASES))))
async def test_a_string_is_read_only_where_none_is_allowed(annotation: Any, text: str, read: Any) -> None:
    result = await call(taking(annotation), {"x": text})
    assert result.is_error if read is NOT_READ else text_of(result) == repr(read)


def parsed(annotation: Any, value: Any) -> Any:
    """Return what a function gets for a value, or None if it is refused; in a list, as None may be what it gets."""
    adapter = TypeAdapter(annotation)
    try:
        return [adapter.validate_python(value)]
    except ValidationError:
        try:
            return [adapter.validate_json(json.dumps(value))]
        except ValidationError:
            return None


@settings(max_examples=examples(150))
@given(annotation=annotations(), data=st.data())
async def test_a_value_and_its_json_text_are_the_same_where_no_string_is_allowed(
    annotation: Any, data: st.DataObject
) -> None:
    """And where one is allowed, a string is what it always was."""
    function = taking(annotation)
    schema = tool_of(function).input_schema
    value = data.draw(conforming(schema["properties"]["x"], schema))
    text = json.dumps(value)
    async with client_of(server_with(function)) as client:
        result = await client.call_tool("tool", {"x": text})
        if (taken := parsed(annotation, text)) is not None:
            assert text_of(result) == repr(taken[0])
        elif not result.is_error:  # then it was read, and is what the value is
            assert text_of(result) == text_of(await client.call_tool("tool", {"x": value}))
        assert not result.is_error or get_origin(annotation) not in (list, dict, tuple, set, frozenset)


@given(text=st.text() | json_values().map(json.dumps))
async def test_a_string_for_a_string_is_never_changed(text: str) -> None:
    def tool(a: str, b: str | list[int] | dict[str, Any] | None, c: Any) -> str:
        return json.dumps([a, b, c])

    result = await call(tool, dict.fromkeys("abc", text))
    assert json.loads(text_of(result)) == [text] * 3


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"a": '["x"]', "b": "1"}, "a.0: Input should be a valid integer, unable to parse string as an integer"),
        ({"a": "[1", "b": "1"}, "a: Input should be a valid array"),
        ({"a": "[1]", "b": "{}"}, "b: Input should be a valid integer, unable to parse string as an integer"),
        ({"a": "[1]"}, "b: missing"),
    ],
)
async def test_the_problem_told_is_that_of_the_value(arguments: dict[str, Any], problem: str) -> None:
    def tool(a: list[int], b: int) -> int:
        return b

    assert text_of(await call(tool, arguments)) == f"invalid arguments for the tool 'tool': {problem}"


SCHEMA = {
    "type": "object",
    "$defs": {"ids": {"type": ["array", "null"], "items": {"type": "integer"}}},
    "properties": {"ids": {"$ref": "#/$defs/ids"}, "name": {"type": "string", "maxLength": 2}, "open": True},
}


@pytest.mark.parametrize(
    ("arguments", "taken"),
    [
        ({"ids": "[1]", "open": "[1]"}, {"ids": [1], "open": "[1]"}),
        ({"ids": "null"}, {"ids": None}),
        ({"ids": '["a"]'}, None),
        ({"ids": "[1]", "name": "[1]"}, None),
        ({"name": "[]", "more": "[1]"}, {"name": "[]", "more": "[1]"}),
    ],
)
async def test_a_hand_written_schema_says_what_takes_a_string(arguments: Any, taken: Any) -> None:
    def tool(**arguments: Any) -> Any:
        return json.dumps(arguments)

    result = await call(tool, arguments, input_schema=SCHEMA)
    assert result.is_error if taken is None else json.loads(text_of(result)) == taken


async def test_an_argument_is_read_only_once_it_does_not_fit() -> None:
    """So it costs nothing where arguments fit, as almost all do."""
    seen = []

    def tool(x: Annotated[list[int], BeforeValidator(lambda value: seen.append(value) or value)]) -> int:  # type: ignore[func-returns-value]
        return len(x)

    await call(tool, {"x": [1]})
    assert seen == [[1]]
    await call(tool, {"x": "[1, 2]"})
    assert seen[-1] == [1, 2]
