"""The tasks extension: healthy servers and clients that have it break no rule, and each rule has its occasions."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import pytest
import trio.testing

from tests.kit.held_rules import check_healthy, held
from tests.kit.mutants.client import Client, run
from tests.kit.mutants.extension_tasks import TaskingSession
from tests.kit.mutants.server import MODERN, Twin
from tests.kit.mutants.targets import in_memory
from tests.kit.mutants.task_client import HttpTaskClient, TaskClient
from tests.kit.own import OWN
from tests.kit.transcripts import fields, messages
from trio_mcp.conformance.clients import StreamClient, check_client
from trio_mcp.conformance.rules.catalogue import RULES, select
from trio_mcp.conformance.rules.extension_tasks import EXTENSION, NO_KEY
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.transcript.events import Event

OURS = ("ext-task-*",)
ALONE = {rule.id for rule in select(OURS, "server") if all(move.startswith("ext-") for move in rule.moves)}
"""The rules that need no other traffic than that about tasks, of which there is the more."""
ELSEWHERE = {
    TaskClient: {"client-ext-task-name-header", "client-ext-task-cancelled-by-method"},
    HttpTaskClient: {"client-ext-task-cancelled-by-method"},
}
"""What a client does not do: over lines there are no headers, and it cancels nothing but tasks."""

once_more = pytest.mark.again
each_way = pytest.mark.parametrize("over", ["lines", pytest.param("http", marks=once_more)])


@each_way
async def test_a_healthy_server_holds_the_rules_of_the_extension(
    over: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with in_memory(Twin(TaskingSession), over) as target:
        report = await check_healthy(target, MODERN, rules=[*ALONE], examples=40)
    assert held(report) == ALONE


@once_more
@pytest.mark.parametrize("over", ["lines", "http"])
async def test_a_healthy_server_with_the_extension_breaks_nothing(
    over: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with in_memory(Twin(TaskingSession), over) as target:
        assert (await check_healthy(target, MODERN, examples=150)).ended == "complete"


async def test_a_server_without_the_extension_is_not_asked_for_tasks(autojump_clock: trio.testing.MockClock) -> None:
    """Its report says why; what any server may break has had no occasion."""
    async with in_memory(Twin(), "lines") as target:
        report = await check_healthy(target, MODERN, rules=OURS, examples=20)
    assert {outcome.status for outcome in report.outcomes} == {"not checkable", "not exercised"}
    asked = {outcome.rule.id for outcome in report.outcomes if outcome.status == "not exercised"}
    assert asked == {"ext-task-type-reserved"}


@pytest.mark.parametrize("name", ["memory", pytest.param("http", marks=once_more)])
async def test_our_own_server_holds_the_rules_of_the_extension(name: str) -> None:
    async with OWN[name].opened() as target:
        report = await check_healthy(target, MODERN, rules=[*ALONE], examples=30, time=600.0)
    assert held(report) == ALONE


@pytest.mark.parametrize("client", [TaskClient, pytest.param(HttpTaskClient, marks=once_more)])
async def test_a_healthy_client_holds_the_rules_of_the_extension(
    client: type[Client], autojump_clock: trio.testing.MockClock
) -> None:
    target = StreamClient(partial(run, client), client.over)
    report = await check_client(target, revisions=[MODERN], examples=60)
    assert [(outcome.rule.id, outcome.failure) for outcome in report.broken] == []
    assert held(report) >= {rule.id for rule in select(["client-ext-task-*"], "client")} - ELSEWHERE[client]


# --- what a rule makes of a few messages ------------------------------------------------------------------------------

OTHERS: dict[str, Any] = {"elicitation": {}}
DECLARED = {**OTHERS, "extensions": {EXTENSION: {}}}
CALL: dict[str, Any] = {"name": "x", "arguments": {}}
SECONDS = "2026-07-28T00:00:00Z"
ID = "a-secret-of-16-letters"
WHO = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {"type": "object"}}}
OTHER = {**WHO, "params": {**WHO["params"], "message": "Who else?"}}
DONE = {"content": []}

Told = tuple[str, dict[str, Any]]


def state(status: str = "working", **more: Any) -> dict[str, Any]:
    return {"taskId": ID, "status": status, "createdAt": SECONDS, "lastUpdatedAt": SECONDS, "ttlMs": None, **more}


def asks(**wanted: Any) -> dict[str, Any]:
    return state("input_required", inputRequests=wanted)


def exchange(
    number: int, method: str, answer: dict[str, Any], declared: dict[str, Any] | bool = True, **params: Any
) -> list[Told]:
    """Return a request and its response; the client declares the extension, all but the extension, or what is given."""
    capabilities = declared if isinstance(declared, dict) else DECLARED if declared else OTHERS
    request = {"id": number, "method": method, "params": fields(declared=capabilities, **params)}
    told = {"error": answer} if "code" in answer else {"result": {"resultType": "complete", **answer}}
    return [("client", request), ("server", {"id": number, **told})]


def call(number: int = 1, answer: dict[str, Any] | None = None, declared: bool = True) -> list[Told]:
    created = state(resultType="task") if answer is None else answer
    return exchange(number, "tools/call", created, declared, **CALL)


def get(number: int, answer: dict[str, Any]) -> list[Told]:
    return exchange(number, "tasks/get", answer, taskId=ID)


def update(number: int, answer: dict[str, Any] | None = None, **responses: Any) -> list[Told]:
    return exchange(number, "tasks/update", answer or {}, taskId=ID, inputResponses=responses)


def refused(code: int, **data: Any) -> dict[str, Any]:
    return {"code": code, "message": "no", **({"data": data} if data else {})}


def session(*told: list[Told], waits: float = 0.0) -> list[Event]:
    """Return a session with a server that has the extension, in which each message takes some time."""
    greeting = exchange(0, "server/discover", {"supportedVersions": [MODERN], "capabilities": DECLARED})
    events = messages(*greeting, *[message for each in told for message in each])
    return [attrs.evolve(event, time=at * waits) for at, event in enumerate(events)]


NAMED = refused(-32021, requiredCapabilities={"extensions": {EXTENSION: {}}})
ENDED = get(2, state("completed", result=DONE))
NEEDS = get(2, asks(who=WHO))

CASES: dict[str, tuple[list[list[Event]], list[list[Event]], list[list[Event]]]] = {
    # Transcripts that keep a rule, break it, and say nothing about it.
    "ext-task-required-refused": (
        [session(call(), ENDED, call(3, NAMED, False))],
        [
            session(call(), ENDED, call(3, refused(-32021), False)),
            session(call(), ENDED, call(3, refused(-32601), False)),
        ],
        [
            # A call that fails as a task may fail in the same way without one.
            session(call(), get(2, state("failed", error=refused(-1))), call(3, refused(-1), False)),
            # The server may refuse the state, or need what this client lacks.
            session(call(), ENDED, exchange(3, "tools/call", refused(-32602), False, **CALL, requestState="")),
            session(call(), ENDED, exchange(3, "tools/call", refused(-32021), {}, **CALL)),
        ],
    ),
    "ext-task-type-set": (
        [session(call())],
        [session(call(answer=state()))],
        # A tool may return what looks like a task.
        [session(call(answer={**DONE, **state()}))],
    ),
    "ext-task-durable": (
        [session(call(), ENDED)],
        [session(call(), get(2, refused(-32602)))],
        [session(call(), ENDED, get(3, refused(-32602))), session(call(), get(2, refused(-32603)))],
    ),
    "ext-task-failed-by-error": (
        [session(call(), get(2, state("failed", error=refused(-1))))],
        [session(call(9, {**DONE, "isError": True}, False), call(), get(2, state("failed", error=refused(-1))))],
        [session(call(), ENDED)],
    ),
    "ext-task-final": (
        [session(call(), ENDED, get(3, state("completed", result=DONE)))],
        [session(call(), ENDED, get(3, state("cancelled")))],
        # A response that was overtaken says nothing.
        [session(call(), get(3, state())[:1], ENDED, get(3, state())[1:])],
    ),
    "ext-task-input-keys-unique": (
        [session(call(), NEEDS, get(3, asks(who=WHO)), update(4, who={}), get(5, asks(other=OTHER)))],
        [
            session(call(), NEEDS, get(3, asks(who=OTHER))),
            session(call(), NEEDS, update(3, who={}), get(4, state()), get(5, asks(who=WHO))),
        ],
        # The state may still be that of before the update.
        [session(call(), NEEDS, update(3, who={}), get(4, asks(who=WHO)))],
    ),
    "ext-task-other-keys-ignored": (
        [session(call(), update(2, **{NO_KEY: {}}))],
        [session(call(), update(2, refused(-32602), **{NO_KEY: {}}))],
        [session(call(), update(2, refused(-32602), who={}))],
    ),
    "client-ext-task-poll-interval": (
        [session(call(), get(2, state(pollIntervalMs=2000)), get(3, state()), waits=0.75)],
        [session(call(), get(2, state(pollIntervalMs=2000)), get(3, state()), waits=0.25)],
        [
            session(call(), get(2, state()), get(3, state())),
            session(call(), get(2, asks(who=WHO, pollIntervalMs=2000)), update(3, who={}), get(4, state())),
        ],
    ),
    "client-ext-task-answers-once": (
        [session(call(), NEEDS, update(3, refused(-32603), who={}), update(4, who={}))],
        [session(call(), NEEDS, update(3, who={}), update(4, who={}))],
        [],
    ),
    "client-ext-task-answers-known": (
        [session(call(), NEEDS, update(3, who={}))],
        [session(call(), NEEDS, update(3, me={}))],
        [session(update(3, me={}))],
    ),
    "client-ext-task-elsewhere-refused": (
        [session(exchange(1, "prompts/get", state(resultType="task"), name="x"))],
        [session(exchange(1, "prompts/get", state(resultType="task"), name="x"), ENDED)],
        [session(call(), ENDED)],
    ),
}


@pytest.mark.parametrize("rule", CASES)
def test_judges(rule: str) -> None:
    kept, wrong, silent = [[[*RULES[rule].judge(History(each))] for each in group] for group in CASES[rule]]
    assert all(kept)
    assert all(wrong)
    assert [any(each.problem is not None for each in found) for found in kept + wrong] == [False] * len(kept) + [
        True
    ] * len(wrong)
    assert not any(each.problem for found in silent for each in found)
