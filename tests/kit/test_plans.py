"""Plans: where they come from, and their way to a file and back."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis.errors import Unsatisfiable

from tests.kit.own import make_server
from trio_mcp.conformance.engine import preview_server
from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.catalogue import MOVES
from trio_mcp.conformance.plans.source import CALLS, Source
from trio_mcp.conformance.steps import Ask, Plan, Write, plan_from_json, plan_to_json
from trio_mcp.testing.strategies import draws


@pytest.fixture(scope="module")
def known() -> list[Facts]:
    """What is known of a server that has something of everything, in both eras, as if over HTTP."""

    async def ask() -> list[Facts]:
        return list((await preview_server(make_server(), allow_writes=True)).facts)

    found = trio.run(ask, clock=trio.testing.MockClock(autojump_threshold=0))
    return [attrs.evolve(each, transport="http") for each in found]


def drawn(facts: Facts) -> list[Plan]:
    found: list[Plan] = []
    for move in MOVES.values():
        if not move.lacks(facts):
            with contextlib.suppress(Unsatisfiable):  # this server has nothing for it
                found += draws(move.make(facts), 3, seed=1)
    return found


def test_every_plan_can_be_kept_in_a_file(known: list[Facts]) -> None:
    for plan in [plan for facts in known for plan in drawn(facts)]:
        assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan
    odd = (Write((b"\xff", b"{}")), Ask("ping", id=0))
    assert plan_from_json(plan_to_json(odd)) == odd


COMPARE = [{"do": "compare", "requests": [["ping", None], "ping"], "refused": [["ping", {}]]}]


@pytest.mark.parametrize(
    "value", [None, {}, [1], [{}], [{"do": "dance"}], [{"do": "ask"}], [{"do": "ask", "x": 1}], COMPARE]
)
def test_what_is_not_a_plan_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"step|plan"):
        plan_from_json(value)


@pytest.mark.again
def test_a_source_tries_each_move_first_and_then_mostly_calls(known: list[Facts]) -> None:
    facts = known[0]
    source = Source(facts, list(MOVES.values()), "1")
    again = Source(facts, list(MOVES.values()), "1")
    plans = [source.next() for _ in source.usable]
    assert plans == [again.next() for _ in source.usable]
    # A move without values for this server has no example.
    assert None not in plans
    assert len(source.usable) > 50
    for _ in range(100):
        source.next()
    assert 2 * source.called > source.asked


def test_calls_are_seldom_repeated(known: list[Facts]) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tool = {"name": "echo", "inputSchema": schema}
    facts = Facts("2025-11-25", "memory", capabilities={"tools": {}}, tools={"echo": tool}, callable_tools=("echo",))
    source = Source(facts, [MOVES["call-tool"], MOVES["calls-at-once"], MOVES["ping"]], "1")
    asked = [step for _ in range(100) for step in source.next() or () if isinstance(step, Ask) and step.method in CALLS]
    different = {json.dumps(step.params, sort_keys=True) for step in asked}
    assert len(asked) > 200
    assert len(different) > 0.95 * len(asked)


@pytest.mark.parametrize(
    ("need", "lacks"),
    [
        ("tools", ""),
        ("prompts", "the server lists no prompts"),
        ("capability:tools.listChanged", "the server does not declare the capability 'tools.listChanged'"),
        ("transport:stdio", "the rule applies only to the transport stdio"),
        ("transport:memory|http", ""),
        ("process", "what it uses can only be measured if the kit has started it as a process, on Linux"),
    ],
)
def test_what_a_target_lacks_is_said(need: str, lacks: str) -> None:
    facts = Facts("2025-11-25", "memory", capabilities={"tools": {"listChanged": False}}, tools={"a": {}})
    assert facts.lacks(need) == lacks
