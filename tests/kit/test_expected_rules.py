"""The rules for what users expect, each on transcripts that keep it, break it, or leave it open; and their level."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
import trio.testing

from tests.kit.targets import Connection, over_lines, plain
from tests.kit.test_rules import (
    CALL,
    CONTENT,
    T,
    after,
    ask,
    cancel,
    done,
    error,
    old,
    overdue,
    result,
    sent,
    t,
    tell,
    text,
    tools,
)
from trio_mcp.conformance.engine import Check, check_server
from trio_mcp.conformance.outcomes import CheckReport
from trio_mcp.conformance.rules import authorization, expected
from trio_mcp.conformance.rules.catalogue import RULES, judge, select
from trio_mcp.conformance.rules.model import Rule
from trio_mcp.conformance.transcript.events import Event

LEGACY = "2025-11-25"
DIED = Event("close", "server", facts={"reason": "the process ended", "status": 1})
SLOW = [ask(1, "tools/call", name="x", arguments={}), after(0.1, ask(2, "ping"))]
LISTED = [ask(9, "tools/list"), result(9, **tools("x"))]


def measured(**figures: list[float]) -> list[Event]:
    """Measurements of a request that was repeated; a figure that isn't named stays the same."""
    count = max(map(len, figures.values()))
    steady = {"memory": 50 << 20, "descriptors": 5, "threads": 1, "seconds": 0.001}
    return [
        Event(
            "mark",
            "kit",
            facts={"what": "usage", "run": 1, "calls": 5 * at + 5}
            | steady
            | {name: values[at] for name, values in figures.items()},
        )
        for at in range(count)
    ]


def compared(*seen: str, refusal: Event | None = None) -> list[Event]:
    """A request before, again, and after a call that is refused, with the texts that it got."""
    events: list[Event] = []
    marks: dict[int, dict[str, Any]] = {1: {"what": "again"}, 2: {"what": "repeated", "requests": 1, "compared": True}}
    for at, content in enumerate(seen):
        if at in marks:
            events.append(Event("mark", "kit", facts=marks[at]))
        if at == 2:
            events += [ask(50, "tools/call", name="x", arguments={"a": 1}), refusal or error(50)]
        events += [ask(at + 1, "resources/read", uri="x:y"), result(at + 1, contents=[{"uri": "x:y", "text": content}])]
    return events


ROWS: dict[str, tuple[list[T], list[T], list[T]]] = {
    "malformed-input-survived": (
        [old(text(b"{"), error(None, -32700), ask(1, "ping"), result(1))],
        [
            old(text(b"{"), DIED),
            old(sent({"jsonrpc": "2.0"}), ask(1, "ping"), DIED),
            old(ask(1, "ping"), result(1), sent(5), DIED),
        ],
        [
            # It has dealt with the line, and ended over something else, if at all.
            old(text(b"{"), ask(1, "ping"), result(1), ask(2, "ping"), DIED),
            old(text(b"{"), attrs.evolve(DIED, sender="client")),
            old(text(b"{"), Event("mark", "kit", facts={"what": "half closed"}), DIED),
            old(text(b"{"), DIED, transport="websocket"),
            old(text(b"x" * 200_000), DIED),
            old(tell("notifications/x"), DIED),
            # Something else may have ended it.
            old(CALL, cancel(1), text(b"{"), DIED),
            old(CALL, text(b"{"), ask(2, "ping"), DIED),
            old(tell("notifications/roots/list_changed"), text(b"{"), DIED),
        ],
    ),
    "answers-while-working": (
        [old(*SLOW, after(0.2, result(2)), after(3, result(1, **CONTENT)))],
        [
            old(*SLOW, after(3, result(1, **CONTENT)), after(3.1, result(2))),
            t(*SLOW[:1], ask(2, "server/discover"), after(3, done(1, **CONTENT)), after(3.1, done(2))),
        ],
        [
            old(*SLOW, after(0.9, result(1, **CONTENT)), after(1, result(2))),
            old(*SLOW, after(3, overdue(1)), after(3.1, result(2))),
            old(*SLOW[:1], after(3, result(1, **CONTENT)), after(3, ask(2, "ping")), after(9, result(2))),
        ],
    ),
    "declared-methods-known": (
        [
            old(ask(1, "logging/setLevel", level="info"), result(1), server={"logging": {}}),
            old(*LISTED, CALL, result(1, **CONTENT), server={"tools": {}}),
        ],
        [
            old(ask(1, "logging/setLevel", level="info"), error(1, -32601), server={"logging": {}}),
            old(ask(1, "resources/subscribe", uri="a:"), error(1, -32601), server={"resources": {"subscribe": True}}),
            old(*LISTED, CALL, error(1, -32601), server={"tools": {}}),
        ],
        [
            old(ask(1, "logging/setLevel", level="info"), error(1, -32601)),
            old(ask(1, "logging/setLevel", level="info"), error(1, -32602), server={"logging": {}}),
            # Some take a tool that they don't have for a method that they don't have.
            old(CALL, error(1, -32601), server={"tools": {}}),
        ],
    ),
    "memory-steady": (
        [old(*measured(memory=[50 << 20] * 4))],
        [old(*measured(memory=[(50 + 20 * each) << 20 for each in range(7)]))],
        [old(*measured(memory=[(50 + each) << 20 for each in range(7)]))],
    ),
    "descriptors-steady": (
        [old(*measured(descriptors=[5, 9, 9, 9]))],
        [
            old(*measured(descriptors=[5 * each for each in range(7)])),
            old(*measured(threads=[1, 6, 11, 16, 21, 26, 31])),
        ],
        [old(*measured(descriptors=[5, 10]))],
    ),
    "time-steady": (
        [old(*measured(seconds=[0.001, 0.002, 0.001, 0.002]))],
        [old(*measured(seconds=[0.01, 0.02, 0.04, 0.06, 0.08]))],
        [old(*measured(seconds=[0.10, 0.11, 0.12, 0.13, 0.14]))],
    ),
    "refused-call-changes-nothing": (
        [
            old(*compared("a", "a", "a")),
            old(*compared("a", "a", "a", refusal=result(50, content=[], isError=True))),
        ],
        [
            old(*compared("a", "a", "b")),
            old(*compared("a", "a", "b", refusal=result(50, content=[], isError=True))),
        ],
        [
            # It changes by itself.
            old(*compared("a", "b", "c")),
            old(*compared("a", "a", "b", refusal=result(50, **CONTENT))),
            old(*compared("a", "a")),
        ],
    ),
}


def verdicts(rule: str, transcript: T) -> list[str | None]:
    return [verdict.problem for _, verdict in judge(transcript.history, [RULES[rule]])]


@pytest.mark.parametrize("rule", ROWS)
def test_rule_judges_both_ways_and_leaves_the_rest_open(rule: str) -> None:
    kept, broken, left_open = ROWS[rule]
    for each in kept:
        found = verdicts(rule, each)
        assert found, each
        assert not any(found), (each, found)
    for each in broken:
        assert any(verdicts(rule, each)), each
    for each in left_open:
        assert not any(verdicts(rule, each)), each


def test_every_expected_rule_is_tried_and_says_why() -> None:
    of_level = {rule.id: rule for rule in select(["level:expected"], "server", "transport")}
    own = {rule.id for rule in vars(expected).values() if isinstance(rule, Rule)}
    assert own == ROWS.keys()
    of_tokens = {rule.id for rule in vars(authorization).values() if isinstance(rule, Rule)}
    assert of_level.keys() - of_tokens == own | {"unknown-tool-refused", "unknown-tool-code"}
    for rule in RULES.values():
        assert bool(rule.reason) == (rule.level == "EXPECTED"), rule.id
        assert bool(rule.link()) == bool(rule.section), rule.id
        assert rule.section or rule.level == "EXPECTED", rule.id


def test_levels_select_rules() -> None:
    levels = {name: select([f"level:{name}"], "server", "transport") for name in ("MUST", "should", "EXPECTED")}
    assert sum(map(len, levels.values())) == len(select(None, "server", "transport"))
    with pytest.raises(ValueError, match="level:WISH"):
        select(["level:WISH"], "server")


async def check(handle: Any, *rules: str) -> CheckReport:
    target = over_lines(handle)
    made = Check(target.open_wire, target.name, {"revisions": (LEGACY,), "rules": rules, "examples": 60})
    await made.run()
    return made.report()


async def test_what_is_expected_does_not_fail_a_check(autojump_clock: trio.testing.MockClock) -> None:
    async def alone(connection: Connection, message: dict[str, Any]) -> None:
        if message["method"] == "tools/call":
            await trio.sleep(1.5)
        await plain(connection, message)

    report = await check(alone, "answers-while-working", "memory-steady")
    (outcome,) = report.broken
    assert (outcome.rule.id, outcome.fails, outcome.excuse) == (
        "answers-while-working",
        False,
        "an EXPECTED rule is broken",
    )
    assert outcome.failure is not None
    assert outcome.failure.messages <= 6
    assert attrs.evolve(report, undecided=()).status == 0
    # There is no process to be measured.
    reasons = {each.rule.id: (each.status, each.reason) for each in report.outcomes}
    status, reason = reasons["memory-steady"]
    assert (status, "only to the transport stdio" in reason) == ("not checkable", True)


async def test_what_is_expected_and_not_seen_again_is_no_finding(autojump_clock: trio.testing.MockClock) -> None:
    """No sentence forbids it, and a machine that stood still for a moment is not the server's fault."""
    stalls = 0

    async def once(connection: Connection, message: dict[str, Any]) -> None:
        nonlocal stalls
        if message["method"] == "tools/call" and stalls < 1:
            stalls += 1
            await trio.sleep(1.5)
        await plain(connection, message)

    report = await check(once, "answers-while-working")
    assert stalls == 1
    assert report.broken == ()


async def test_a_refusal_that_leaves_something_is_shrunk_to_three_requests(
    autojump_clock: trio.testing.MockClock,
) -> None:
    refused = 0

    async def keeps(connection: Connection, message: dict[str, Any]) -> None:
        nonlocal refused
        if message["method"] == "tools/call" and not isinstance(message["params"]["arguments"].get("a"), int):
            refused += 1
            await connection.say({"id": message["id"], "error": {"code": -32602, "message": "no"}})
        elif message["method"] == "tools/call":
            await connection.answer(message, {"content": [{"type": "text", "text": str(refused)}]})
        else:
            await plain(connection, message)

    report = await check_server(over_lines(keeps), revisions=[LEGACY], rules=["refused-call-changes-nothing"])
    (outcome,) = report.broken
    assert outcome.failure is not None
    assert (outcome.failure.messages, outcome.failure.seen) == (6, 5)
