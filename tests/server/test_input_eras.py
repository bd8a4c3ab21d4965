"""One handler, both eras: a question reaches the client, and its answer the handler, in each of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
import trio
import trio.testing

from tests.peer import settle
from tests.server.harness import server_with
from tests.server.input_harness import LEGACY, MODERN, Age, Name, accept, hand_client, said, text_of
from trio_mcp import Context, Depends, LocalProtocolError, McpError, Server, types
from trio_mcp.jsonrpc.messages import ErrorData, Request

WAYS = [(LEGACY, False), (MODERN, False), (MODERN, True)]
every_way = pytest.mark.parametrize(("revision", "park"), WAYS, ids=["legacy", "replayed", "parked"])


def answers(question: Any) -> Any:
    if question.method == "sampling/createMessage":
        return said("a poem")
    if question.method == "roots/list":
        return {"roots": [{"uri": "file:///tmp"}]}
    properties = question.params.get("requestedSchema", {}).get("properties", {})
    return accept(**{name: {"name": "Ann", "age": 41}[name] for name in properties})


@every_way
@pytest.mark.parametrize("sync", [False, True])
async def test_one_handler_gives_the_same_answer_in_each_era(revision: str, park: bool, sync: bool) -> None:
    """The promise of the project. What the code before a question does happens once where the handler waits, and once
    more for each round where it is replayed."""
    effects: list[str] = []

    async def poem(ctx: Context) -> str:
        """Write a poem."""
        effects.append("start")
        name = await ctx.elicit("Who are you?", Name)
        effects.append("name")
        age = await ctx.elicit("How old?", Age)
        effects.append("age")
        reply = await ctx.sample(f"A poem for {name.data.name}, {age.data.age}", max_tokens=10)
        effects.append("end")
        assert isinstance(reply.content, types.TextContent)
        return f"{name.data.name}, {age.data.age}: {reply.content.text}"

    def poem_in_thread(ctx: Context) -> str:
        return trio.from_thread.run(poem, ctx)

    server = Server("test")
    server.add_tool(poem_in_thread if sync else poem, name="poem", park_input=park)
    async with hand_client(server, revision, answers) as client:
        result = await client.tool("poem")
        assert text_of(result) == "Ann, 41: a poem"
        assert not result.get("isError")
        assert [each.method for each in client.questions] == [
            "elicitation/create",
            "elicitation/create",
            "sampling/createMessage",
        ]
        assert client.questions[2].params["messages"][0]["content"]["text"] == "A poem for Ann, 41"
        await trio.testing.wait_all_tasks_blocked()
    waited = ["start", "name", "age", "end"]
    replayed = ["start", "start", "name", "start", "name", "age", *waited]
    assert effects == (waited if revision == LEGACY or park else replayed)


@every_way
async def test_prompts_and_resources_may_ask_too(revision: str, park: bool) -> None:
    """2026-07-28 `basic/patterns/mrtr`, Supported Requests."""
    server = Server("test")

    @server.prompt(park_input=park)
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", Name)
        return f"Greet {answer.data and answer.data.name}"

    @server.resource("config://{name}", park_input=park)
    async def config(name: str, ctx: Context) -> str:
        answer = await ctx.elicit("Who?", Name)
        return f"{name} of {answer.data and answer.data.name}"

    async with hand_client(server, revision, answers) as client:
        prompt = await client.drive("prompts/get", {"name": "greet"})
        resource = await client.drive("resources/read", {"uri": "config://x"})
    assert prompt["messages"][0]["content"]["text"] == "Greet Ann"
    assert resource["contents"][0]["text"] == "x of Ann"
    # `server/utilities/caching`: a result that asks is not cacheable.
    assert not any("ttlMs" in each or "cacheScope" in each for each in client.rounds)


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_only_tools_prompts_and_resources_may_ask(revision: str) -> None:
    """2026-07-28 `basic/patterns/mrtr`, Supported Requests: no other request may be answered with a question."""
    refused: list[str] = []

    async def curious(context: Context, call_next: Any) -> Any:
        try:
            await context.elicit("Who?", Name)
        except Exception as exc:
            refused.append(str(exc))
        return await call_next()

    server = Server("test", middleware=[curious])

    @server.prompt
    def greet(name: str) -> str:
        return name

    async def complete(value: str) -> list[str]:
        return [value]

    server.add_completion(complete, prompt="greet", argument="name")
    reference = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "x"}}
    async with hand_client(server, revision, answers) as client:
        assert (await client.drive("completion/complete", reference))["completion"]["values"] == ["x"]
        assert (await client.drive("prompts/list", {}))["prompts"]
        assert not client.questions
    assert [("can't ask the client here" in text) for text in refused] == [True, True]
    assert "'completion/complete'" in refused[0]


INVALID = "'input-1' is not a valid answer"


@every_way
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (accept(age="secret"), "'input-1' does not fit the form: age: "),
        ({"action": "maybe"}, INVALID),
        ({}, INVALID),
        ({"action": "accept", "content": []}, INVALID),
        ({"roots": []}, INVALID),
    ],
    ids=str,
)
async def test_an_answer_that_does_not_fit(revision: str, park: bool, answer: Any, outcome: str) -> None:
    """An error names the field, and not the value."""

    async def tool(ctx: Context) -> str:
        return (await ctx.elicit("Age?", Age)).action

    async with hand_client(server_with(tool, park_input=park), revision, lambda _: answer) as client:
        found = await client.tool("tool")
        assert found.code == -32602
        assert outcome in found.message
        assert "secret" not in found.message
        assert (await client.ask("tools/list", {}))["tools"]


@every_way
async def test_a_handler_may_ask_again_after_an_answer_that_does_not_fit(revision: str, park: bool) -> None:
    async def tool(ctx: Context) -> int:
        for _ in range(3):
            try:
                answer = await ctx.elicit("Age?", Age)
            except McpError:
                continue
            return answer.data.age
        return -1

    given = iter([accept(age="x"), accept(), accept(age=7)])
    async with hand_client(server_with(tool, park_input=park), revision, lambda _: next(given)) as client:
        assert text_of(await client.tool("tool")) == "7"


ASKS: list[tuple[Any, dict[str, Any], str]] = [
    (lambda ctx: ctx.elicit("Who?", Name), {"sampling": {}}, "elicitation"),
    (lambda ctx: ctx.elicit("Who?", Name), {"elicitation": {"url": {}}}, "elicitation"),
    (lambda ctx: ctx.elicit_url("Go", "https://x.example"), {"elicitation": {}}, "elicitation"),
    (lambda ctx: ctx.elicit_url("Go", "https://x.example"), {"elicitation": {"form": {}}}, "elicitation"),
    (lambda ctx: ctx.sample("x", max_tokens=1), {"elicitation": {}}, "sampling"),
    (lambda ctx: ctx.sample("x", max_tokens=1, tools=[]), {"sampling": {}}, "sampling"),
    (lambda ctx: ctx.sample("x", max_tokens=1, tool_choice="auto"), {"sampling": {}}, "sampling"),
    (lambda ctx: ctx.sample("x", max_tokens=1, include_context="allServers"), {"sampling": {}}, "sampling"),
    (lambda ctx: ctx.list_roots(), {"sampling": {}}, "roots"),
]


@every_way
@pytest.mark.parametrize(("ask", "declared", "missing"), ASKS)
async def test_a_question_needs_the_clients_capability(
    revision: str, park: bool, ask: Any, declared: dict[str, Any], missing: str
) -> None:
    """-32021 names it, and nothing is sent, not even the other questions of the round."""

    async def tool(ctx: Context) -> str:
        await ctx.gather(ctx.list_roots(), ask(ctx))
        return "?"

    declared = declared if missing == "roots" else {"roots": {}, **declared}
    async with hand_client(server_with(tool, park_input=park), revision, answers, declared) as client:
        error = await client.tool("tool")
        assert error.code == -32021
        assert list(error.data["requiredCapabilities"]) == [missing]
        assert not client.questions
        assert not client.rounds


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_a_question_that_the_revision_lacks_is_not_asked(revision: str) -> None:

    async def form(ctx: Context) -> str:
        return (await ctx.elicit("Who?", Name)).action

    async def page(ctx: Context) -> str:
        return (await ctx.elicit_url("Go", "https://x.example")).action

    async def tools(ctx: Context) -> str:
        return (await ctx.sample("x", max_tokens=1, tool_choice="auto")).model

    async with hand_client(server_with(form, page, tools), revision, answers) as client:
        for name in ("page", "tools"):
            assert (await client.tool(name)).code == -32021
        if revision == "2025-06-18":
            assert text_of(await client.tool("form")) == "accept"
            assert "mode" not in client.questions[0].params
        else:
            assert (await client.tool("form")).code == -32021


@every_way
async def test_the_end_of_a_round_exits_the_handlers_context_managers(revision: str, park: bool) -> None:
    """As in a cancellation, child tasks and context managers end, without a group; `except Exception` misses it."""
    events: list[str] = []

    @contextlib.asynccontextmanager
    async def entered() -> AsyncIterator[None]:
        events.append("in")
        try:
            yield
        finally:
            events.append("out")

    async def child() -> None:
        try:
            await trio.sleep_forever()
        finally:
            events.append("child")

    async def tool(ctx: Context) -> str:
        async with entered(), trio.open_nursery() as nursery:
            nursery.start_soon(child)
            await trio.testing.wait_all_tasks_blocked()
            try:
                answer = await ctx.elicit("Who?", Name)
            except Exception:
                events.append("swallowed")
                raise
            nursery.cancel_scope.cancel()
        return answer.data.name

    async with hand_client(server_with(tool, park_input=park), revision, answers) as client:
        assert text_of(await client.tool("tool")) == "Ann"
    once = ["in", "child", "out"]
    assert events == (once if revision == LEGACY or park else once * 2)


@every_way
@pytest.mark.parametrize("shape", ["shield", "nursery", "thread", "thread in a shield"])
async def test_questions_from_shielded_scopes_child_tasks_and_threads(revision: str, park: bool, shape: str) -> None:
    async def tool(ctx: Context) -> str:
        found: list[str] = []

        async def ask() -> None:
            answer = await ctx.elicit("Who?", Name)
            found.append(answer.data.name)

        def in_thread() -> None:
            trio.from_thread.run(ask)

        match shape:
            case "shield":
                with trio.CancelScope(shield=True):
                    await ask()
            case "nursery":
                with trio.CancelScope(shield=True):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(trio.sleep, 0)
                        nursery.start_soon(ask)
            case "thread":
                await trio.to_thread.run_sync(in_thread)
            case _:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(in_thread, abandon_on_cancel=True)
        return found[0]

    async with hand_client(server_with(tool, park_input=park), revision, answers) as client:
        assert text_of(await client.tool("tool")) == "Ann"


@every_way
async def test_a_dependency_may_ask(revision: str, park: bool) -> None:
    """It is entered anew for each replay, and lives as long as a handler that waits."""
    events: list[str] = []

    @contextlib.asynccontextmanager
    async def user(ctx: Context) -> AsyncIterator[str]:
        answer = await ctx.elicit("Who?", Name)
        events.append("in")
        yield answer.data.name
        events.append("out")

    async def tool(who: Annotated[str, Depends(user)], ctx: Context) -> str:
        answer = await ctx.elicit("How old?", Age)
        return f"{who} {answer.data.age}"

    async with hand_client(server_with(tool, park_input=park), revision, answers) as client:
        assert text_of(await client.tool("tool")) == "Ann 41"
    assert events == (["in", "out"] if revision == LEGACY or park else ["in", "in", "out"])


@every_way
async def test_once_runs_once(revision: str, park: bool) -> None:
    calls: list[str] = []

    async def book(what: str) -> dict[str, Any]:
        calls.append(what)
        return {"booked": what, "number": len(calls)}

    async def tool(ctx: Context) -> str:
        first = await ctx.once("booking", book, "a room")
        number = await ctx.once("number", lambda: len(calls))
        await ctx.elicit("Who?", Name)
        await ctx.elicit("Age?", Age)
        return f"{first} {number}"

    async with hand_client(server_with(tool, park_input=park), revision, answers) as client:
        assert text_of(await client.tool("tool")) == "{'booked': 'a room', 'number': 1} 1"
    assert calls == ["a room"]


@every_way
async def test_progress_goes_to_the_request_that_is_served(revision: str, park: bool) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.report_progress(1)
        await ctx.elicit("Who?", Name)
        await ctx.report_progress(2)
        return str(ctx.meta.get("progressToken"))

    async with hand_client(server_with(tool, park_input=park), revision, answers) as client:
        first = await client.ask("tools/call", {"name": "tool", "_meta": {"progressToken": "a"}})
        if revision != LEGACY:
            state = {"requestState": first["requestState"], "inputResponses": {"input-1": accept(name="x")}}
            first = await client.ask("tools/call", {"name": "tool", "_meta": {"progressToken": "b"}, **state})
        token = text_of(first)
        seen = [(each.params or {})["progressToken"] for each in client.heard]
    assert (token, seen) == {
        (LEGACY, False): ("a", ["a", "a"]),
        (MODERN, False): ("b", ["a", "b", "b"]),
        (MODERN, True): ("b", ["a", "b"]),
    }[revision, park]


@pytest.mark.parametrize("sync", [False, True])
async def test_cancelling_the_request_cancels_what_it_has_asked(sync: bool) -> None:
    """This includes questions of its thread, which is unwound; all of them belong to the request that is served."""
    server = Server("test")
    unwound: list[str] = []
    left = trio.Event()

    async def ask(ctx: Context) -> str:
        await ctx.gather(ctx.list_roots(), ctx.elicit("Who?", Name))
        return "done"

    def ask_in_thread(ctx: Context) -> str:
        try:
            return trio.from_thread.run(ask, ctx)
        except BaseException as exc:
            unwound.append(type(exc).__name__)
            trio.from_thread.run_sync(left.set)
            raise

    server.add_tool(ask_in_thread if sync else ask, name="tool")

    async with hand_client(server, LEGACY) as client:
        request = await client.request("tools/call", {"name": "tool"})
        asked = [await client.link.read.receive() for _ in range(2)]
        await client.cancel(request)
        told = [await client.link.read.receive() for _ in range(2)]
        assert all(isinstance(each.message, Request) for each in asked)
        assert {each.message.params["requestId"] for each in told} == {each.message.id for each in asked}
        assert {each.related_request_id for each in (*asked, *told)} == {request}
        if sync:
            await left.wait()
    assert unwound == (["RoundEnded"] if sync else [])


@every_way
async def test_a_handler_that_outlives_its_request_cannot_ask(
    revision: str, park: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Rule: the client is not asked about a cancelled request, and no task waits for its answer."""
    entered, left = trio.Event(), trio.Event()
    outcome: list[str] = []

    async def tool(ctx: Context) -> None:
        entered.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(5, shield=True):
                try:
                    await ctx.elicit("Keep what there is?", Name)
                except LocalProtocolError as exc:
                    outcome.append(str(exc))
            left.set()

    async with hand_client(server_with(tool, park_input=park), revision, deadline=60) as client:
        request = await client.request("tools/call", {"name": "tool"})
        await entered.wait()
        await client.cancel(request)
        await left.wait()
        await settle()
        assert client.arrived() == []
    assert outcome == ["can't ask the client any more: the client has cancelled 'tools/call', or has disconnected"]


async def test_an_error_answer_of_the_legacy_era_is_raised_where_it_was_asked() -> None:
    async def tool(ctx: Context, several: bool) -> str:
        question = ctx.sample("x", max_tokens=1)
        try:
            await (ctx.gather(question, ctx.list_roots()) if several else question)
        except McpError as exc:
            return exc.message
        return "?"

    async with hand_client(server_with(tool), LEGACY, lambda _: ErrorData(-1, "the user says no")) as client:
        for several in (False, True):
            assert text_of(await client.tool("tool", several=several)) == "the user says no"


async def test_an_answer_has_no_time_limit_but_its_own(autojump_clock: trio.testing.MockClock) -> None:
    """People are slow: the session's timeouts don't count."""

    async def tool(ctx: Context) -> str:
        with trio.move_on_after(100_000):
            await ctx.elicit("Who?", Name)
        try:
            await ctx.elicit("Who?", Name, timeout=5)
        except TimeoutError as exc:
            return f"{trio.current_time():g} {exc}"
        return "?"

    async with hand_client(server_with(tool), LEGACY, deadline=math.inf) as client:
        text = text_of(await client.tool("tool"))
    assert text.startswith("100005 no response to 'elicitation/create' within timeout=5")


@pytest.mark.parametrize(
    ("ask", "error", "text"),
    [
        (lambda ctx: ctx.elicit(3, Name), TypeError, "message must be a string"),
        (lambda ctx: ctx.elicit("x", dict), TypeError, "pydantic model"),
        (lambda ctx: ctx.elicit("x", Name, key=""), ValueError, "key must be"),
        (lambda ctx: ctx.elicit("x", Name, timeout=0), ValueError, "more than 0"),
        (lambda ctx: ctx.elicit_url("x", "page"), ValueError, "absolute URL"),
        (lambda ctx: ctx.elicit_url("x", "https://x .example"), ValueError, "absolute URL"),
        (lambda ctx: ctx.elicit_url("x", 3), TypeError, "url must be a string"),
        (lambda ctx: ctx.elicit_url("x", "https://x.example", elicitation_id=""), ValueError, "elicitation_id"),
        (lambda ctx: ctx.sample([], max_tokens=1), ValueError, "needs at least one message"),
        (lambda ctx: ctx.sample([3], max_tokens=1), TypeError, "a message must be"),
        (lambda ctx: ctx.sample("x", max_tokens="many"), ValueError, "max_tokens|maxTokens"),
        (lambda ctx: ctx.gather("x"), TypeError, "gather takes questions"),
        (lambda ctx: ctx.gather(ctx.list_roots(key="k"), ctx.list_roots(key="k")), ValueError, "'k' is already used"),
    ],
)
async def test_bad_arguments_are_refused_where_they_are_given(ask: Any, error: type[Exception], text: str) -> None:

    async def tool(ctx: Context) -> str:
        with pytest.raises(error, match=text):
            await ask(ctx)
        return "refused"

    async with hand_client(server_with(tool)) as client:
        assert text_of(await client.tool("tool")) == "refused"


async def test_a_context_kept_beyond_its_request_cannot_ask() -> None:
    kept: list[Context] = []

    async def tool(ctx: Context) -> str:
        kept.append(ctx)
        return "done"

    for revision in (LEGACY, MODERN):
        async with hand_client(server_with(tool), revision) as client:
            await client.tool("tool")
            with pytest.raises(Exception, match="can't ask the client here"):
                await kept[-1].list_roots()


def test_park_input_needs_something_to_ask_with() -> None:
    server = Server("test")
    with pytest.raises(TypeError, match="park_input=True, but can't ask for input"):
        server.add_tool(lambda: 1, name="tool", park_input=True)


async def test_a_forgotten_await_warns() -> None:
    """As with any coroutine."""

    async def forgetful(ctx: Context) -> str:
        ctx.list_roots()  # type: ignore[unused-coroutine]
        return "done"

    async with hand_client(server_with(forgetful), MODERN) as client:
        with pytest.warns(RuntimeWarning, match=r"a question \(roots/list\) was never asked: await it"):
            await client.tool("forgetful")
