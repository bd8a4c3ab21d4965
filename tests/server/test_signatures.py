"""A function's hints and defaults as a contract: which arguments there are, what it gets, and what is refused."""

# ruff: noqa: B006, B008  # such defaults are what is tested
from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import attrs
import pytest
from hypothesis import given
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, Strict, field_validator

from tests.server.harness import MODERN, call, client_of, server_with, text_of, tool_of
from trio_mcp import Context, McpError, Server, ToolError
from trio_mcp.testing.strategies import json_values
from trio_mcp.types.error_codes import INVALID_PARAMS

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


def properties(function: Any) -> dict[str, Any]:
    found: dict[str, Any] = tool_of(function).input_schema["properties"]
    return found


REFUSED = object()
"""What comes of arguments that a tool does not take."""


def positional_only(a: int = 1, b: int = 2, /, c: int = 3, *, d: int = 4) -> list[int]:
    return [a, b, c, d]


def context_first(ctx: Context, /, x: int) -> str:
    return f"{ctx.method} {x}"


def context_last(x: int, *, ctx: Context) -> str:
    return f"{ctx.method} {x}"


def with_defaults(
    plain: int = 1,
    field: int = Field(default=2, ge=0),
    annotated: Annotated[int, Field(default=3, description="third")] = 4,
    in_annotation: Annotated[int, Field(default=5)] = Field(default=6),
    nothing: Optional[int] = None,  # noqa: UP045
) -> list[int | None]:
    return [plain, field, annotated, in_annotation, nothing]


def default_in_the_annotation(x: Annotated[int, Field(default=5)]) -> int:
    return x


def described(x: int = Field(description="needed")) -> int:
    return x


def with_a_factory(x: int, y: int = Field(default_factory=lambda before: before["x"] + 1)) -> int:
    return y


def none_by_default(x: int = None) -> str:  # type: ignore[assignment]  # noqa: RUF013
    return repr(x)


def alias(from_: int = Field(default=1, alias="from")) -> int:
    return from_


def alias_choices(from_: int = Field(default=1, validation_alias=AliasChoices("from", "other"))) -> int:
    return from_


def constrained(x: Annotated[int, Field(ge=1, le=3)], y: str = Field(pattern="^a+$")) -> int:
    return x


def without_hints(x, y=3):  # type: ignore[no-untyped-def]
    return [x, y]


class InBase64(BaseModel):
    model_config = ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")
    data: bytes


def in_base64(model: InBase64) -> list[int]:
    return list(model.data)


CALLS: list[tuple[Any, dict[str, Any], Any]] = [
    (positional_only, {}, [1, 2, 3, 4]),
    (positional_only, {"b": 5}, [1, 5, 3, 4]),  # leaving out the first must not move the second
    (positional_only, {"a": 9, "d": 7}, [9, 2, 3, 7]),
    (context_first, {"x": 1}, "tools/call 1"),
    (context_last, {"x": 1}, "tools/call 1"),
    (with_defaults, {}, [1, 2, 4, 6, None]),
    (default_in_the_annotation, {}, 5),
    (described, {}, REFUSED),
    (described, {"x": 1}, 1),
    (described, {"x": 1, "y": 3}, REFUSED),
    (with_a_factory, {"x": 3}, 4),
    (none_by_default, {}, "None"),
    (none_by_default, {"x": None}, "None"),  # a model that sees the default null sends a null
    (none_by_default, {"x": 3}, "3"),
    (alias, {"from": 3}, 3),
    (alias, {}, 1),
    (alias, {"from_": 3}, REFUSED),
    (alias_choices, {"from": 3}, 3),
    (alias_choices, {"from_": 3}, REFUSED),
    (constrained, {"x": 3, "y": "aa"}, 3),
    (constrained, {"x": 4, "y": "aa"}, REFUSED),
    (constrained, {"x": 3, "y": "b"}, REFUSED),
    (without_hints, {"x": {"a": None}}, [{"a": None}, 3]),
    (in_base64, {"model": {"data": "aGk="}}, list(b"hi")),
]


@pytest.mark.parametrize(("function", "arguments", "result"), CALLS, ids=lambda each: getattr(each, "__name__", None))
async def test_what_a_function_gets_for_the_arguments(function: Any, arguments: dict[str, Any], result: Any) -> None:
    found = await call(function, arguments)
    if result is REFUSED:
        assert found.is_error
    else:
        assert json.loads(text_of(found)) == result if isinstance(result, list) else found.data == result


@pytest.mark.parametrize(
    ("function", "shown", "required"),
    [
        (context_first, {"x": {"type": "integer"}}, ["x"]),
        (described, {"x": {"type": "integer", "description": "needed"}}, ["x"]),
        (alias, {"from": {"type": "integer", "default": 1}}, None),
        (alias_choices, {"from": {"type": "integer", "default": 1}}, None),
        (
            constrained,
            {"x": {"type": "integer", "minimum": 1, "maximum": 3}, "y": {"type": "string", "pattern": "^a+$"}},
            ["x", "y"],
        ),
        (without_hints, {"x": {}, "y": {"default": 3}}, ["x"]),
    ],
)
def test_what_clients_see_of_the_parameters(function: Any, shown: dict[str, Any], required: Any) -> None:
    schema = tool_of(function).input_schema
    assert (schema["properties"], schema.get("required")) == (shown, required)
    assert schema["additionalProperties"] is False


def test_defaults_are_shown() -> None:
    shown = properties(with_defaults)
    assert [shown[name]["default"] for name in shown] == [1, 2, 4, 6, None]
    assert shown["annotated"]["description"] == "third"
    assert "required" not in tool_of(with_defaults).input_schema


def test_one_context_is_enough() -> None:
    def function(one: Context, two: Context) -> None: ...

    with pytest.raises(TypeError, match="'one' and 'two' are both annotated with Context"):
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


@pytest.mark.parametrize("default", [object(), float("inf"), float("nan"), len])
async def test_a_default_without_a_json_form_works_but_is_not_shown(default: object) -> None:
    """There is no warning either: warnings are errors here."""

    def function(x: Any = default) -> bool:
        return type(x) is type(default)

    assert "default" not in properties(function)["x"]
    assert (await call(function, {})).data is True


async def test_strict_types_take_their_json_form() -> None:
    """A date is a string in JSON, whatever a strict type thinks of strings in Python."""
    import datetime
    import decimal
    import enum

    class Colour(enum.Enum):
        RED = "red"

    class Model(BaseModel):
        model_config = ConfigDict(strict=True)
        when: datetime.date
        colour: Colour
        pair: tuple[int, int]
        price: decimal.Decimal

    def function(model: Model, when: Annotated[datetime.date, Strict()], number: Annotated[int, Strict()]) -> str:
        return f"{model.when} {model.colour} {model.pair} {model.price} {when} {number}"

    model = {"when": "2020-01-02", "colour": "red", "pair": [1, 2], "price": "1.50"}
    arguments = {"model": model, "when": "2020-01-03", "number": 4}
    assert (await call(function, arguments)).data == "2020-01-02 Colour.RED (1, 2) 1.50 2020-01-03 4"
    assert (await call(function, {**arguments, "number": "4"})).is_error


async def test_the_items_of_an_iterable_are_checked_before_the_call() -> None:
    """Pydantic would check them when the function gets to them: too late to be the caller's error."""
    called = []

    def function(numbers: Iterable[int]) -> int:
        called.append(numbers)
        return sum(numbers)

    assert (await call(function, {"numbers": [1, 2]})).data == 3
    assert (await call(function, {"numbers": [1, "x"]})).is_error
    assert len(called) == 1


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


# --- arguments that don't fit ----------------------------------------------------------------------------------------


class Account(BaseModel):
    user: str
    password: str = Field(max_length=8)


def tool(count: int, kind: Literal["a", "b"] = "a", account: Account | None = None) -> int:
    return count


async def problem_with(arguments: Any, function: Any = tool, **details: Any) -> str:
    result = await call(function, arguments, **details)
    assert result.is_error
    return text_of(result)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "count: missing"),
        ({"count": "many"}, "count: Input should be a valid integer, unable to parse string as an integer"),
        ({"count": None}, "count: Input should be a valid integer"),
        ({"count": 1, "kind": "c"}, "kind: Input should be 'a' or 'b'"),
        ({"count": 1, "other": 1}, "other: there is no such argument"),
        ({"count": 1, "account": {}}, "account.user: missing; account.password: missing"),
        (
            {"other": 1, "kind": 1, "more": 2},
            "count: missing; kind: Input should be 'a' or 'b'; other: there is no such argument; and 1 more",
        ),
    ],
)
async def test_a_problem_is_named_with_its_argument(arguments: Any, problem: str) -> None:
    assert await problem_with(arguments) == f"invalid arguments for the tool 'tool': {problem}"


async def test_no_value_is_repeated() -> None:
    """It may be a secret, and messages end up in logs."""
    secret = "tr0ub4dor&3"
    parts = {"password": {"maxLength": 3}, "pin": {"type": "integer"}, "kind": {"enum": ["a"]}}
    code = {"code": {"pattern": "^(?=a)a+$"}}  # which only a backtracking engine supports
    schema = {"type": "object", "properties": {"account": {"properties": {**parts, **code}}}}

    def anything(**arguments: Any) -> None: ...

    for wrong in (*parts, "code"):
        arguments = {"account": {wrong: secret}}
        text = await problem_with(arguments, anything, input_schema=schema)
        assert text.startswith(f"invalid arguments for the tool 'tool': account.{wrong}: the value ")
        assert secret not in text
    for account in ({"user": "u", "password": secret}, secret, {"user": [secret], "password": "p"}):
        text = await problem_with({"count": 1, "account": account})
        assert "account" in text
        assert secret not in text
        assert "https://" not in text


async def test_a_problem_is_brief() -> None:
    """A caller's long input is not repeated in full."""
    assert len(await problem_with({"count": 1, "x" * 10_000: 1})) < 1000
    schema = {"type": "object", "additionalProperties": False}
    assert len(await problem_with({"x" * 10_000: 1}, lambda: 1, input_schema=schema)) < 1000
    async with client_of(server_with(tool)) as client:
        with pytest.raises(McpError) as caught:
            await client.call_tool("x" * 10_000)
        assert len(str(caught.value)) < 1000


async def test_the_words_of_a_validator_reach_the_model() -> None:
    class Even(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def is_even(cls, number: int) -> int:
            if number == 13:
                raise ToolError("not thirteen")
            if number == 14:
                raise OSError("a secret of the server")
            if number % 2:
                raise ValueError("must be even")
            return number

    def function(even: Even) -> int:
        return even.number

    assert (await problem_with({"even": {"number": 3}}, function)).endswith("even.number: Value error, must be even")
    assert await problem_with({"even": {"number": 13}}, function) == "not thirteen"
    assert await problem_with({"even": {"number": 14}}, function) == "the tool 'tool' failed"


async def test_an_argument_that_would_be_too_costly_to_check_is_refused() -> None:
    """2026-07-28 `basic/index`, JSON Schema Usage: bound what validation may cost."""
    schema = {
        "type": "object",
        "$defs": {"a": {"anyOf": [{"items": {"$ref": "#/$defs/a"}}, {"items": {"$ref": "#/$defs/a"}}]}},
        "properties": {"x": {"$ref": "#/$defs/a"}},
    }
    nested: Any = 1
    for _ in range(60):
        nested = [nested]
    text = await problem_with({"x": nested}, lambda **arguments: 1, input_schema=schema)
    assert "could take more than" in text or "branches without end" in text


@given(arguments=json_values(20))
async def test_whatever_the_arguments_are_the_answer_says_what_is_wrong(arguments: Any) -> None:
    """No input makes the handler itself fail (-32603), and nothing wrong is let through."""
    async with client_of(server_with(tool), MODERN) as client:
        params = {"name": "tool", "arguments": arguments}
        if arguments is None or isinstance(arguments, dict):
            result = await client.request("tools/call", params)
            assert result.get("isError") is True
            assert result["content"][0]["text"].startswith("invalid arguments")
        else:
            with pytest.raises(McpError) as caught:
                await client.request("tools/call", params)
            assert caught.value.code == INVALID_PARAMS


@given(value=json_values(20))
async def test_whatever_one_argument_is_it_is_taken_or_refused(value: Any) -> None:
    async with client_of(server_with(tool), MODERN) as client:
        for name in ("count", "kind", "account"):
            result = await client.call_tool("tool", {"count": 1, name: value})
            if result.is_error:
                assert text_of(result).startswith(f"invalid arguments for the tool 'tool': {name}")
