"""The engine: what it finds, how small it becomes, and what it does with targets that die, hang or make no sense."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from tests.kit.targets import Connection, over_lines, plain
from trio_mcp import NegotiationError, Server, StdioServerParameters, TransportError
from trio_mcp.conformance.clients import check_client
from trio_mcp.conformance.engine import Check, check_server
from trio_mcp.conformance.outcomes import CheckReport
from trio_mcp.conformance.plans import shrink
from trio_mcp.conformance.plans.moves import catalogue
from trio_mcp.conformance.plans.moves.model import Move
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Rule, Verdict, judged, rule
from trio_mcp.conformance.steps import Ask
from trio_mcp.conformance.wires.targets import WireTarget
from trio_mcp.types import ToolAnnotations

LEGACY = "2025-11-25"
MOVES = ("call-tool", "list-all", "ping")


@rule("MUST", "server", "basic#responses", "Each request is answered once.", moves=MOVES)
def answered_once(history: History) -> Iterator[Verdict]:
    for _, asked in history.requests():
        if asked.answers:
            yield judged(len(asked.answers) == 1, asked.answers[-1], f"{len(asked.answers)} answers")


@rule("MUST", "server", "basic#responses", "Each request is answered.", moves=MOVES)
def answered(history: History) -> Iterator[Verdict]:
    for _, asked in history.requests():
        # It may take long.
        if asked.answers or (asked.overdue and asked.overdue.facts.get("answered_again", True)):
            yield judged(bool(asked.answers), asked.overdue or asked.answers[0], "no answer")


async def check(target: WireTarget, *rules: Rule, moves: Collection[Move] = (), **options: Any) -> CheckReport:
    settings = {"revisions": (LEGACY,), "examples": 100, "rules": rules or (answered_once, answered)} | options
    made = Check(target.open_wire, target.name, settings, moves=moves)  # type: ignore[arg-type]
    await made.run()
    return made.report()


async def twice_if_large(connection: Connection, message: dict[str, Any]) -> None:
    await plain(connection, message)
    if message["method"] == "tools/call" and message["params"]["arguments"]["a"] > 100:
        await plain(connection, message)


async def twice_after_ping(connection: Connection, message: dict[str, Any]) -> None:
    await plain(connection, message)
    if message["method"] == "tools/call" and any(each["method"] == "ping" for each in connection.heard):
        await plain(connection, message)


async def later_again(connection: Connection, message: dict[str, Any]) -> None:
    await plain(connection, message)
    if message["method"] == "tools/call":
        connection.heard[:-1] = []
    elif message["method"] == "ping" and connection.heard[0]["method"] == "tools/call":
        await plain(connection, connection.heard.pop(0))


async def mute_on_tokens(connection: Connection, message: dict[str, Any]) -> None:
    if "progressToken" not in message.get("params", {}).get("_meta", {}):
        await plain(connection, message)


@pytest.mark.parametrize(
    ("handle", "broken", "messages"),
    [
        (twice_if_large, answered_once, 3),
        (twice_after_ping, answered_once, 5),
        (later_again, answered_once, 5),
        (mute_on_tokens, answered, 1),
    ],
)
async def test_a_broken_rule_is_found_and_shrunk(
    handle: Any, broken: Rule, messages: int, autojump_clock: trio.testing.MockClock
) -> None:
    report = await check(over_lines(handle))
    (outcome,) = report.broken
    failure = outcome.failure
    assert failure is not None
    assert (outcome.rule, failure.messages) == (broken, messages), failure
    assert (failure.seen, failure.of) == (5, 5)
    assert report.status == 1
    assert failure.transcript[failure.at].facts.get("what") in (None, "overdue")


async def test_what_is_shrunk_is_also_simple(autojump_clock: trio.testing.MockClock) -> None:
    report = await check(over_lines(twice_if_large))
    (outcome,) = report.broken
    assert outcome.failure is not None
    (step,) = outcome.failure.plan
    assert isinstance(step, Ask)
    assert step.params is not None
    assert list(step.params["arguments"]) == ["a"]
    assert (step.token, step.style) == (False, 0)


async def test_a_fault_that_does_not_repeat_is_told_as_such(autojump_clock: trio.testing.MockClock) -> None:
    opened = []

    async def now_and_then(connection: Connection, message: dict[str, Any]) -> None:
        await plain(connection, message)
        if len(opened) % 3 == 2:
            await twice_if_large(connection, message)

    report = await check(over_lines(now_and_then, on_open=opened.append), answered_once, examples=300)
    (outcome,) = report.broken
    assert outcome.failure is not None
    assert 0 < outcome.failure.seen < outcome.failure.of


async def twice_at_first(connection: Connection, message: dict[str, Any]) -> None:
    is_first = [each["method"] for each in connection.heard].count("tools/call") == 1
    await (twice_after_ping if is_first else plain)(connection, message)


@pytest.mark.parametrize(("handle", "messages"), [(twice_if_large, 3), (twice_at_first, 5)])
async def test_what_is_slow_to_open_gets_a_small_exchange_too(
    handle: Any, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrink, "SLOW", 0.0)
    report = await check(over_lines(handle), answered_once)
    (outcome,) = report.broken
    assert outcome.failure is not None
    assert outcome.failure.messages == messages, outcome.failure


async def test_on_a_virtual_clock_real_time_does_not_change_the_search(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[list[int]] = []
    for slow in (0.0, math.inf):
        monkeypatch.setattr(shrink, "SLOW", slow)
        opened.append([])
        await check(over_lines(twice_at_first, on_open=opened[-1].append), answered_once)
    assert opened[0] == opened[1]


async def test_what_never_shows_again_is_shown_as_it_was(autojump_clock: trio.testing.MockClock) -> None:
    calls = []

    async def once(connection: Connection, message: dict[str, Any]) -> None:
        await plain(connection, message)
        if message["method"] == "tools/call":
            calls.append(message)
            if len(calls) == 20:
                await plain(connection, message)

    report = await check(over_lines(once), answered_once)
    (outcome,) = report.broken
    assert outcome.failure is not None
    assert outcome.failure.seen == 0
    assert outcome.failure.of > 0
    assert outcome.failure.transcript[outcome.failure.at].message["id"] is not None


# --- the same seed ----------------------------------------------------------------------------------------------------


def sent(seed: int) -> list[list[str]]:
    """Return what a check with every move sends to a server in memory, by connection."""
    connections: list[Connection] = []

    async def listening(connection: Connection, message: dict[str, Any]) -> None:
        if all(each is not connection for each in connections):
            connections.append(connection)
        await plain(connection, message)

    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(partial(check, over_lines(listening), seed=seed, examples=90, moves=catalogue.MOVES.values()), clock=clock)
    return [[json.dumps(message) for message in each.heard] for each in connections]


@pytest.mark.again
def test_the_same_seed_gives_the_same_traffic(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sent(1)
    # Hypothesis collects constants from the modules of a program.
    (tmp_path / "new_module.py").write_text("CONSTANTS = [123456, 'something that is nowhere else']\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("new_module")
    assert sent(1) == first
    assert sent(2) != first


# --- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "ended"), [({"time": 0.0}, "time"), ({"max_bytes": 5000}, "bytes")])
async def test_a_budget_ends_the_check(
    budget: dict[str, Any], ended: str, autojump_clock: trio.testing.MockClock
) -> None:
    report = await check(over_lines(plain), **budget)
    assert report.ended == ended
    assert report.examples < 100


async def test_a_rate_is_kept(autojump_clock: trio.testing.MockClock) -> None:
    report = await check(over_lines(plain), rate=10.0, examples=20)
    assert trio.current_time() >= report.requests / 10 * 0.8


# --- targets that fail ------------------------------------------------------------------------------------------------


async def test_a_target_that_dies_is_told(autojump_clock: trio.testing.MockClock) -> None:
    async def dying(connection: Connection, message: dict[str, Any]) -> None:
        await plain(connection, message)
        if message["method"] == "tools/call":
            await connection.stream.aclose()

    opened = []

    def open_twice(number: int) -> None:
        opened.append(number)
        if len(opened) > 2:
            raise TransportError("the door is shut")

    report = await check(over_lines(dying, on_open=open_twice))
    assert report.ended == "target died"
    assert "the door is shut" in report.notes[-1]


@pytest.mark.parametrize(("method", "ended"), [("tools/call", "complete"), ("ping", "target hangs")])
async def test_a_target_that_hangs_does_not_hang_the_check(
    method: str, ended: str, autojump_clock: trio.testing.MockClock
) -> None:
    async def stuck(connection: Connection, message: dict[str, Any]) -> None:
        if message["method"] == method:
            await trio.sleep_forever()
        await plain(connection, message)

    report = await check(over_lines(stuck))
    assert report.ended == ended
    # A tool may take long; but while it does, the target has to answer a ping.
    assert answered in [outcome.rule for outcome in report.broken]
    assert report.status == 1
    assert any("took longer than 2 s" in note for note in report.notes) == (method == "tools/call")


async def test_what_was_found_until_a_stop_is_reported(autojump_clock: trio.testing.MockClock) -> None:
    stop = trio.Event()
    server = Server("ours")
    server.tool(annotations=ToolAnnotations(read_only_hint=True))(count)
    report = await check_server(
        server, examples=10_000, on_progress=lambda progress: progress.examples == 25 and stop.set(), stop=stop
    )
    assert (report.ended, report.examples) == ("interrupted", 25)


async def count(a: int) -> int:
    """Count."""
    return a


REFUSAL = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "go away"}})


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import sys; sys.exit('no licence')", "(?=.*no licence)(?=.*exit status 1)"),
        ("import sys; sys.stdin.read()", "did not respond to initialize within 1 seconds"),
        (f"input(); print({REFUSAL!r})", "go away"),
    ],
)
async def test_a_process_that_is_not_a_server(code: str, text: str) -> None:
    target = StdioServerParameters(sys.executable, ["-c", code])
    with pytest.raises((TransportError, NegotiationError), match=text):
        await check_server(target, revisions=[LEGACY], connect_timeout=1)


async def test_a_handshake_that_breaks_a_rule_is_judged(autojump_clock: trio.testing.MockClock) -> None:
    """It takes a moment, not the whole time of the handshake, and what was not tried is not said to hold."""

    async def by_text(connection: Connection, message: dict[str, Any]) -> None:
        await plain(connection, message | {"id": str(message.get("id"))})

    report = await check_server(over_lines(by_text))
    (outcome,) = report.broken
    failure = outcome.failure
    assert failure is not None
    assert (outcome.rule.id, failure.messages, failure.seen, failure.of) == ("response-matches-request", 2, 3, 3)
    assert (report.status, report.ended, report.examples, report.transport) == (1, "no handshake", 0, "memory")
    assert {each.status for each in report.outcomes} == {"broken", "not exercised"}
    assert trio.current_time() < 5


async def test_a_handshake_that_breaks_no_selected_rule_is_none(autojump_clock: trio.testing.MockClock) -> None:
    async def empty(connection: Connection, message: dict[str, Any]) -> None:
        await connection.answer(message, {})

    with pytest.raises(NegotiationError, match="refused"):
        await check_server(over_lines(empty), rules=["answered-once"])
    report = await check_server(over_lines(empty), rules=["initialize-answered"], baseline=["initialize-answered"])
    # A known failure does not fail the check, but nothing else could be decided.
    assert (report.knowing(["initialize-answered"]).status, len(report.broken)) == (2, 1)


async def test_a_list_that_never_comes_is_judged(autojump_clock: trio.testing.MockClock) -> None:
    async def mute(connection: Connection, message: dict[str, Any]) -> None:
        if message["method"] != "tools/list":
            await plain(connection, message)

    report = await check_server(over_lines(mute), revisions=[LEGACY])
    assert [outcome.rule.id for outcome in report.broken] == ["request-answered"]


async def test_a_process_that_greets_and_says_nothing_else_is_judged_by_its_greeting() -> None:
    target = StdioServerParameters(sys.executable, ["-c", "print('Welcome!', flush=True); input(); input()"])
    report = await check_server(target, revisions=[LEGACY], connect_timeout=1)
    assert [outcome.rule.id for outcome in report.broken] == ["stdout-clean"]
    assert "within 1 seconds" in report.undecided[0]


async def test_bad_arguments() -> None:
    server = Server("ours")
    with pytest.raises(ValueError, match="no rule"):
        await check_server(server, rules=["answerd-once"])
    with pytest.raises(TypeError, match=r"^rules must be a list, got 'answered-once'"):
        await check_server(server, rules="answered-once")
    with pytest.raises(TypeError, match=r"^check_server\(\) .* 'example'; did you mean 'examples'\?"):
        await check_server(server, example=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^check_client\(\) .* 'rate'; "):
        await check_client(["true"], rate=1.0)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="examples must be at least 1, got 0"):
        await check_server(server, examples=0)
    with pytest.raises(ValueError, match=r"^revisions must be .* got \['2020-01-01'\]"):
        await check_server(server, revisions=["2020-01-01"])
    with pytest.raises(ValueError, match="no tool 'x'"):
        await check_server(server, tools=["x"])
    with pytest.raises(ValueError, match="a single target"):
        await check_server([server, server])
