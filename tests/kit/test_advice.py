"""The advice at the end of a report: what a model reads, and what its API can't be told."""

from __future__ import annotations

from typing import Any

import pytest

from trio_mcp.conformance.advice import advice_on, advice_on_dialects
from trio_mcp.conformance.facts import Facts

PLAIN = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
UNTYPED = {"type": "object", "properties": {"value": {}}, "required": ["value"]}


def tools(**schemas: Any) -> dict[str, Any]:
    return {name: {"name": name, "inputSchema": schema} for name, schema in schemas.items()}


def test_a_schema_that_every_dialect_can_say_gets_no_advice() -> None:
    assert advice_on_dialects(tools(plain=PLAIN)) == ()


def test_a_schema_that_a_dialect_cannot_say_is_named_with_what_it_can_not_say() -> None:
    found = advice_on_dialects(tools(plain=PLAIN, labels=UNTYPED))
    assert [each.partition(" can't say")[0] for each in found] == ["the dialect gemini", "the dialect openai-strict"]
    assert all("1 of 2 tools" in each and "labels: " in each and "plain:" not in each for each in found)


def test_what_can_be_said_in_another_form_is_not_mentioned() -> None:
    optional = {"type": "object", "properties": {"name": {"type": "string"}}}  # OpenAI wants all to be required
    assert advice_on_dialects(tools(optional=optional)) == ()


def test_only_a_few_tools_are_named() -> None:
    found = advice_on_dialects(tools(**{f"t{number}": UNTYPED for number in range(9)}))
    assert len(found) == 2
    assert all("9 of 9 tools" in each and each.endswith("; and 4 more") for each in found)


LOOP = {"type": "object", "properties": {"next": {"$ref": "#"}}}
DEEP: dict[str, Any] = {"type": "object"}
for _ in range(300):
    DEEP = {"type": "object", "properties": {"a": DEEP}}


AWAY = {"$ref": "https://x.test/"}
SLOW = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a+)+$"}}}


@pytest.mark.parametrize(
    "schema",
    [None, True, [], "x", {}, {"type": 5, "properties": 5, "required": 7}, LOOP, DEEP, AWAY, SLOW],
    ids=lambda value: str(value)[:30],
)
def test_advice_survives_any_schema(schema: Any) -> None:
    facts = Facts("2026-07-28", "stdio", tools=tools(odd=schema))
    assert advice_on(facts)[0].startswith("a model reads all tools")
