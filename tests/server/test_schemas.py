"""What is made of type hints and docstrings: valid, as expected, consistent with the call (`server/tools`, Tool)."""

# ruff: noqa: UP007, UP045, PYI061  # the older spellings are among what is tested
import dataclasses
import datetime
import decimal
import enum
import functools
import re
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, Union

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel, Field, RootModel
from typing_extensions import TypeAliasType, TypedDict

from tests.effort import examples
from tests.server.harness import LEGACY, MODERN, call, client_of, server_with, tool_of
from trio_mcp.server.functions.introspection import read_docstring
from trio_mcp.testing.strategies import integers, json_values, texts


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(BaseModel):
    x: int
    y: float = 0.5
    label: str | None = Field(default=None, description="what it is called")


class Line(BaseModel):
    start: Point
    end: Point
    via: list[Point] = Field(default_factory=list)


class Tree(BaseModel):
    value: int
    children: "list[Tree]" = []


class Node(BaseModel):
    """A recursive model that is its own root."""

    next: Optional["Node"] = None


@dataclasses.dataclass
class Pair:
    left: int
    right: str = "r"
    more: list[int] = dataclasses.field(default_factory=list)


class Options(TypedDict):
    name: str
    size: NotRequired[int]


class Named(NamedTuple):
    a: int
    b: str = "b"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
Json = TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | None")

SCHEMAS: dict[str, tuple[Any, dict[str, Any]]] = {
    "int": (int, {"type": "integer"}),
    "float": (float, {"type": "number"}),
    "str": (str, {"type": "string"}),
    "bool": (bool, {"type": "boolean"}),
    "None": (None, {"type": "null"}),
    "Any": (Any, {}),
    "list": (list[int], {"type": "array", "items": {"type": "integer"}}),
    "sequence": (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
    "set": (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
    "dict": (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
    "optional": (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    "union": (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    "new union": (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    "literal": (Literal["a", 1, None], {"enum": ["a", 1, None]}),
    "date": (datetime.date, {"type": "string", "format": "date"}),
    "datetime": (datetime.datetime, {"type": "string", "format": "date-time"}),
    "uuid": (uuid.UUID, {"type": "string", "format": "uuid"}),
    "bytes": (dict[str, bytes], {"type": "object", "additionalProperties": {"type": "string", "format": "binary"}}),
    "described": (Annotated[int, Field(description="d", ge=0)], {"type": "integer", "description": "d", "minimum": 0}),
}


@pytest.mark.parametrize(("annotation", "schema"), SCHEMAS.values(), ids=SCHEMAS)
def test_a_hint_becomes_the_schema_that_an_author_would_write(annotation: Any, schema: dict[str, Any]) -> None:
    """No titles that repeat the names: a model pays for each."""

    def function(x: annotation) -> list[annotation]:
        raise NotImplementedError

    definition = tool_of(function)
    assert definition.input_schema == {
        "type": "object",
        "properties": {"x": schema},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert definition.output_schema == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": schema}},
        "required": ["result"],
    }


def test_fields_of_nested_models_keep_their_descriptions() -> None:
    def function(line: Line) -> None: ...

    point = tool_of(function).input_schema["$defs"]["Point"]
    assert point["properties"]["label"]["description"] == "what it is called"


LEAVES = [
    int, float, str, bool, None, datetime.date, datetime.datetime, datetime.time, datetime.timedelta, uuid.UUID,
    decimal.Decimal, bytes, Colour, Level, Literal["a", 1, None], Point, Line, Tree, Node, Pair, Options, Named, Pet,
    Json, Any, dict, list, Annotated[int, Field(ge=-3, le=3)], Annotated[str, Field(min_length=1, max_length=3)],
    RootModel[list[int]], RootModel[dict[str, int]],
]  # fmt: skip
HASHABLE = st.sampled_from([int, str, bool, datetime.date, uuid.UUID, Colour])


def annotations() -> st.SearchStrategy[Any]:
    """Types that a tool might take and give."""
    return st.recursive(
        st.sampled_from(LEAVES),
        lambda inner: st.one_of(
            inner.map(lambda kind: list[kind]),
            inner.map(lambda kind: dict[str, kind]),
            inner.map(lambda kind: dict[int, kind]),
            inner.map(lambda kind: tuple[kind, ...]),
            inner.map(lambda kind: Optional[kind]),
            st.tuples(inner, inner).map(lambda kinds: tuple[kinds]),
            st.tuples(inner, inner).map(lambda kinds: Union[kinds]),
            HASHABLE.map(lambda kind: set[kind]),
            HASHABLE.map(lambda kind: frozenset[kind]),
        ),
        max_leaves=4,
    )


def echo_of(annotation: Any) -> Any:
    async def echo(x: annotation, more: list[annotation] | None = None) -> annotation:  # type: ignore[valid-type]
        return x

    return echo


@settings(max_examples=examples(150))
@given(annotation=annotations(), revision=st.sampled_from(["2024-11-05", LEGACY, MODERN]), data=st.data())
async def test_the_schemas_agree_with_the_call(annotation: Any, revision: str, data: st.DataObject) -> None:
    """What conforms to the input schema is accepted, and what comes back conforms to the output schema.

    The client checks the latter, so an answer is proof.
    """
    await check_agreement(annotation, data, revision)


async def check_agreement(annotation: Any, data: st.DataObject, revision: str) -> None:
    definition = tool_of(echo_of(annotation))
    arguments = data.draw(conforming(definition.input_schema))
    async with client_of(server_with(echo_of(annotation)), revision) as client:
        result = await client.call_tool("echo", arguments)
    assert not result.is_error, result.content
    expected = revision != "2024-11-05" and definition.output_schema is not None
    assert ("structured_content" in result.model_fields_set) == expected


async def test_objects_are_structured_content_as_they_are_and_all_else_is_wrapped() -> None:
    cases: list[tuple[Any, Any, Any]] = [
        (Point, Point(x=1), {"x": 1, "y": 0.5, "label": None}),
        (Pair, Pair(1), {"left": 1, "right": "r", "more": []}),
        (Options, {"name": "n"}, {"name": "n"}),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (dict[int, str], {1: "a"}, {"1": "a"}),
        (dict, {"a": None}, {"a": None}),
        (RootModel[dict[str, int]], {"a": 1}, {"a": 1}),
        (Node, Node(next=Node()), {"next": {"next": None}}),
        (Tree, Tree(value=1), {"value": 1, "children": []}),
        (int, 3, {"result": 3}),
        (str, "s", {"result": "s"}),
        (list[int], [1], {"result": [1]}),
        (Optional[int], None, {"result": None}),
        (Optional[Point], Point(x=1), {"result": {"x": 1, "y": 0.5, "label": None}}),
        (list[Tree], [Tree(value=1)], {"result": [{"value": 1, "children": []}]}),
        (Cat | Dog, Dog(kind="dog", name="d"), {"result": {"kind": "dog", "name": "d"}}),
        (object, {"a": 1}, {"result": {"a": 1}}),
        (Colour, Colour.RED, {"result": "red"}),
        (decimal.Decimal, decimal.Decimal("1.50"), {"result": "1.50"}),
        (decimal.Decimal, decimal.Decimal("1E+3"), {"result": "1E+3"}),
    ]
    for annotation, value, structured in cases:

        def give(value: Any = value) -> Any:
            return value

        give.__annotations__ = {"return": annotation}
        assert tool_of(give).output_schema["type"] == "object"  # type: ignore[index]
        result = await call(give, {})
        assert result.structured_content == structured, annotation


# --- values that conform to a schema ---------------------------------------------------------------------------------


_FORMATS: dict[str, st.SearchStrategy[Any]] = {
    "date": st.dates().map(datetime.date.isoformat),
    "date-time": st.datetimes(timezones=st.just(datetime.UTC)).map(datetime.datetime.isoformat),
    "time": st.times(timezones=st.just(datetime.UTC)).map(datetime.time.isoformat),
    "duration": st.sampled_from(["P1D", "PT3S", "P1DT2H3M4S", "PT0.5S"]),
    "uuid": st.uuids().map(str),
    "binary": texts(),
}


_HUGE_EXPONENT = re.compile(r"[eE][+-]?[0-9]{5}")


def conforming(schema: dict[str, Any], root: dict[str, Any] | None = None, depth: int = 0) -> st.SearchStrategy[Any]:
    """Values that conform to a schema; beyond a depth of 3 optional things are left out."""
    root = schema if root is None else root
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return st.deferred(lambda: conforming(target, root, depth + 1))
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            options = [option for option in schema[key] if depth < 3 or "$ref" not in option] or schema[key]
            return st.one_of(*(conforming(option, root, depth) for option in options))
    if "type" not in schema:
        return json_values()
    return _OF_TYPE[schema["type"]](schema, root, depth)


def _string(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "pattern" in schema:
        matching = st.from_regex(schema["pattern"], fullmatch=True, alphabet=st.characters(codec="ascii"))
        # Pydantic's pattern for a Decimal allows exponents that no Decimal can have.
        return matching.filter(lambda text: not _HUGE_EXPONENT.search(text))
    if "format" in schema:
        return _FORMATS[schema["format"]]
    return texts(schema.get("maxLength", 10)).filter(lambda text: len(text) >= schema.get("minLength", 0))


def _integer(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "minimum" in schema or "maximum" in schema:
        return st.integers(schema.get("minimum"), schema.get("maximum"))
    return integers() | integers().map(lambda number: float(number) if abs(number) < 2**31 else number)


def _number(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    return integers() | st.floats(allow_nan=False, allow_infinity=False)


def _array(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "prefixItems" in schema:
        return st.tuples(*(conforming(item, root, depth) for item in schema["prefixItems"])).map(list)
    if depth >= 3 and not schema.get("minItems"):
        return st.just([])
    items = conforming(schema.get("items", {}), root, depth)
    return st.lists(items, max_size=3, unique_by=repr if schema.get("uniqueItems") else None)


def _object(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    properties = {name: conforming(each, root, depth) for name, each in schema.get("properties", {}).items()}
    required = {name: each for name, each in properties.items() if name in schema.get("required", ())}
    optional = {name: each for name, each in properties.items() if name not in required}
    if properties or schema.get("additionalProperties") is False:
        return st.fixed_dictionaries(required, optional=optional if depth < 3 else {})
    more = schema.get("additionalProperties", True)
    keys = conforming({"type": "string", **schema.get("propertyNames", {})}, root, depth)
    return st.dictionaries(keys, json_values(3) if more is True else conforming(more, root, depth), max_size=2)


_OF_TYPE = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "array": _array,
    "object": _object,
    "boolean": lambda schema, root, depth: st.booleans(),
    "null": lambda schema, root, depth: st.none(),
}


# --- a docstring as the description of a tool and of its parameters --------------------------------------------------


def google(place: str, days: int = 1) -> str:
    """Forecast the weather.

    It is a guess: do not rely on it.

    Args:
        place: Where. The text goes on
            in a second line.

            And in another paragraph.
        days (int, optional): How many days.

    Returns:
        A forecast: one line for each day.

    Raises:
        LookupError: No such place.

    Example:
        forecast("Rome")
    """
    raise NotImplementedError


def sphinx(place: str, days: int = 1) -> str:
    """Forecast the weather.

    :param place: Where. The text goes on
        in a second line.
    :type place: str
    :param int days: How many days.
    :returns: A forecast.
    :rtype: str
    :raises LookupError: No such place.

    It is a guess.
    """
    raise NotImplementedError


def described(function: Any) -> tuple[str | None, dict[str, str | None]]:
    definition = tool_of(function)
    properties = definition.input_schema["properties"]
    return definition.description, {name: each.get("description") for name, each in properties.items()}


def test_google_style() -> None:
    """Parameters move into the schema; what it returns stays for the model; exceptions no client sees go."""
    text, parameters = described(google)
    assert text == (
        "Forecast the weather.\n\nIt is a guess: do not rely on it.\n\n"
        'Returns:\n    A forecast: one line for each day.\n\nExample:\n    forecast("Rome")'
    )
    assert parameters == {
        "place": "Where. The text goes on in a second line. And in another paragraph.",
        "days": "How many days.",
    }


def test_sphinx_style() -> None:
    text, parameters = described(sphinx)
    assert text == "Forecast the weather.\n\nReturns: A forecast.\n\nIt is a guess."
    assert parameters == {"place": "Where. The text goes on in a second line.", "days": "How many days."}


def test_the_description_of_a_field_wins() -> None:
    def function(
        a: Annotated[int, Field(description="from the annotation")],
        b: int = Field(default=1, description="from the default"),
        c: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        """Text.

        Args:
            a: from the docstring
            b: from the docstring
            c: from the docstring
        """

    assert described(function)[1] == {"a": "from the annotation", "b": "from the default", "c": "from the docstring"}


def test_no_docstring_no_description() -> None:
    assert described(lambda x: x) == (None, {"x": None})


def test_an_explicit_description_replaces_the_text_only() -> None:
    definition = tool_of(google, description="Mine")
    assert definition.description == "Mine"
    assert definition.input_schema["properties"]["days"]["description"] == "How many days."
    assert tool_of(google, description="").description == ""


class Speaker:
    """An object that speaks."""

    def __call__(self, word: str) -> None:
        """Speak.

        Args:
            word: What to say.
        """


class Mute:
    """An object without words."""

    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (Speaker(), "Speak."),
        (Mute(), "An object without words."),
        (functools.partial(Speaker(), "a"), "Speak."),
        (functools.partial(google, days=2), described(google)[0]),
        (functools.lru_cache(google), described(google)[0]),
    ],
)
def test_the_docstring_of_the_call_counts(function: Any, text: str) -> None:
    assert described(function)[0] == text


@pytest.mark.parametrize(
    ("docstring", "text", "parameters"),
    [
        ("\nArgs:\n    x: One.", None, {"x": "One."}),
        ("Do.\n\nArgs:\n    x:\n        One.", "Do.", {"x": "One."}),
        ("Do.\n\nArgs:\n    *xs: Some.\n    **options: More.", "Do.", {"xs": "Some.", "options": "More."}),
        ("Do.\n\nArgs:\n    x (Callable[[int], str]): One.", "Do.", {"x": "One."}),
        (
            "Do.\n\nArgs:\n    x: One, as\n        y: no parameter.",
            "Do.",
            {"x": "One, as y: no parameter."},
        ),
        ("Do.\n\nArgs:\n    Nothing to see.", "Do.\n\nArgs:\n    Nothing to see.", {}),
        ("Do.\n\nArgs:\n    x: One.\nMore text.", "Do.\n\nMore text.", {"x": "One."}),
        ("Ask it: it knows.\nArgs: none", "Ask it: it knows.\nArgs: none", {}),
        ("Use :class:`Thing` well.", "Use :class:`Thing` well.", {}),
        ("Do.\n:param x:\n:param y: Two", "Do.", {"y": "Two"}),
        ("   ", None, {}),
        ("", None, {}),
        (None, None, {}),
    ],
)
def test_odd_docstrings(docstring: str | None, text: str | None, parameters: dict[str, str]) -> None:
    assert read_docstring(docstring) == (text, parameters)


@given(st.text(st.sampled_from("Args: :param x\n\tReturns()*'é")) | st.text())
def test_any_docstring_can_be_read(docstring: str) -> None:
    """It is prose: whatever it looks like, registration succeeds."""
    text, parameters = read_docstring(docstring)
    assert text is None or text.strip()
    assert all(parameters.values())


@given(st.lists(st.sampled_from(["plain words", "    indented words", "", "A heading:", "- an item"]), max_size=8))
def test_text_without_sections_is_kept_word_for_word(lines: list[str]) -> None:
    docstring = "Do.\n\n" + "\n".join(lines)
    assert (read_docstring(docstring)[0] or "").split() == docstring.split()
