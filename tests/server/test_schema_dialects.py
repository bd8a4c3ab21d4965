"""`FunctionOptions(schema_dialect=…)`: what is listed, what arrives, and what the log says at registration."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pytest
from pydantic import BaseModel, Field

from tests.schema.dialect_rules import as_json_schema, broken_rules
from tests.schema.test_model_schemas import agree, has_null_for_nothing
from trio_mcp import Client, FunctionOptions, Server
from trio_mcp.schema import DIALECT_NAMES, ModelSchema
from trio_mcp.schema.validator import SchemaValidator
from trio_mcp.server.functions.sync_threads import DialectName
from trio_mcp.testing.strategies import draws, from_schema

EXAMPLES = Path(__file__).parents[2] / "examples"

each_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


class Stop(BaseModel):
    name: str
    minutes: int | None = None
    then: list[Stop] = Field(default=[])


def busy_server(dialect: Any) -> tuple[Server, list[dict[str, Any]]]:
    server = Server("test", functions=FunctionOptions(schema_dialect=dialect))
    seen: list[dict[str, Any]] = []

    @server.tool
    def plan(
        first: Stop,
        level: Literal[1, 2, 3],
        prices: dict[str, float],
        span: tuple[int, str],
        note: str = "none",
        extra: Any = None,
        either: dict[str, int] | list[int] | None = None,
    ) -> str:
        seen.append({"first": first, "level": level, "prices": prices, "span": span, "more": (note, extra, either)})
        return "done"

    return server, seen


@each_dialect
async def test_what_the_model_sends_arrives_as_the_function_wants_it(dialect: Any) -> None:
    plain, wanted = busy_server(None)
    server, seen = busy_server(dialect)
    arguments = {
        "first": {"name": "a", "then": [{"name": "b", "minutes": 3}]},
        "level": 2,
        "prices": {"x": 1.5},
        "span": [1, "day"],
        "either": {"k": 1},
    }
    async with Client(plain) as client:
        original = (await client.list_tools()).tools[0].input_schema
        await client.call_tool("plan", arguments)
    model = ModelSchema(original, dialect)
    async with Client(server) as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.input_schema == model.schema
        assert broken_rules(tool.input_schema, dialect) == []
        await client.call_tool("plan", model.for_model(arguments))
    assert seen == wanted


@each_dialect
async def test_what_does_not_fit_is_refused_in_the_words_of_the_function(dialect: Any) -> None:
    server, seen = busy_server(dialect)
    async with Client(server) as client:
        result = await client.call_tool("plan", {"first": {"name": 5}, "level": "9"})
    assert result.is_error
    assert "first.name" in result.text
    assert seen == []


@each_dialect
async def test_a_schema_written_by_hand_is_said_in_the_dialect_too(dialect: Any) -> None:
    server = Server("test", functions=FunctionOptions(schema_dialect=dialect))
    schema = {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "integer"}}}}

    @server.tool(input_schema={**schema, "required": ["m"]})
    def total(**arguments: Any) -> int:
        return sum(arguments["m"].values())

    async with Client(server) as client:
        given = {"m": [{"key": "a", "value": 2}, {"key": "b", "value": 3}]}
        assert (await client.call_tool("total", given)).text == "5"
        refused = await client.call_tool("total", {"m": [{"key": "a", "value": "x"}]})
        assert "m.a" in refused.text


def test_a_loss_is_logged_once_at_registration(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("test", functions=FunctionOptions(schema_dialect="gemini"))
    with caplog.at_level(logging.WARNING):

        @server.tool
        def pay(amount: Annotated[float, Field(multiple_of=0.5)], items: set[str]) -> None: ...

    (record,) = caplog.records
    assert record.getMessage() == (
        "tool 'pay': the dialect 'gemini' can't say all of its input schema: "
        "multipleOf at /properties/amount; uniqueItems at /properties/items"
    )


def test_no_loss_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    for dialect in (None, *DIALECT_NAMES):
        server = Server("test", functions=FunctionOptions(schema_dialect=dialect))  # type: ignore[arg-type]

        @server.tool
        def add(a: int, b: dict[str, int] | None = None) -> None: ...

    assert caplog.records == []


@pytest.mark.parametrize("wrong", ["OpenAI", "", 5])
def test_an_unknown_dialect_is_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="schema_dialect must be one of gemini, openai-strict"):
        FunctionOptions(schema_dialect=wrong)


def test_the_options_name_all_dialects() -> None:
    assert get_args(DialectName) == DIALECT_NAMES


SERVERS = sorted(path.stem for path in EXAMPLES.glob("*.py") if "Server(" in path.read_text())


def example(name: str) -> Server | None:
    spec = importlib.util.spec_from_file_location(f"dialect_example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return next((each for each in vars(module).values() if isinstance(each, Server)), None)


@each_dialect
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xvfb) if name == "egg_timer" else name for name in SERVERS]
)
async def test_the_arguments_of_our_examples_come_back(name: str, dialect: Any) -> None:
    server = example(name)
    if server is None:
        return
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
    for tool in tools:
        model = ModelSchema(tool.input_schema, dialect)
        assert broken_rules(model.schema, dialect) == []
        accepts = SchemaValidator(as_json_schema(model.schema))
        nulls = has_null_for_nothing(tool.input_schema)
        for value in draws(from_schema(tool.input_schema), 12):
            given = model.for_model(value)
            assert accepts.problem(given) is None
            assert agree(value, model.from_model(given), nulls)
