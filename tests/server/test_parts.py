"""What is put together from parts is what pydantic makes at once: schemas, values and errors (`server/tools`, Tool)."""

# ruff: noqa: UP006, UP007, UP035, UP045, PYI061  # the older spellings are among what is tested
from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import inspect
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Dict, List, Literal, NotRequired, Optional, Union

import pytest
from annotated_types import Ge, Le, MaxLen
from hypothesis import given, settings, strategies as st
from pydantic import AfterValidator, BaseModel, Field, Strict, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypeAliasType, TypedDict

from tests.effort import examples
from tests.server.harness import tool_of
from trio_mcp import FunctionOptions
from trio_mcp.server.functions import parameters
from trio_mcp.server.functions.parameters import (
    Contract,
    Parameter,
    contract_of,
    made_at_once,
    parameter_of,
    put_together,
)
from trio_mcp.testing.strategies import integers, json_values, texts

MISSING = inspect.Parameter.empty


class Colour(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    """A string of which pydantic shows the value."""

    YES = "yes"


class Cat(BaseModel):
    name: str


class Tree(BaseModel):
    children: list[Tree] = []


@dataclasses.dataclass
class Pair:
    left: int


class Options(TypedDict):
    size: NotRequired[int]


Alias = TypeAliasType("Alias", Optional[int])

# Of these a contract is put together, unless a constraint does not fit them.
PLAIN = [
    str, int, float, bool, type(None), None, Any, object, list, dict, datetime.date, datetime.datetime, datetime.time,
    datetime.timedelta, uuid.UUID, decimal.Decimal, Literal["a", "b"], Literal[1], Literal[True], Literal["a", None],
]  # fmt: skip
# Of these it is not, or not always.
OTHERS = [
    bytes, tuple, List, Dict, Colour, Cat, Tree, Pair, Options, Alias, Literal[Colour.RED], "list[str]", Cat | Tree,
    Annotated[int, AfterValidator(abs)], Annotated[str, "inner"], Annotated[int, Field(description="inner", ge=1)],
]  # fmt: skip


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda kind: list[kind]),
        inner.map(lambda kind: List[kind]),
        inner.map(lambda kind: set[kind]),
        inner.map(lambda kind: dict[str, kind]),
        inner.map(lambda kind: Dict[int, kind]),
        inner.map(lambda kind: tuple[kind, ...]),
        inner.map(lambda kind: Optional[kind]),
        st.tuples(inner, inner).map(lambda kinds: Union[kinds]),
        st.tuples(inner, inner).map(lambda kinds: dict[kinds]),
        inner.map(lambda kind: Annotated[kind, Ge(1)]),
    )


NUMBERS = st.sampled_from([0, -0.0, 1, 1.0, True, 3, 2.5])
SIZES = st.integers(0, 3)
FIELDS = (
    st.fixed_dictionaries(
        {},
        optional={
            "default": st.sampled_from([3, None, "x", ...]),
            "default_factory": st.just(list),
            "description": st.sampled_from(["", "d", "ä d", None, Word.YES]),
            "ge": NUMBERS,
            "lt": NUMBERS,
            "multiple_of": st.sampled_from([1, 2.0]),
            "min_length": SIZES,
            "max_length": SIZES,
            "pattern": st.just("^a"),
            "strict": st.booleans(),
            "title": st.sampled_from(["T", None]),
            "examples": st.just([1]),
            "alias": st.just("y"),
            "deprecated": st.just(True),
            "validate_default": st.booleans(),
            "json_schema_extra": st.just({"x-mcp-header": "X"}),
        },
    )
    .filter(lambda drawn: not {"default", "default_factory"} <= drawn.keys())
    .map(lambda drawn: Field(**drawn))
)
METADATA = st.one_of(
    FIELDS,
    st.sampled_from(["a text", "", Word.YES, Ge(1), Ge(1.0), Le(3), Le(True), MaxLen(2), Strict(), object()]),
)
DEFAULTS = st.one_of(
    st.sampled_from([MISSING, MISSING, None, "x", "", "\ud800", 3, -0.0, 1e300, True, float("nan"), Word.YES]),
    st.builds(list),
    FIELDS,
    st.just(Cat(name="c")),
)


@st.composite
def drawn_parameters(draw: st.DrawFn, leaves: list[Any]) -> Parameter:
    kind = draw(st.recursive(st.sampled_from(leaves), grown, max_leaves=3))
    metadata = draw(st.lists(METADATA, max_size=2) if draw(st.booleans()) else st.just([]))
    annotation = Annotated[(kind, *metadata)] if metadata else kind
    return parameter_of(annotation, draw(DEFAULTS), draw(st.sampled_from([None, "said"])))


VALUES = st.one_of(
    st.sampled_from([None, True, "true", 0, 1, 1.0, 2.5, "1", "a", "b", "2024-01-01", [], [1], ["a"], {}, {"a": 1}]),
    json_values(),
    integers(),
    texts(),
)
NAMES = ["x", "y", "class", "ä"]


def outcome(validate: Any, arguments: Any) -> Any:
    """Return what comes of validating: a value, with types that would otherwise compare equal, or all problems."""
    try:
        return repr(validate(arguments))
    except ValidationError as exc:
        return exc.title, repr(exc.errors())
    except TypeError as exc:  # pydantic's, for a bound that values of the type can't be compared with
        return repr(exc)


def assert_equal(ours: Contract, theirs: Contract, arguments: Any) -> None:
    assert repr(ours.schema) == repr(theirs.schema)  # not only equal: the order is seen, too
    assert ours.as_json == theirs.as_json
    assert outcome(ours.validate, arguments) == outcome(theirs.validate, arguments)
    text = to_json(arguments)
    assert outcome(ours.validate_json, text) == outcome(theirs.validate_json, text)


@settings(max_examples=examples(1000, daily=25))
@given(
    taken=st.dictionaries(
        st.sampled_from(NAMES), drawn_parameters(PLAIN) | drawn_parameters([*PLAIN, *OTHERS]), max_size=3
    ),
    options=st.builds(FunctionOptions, null_in_schemas=st.booleans(), inline_definitions=st.booleans()),
    arguments=st.dictionaries(st.sampled_from(NAMES), VALUES),
)
def test_a_contract_from_parts_is_the_one_that_pydantic_makes_at_once(
    taken: dict[str, Parameter], options: FunctionOptions, arguments: dict[str, Any]
) -> None:
    """Where there is one; else there is only the other."""
    ours = put_together(taken, options.null_in_schemas)
    if ours is not None:
        assert_equal(ours, made_at_once(taken, "forbid", options, "a tool"), arguments)


LOOK_ALIKES = [
    (int | str, str | int),
    (Optional[int], Union[None, int]),
    (list[Optional[int]], list[Union[None, int]]),
    (Literal[1], Literal[True]),
    (Literal[1, "a"], Literal["a", 1]),
    (Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1.0)]),
    (Annotated[float, Ge(0.0)], Annotated[float, Ge(-0.0)]),
    (Annotated[int, Ge(1)], Annotated[int, Field(gt=1)]),
    (Annotated[int, Field(ge=1)], Annotated[int, Field(le=1)]),
]


@pytest.mark.parametrize(("one", "other"), LOOK_ALIKES)
def test_types_that_compare_equal_or_look_alike_are_kept_apart(one: Any, other: Any) -> None:
    """Both as parameters and as what is returned."""

    def tool(x: Any) -> Any: ...

    for kind in (one, other, one):
        tool.__annotations__ = {"x": kind, "return": kind}
        found = tool_of(tool)
        shown = TypeAdapter(kind).json_schema()
        assert found.output_schema is not None
        for schema, name in ((found.input_schema, "x"), (found.output_schema, "result")):
            assert repr(schema["properties"][name]) == repr(shown)


CORNERS = [
    (Annotated[int, Ge(1), Field(ge=3)], MISSING),
    (Annotated[int, Field(ge=3), Ge(1)], MISSING),
    (Annotated[int, Field(ge=1), Field(description="d")], MISSING),
    (Annotated[int, Field(description="d"), Field(default=3)], MISSING),
    (Annotated[int, Field(default=3)], MISSING),
    (Annotated[int, Field(default=3)], 5),
    (Annotated[int, Field(default=3)], Field(ge=1)),
    (Annotated[int, Field(description="")], MISSING),
    (int, Field(description="")),
    (int, Field(description=Word.YES)),
    (Annotated[int, Word.YES], MISSING),
    (int, Field(default_factory=int)),
    (int | None, None),
    (int | str | None, 3),
    (float, float("nan")),
    (float, float("inf")),
    (str, "\ud800"),
    (str, Word.YES),
    (list[int], []),
    (int, 10**30),
]


@pytest.mark.parametrize(("annotation", "default"), CORNERS)
@pytest.mark.parametrize("null", [True, False])
@pytest.mark.parametrize("said", [None, "said"])
def test_corner_cases_are_as_pydantic_has_them(annotation: Any, default: Any, null: bool, said: str | None) -> None:
    options = FunctionOptions(null_in_schemas=null)
    taken = {"x": parameter_of(annotation, default, said)}
    ours = contract_of(taken, "forbid", options, "a tool")
    theirs = made_at_once(taken, "forbid", options, "a tool")
    for arguments in ({}, {"x": None}, {"x": 0}, {"x": 2}, {"x": 5}):
        assert_equal(ours, theirs, arguments)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        *((kind, MISSING) for kind in PLAIN),
        (str, "x"),
        (float, 0.5),
        (bool, False),
        (int, None),
        (Optional[int], None),
        (Annotated[str, "a text"], MISSING),
        (Annotated[int, Field(ge=1, le=5, description="d")], 3),
        (Annotated[list[str] | None, Field(min_length=1)], None),
        (int, Field(default=3, description="d")),
        (dict[str, list[int]], MISSING),
    ],
)
def test_of_the_usual_parameters_a_contract_is_put_together(
    annotation: Any, default: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a server with thousands of tools takes long to start."""
    taken = {"x": parameter_of(annotation, default, "said"), "y": parameter_of(int, MISSING, None)}
    theirs = made_at_once(taken, "forbid", FunctionOptions(), "a tool")
    monkeypatch.delattr(parameters, "made_at_once")
    ours = contract_of(taken, "forbid", FunctionOptions(), "a tool")
    for arguments in ({"x": 1, "y": 1}, {"y": "a"}, {}, {"x": "a", "y": 2, "z": 3}):
        assert_equal(ours, theirs, arguments)


def test_a_model_that_is_rebuilt_is_described_anew() -> None:
    class Reply(BaseModel):
        text: int

    def tool() -> list[Reply]: ...

    def shown() -> Any:
        output = tool_of(tool).output_schema
        assert output is not None
        return output["$defs"]["Reply"]["properties"]["text"]

    tool.__annotations__["return"] = list[Reply]
    assert shown() == {"type": "integer"}
    Reply.model_fields["text"].annotation = str
    Reply.model_rebuild(force=True)
    assert shown() == {"type": "string"}


@pytest.mark.parametrize("name", ["first", "second"])
def test_a_model_that_has_no_schema_is_refused_for_each_tool_by_its_name(name: str) -> None:
    class Reply(BaseModel):
        call: Callable[[], None]

    def tool() -> Reply: ...

    tool.__annotations__["return"] = Reply
    with pytest.raises(TypeError, match=f"tool '{name}': the return type has no JSON Schema"):
        tool_of(tool, name=name)


PLUGIN = """
import atexit
class Handler:
    def on_enter(self, input, **options): print("validates", input)
class Plugin:
    def new_schema_validator(self, schema, schema_type, path, kind, config, settings):
        return (Handler() if path.name.endswith("arguments'>") else None), None, None
plugin = Plugin()
"""
PROGRAM = """
import trio
from trio_mcp import Client, Server
server = Server("test")
@server.tool
def add(a: int, b: int = 1) -> int:
    return a + b
async def main():
    async with Client(server) as client:
        await client.call_tool("add", {"a": 1})
trio.run(main)
"""


def test_plugins_of_pydantic_see_every_call(tmp_path: Path) -> None:
    """They are loaded with pydantic, hence the process."""
    (tmp_path / "watching.py").write_text(PLUGIN)
    (tmp_path / "watching-1.dist-info").mkdir()
    (tmp_path / "watching-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: watching\nVersion: 1\n")
    (tmp_path / "watching-1.dist-info/entry_points.txt").write_text("[pydantic]\nwatching = watching:plugin\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "validates {'a': 1}\n"
