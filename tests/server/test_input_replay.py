"""Rounds of the modern era: what a server may be handed back (2026-07-28 `basic/patterns/mrtr`)."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.server.harness import both_eras, server_with
from tests.server.input_harness import EVERYTHING, LEGACY, MODERN, Age, Name, Peer, accept, hand_client, said, text_of
from tests.types.published import validator
from trio_mcp import Context, InputOptions, InputRequired, Server, ToolError, UrlElicitationRequired, types
from trio_mcp.jsonrpc.messages import ErrorData
from trio_mcp.server.base_server import core_of
from trio_mcp.server.input.request_state import StateSealer


async def two(ctx: Context, x: int = 0) -> str:
    first = await ctx.elicit("First?", Name)
    second = await ctx.elicit("Second?", Name, key="second")
    return f"{first.data and first.data.name} {second.data and second.data.name}"


def server_of(function: Any, **options: Any) -> Server:
    server = Server("test", **options)
    server.add_tool(function, name="tool")
    return server


async def begin(client: Peer) -> dict[str, Any]:
    result = await client.ask("tools/call", {"name": "tool"})
    assert result["resultType"] == "input_required", result
    return result  # type: ignore[no-any-return]


async def go_on(client: Peer, state: Any, **responses: Any) -> Any:
    return await client.ask("tools/call", {"name": "tool", "requestState": state, "inputResponses": responses})


def refused(error: Any, text: str) -> None:
    assert isinstance(error, ErrorData), error
    assert error.code == -32602
    assert text in error.message


@pytest.mark.published
async def test_the_result_that_asks_is_as_the_schema_says() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.gather(
            ctx.elicit("Who?", Name),
            ctx.elicit_url("Go", "https://x.example"),
            ctx.sample("x", max_tokens=1, tools=[{"name": "t", "input_schema": {"type": "object"}}]),
            ctx.list_roots(key="the roots"),
        )
        return "done"

    async with hand_client(server_of(tool)) as client:
        result = await begin(client)
    validator(MODERN, "InputRequiredResult").validate(result)
    asked = {key: each["method"] for key, each in result["inputRequests"].items()}
    assert asked == {
        "input-1": "elicitation/create",
        "input-2": "elicitation/create",
        "input-3": "sampling/createMessage",
        "the roots": "roots/list",
    }
    assert "elicitationId" not in result["inputRequests"]["input-2"]["params"]


async def test_a_middleware_sees_the_result_that_asks() -> None:
    seen: list[Any] = []

    async def watch(context: Context, call_next: Any) -> Any:
        result = await call_next()
        seen.append(result.get("resultType"))
        return result

    async with hand_client(server_of(two, middleware=[watch])) as client:
        await begin(client)
    assert seen == ["input_required"]


@pytest.mark.parametrize("responses", [[], "x", 3, True])
async def test_responses_that_are_not_an_object_are_refused(responses: Any) -> None:
    async with hand_client(server_of(two)) as client:
        first = await begin(client)
        for more in ({}, {"requestState": first["requestState"]}):
            answer = await client.ask("tools/call", {"name": "tool", "inputResponses": responses, **more})
            refused(answer, "inputResponses must be an object")


@pytest.mark.parametrize("state", ["", "x", "1.e30.x", 3, {}, [], True])
async def test_a_state_that_is_not_ours_is_refused(state: Any) -> None:
    ran: list[int] = []

    async def tool(ctx: Context) -> None:
        ran.append(1)

    async with hand_client(server_of(tool)) as client:
        refused(await go_on(client, state), "the requestState is not valid for this request")
    assert not ran


@pytest.mark.parametrize(("ttl", "timeout"), [(60, None), (3600, 60)], ids=["ttl", "timeout of a question"])
async def test_a_state_expires(ttl: float, timeout: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    async def tool(ctx: Context) -> None:
        await ctx.elicit("Who?", Name, **({} if timeout is None else {"timeout": timeout}))

    server = server_of(tool, input=InputOptions(ttl=ttl))
    now = [1_000_000.0]
    monkeypatch.setattr(core_of(server).sealer, "made", StateSealer("test", clock=lambda: now[0]))
    async with hand_client(server) as client:
        state = (await begin(client))["requestState"]
        now[0] += 61
        refused(await go_on(client, state, **{"input-1": accept(name="x")}), "has expired")


async def test_a_replay_that_asks_something_else_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """The answer belongs to this very question: a handler may not take it for the answer to a different one."""
    run: list[int] = []

    async def tool(ctx: Context) -> str:
        run.append(1)
        await ctx.elicit(f"Question {len(run)}?", Name)
        return "done"

    async with hand_client(server_of(tool)) as client:
        state = (await begin(client))["requestState"]
        refused(
            await go_on(client, state, **{"input-1": accept(name="x")}), "'input-1' is not the one that was answered"
        )
    assert "asks a different question under the key 'input-1'" in caplog.text


async def test_a_state_that_would_be_too_large_is_an_error() -> None:
    async def tool(ctx: Context) -> None:
        await ctx.once("big", lambda: "x" * 1_000_000)
        await ctx.list_roots()

    async with hand_client(server_of(tool)) as client:
        refused(await client.tool("tool"), "1000000 is the limit")


async def test_an_exception_that_a_handler_raises_on_its_way_out_counts() -> None:
    """A failing clean-up is reported, and not lost in a question."""

    async def tool(ctx: Context) -> None:
        try:
            await ctx.list_roots()
        finally:
            raise ToolError("the clean-up failed")

    async with hand_client(server_of(tool)) as client:
        result = await client.ask("tools/call", {"name": "tool"})
    assert result["isError"]
    assert text_of(result) == "the clean-up failed"


async def test_a_handler_that_swallows_the_end_of_its_round_has_still_asked() -> None:
    async def tool(ctx: Context) -> str:
        try:
            await ctx.elicit("First?", Name)
        except BaseException:
            pass
        try:
            with trio.CancelScope(shield=True):
                await ctx.elicit("Second?", Name)
        except BaseException:
            pass
        return "done"

    async with hand_client(server_of(tool)) as client:
        assert list((await begin(client))["inputRequests"]) == ["input-1"]


# --- the explicit form ---------------------------------------------------------------------------------------------


@both_eras
async def test_a_function_may_return_its_questions(revision: str) -> None:
    runs: list[Any] = []

    async def tool(ctx: Context) -> str | InputRequired:
        runs.append(ctx.input_state)
        if ctx.input_state is None:
            return InputRequired({"who": ctx.elicit("Who?", Name), "roots": ctx.list_roots()}, state={"step": 1})
        who, roots = ctx.input_responses["who"], ctx.input_responses["roots"]
        if ctx.input_state == {"step": 1}:
            return InputRequired({"model": ctx.sample("x", max_tokens=1)}, state=[2])
        reply = ctx.input_responses["model"]
        return f"{who.content['name']} {roots.roots[0].uri} {reply.content.text}"  # type: ignore[union-attr]

    def answer(question: Any) -> Any:
        return {
            "elicitation/create": accept(name="Ann"),
            "roots/list": {"roots": [{"uri": "file:///x"}]},
            "sampling/createMessage": said("hi"),
        }[question.method]

    server = server_of(tool)
    async with hand_client(server, revision, answer) as client:
        listed = (await client.ask("tools/list", {}))["tools"][0]
        assert text_of(await client.tool("tool")) == "Ann file:///x hi"
    assert listed["outputSchema"]["properties"]["result"] == {"type": "string"}
    assert runs == [None, {"step": 1}, [2]]


@both_eras
@pytest.mark.parametrize("returned", [True, False])
async def test_rounds_are_bounded_and_their_questions_checked(revision: str, returned: bool) -> None:
    """A handler that never has enough does not keep a client busy forever; one that waits in the legacy era may."""

    async def endless(ctx: Context) -> InputRequired | None:
        while not returned and len(client.questions) < 9:
            await ctx.list_roots()
        return InputRequired({"who": ctx.list_roots()})

    server = server_of(endless, input=InputOptions(max_rounds=3))
    async with hand_client(server, revision, lambda _: {"roots": []}) as client:
        refused(await client.tool("tool"), "more than 3 rounds")
        assert len(client.questions) == (3 if returned or revision == MODERN else 12)
    async with hand_client(server, revision, capabilities={}) as client:
        assert (await client.tool("tool")).code == -32021
        assert not client.questions


@both_eras
async def test_both_forms_go_together(revision: str) -> None:
    """An awaited question is not asked again when the function runs again for the questions it returned."""

    async def tool(ctx: Context) -> str | InputRequired:
        first = await ctx.elicit("First?", Name)
        if "second" not in ctx.input_responses:
            return InputRequired({"second": ctx.elicit("Second?", Name)})
        return f"{first.data and first.data.name} {ctx.input_responses['second'].content['name']}"  # type: ignore[union-attr,index]

    names = iter(["a", "b"])
    async with hand_client(server_of(tool), revision, lambda _: accept(name=next(names))) as client:
        assert text_of(await client.tool("tool")) == "a b"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (({},), ValueError, "must contain at least one question"),
        (([],), TypeError, "must be a mapping"),
        (({"a": 1},), TypeError, r"requests\['a'\] must be a question"),
        (({1: 1},), TypeError, "must be a mapping of keys"),
    ],
)
def test_returned_questions_must_be_questions(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        InputRequired(*arguments)


async def test_a_state_must_have_a_json_form() -> None:
    async def tool(ctx: Context) -> InputRequired:
        return InputRequired({"x": ctx.list_roots()}, state=object())

    async with hand_client(server_of(tool, expose_errors=True)) as client:
        result = await client.ask("tools/call", {"name": "tool"})
    assert "the state of InputRequired can't be turned into JSON" in text_of(result)


# --- pages to visit ------------------------------------------------------------------------------------------------


async def test_the_client_that_was_asked_hears_when_a_page_is_done() -> None:
    """2025-11-25 `client/elicitation`, Completion Notifications: that client only, once."""

    async def connect(ctx: Context) -> str:
        answer = await ctx.elicit_url("Sign in", "https://x.example/1", elicitation_id="one")
        server.notify_elicitation_complete("one")
        server.notify_elicitation_complete("never asked")
        return answer.action

    server = server_with(connect)

    async with (
        hand_client(server, LEGACY, lambda _: {"action": "accept"}) as asked,
        hand_client(server, LEGACY) as other,
    ):
        assert text_of(await asked.tool("connect")) == "accept"
        assert asked.questions[0].params == {
            "mode": "url",
            "message": "Sign in",
            "url": "https://x.example/1",
            "elicitationId": "one",
        }
        server.notify_elicitation_complete("one")
        for client in (asked, other):
            await client.ask("tools/list", {})
            await client.ask("tools/list", {})
        assert [(each.method, each.params) for each in asked.heard] == [
            ("notifications/elicitation/complete", {"elicitationId": "one"})
        ]
        assert not other.heard


async def test_an_error_may_name_the_pages_to_visit() -> None:
    """2025-11-25 `client/elicitation`, URL Elicitation Required Error; in the modern era a question."""
    done: list[int] = []

    async def connect(ctx: Context) -> str:
        if not done:
            raise UrlElicitationRequired(ctx.elicit_url("Sign in", "https://x.example/1", elicitation_id="one"))
        return "connected"

    server = server_with(connect)

    async with hand_client(server, LEGACY) as client:
        error = await client.tool("connect")
        assert (error.code, error.data) == (
            -32042,
            {
                "elicitations": [
                    {"mode": "url", "message": "Sign in", "url": "https://x.example/1", "elicitationId": "one"}
                ]
            },
        )
        server.notify_elicitation_complete("one")
        await client.ask("tools/list", {})
        await client.ask("tools/list", {})
        assert [each.method for each in client.heard] == ["notifications/elicitation/complete"]
    for revision, declared in (("2025-06-18", EVERYTHING), (LEGACY, {"elicitation": {}}), (MODERN, {})):
        async with hand_client(server, revision, capabilities=declared) as client:
            assert (await client.tool("connect")).code == -32021

    def visit(question: Any) -> Any:
        assert question.params == {"mode": "url", "message": "Sign in", "url": "https://x.example/1"}
        done.append(1)
        return {"action": "accept"}

    async with hand_client(server, MODERN, visit) as client:
        assert text_of(await client.tool("connect")) == "connected"


@pytest.mark.parametrize("arguments", [(), ("https://x.example",)])
def test_the_error_takes_pages_only(arguments: Any) -> None:
    with pytest.raises(TypeError, match=r"ctx\.elicit_url"):
        UrlElicitationRequired(*arguments)


# --- responses to what has not been asked yet ------------------------------------------------------------------------


async def named(ctx: Context) -> str:
    name = await ctx.elicit("Who?", Name, key="name")
    age = await ctx.elicit("How old?", Age, key="age")
    return f"{name.data and name.data.name} {age.data and age.data.age}"


async def unnamed(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", Name)
    return answer.action


async def early(client: Peer, named: str = "named", **responses: Any) -> Any:
    return await client.ask("tools/call", {"name": named, "inputResponses": responses})


@pytest.fixture(params=[False, True], ids=["replayed", "parked"])
def asking(request: pytest.FixtureRequest) -> Server:
    return server_with(named, unnamed, park_input=request.param)


async def test_a_question_with_a_key_takes_the_response_to_it(asking: Server) -> None:
    async with hand_client(asking) as client:
        assert text_of(await early(client, name=accept(name="Ada"), age=accept(age=36))) == "Ada 36"


async def test_only_the_missing_answers_are_asked_for_and_the_rest_kept(asking: Server) -> None:
    """Error Handling: ask again for what is missing, rather than refuse."""
    async with hand_client(asking) as client:
        asked = await early(client, name=accept(name="Ada"), other=accept(name="x"))
        assert set(asked["inputRequests"]) == {"age"}
        retry = {"requestState": asked["requestState"], "inputResponses": {"age": accept(age=36)}}
        assert text_of(await client.ask("tools/call", {"name": "named", **retry})) == "Ada 36"


async def test_responses_to_unasked_questions_are_ignored(asking: Server) -> None:
    async with hand_client(asking) as client:
        asked = await early(client, wrong=accept(name="x"), other=7)
        assert set(asked["inputRequests"]) == {"name"}
        asked = await early(client, "unnamed", **{"input-1": accept(name="x")})
        assert set(asked["inputRequests"]) == {"input-1"}


@pytest.mark.parametrize(
    ("response", "text"),
    [(12345, "not a valid answer"), ({}, "not a valid answer"), (accept(name=7), "does not fit the form")],
)
async def test_an_invalid_response_is_refused(asking: Server, response: Any, text: str) -> None:
    async with hand_client(asking) as client:
        answer = await early(client, name=response)
        assert answer.code == -32602
        assert text in answer.message


# --- questions to the client's model ---------------------------------------------------------------------------------


REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY, MODERN)
USE = types.ToolUseContent(id="1", name="add", input={"a": 1})
RESULT = types.ToolResultContent(tool_use_id="1", content=[types.TextContent(text="2")])


def message(role: Any, *content: Any) -> types.SamplingMessage:
    return types.SamplingMessage(role=role, content=list(content) if len(content) > 1 else content[0])


def published(question: Any, revision: str) -> dict[str, Any]:
    """Return a question in the form of the published schema: in the legacy era that is a request of its own."""
    envelope = {"jsonrpc": "2.0", "id": 1} if revision == LEGACY else {}
    return {**envelope, "method": question.method, "params": question.params}


def server_that(ask: Any) -> Server:

    async def tool(ctx: Context) -> str:
        return (await ask(ctx)).model

    return server_with(tool)


@pytest.mark.published
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_question_matches_the_schema_of_each_revision(revision: str) -> None:
    def ask(ctx: Context) -> Any:
        return ctx.sample(
            [
                "one",
                message("assistant", types.TextContent(text="two")),
                message(
                    "user", types.TextContent(text="three"), types.ImageContent(data="eA==", mime_type="image/png")
                ),
                message("user", types.AudioContent(data="eA==", mime_type="audio/wav")),
            ],
            max_tokens=5,
            system_prompt="Be brief.",
            model_preferences={"hints": [types.ModelHint(name="m")], "cost_priority": 0.5},
            temperature=0.1,
            stop_sequences=("x",),
            include_context="thisServer",
            metadata={"a": 1},
        )

    async with hand_client(server_that(ask), revision, lambda _: said("hi")) as client:
        assert text_of(await client.tool("tool")) == "m"
    (question,) = client.questions
    validator(revision, "CreateMessageRequest").validate(published(question, revision))
    params = question.params
    assert params["maxTokens"] == 5
    assert params["modelPreferences"] == {"hints": [{"name": "m"}], "costPriority": 0.5}
    kinds = [each["content"]["type"] for each in params["messages"] if isinstance(each["content"], dict)]
    expected = {"2024-11-05": ["text", "text", "text", "image", "text"]}
    expected["2025-03-26"] = expected["2025-06-18"] = ["text", "text", "text", "image", "audio"]
    assert kinds == expected.get(revision, ["text", "text", "audio"])


@pytest.mark.published
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_loop_of_tools(revision: str) -> None:
    """The model uses a tool, the handler calls it, and the model goes on (`client/sampling`, Multi-turn Tool Loop)."""
    tool = types.Tool(name="add", input_schema={"type": "object"})

    async def solve(ctx: Context) -> str:
        messages: list[Any] = ["1 + 1?"]
        while True:
            reply = await ctx.sample(messages, max_tokens=5, tools=[tool], tool_choice="auto")
            uses = [block for block in reply.content_as_list if isinstance(block, types.ToolUseContent)]
            if not uses:
                (block,) = reply.content_as_list
                return block.text  # type: ignore[union-attr]
            results = [
                types.ToolResultContent(tool_use_id=use.id, content=[types.TextContent(text="2")]) for use in uses
            ]
            messages += [reply, types.SamplingMessage(role="user", content=list(results))]

    def answer(question: Any) -> Any:
        if len(question.params["messages"]) == 1:
            uses = [{"type": "tool_use", "id": each, "name": "add", "input": {}} for each in "ab"]
            return {"role": "assistant", "content": uses, "model": "m", "stopReason": "toolUse"}
        return said("two")

    async with hand_client(server_with(solve), revision, answer) as client:
        assert text_of(await client.tool("solve")) == "two"
    for question in client.questions:
        validator(revision, "CreateMessageRequest").validate(published(question, revision))
    assert "model" not in client.questions[-1].params["messages"][1]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([message("assistant", USE)], "a tool result is missing"),
        ([message("user", RESULT)], "a tool result has no tool use"),
        ([message("assistant", USE), message("user", RESULT, types.TextContent(text="x"))], "mixes tool results"),
        ([message("assistant", USE), message("assistant", RESULT)], "tool results from the user"),
    ],
)
async def test_uses_and_results_must_match(messages: Any, text: str) -> None:
    """`client/sampling`, Message Content Constraints."""

    async def tool(ctx: Context) -> str:
        with pytest.raises(ValueError, match=text):
            ctx.sample(messages, max_tokens=1)
        ctx.sample([message("assistant", USE), message("user", RESULT), "thanks"], max_tokens=1).close()
        return "refused"

    async with hand_client(server_with(tool)) as client:
        assert text_of(await client.tool("tool")) == "refused"
