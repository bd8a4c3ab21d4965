"""Arguments that don't fit: how the error travels, and what it says (`server/tools`, Error Handling)."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from pydantic import BaseModel, Field, field_validator

from tests.server.harness import MODERN, call, client_of, server_with, text_of
from tests.strategies import json_values
from trio_mcp import McpError, ToolError
from trio_mcp.types.error_codes import INVALID_PARAMS


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
    schema = {
        "type": "object",
        "properties": {
            "account": {
                "properties": {"password": {"maxLength": 3}, "pin": {"type": "integer"}, "kind": {"enum": ["a"]}}
            }
        },
    }

    def anything(**arguments: Any) -> None: ...

    for wrong in ("password", "pin", "kind"):
        arguments = {"account": {wrong: secret}}
        text = await problem_with(arguments, anything, input_schema=schema)
        assert text.startswith(f"invalid arguments for the tool 'tool': account.{wrong}: the value is ")
        assert secret not in text
    for account in ({"user": "u", "password": secret}, secret, {"user": [secret], "password": "p"}):
        text = await problem_with({"count": 1, "account": account})
        assert "account" in text
        assert secret not in text
        assert "https://" not in text


@pytest.mark.parametrize("pattern", ["^a+$", "^(?=a)a+$"])
async def test_patterns_of_an_input_schema_hold(pattern: str) -> None:
    """Even those that only a backtracking engine supports."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}}

    def function(x: str) -> str:
        return x

    assert (await call(function, {"x": "aa"}, input_schema=schema)).data == "aa"
    text = await problem_with({"x": "secret"}, function, input_schema=schema)
    assert text.startswith("invalid arguments for the tool 'tool': x: the value does not match")
    assert "secret" not in text


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
