"""The schemas of parameters as hosts know them from the official SDK, and the settings for hosts that know less."""

# ruff: noqa: UP007, UP045, PYI061  # the older spellings are among what is tested
import enum
import json
from typing import Annotated, Any, Literal, Optional, Union

import jsonschema_rs
import pytest
from annotated_types import Ge
from mcp.server.mcpserver.utilities.func_metadata import func_metadata
from pydantic import AfterValidator, BaseModel, Field, RootModel, Strict, create_model
from typing_extensions import TypeAliasType, TypedDict

from tests.server.harness import call, client_of, listed, text_of, tool_of
from trio_mcp import FunctionOptions, Server, types


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    """A cat."""

    kind: Literal["cat"]
    lives: int = Field(default=9, description="how many are left")


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str | None = None


class Tree(BaseModel):
    value: int
    children: "list[Tree]" = []


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
Text = Annotated[str | None, Field(description="d", max_length=3)]
Alias = TypeAliasType("Alias", Optional[int])
MISSING = object()

SHAPES: list[tuple[Any, Any]] = [
    (int, MISSING),
    (int, 3),
    (int | None, None),
    (Optional[int], None),
    (int | None, 3),
    (int | None, MISSING),
    (int | str | None, None),
    (Union[None, int], None),
    (Text, None),
    (Text, MISSING),
    (Annotated[int, Field(ge=1, le=5, description="d")], 3),
    (Annotated[int | None, Field(ge=1, le=5, title="T", examples=[2])], None),
    (Annotated[int | None, Ge(1), Field(description="d")], None),
    (Annotated[str | None, Field(description="d"), Field(pattern="^a")], None),
    (Annotated[list[int] | None, Field(min_length=1, description="d")], None),
    (Annotated[dict[str, Any] | None, Field(description="d")], None),
    (Annotated[int | None, Strict(), Field(description="d")], None),
    (Optional[Annotated[int, Field(description="d")]], None),
    (Annotated[Annotated[int, Field(ge=1)] | None, Field(description="d")], None),
    (int | None, Field(default=None, description="d", le=5)),
    (str, Field(description="d", max_length=3)),
    (Annotated[Literal["a", "b"] | None, Field(description="d")], None),
    (Annotated[Colour | None, Field(description="d")], None),
    (Annotated[Cat | None, Field(description="d")], None),
    (Annotated[list[Cat] | None, Field(description="d")], None),
    (Annotated[Pet | None, Field(description="d")], None),
    (Annotated[Alias, Field(description="d")], None),
    (Annotated[Any, Field(description="d")], None),
    (Tree | None, None),
]


def taking(annotation: Any, default: Any = MISSING, doc: str | None = None) -> Any:
    """Return a function with one parameter, x."""

    def tool(x: Any) -> str:
        return repr(x)

    tool.__annotations__["x"] = annotation
    tool.__defaults__ = () if default is MISSING else (default,)
    tool.__doc__ = doc
    return tool


def properties(function: Any, **options: Any) -> dict[str, Any]:
    server = Server("test", functions=FunctionOptions(**options))
    server.add_tool(function)
    found: dict[str, Any] = listed(server)[0].input_schema["properties"]
    return found


def without_titles(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_titles(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: without_titles(each) for key, each in schema.items() if key != "title"}


@pytest.mark.parametrize(("annotation", "default"), SHAPES)
def test_a_parameter_looks_as_in_the_official_sdk(annotation: Any, default: Any) -> None:
    """But for titles, and that we say that unknown arguments are refused."""
    ours = tool_of(taking(annotation, default)).input_schema
    theirs = func_metadata(taking(annotation, default)).arg_model.model_json_schema(by_alias=True)
    assert ours.pop("additionalProperties") is False
    assert without_titles(ours) == without_titles(theirs)


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        # A null by default makes the parameter optional, whatever its hint says: models send back what they see.
        (int, None, {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}),
        (int, Field(default=None), {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}),
        (
            Annotated[int, Field(ge=1, description="d")],
            None,
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "description": "d", "default": None},
        ),
        # A string in Annotated is the description, unless a Field has one or there are several.
        (Annotated[int, "d"], MISSING, {"type": "integer", "description": "d"}),
        (Annotated[int, "d", Field(ge=1)], 3, {"type": "integer", "description": "d", "minimum": 1, "default": 3}),
        (
            Annotated[int | None, "d"],
            None,
            {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "d", "default": None},
        ),
        (Annotated[int, "d", Field(description="e")], MISSING, {"type": "integer", "description": "e"}),
        (Annotated[int, "d"], Field(description="e"), {"type": "integer", "description": "e"}),
        (Annotated[int, "d", "e"], MISSING, {"type": "integer"}),
    ],
)
async def test_what_a_parameter_says_of_itself(annotation: Any, default: Any, shown: dict[str, Any]) -> None:
    function = taking(annotation, default)
    assert properties(function) == {"x": shown}
    if shown.get("default", MISSING) is None:
        assert text_of(await call(function, {"x": None})) == "None"


@pytest.mark.parametrize("hint", [int | None, Annotated[int | None, Field(ge=1)], Annotated[int, Field(ge=1)]])
@pytest.mark.parametrize("text", ["", "Do it.\n\nArgs:\n    x: How many."])
def test_a_docstring_describes_an_optional_parameter(hint: Any, text: str) -> None:
    (shown,) = properties(taking(hint, None, text)).values()
    assert [option["type"] for option in shown["anyOf"]] == ["integer", "null"]
    assert shown.get("description") == ("How many." if text else None)


async def test_a_validator_does_not_see_the_null_that_its_hint_lacks() -> None:
    function = taking(Annotated[int, Field(ge=1), AfterValidator(lambda number: number + 1)], None)
    assert [text_of(await call(function, {"x": value})) for value in (None, 3)] == ["None", "4"]
    assert (await call(function, {"x": 0})).is_error


# --- settings for hosts that know less -------------------------------------------------------------------------------


class Settings(TypedDict, total=False):
    size: int | None


WITHOUT_NULL: list[tuple[Any, Any, dict[str, Any]]] = [
    (int | None, None, {"type": "integer"}),
    (int | None, 3, {"type": "integer", "default": 3}),
    (int | str | None, None, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    (Text, None, {"type": "string", "maxLength": 3, "description": "d"}),
    (int, None, {"type": "integer"}),
    (Cat | None, None, {"$ref": "#/$defs/Cat"}),
    (Literal["a", None], None, {"enum": ["a"]}),
    (Any, None, {}),
    # Without a default nothing else than null says that there is no value.
    (int | None, MISSING, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (Settings, MISSING, {"$ref": "#/$defs/Settings"}),
]


@pytest.mark.parametrize(("annotation", "default", "shown"), WITHOUT_NULL)
async def test_null_can_be_left_out_of_the_schemas(annotation: Any, default: Any, shown: dict[str, Any]) -> None:
    function = taking(annotation, default)
    server = Server("test", functions=FunctionOptions(null_in_schemas=False))
    server.add_tool(function)
    async with client_of(server) as client:
        assert (await client.list_tools()).tools[0].input_schema["properties"] == {"x": shown}
        if default is not MISSING:
            assert text_of(await client.call_tool("tool", {"x": None})) == "None"
            assert text_of(await client.call_tool("tool")) == repr(default if default is not MISSING else None)


def test_null_is_left_out_of_models_too_but_not_of_results() -> None:
    def tool(dog: Dog) -> Dog:
        return dog

    server = Server("test", functions=FunctionOptions(null_in_schemas=False))
    server.add_tool(tool)
    (found,) = listed(server)
    assert found.input_schema["$defs"]["Dog"]["properties"]["name"] == {"type": "string"}
    assert found.output_schema is not None
    assert "anyOf" in found.output_schema["properties"]["name"]


def inline(function: Any) -> types.Tool:
    server = Server("test", functions=FunctionOptions(inline_definitions=True))
    server.add_tool(function)
    (found,) = listed(server)
    for schema in filter(None, (found.input_schema, found.output_schema)):
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    return found


def test_definitions_can_be_inlined() -> None:
    def tool(cat: Annotated[Cat, Field(description="mine")], pets: list[Pet], more: Cat | None = None) -> list[Cat]:
        return [cat]

    found = inline(tool)
    cat = {
        "type": "object",
        "title": "Cat",
        "description": "A cat.",
        "properties": {
            "kind": {"type": "string", "const": "cat"},
            "lives": {"type": "integer", "default": 9, "description": "how many are left"},
        },
        "required": ["kind"],
    }
    shown = found.input_schema["properties"]
    assert shown["cat"] == {**cat, "description": "mine"}
    assert shown["pets"]["items"]["oneOf"][0] == cat
    assert shown["pets"]["items"].keys() == {"oneOf"}
    assert shown["more"] == {"anyOf": [cat, {"type": "null"}], "default": None}
    assert "$" not in json.dumps([found.input_schema, found.output_schema])
    assert found.output_schema is not None
    assert found.output_schema["properties"]["result"]["items"].keys() == cat.keys()


def test_the_tag_of_a_union_is_required_where_nothing_else_says_so() -> None:
    class Bee(BaseModel):
        kind: Literal["bee"] = "bee"

    class Ant(BaseModel):
        kind: Literal["ant"] = "ant"
        friends: "list[Ant]" = []

    (shown,) = inline(taking(Annotated[Bee | Ant, Field(discriminator="kind")])).input_schema["properties"].values()
    bee, ant = shown["oneOf"]
    assert (bee["required"], ant) == (["kind"], {"$ref": "#/$defs/Ant", "required": ["kind"]})


def test_recursive_definitions_stay() -> None:
    class Garden(BaseModel):
        tree: Tree
        cat: Cat

    def tool(garden: Garden, tree: Tree) -> Tree:
        return tree

    found = inline(tool)
    for schema in (found.input_schema, found.output_schema):
        assert schema is not None
        assert schema["$defs"].keys() == {"Tree"}
        assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    garden = found.input_schema["properties"]["garden"]["properties"]
    assert (garden["tree"], garden["cat"]["title"]) == ({"$ref": "#/$defs/Tree"}, "Cat")


def test_fields_may_be_called_like_keywords() -> None:
    class Odd(BaseModel):
        ref: Cat = Field(alias="$ref")
        properties: Cat
        discriminator: Cat
        default: Cat

    shown = inline(taking(Odd)).input_schema["properties"]["x"]["properties"]
    assert {name: each["title"] for name, each in shown.items()} == dict.fromkeys(shown, "Cat")
    assert len(shown) == 4


def test_a_schema_that_would_explode_stays_as_it_is() -> None:
    """Twenty models, each with two of the one before: a million copies of the first."""
    model: Any = Cat
    for number in range(20):
        model = create_model(f"Model{number}", left=(model, ...), right=(model, ...))
    function = taking(model)
    assert inline(function).input_schema == tool_of(function, name="tool").input_schema


@pytest.mark.parametrize("annotation", [Cat, list[Pet], Tree, dict[str, Cat | Tree], Colour, RootModel[list[Dog]]])
@pytest.mark.parametrize("value", [{"kind": "cat"}, [{"kind": "dog"}], {"value": 1}, {"a": {"kind": "cat"}}, "red", 3])
def test_an_inlined_schema_allows_the_same(annotation: Any, value: Any) -> None:
    shown = [tool.input_schema for tool in (tool_of(taking(annotation)), inline(taking(annotation)))]
    plain, without = (jsonschema_rs.is_valid(schema, {"x": value}) for schema in shown)
    assert plain is without
