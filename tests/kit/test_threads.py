"""Values threaded through calls: what is learned, what is tried, and how it is kept in a plan, replayed and shrunk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any, ClassVar

import attrs
import pytest
import trio
import trio.testing

from tests.kit.chained import TOOLS, Chained
from tests.kit.targets import Connection, over_lines
from trio_mcp.conformance.engine import Check, check_server
from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.offers import MOST_JSON, MOST_PLACES, offered, value_at
from trio_mcp.conformance.outcomes import CheckReport
from trio_mcp.conformance.plans.plan_files import read_plan_file, write_plan_files
from trio_mcp.conformance.plans.threads import Threads
from trio_mcp.conformance.replay import Replayed, replay_plan
from trio_mcp.conformance.run import Sent
from trio_mcp.conformance.steps import Ask, AwaitResponses, Plan, TakenValue, plan_from_json, plan_to_json
from trio_mcp.testing.strategies.first_values import first_values

LEGACY = "2025-11-25"
KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


def reached(report: CheckReport) -> set[str]:
    return {each.name for each in report.reached if each.accepted and not each.keyword}


# --- a chain ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.again)])
async def test_tools_that_take_only_what_others_return_are_reached_whole(
    seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    report = await check_server(Chained().target, revisions=[LEGACY], seed=seed, rules=["answered-once", "tool-*"])
    assert (reached(report), report.examples) == (set(TOOLS), 200)
    assert report.broken == ()


class Shop:
    """A server whose values are of each kind: a number in a sentence, JSON in a text, used up by one call, several at
    once, deep in an object, a part of a URI.
    """

    def __init__(self) -> None:
        self._known: dict[str, set[Any]] = {}
        self._ids = count(100)

    def _new(self, kind: str, form: str = "{}") -> str:
        made = form.format(f"x{next(self._ids)}")
        self._known.setdefault(kind, set()).add(made)
        return made

    def _is(self, kind: str, value: Any, *, once: bool = False) -> bool:
        found = isinstance(value, (str, int)) and value in self._known.get(kind, ())
        if found and once:
            self._known[kind].discard(value)
        return found

    def call(self, name: str, given: dict[str, Any]) -> str | None:
        """Return the text of a result; None if the call is refused."""
        match name:
            case "open":
                number = next(self._ids)
                self._known.setdefault("account", set()).add(number)
                return f"Opened account {number} for you."
            case "begin" if self._is("account", given.get("account")):
                return json.dumps({"at": {"ref": self._new("ref")}})
            case "search" if self._is("ref", given.get("ref"), once=True):
                return json.dumps({"found": [{"owner": self._new("owner"), "path": self._new("path", "/src/{}")}]})
            case "read" if self._is("owner", object_of(given, "at", "owner")) and self._is(
                "path", object_of(given, "at", "path")
            ):
                return f"See memo://{self._new('memo')}/text"
        return None

    TOOLS: ClassVar[dict[str, dict[str, Any]]] = {
        "open": {},
        "begin": {"account": {"type": "integer"}},
        "search": {"ref": {"type": "string"}, "limit": {"type": "integer", "minimum": 1, "maximum": 50}},
        "read": {"at": {"type": "object", "properties": {"owner": {"type": "string"}, "path": {"type": "string"}}}},
    }

    def listed(self) -> list[dict[str, Any]]:
        """Return the tools."""
        made = []
        for name, members in self.TOOLS.items():
            schema: dict[str, Any] = {"type": "object", "properties": members, "required": [*members][:1]}
            made.append({"name": name, "inputSchema": schema, "annotations": {"readOnlyHint": True}})
        made[3]["inputSchema"]["properties"]["at"]["required"] = ["owner", "path"]
        return made

    def respond(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return a result or an error."""
        hello = {"capabilities": {"tools": {}, "resources": {}, "prompts": {}}, "serverInfo": {"name": "s"}}
        fixed: dict[str, Any] = {
            "initialize": {"protocolVersion": LEGACY, **hello},
            "ping": {},
            "tools/list": {"tools": self.listed()},
            "resources/list": {"resources": []},
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "memo://{memo}/text", "name": "m"}]},
            "prompts/list": {"prompts": [{"name": "sum", "arguments": [{"name": "owner", "required": True}]}]},
        }
        if method in fixed:
            return {"result": fixed[method]}
        given = params.get("arguments") if isinstance(params.get("arguments"), dict) else {}
        uri = str(params.get("uri"))
        if method == "tools/call" and (text := self.call(str(params.get("name")), given)) is not None:
            return {"result": {"content": [{"type": "text", "text": text}]}}
        if method == "resources/read" and self._is("memo", uri.removeprefix("memo://").removesuffix("/text")):
            return {"result": {"contents": [{"uri": uri, "text": "a"}]}}
        if method == "prompts/get" and self._is("owner", given.get("owner")):
            return {"result": {"messages": []}}
        return {"error": {"code": -32602, "message": "not found"}}


def object_of(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


async def test_values_of_each_kind_are_threaded(autojump_clock: trio.testing.MockClock) -> None:
    """Through tools, prompts and resource templates."""
    shop = Shop()

    async def handle(connection: Connection, message: dict[str, Any]) -> None:
        if "id" in message:
            await connection.say({"id": message["id"], **shop.respond(message["method"], message.get("params") or {})})

    report = await check_server(over_lines(handle), revisions=[LEGACY])
    assert reached(report) == {*Shop.TOOLS, "sum", "memo://{memo}/text"}


def sent(make_id: Any, seed: int) -> list[str]:
    """Return what a check sends to a chained server."""
    server = Chained(make_id)
    heard: list[str] = []

    async def handle(connection: Connection, message: dict[str, Any]) -> None:
        heard.append(json.dumps(message))
        await server.handle(connection, message)

    run = partial(check_server, over_lines(handle), revisions=[LEGACY], examples=60, seed=seed, rules=["answered-once"])
    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    return heard


def test_the_same_seed_threads_the_same_values() -> None:
    """What is random in a server's ids changes only the ids."""

    def ids(form: str) -> Any:
        return partial(next, map(form.format, count(1000)))

    first = sent(ids("id-{}"), 1)
    assert sent(ids("id-{}"), 1) == first
    assert sent(ids("id-{}"), 2) != first
    other = sent(ids("xy-{}"), 1)
    assert other != first
    assert [each.replace("xy-", "id-") for each in other] == first


# --- failures ---------------------------------------------------------------------------------------------------------


def talkative(name: str, server: Chained, *, refused: bool = False) -> Any:
    """Return what handles messages like a chained server, but answers a tool twice if it accepts or refuses a call."""

    async def handle(connection: Connection, message: dict[str, Any]) -> None:
        before = server.accepted[name]
        await server.handle(connection, message)
        is_call = message["method"] == "tools/call" and message["params"].get("name") == name
        if is_call and "id" in message and (server.accepted[name] == before) == refused:
            await connection.answer(message, {"content": []})

    return handle


async def found(handle: Any) -> CheckReport:
    check = Check(over_lines(handle).open_wire, "chained", {"revisions": [LEGACY], "rules": ["answered-once"]})
    await check.run()
    return check.report()


@pytest.fixture
async def broken(autojump_clock: trio.testing.MockClock) -> CheckReport:
    return await found(talkative(TOOLS[2], Chained()))


async def replayed(report: CheckReport, handle: Any, folder: Any) -> Replayed:
    (path,) = write_plan_files(report, folder)
    return await replay_plan(over_lines(handle).open_wire, read_plan_file(path))


async def test_a_failure_keeps_the_calls_whose_values_it_takes(broken: CheckReport, tmp_path: Any) -> None:
    """It is shrunk to them, shows again on a server with other ids, and contains no value of the server."""
    (outcome,) = broken.broken
    failure = outcome.failure
    assert failure is not None
    assert (failure.seen, failure.of) == (5, 5)
    asked = [step for step in failure.plan if isinstance(step, Ask)]  # type: ignore[union-attr]
    assert [step.params and step.params["name"] for step in asked] == TOOLS[:3]
    assert [[each.name for each in step.taken] for step in asked] == [[], TOOLS[:1], TOOLS[1:2]]
    # A line for a shell can't take a value from an answer.
    assert failure.command == ""
    replay = await replayed(broken, talkative(TOOLS[2], Chained()), tmp_path)
    assert [*replay.broken] == ["answered-once"]
    # What the server made up stands in the transcript alone.
    ids = {e.message["result"]["structuredContent"]["id"] for e in failure.transcript if "structuredContent" in str(e)}
    assert len(ids) == 3
    text = json.dumps(plan_to_json(failure.plan))  # type: ignore[arg-type]
    assert [each for each in ids if each in text] == []


async def test_a_replay_says_what_it_could_not_take(broken: CheckReport, tmp_path: Any) -> None:
    class Silent(Chained):
        """A server whose first tool returns nothing."""

        def call(self, name: str, arguments: Any) -> dict[str, Any]:
            return {"content": []} if name == TOOLS[0] else super().call(name, arguments)

    replay = await replayed(broken, talkative(TOOLS[2], Silent()), tmp_path)
    assert replay.broken == {}
    reasons = [str(event.facts["reason"]) for event in replay.events if event.facts.get("what") == "unsent"]
    assert len(reasons) == 2
    assert f"no result of tools/call of '{TOOLS[0]}' in this example has a value at" in reasons[0]


async def test_a_failure_that_needs_no_value_of_others_takes_none(autojump_clock: trio.testing.MockClock) -> None:
    report = await found(talkative(TOOLS[2], Chained(), refused=True))
    (outcome,) = report.broken
    assert outcome.failure is not None
    (step,) = [step for step in outcome.failure.plan if isinstance(step, Ask)]  # type: ignore[union-attr]
    assert step.taken == ()


TAKEN = {"into": ["arguments", "key"], "method": "tools/call", "name": "a", "place": ["content", 0, "text", 1]}


def test_what_is_taken_can_be_kept_in_a_file() -> None:
    params = {"name": "b", "arguments": {"key": "x"}}
    taken = TakenValue(("arguments", "key"), "tools/call", "a", ("content", 0, "text", 1))
    uri = TakenValue(("uri",), "resources/read", "a://b", ("contents",), before="a://", after="/b")
    plan: Plan = (Ask("tools/call", params, taken=(taken, uri)), AwaitResponses())
    written = json.loads(json.dumps(plan_to_json(plan)))
    assert written[0]["taken"][0] == TAKEN
    assert plan_from_json(written) == plan


@pytest.mark.parametrize(
    "taken",
    [
        1,
        "a",
        {},
        [1],
        [{}],
        [TAKEN | {"into": []}],
        [TAKEN | {"into": "x"}],
        [TAKEN | {"place": [None]}],
        [TAKEN | {"name": 1}],
        [TAKEN | {"more": 1}],
    ],
)
def test_what_can_not_be_taken_is_refused(taken: Any) -> None:
    with pytest.raises(ValueError, match="step 0: "):
        plan_from_json([{"do": "ask", "method": "tools/call", "taken": taken}])


# --- what is learned --------------------------------------------------------------------------------------------------


def facts(**schemas: Any) -> Facts:
    tools = {name: {"name": name, "inputSchema": schema} for name, schema in schemas.items()}
    return Facts(LEGACY, "memory", capabilities={"tools": {}}, tools=tools, callable_tools=tuple(tools))


def answered(name: str, result: dict[str, Any], **arguments: Any) -> Sent:
    """Return a call, and its answer."""
    params = {"name": name, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return Sent(message, {"jsonrpc": "2.0", "id": 1, "result": result}, began=0.0, step=Ask("tools/call", params))


def taken_in(plan: Plan | None) -> list[tuple[str, ...]]:
    """Return the last names of the places whose values a plan takes."""
    steps = [step for step in plan or () if isinstance(step, Ask)]
    return [tuple(str(each.place[-1]) for each in step.taken) for step in steps if step.taken]


def explored(known: Facts, *answers: Sent, most: int = 20) -> Iterator[tuple[str, ...]]:
    threads = Threads("1")
    threads.learn(known, answers)
    for _ in range(most):
        yield from taken_in(threads.explore(known))


def test_a_secret_gets_only_to_where_it_is_masked() -> None:
    """By its name, or by the text around it."""
    secret = {"structuredContent": {"password": "hunter2"}, "content": [{"type": "text", "text": "secret=letmein"}]}
    assert list(explored(facts(make={}, use=KEY), answered("make", secret))) == []
    password = {"type": "object", "properties": {"password": {"type": "string"}}, "required": ["password"]}
    found = list(explored(facts(make={}, use=password), answered("make", secret)))
    assert ("password",) in found


def test_an_echo_is_not_offered() -> None:
    echoed = answered("echo", {"structuredContent": {"text": "abc"}}, text="abc")
    assert list(explored(facts(echo={}, use=KEY), echoed)) == []
    assert list(explored(facts(echo={}, use=KEY), attrs.evolve(echoed, step=None))) == []


def test_what_the_protocol_itself_returns_is_not_offered() -> None:
    """Such as the times of a task, which would make each check send something else."""
    task = {"taskId": "t-1", "createdAt": "2026-01-31T12:00:00Z", "lastUpdatedAt": "2026-01-31T12:00:00Z"}
    for result in ({"task": task}, {"resultType": "task", **task}, {"_meta": {"id": "m-1"}, "content": []}):
        assert list(offered(result)) == []


def test_the_likeliest_value_is_tried_first() -> None:
    schema = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
    result = {"structuredContent": {"status": "open", "user": "u-1", "orderId": "abc"}}
    assert next(explored(facts(make={}, use=schema), answered("make", result))) == ("orderId",)


def test_a_choice_or_a_constant_takes_no_value() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["x"]}, "b": {"const": 1}}, "required": ["a", "b"]}
    assert list(explored(facts(make={}, use=schema), answered("make", {"structuredContent": {"id": "i-1"}}))) == []


def test_a_call_that_is_wrong_on_purpose_stays_as_it_is() -> None:
    known = facts(make={}, use=KEY | {"additionalProperties": False})
    threads = Threads("1")
    threads.learn(known, [answered("make", {"structuredContent": {"id": "i-1"}})])
    good = Ask("tools/call", {"name": "use", "arguments": {"key": "a"}})
    bad = Ask("tools/call", {"name": "use", "arguments": {"key": "a", "more": 1}})
    way = attrs.evolve(
        good, taken=(TakenValue(("arguments", "key"), "tools/call", "make", ("structuredContent", "id")),)
    )
    use = attrs.evolve(answered("use", {"content": []}, key="i-1"), step=way)
    threads.learn(known, [use])
    changed = [threads.threaded(known, [good])[0][-1] for _ in range(50)]
    assert way in changed
    assert {repr(threads.threaded(known, [bad])) for _ in range(50)} == {repr(([bad], 0))}


def test_what_was_accepted_is_drawn_again() -> None:
    known = facts(pick=KEY)
    threads = Threads("1")
    refusal = answered("pick", {"isError": True, "content": []}, key="b")
    threads.learn(known, [refusal, answered("pick", {"content": []}, key="a"), refusal])
    drawn = Ask("tools/call", {"name": "pick", "arguments": {"key": "z"}})
    keys = [threads.threaded(known, [drawn])[0][0].params["arguments"]["key"] for _ in range(100)]  # type: ignore[union-attr, index]
    assert {"a", "z"} == {*keys}
    assert keys.count("a") > 30


# --- hostile results --------------------------------------------------------------------------------------------------


def deep(depth: int) -> Any:
    value: Any = "x-1"
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        {"structuredContent": deep(900)},
        {"structuredContent": {str(number): f"id-{number}" for number in range(10_000)}},
        {"structuredContent": ["id-1"] * 10_000},
        {"content": [{"type": "text", "text": "a b-1 " * 100_000}]},
        {"content": [{"type": "text", "text": "[" * 90_000}]},
        {"content": [{"type": "text", "text": "[" * (MOST_JSON + 1)}]},
        {"content": [{"type": "text", "text": "'" * 100_000}]},
        {"content": [{"type": "text", "text": "(a+)+$" * 1_000}]},
        {"structuredContent": {"n": 10**400, "f": float("inf"), "b": True, "s": "\ud800", "e": "", "l": "x" * 100_000}},
    ],
)
def test_what_a_server_returns_is_bounded(result: Any) -> None:
    """In number, length and depth; each value is found again at its place."""
    found = list(offered(result))
    assert len(found) <= MOST_PLACES
    assert all(value_at(result, each.place) == each.value for each in found)
    assert all(len(str(each.value)) <= 1000 and len(each.place) < 12 for each in found)


@pytest.mark.parametrize(
    "place", [(), ("a",), (0,), ("content", "0"), ("content", 0, "text", -1), ("content", 0, "text", 9)]
)
def test_a_place_that_has_no_value(place: tuple[Any, ...]) -> None:
    assert value_at({"content": [{"type": "text", "text": "a b"}]}, place) is None


async def test_hostile_schemas_and_results_end_in_time(autojump_clock: trio.testing.MockClock) -> None:
    """Schemas that refer to themselves, or whose patterns take forever with backtracking."""
    tree: dict[str, Any] = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    slow = {"type": "object", "properties": {"key": {"type": "string", "pattern": "^(a+)+$"}}, "required": ["key"]}
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    schemas = {"tree": tree, "slow": slow, "loop": loop}
    tools = [
        {"name": name, "inputSchema": schema, "annotations": {"readOnlyHint": True}} for name, schema in schemas.items()
    ]
    text = "a" * 5000 + "!"

    async def handle(connection: Connection, message: dict[str, Any]) -> None:
        if message["method"] == "tools/list":
            await connection.answer(message, {"tools": tools})
        elif message["method"] == "tools/call" and "id" in message:
            bad = {"content": [{"type": "text", "text": text}], "structuredContent": deep(200), "isError": True}
            good = {"content": [{"type": "text", "text": text}], "structuredContent": deep(200)}
            await connection.answer(message, good if message["params"].get("name") == "tree" else bad)
        elif "id" in message:
            hello = {"protocolVersion": LEGACY, "capabilities": {"tools": {}}, "serverInfo": {"name": "h"}}
            await connection.answer(message, hello)

    report = await check_server(over_lines(handle), revisions=[LEGACY], rules=["answered-once", "tool-*"], examples=80)
    assert (report.ended, reached(report)) == ("complete", {"tree"})


# --- first values -----------------------------------------------------------------------------------------------------


def test_examples_come_first_and_then_boundaries() -> None:
    town = {"type": "string", "examples": ["Oslo"]}
    days = {"type": "integer", "minimum": 1, "maximum": 9, "default": 3}
    schema = {"type": "object", "properties": {"town": town, "days": days}, "required": ["town"]}
    assert first_values(schema) == [
        {"town": "Oslo"},
        {"town": "Oslo", "days": 3},
        {"town": "Oslo", "days": 1},
        {"town": "Oslo", "days": 9},
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$", "maxLength": 900}}},
        {"type": "object", "properties": {"a": {"enum": list(range(1000))}}},
        {"type": "object", "properties": {"a": {"minimum": "1", "maxLength": -1, "enum": 5}}, "$schema": 5},
        {"type": "object", "properties": 5},
        True,
    ],
)
def test_first_values_are_few_and_conform_whatever_the_schema(schema: Any) -> None:
    from trio_mcp.schema.validator import SchemaValidator
    from trio_mcp.testing.strategies.schemas import CannotGenerate

    try:
        found = first_values(schema)
    except CannotGenerate:
        return
    assert 0 < len(found) <= 16
    assert all(SchemaValidator(schema).problem(each) is None for each in found)
