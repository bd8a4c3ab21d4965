"""A function's hints and defaults as a contract: which arguments there are, and what the function gets for them."""

# ruff: noqa: B006, B008  # such defaults are what is tested
from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Optional

import attrs
import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, Strict

from tests.server.harness import call, listed, tool_of
from trio_mcp import Context, Server

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


def properties(function: Any) -> dict[str, Any]:
    found: dict[str, Any] = tool_of(function).input_schema["properties"]
    return found


async def test_positional_only_parameters_keep_their_places() -> None:
    """Leaving out the first must not move the second."""

    def function(a: int = 1, b: int = 2, /, c: int = 3, *, d: int = 4) -> list[int]:
        return [a, b, c, d]

    assert (await call(function, {})).data == [1, 2, 3, 4]
    assert (await call(function, {"b": 5})).data == [1, 5, 3, 4]
    assert (await call(function, {"a": 9, "d": 7})).data == [9, 2, 3, 7]


async def test_a_context_may_stand_anywhere() -> None:
    def first(ctx: Context, /, x: int) -> str:
        return f"{ctx.method} {x}"

    def last(x: int, *, ctx: Context) -> str:
        return f"{ctx.method} {x}"

    for function in (first, last):
        assert list(properties(function)) == ["x"]
        assert (await call(function, {"x": 1})).data == "tools/call 1"


def test_one_context_is_enough() -> None:
    def function(one: Context, two: Context) -> None: ...

    with pytest.raises(TypeError, match="both 'one' and 'two' are a Context"):
        Server("test").add_tool(function)


async def test_parameters_may_have_any_name() -> None:
    """Names that Python's or pydantic's own machinery uses, too."""

    def function(
        schema: int, json: int, copy: int, _private: int, __dunder: int, class_: int, self: int, cls: int, func: int,
        args: int, kwargs: int, model_config: int, model_fields: int, model_dump: int, validate: int, context: int,
        name: int, ctx: int, return_: int, title: int, type: int,
    ) -> list[int]:  # fmt: skip
        return list(locals().values())

    names = list(properties(function))
    assert len(names) == 21
    assert (await call(function, {name: index for index, name in enumerate(names)})).data == list(range(21))


async def test_defaults_are_shown_and_used() -> None:
    def function(
        plain: int = 1,
        field: int = Field(default=2, ge=0),
        annotated: Annotated[int, Field(default=3, description="third")] = 4,
        in_annotation: Annotated[int, Field(default=5)] = Field(default=6),
        nothing: Optional[int] = None,  # noqa: UP045
    ) -> list[int | None]:
        return [plain, field, annotated, in_annotation, nothing]

    shown = properties(function)
    assert [shown[name]["default"] for name in shown] == [1, 2, 4, 6, None]
    assert shown["annotated"]["description"] == "third"
    assert "required" not in tool_of(function).input_schema
    assert (await call(function, {})).data == [1, 2, 4, 6, None]


async def test_a_default_in_the_annotation_alone_counts() -> None:
    def function(x: Annotated[int, Field(default=5)]) -> int:
        return x

    assert (await call(function, {})).data == 5


async def test_a_field_without_default_is_required() -> None:
    def function(x: int = Field(description="needed")) -> int:
        return x

    assert tool_of(function).input_schema["required"] == ["x"]
    assert (await call(function, {})).is_error
    assert (await call(function, {"x": 1})).data == 1


async def test_a_mutable_default_is_not_shared_between_calls() -> None:
    def function(
        plain: list[int] = [],
        field: list[int] = Field(default=[]),
        made: list[int] = Field(default_factory=list),
    ) -> int:
        for each in (plain, field, made):
            each.append(1)
        return len(plain) + len(field) + len(made)

    for _ in range(2):
        assert (await call(function, {})).data == 3


async def test_a_default_factory_may_look_at_the_arguments_before_it() -> None:
    def function(x: int, y: int = Field(default_factory=lambda before: before["x"] + 1)) -> int:
        return y

    assert (await call(function, {"x": 3})).data == 4


async def test_a_parameter_that_defaults_to_none_accepts_null() -> None:
    """A model that sees the default null sends a null."""

    def function(x: int = None) -> str:  # type: ignore[assignment]  # noqa: RUF013
        return repr(x)

    assert (await call(function, {})).data == "None"
    assert (await call(function, {"x": None})).data == "None"
    assert (await call(function, {"x": 3})).data == "3"


@pytest.mark.parametrize("default", [object(), float("inf"), float("nan"), len])
async def test_a_default_without_a_json_form_works_but_is_not_shown(default: object) -> None:
    """There is no warning either: warnings are errors here."""

    def function(x: Any = default) -> bool:
        return type(x) is type(default)

    assert "default" not in properties(function)["x"]
    assert (await call(function, {})).data is True


@pytest.mark.parametrize(
    "field", [Field(default=1, alias="from"), Field(default=1, validation_alias=AliasChoices("from", "other"))]
)
async def test_an_alias_is_the_name_on_the_wire(field: Any) -> None:
    def function(from_: int = field) -> int:
        return from_

    assert properties(function) == {"from": {"type": "integer", "default": 1}}
    assert (await call(function, {"from": 3})).data == 3
    assert (await call(function, {})).data == 1
    assert (await call(function, {"from_": 3})).is_error


async def test_constraints_are_shown_and_hold() -> None:
    def function(x: Annotated[int, Field(ge=1, le=3)], y: str = Field(pattern="^a+$")) -> int:
        return x

    assert properties(function) == {
        "x": {"type": "integer", "minimum": 1, "maximum": 3},
        "y": {"type": "string", "pattern": "^a+$"},
    }
    assert (await call(function, {"x": 3, "y": "aa"})).data == 3
    assert (await call(function, {"x": 4, "y": "aa"})).is_error
    assert (await call(function, {"x": 3, "y": "b"})).is_error


async def test_extra_arguments_are_refused() -> None:
    def function(x: int = 1) -> int:
        return x

    assert tool_of(function).input_schema["additionalProperties"] is False
    assert (await call(function, {"y": 3})).is_error


async def test_no_hints_means_any_value() -> None:
    def function(x, y=3):  # type: ignore[no-untyped-def]
        return [x, y]

    assert properties(function) == {"x": {}, "y": {"default": 3}}
    assert tool_of(function).output_schema is None
    assert (await call(function, {"x": {"a": None}})).content[0].text == '[{"a":null},3]'


async def test_strict_types_take_their_json_form() -> None:
    """A date is a string in JSON, whatever a strict type thinks of strings in Python."""
    import datetime
    import enum

    class Colour(enum.Enum):
        RED = "red"

    class Model(BaseModel):
        model_config = ConfigDict(strict=True)
        when: datetime.date
        colour: Colour
        pair: tuple[int, int]

    def function(model: Model, when: Annotated[datetime.date, Strict()], number: Annotated[int, Strict()]) -> str:
        return f"{model.when} {model.colour} {model.pair} {when} {number}"

    arguments = {"model": {"when": "2020-01-02", "colour": "red", "pair": [1, 2]}, "when": "2020-01-03", "number": 4}
    assert (await call(function, arguments)).data == "2020-01-02 Colour.RED (1, 2) 2020-01-03 4"
    assert (await call(function, {**arguments, "number": "4"})).is_error


async def test_bytes_that_a_model_wants_in_base64_are_decoded() -> None:
    """Pydantic knows `val_json_bytes` for JSON text only; taking the text for the bytes would corrupt them."""

    class Model(BaseModel):
        model_config = ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")
        data: bytes

    def function(model: Model) -> list[int]:
        return list(model.data)

    assert (await call(function, {"model": {"data": "aGk="}})).data == list(b"hi")


async def test_the_items_of_an_iterable_are_checked_before_the_call() -> None:
    """Pydantic would check them when the function gets to them: too late to be the caller's error."""
    called = []

    def function(numbers: Iterable[int]) -> int:
        called.append(numbers)
        return sum(numbers)

    assert (await call(function, {"numbers": [1, 2]})).data == 3
    assert (await call(function, {"numbers": [1, "x"]})).is_error
    assert len(called) == 1


async def test_types_that_are_local_to_a_function() -> None:
    """In strings (all annotations are, in this module) they don't become part of the closure."""

    class Inner(BaseModel):
        x: int

    def outer(server: Server) -> None:
        class Innermost(BaseModel):
            y: int

        @server.tool
        def plain(inner: Inner, innermost: Innermost) -> Innermost:
            return innermost

        @server.tool(title="With details")
        async def detailed(inner: list[Inner], innermost: Optional[Innermost] = None) -> Inner:  # noqa: UP045
            return inner[0]

    server = Server("test")
    outer(server)
    tools = listed(server)
    assert [tool.name for tool in tools] == ["plain", "detailed"]
    for tool in tools:
        assert set(tool.input_schema["$defs"]) == {"Inner", "Innermost"}


def test_an_unresolvable_annotation_says_so() -> None:
    def function(x: NoSuchType) -> int:  # type: ignore[name-defined]  # noqa: F821
        return 1

    def guarded(x: OnlyForTypeCheckers) -> int:
        return 1

    with pytest.raises(TypeError, match="tool 'function': an annotation can't be resolved: name 'NoSuchType'"):
        Server("test").add_tool(function)
    with pytest.raises(TypeError, match="TYPE_CHECKING"):
        Server("test").add_tool(guarded)


@pytest.mark.parametrize("annotation", ["int[", "attrs.no_such_name", "1 / 0"])
def test_an_annotation_that_cannot_be_evaluated_says_so(annotation: str) -> None:
    def function(x: int) -> int:
        return x

    function.__annotations__["x"] = annotation
    with pytest.raises(TypeError, match="tool 'function': an annotation can't be evaluated"):
        Server("test").add_tool(function)


@attrs.define
class AttrsClass:
    x: int


class Arbitrary: ...


@pytest.mark.parametrize("kind", [AttrsClass, Arbitrary, list[Arbitrary], threading.Lock, type(call)])
def test_types_without_a_schema_are_refused_by_name(kind: Any) -> None:
    def takes(fine: int, x: kind) -> int:
        return 1

    def gives() -> kind: ...

    with pytest.raises(TypeError, match=r"tool 'takes': the parameter 'x' (can't be described|has no JSON Schema)"):
        Server("test").add_tool(takes)
    with pytest.raises(TypeError, match=r"tool 'gives': the return type (can't be described|has no JSON Schema)"):
        Server("test").add_tool(gives)
