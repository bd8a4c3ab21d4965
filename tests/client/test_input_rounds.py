"""Rounds of input (2026-07-28 `basic/patterns/mrtr`)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
import trio.testing

from tests.client.asking import DONE, MODERN, TOOLS, asks, form, request, rounds, sample, text, url
from tests.client.scripted import scripted, sent
from tests.injection import cancel_everywhere
from trio_mcp import (
    Answers,
    CallOptions,
    InputError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
    SessionOptions,
    types,
)
from trio_mcp.client.input_rounds import FIRST_PAUSE, LONGEST_PAUSE, MAX_INPUT_REQUESTS
from trio_mcp.jsonrpc.messages import Notification, Request, Response

ASK = request("elicitation/create", form(name={"type": "string"}))
SAMPLE = request("sampling/createMessage", sample())
ROOTS = request("roots/list")


def name_is(name: str) -> Any:
    return lambda params: {"name": name}


ADA = Answers(elicitation=name_is("Ada"))


def accepted(name: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


async def test_the_request_goes_out_again_with_answers_state_and_a_new_id() -> None:
    """Section Client Requirements: 1 to 4."""
    state = 'opaque \u2028 {"a": 1} ÿ' + "x" * 1000
    async with rounds(asks(state, q=ASK), DONE, answers=ADA) as (client, asked):
        result = await client.call_tool("greet", {"a": [1]}, meta={"acme/trace": "t"})
        assert result.text == "done"
    first, second = asked
    assert sent(first) == {"name": "greet", "arguments": {"a": [1]}}
    assert sent(second) == {**sent(first), "inputResponses": {"q": accepted("Ada")}, "requestState": state}
    assert first.id != second.id
    metas = [(each.params or {})["_meta"] for each in asked]
    assert metas[0] == metas[1]
    assert metas[0]["acme/trace"] == "t"


async def test_each_round_has_its_own_answers_and_state_and_nothing_of_earlier_rounds() -> None:
    names = iter(["Ada", "Bob"])
    async with rounds(
        asks("s1", a=ASK),
        asks(b=ASK),
        asks("s3"),
        asks("", c=ROOTS),
        DONE,
        answers=Answers(elicitation=lambda _: {"name": next(names)}, roots=[]),
    ) as (client, asked):
        await client.call_tool("x")
    assert [sent(each) for each in asked] == [
        {"name": "x"},
        {"name": "x", "inputResponses": {"a": accepted("Ada")}, "requestState": "s1"},
        {"name": "x", "inputResponses": {"b": accepted("Bob")}},
        {"name": "x", "requestState": "s3"},
        {"name": "x", "inputResponses": {"c": {"roots": []}}, "requestState": ""},
    ]
    assert len({each.id for each in asked}) == 5


CONTENTS: dict[str, Any] = {"contents": [], "ttlMs": 0, "cacheScope": "private"}


@pytest.mark.parametrize(
    ("method", "call", "params", "final", "model"),
    [
        ("prompts/get", "get_prompt", {"name": "p", "arguments": {"a": "b"}}, {"messages": []}, types.GetPromptResult),
        ("resources/read", "read_resource", {"uri": "a://b"}, CONTENTS, types.ReadResourceResult),
    ],
)
async def test_prompts_and_resources(method: str, call: str, params: Any, final: Any, model: Any) -> None:
    """By themselves, and by hand."""
    async with rounds(asks("s", q=ASK), final, asks("s", q=ASK), final, method=method, answers=ADA) as (client, asked):
        assert (await getattr(client, call)(*params.values())).to_wire() == final
        once = getattr(client, f"{call}_once")
        assert isinstance(await once(*params.values()), types.InputRequiredResult)
        assert isinstance(await once(*params.values(), request_state="s"), model)
    responses = {"inputResponses": {"q": accepted("Ada")}}
    state = {**params, "requestState": "s"}
    assert [sent(each) for each in asked] == [params, {**state, **responses}, params, state]


async def test_all_inputs_of_a_round_are_asked_for_at_once() -> None:
    together = trio.Event()
    running: list[Any] = []

    def meeting(answer: Any) -> Any:
        async def meet(*params: Any) -> Any:
            running.append(answer)
            if len(running) == 3:
                together.set()
            await together.wait()
            return answer

        return meet

    answers = Answers(elicitation=meeting({"name": "Ada"}), sampling=meeting("hi"), roots=meeting([]))
    async with rounds(asks(e=ASK, s=SAMPLE, r=ROOTS), DONE, answers=answers) as (client, asked):
        with trio.fail_after(10):
            await client.call_tool("x")
    assert sent(asked[1])["inputResponses"] == {
        "e": accepted("Ada"),
        "s": {"role": "assistant", "content": text("hi"), "model": "unknown", "stopReason": "endTurn"},
        "r": {"roots": []},
    }


async def test_one_failure_ends_the_round_and_the_others_are_cancelled() -> None:
    waiting = trio.Event()
    cancelled: list[str] = []

    async def elicit(params: Any) -> Any:
        waiting.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.append("elicit")
            raise

    async def model(params: Any) -> str:
        await waiting.wait()
        raise LookupError("no model today")

    answers = Answers(elicitation=elicit, sampling=model)
    async with rounds(asks(e=ASK, s=SAMPLE), DONE, answers=answers) as (client, asked):
        with pytest.raises(InputError) as caught:
            await client.call_tool("x")
    assert str(caught.value) == (
        "no answer to 'sampling/createMessage' (the server's key: 's'): LookupError: no model today"
    )
    assert isinstance(caught.value.__cause__, LookupError)
    assert cancelled == ["elicit"]
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("result", "match"),
    [
        (
            asks(q=SAMPLE),
            "'q' of 'tools/call' can't be answered: the server requested 'sampling/createMessage', for",
        ),
        (asks(q=ASK, r=ROOTS), "'r' of 'tools/call' can't be answered: the server requested 'roots/list', for"),
        (asks(q=request("tools/list")), "the server requested 'tools/list', for which this client has declared no"),
        (asks(q=request("acme/ask")), "the server requested 'acme/ask', for which this client has declared no"),
        (asks(q=ASK, r=5), "input request 'r' of 'tools/call' is malformed"),
        (asks(q={}), "input request 'q' of 'tools/call' is malformed"),
        (asks(q={"method": 5}), "is malformed"),
        (asks(q=request("elicitation/create", {"message": 5})), "with malformed parameters"),
        (asks(), "sent neither inputRequests nor requestState"),
        ({**asks(), "inputRequests": []}, "input_required response to 'tools/call' is malformed"),
        ({**asks(q=ASK), "requestState": 5}, "input_required response to 'tools/call' is malformed"),
        (
            asks(**{f"q{number}": ASK for number in range(MAX_INPUT_REQUESTS + 1)}),
            f"asked for {MAX_INPUT_REQUESTS + 1} inputs at once; the limit is {MAX_INPUT_REQUESTS}",
        ),
    ],
)
async def test_what_a_server_may_not_ask_for_reaches_no_callback(result: Any, match: str) -> None:
    """Section Server Requirements, 7: not what the client has not declared. Nothing is sent back."""

    def callback(params: Any) -> Any:
        pytest.fail("the callback was called")

    async with rounds(result, DONE, answers=Answers(elicitation=callback)) as (client, asked):
        with pytest.raises(RemoteProtocolError, match=match):
            await client.call_tool("x")
        assert len(asked) == 1
        assert (await client.call_tool("x")).text == "done"  # the session goes on


async def test_as_many_inputs_as_are_allowed() -> None:
    many = {f"q{number}": ASK for number in range(MAX_INPUT_REQUESTS)}
    async with rounds(asks(**many), DONE, answers=ADA) as (client, asked):
        await client.call_tool("x")
    assert sent(asked[1])["inputResponses"] == dict.fromkeys(many, accepted("Ada"))


@pytest.mark.parametrize("limit", [1, 3])
async def test_rounds_are_limited(limit: int) -> None:
    answers = Answers(elicitation=name_is("Ada"), max_input_rounds=limit)
    async with rounds(*[asks(q=ASK)] * 20, answers=answers) as (client, asked):
        match = f"the server still asked for input for 'tools/call' after max_input_rounds={limit} rounds"
        with pytest.raises(RemoteProtocolError, match=match):
            await client.call_tool("x")
    assert len(asked) == limit + 1
    async with rounds(*[asks(q=ASK)] * limit, DONE, answers=answers) as (client, asked):
        assert (await client.call_tool("x")).text == "done"


async def test_a_round_with_nothing_to_answer_comes_after_a_growing_pause(autojump_clock: Any) -> None:
    times: list[float] = []

    def later(params: Any) -> Any:
        times.append(trio.current_time())
        return asks("wait") if len(times) <= 8 else DONE

    async with rounds(*[later] * 9) as (client, _):
        await client.call_tool("x")
    pauses = [round(second - first, 6) for first, second in itertools.pairwise(times)]
    assert pauses == [min(FIRST_PAUSE * 2**number, LONGEST_PAUSE) for number in range(8)]
    assert pauses[-1] == LONGEST_PAUSE


async def test_no_requests_at_all_are_a_round_with_nothing_to_answer() -> None:
    async with rounds({**asks("s"), "inputRequests": {}}, DONE) as (client, asked):
        await client.call_tool("x")
    assert sent(asked[1]) == {"name": "x", "inputResponses": {}, "requestState": "s"}


@pytest.mark.parametrize(
    "limits", [{"timeout": 5}, {"total_timeout": None}], ids=["by a timeout", "lifted by the call"]
)
async def test_time_spent_asking_the_user_is_not_limited(limits: dict[str, Any], autojump_clock: Any) -> None:
    async def think(params: Any) -> Any:
        await trio.sleep(1000)
        return {"name": "Ada"}

    options = SessionOptions(calls=CallOptions(total_timeout=6 if "total_timeout" in limits else None))
    results = [asks(q=ASK), asks(q=ASK), DONE]
    async with rounds(*results, answers=Answers(elicitation=think), options=options) as (client, _):
        assert (await client.call_tool("x", **limits)).text == "done"


async def test_the_timeout_holds_for_each_round(autojump_clock: Any) -> None:
    async with rounds(asks(q=ASK), answers=ADA) as (client, asked):  # the second is never answered
        start = trio.current_time()
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("x", timeout=5)
        assert trio.current_time() - start == 5
    assert (caught.value.limit, caught.value.seconds) == ("timeout", 5)
    assert len(asked) == 2


@pytest.mark.parametrize("how", ["call", "session"])
@pytest.mark.parametrize("slow", ["user", "server", "pause"])
async def test_the_total_timeout_covers_everything(how: str, slow: str, autojump_clock: Any) -> None:
    left: list[str] = []

    async def think(params: Any) -> Any:
        try:
            await trio.sleep(4 if slow == "server" else 100)
        finally:
            left.append("user")
        return {"name": "Ada"}

    results: list[Any] = [asks("s")] * 10 if slow == "pause" else [asks(q=ASK)]
    limits: dict[str, Any] = {"total_timeout": 6} if how == "call" else {}
    options = SessionOptions(calls=CallOptions(total_timeout=6 if how == "session" else None))
    async with rounds(*results, answers=Answers(elicitation=think), options=options) as (client, asked):
        start = trio.current_time()
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("x", **limits)
        assert trio.current_time() - start == 6
        assert (caught.value.method, caught.value.limit, caught.value.seconds) == ("tools/call", "total_timeout", 6)
    assert left == ([] if slow == "pause" else ["user"])
    assert len(asked) == {"user": 1, "server": 2, "pause": 7}[slow]


async def test_progress_comes_in_every_round() -> None:
    seen: list[float] = []
    left = iter([asks(q=ASK), DONE])

    async with scripted({}, revision=MODERN, capabilities=TOOLS, answers=ADA) as (client, asked, wire):

        async def serve() -> None:
            for number, result in enumerate(left):
                while len(asked) <= number:
                    await trio.testing.wait_all_tasks_blocked()
                token = (asked[number].params or {})["_meta"]["progressToken"]
                for step in (1, 2):
                    report = {"progressToken": token, "progress": 10 * number + step}
                    await wire.send(Notification("notifications/progress", report))
                await wire.send(Response(asked[number].id, result))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await client.call_tool("x", on_progress=lambda update: seen.append(update.progress))
    assert seen == [1, 2, 11, 12]


async def test_every_round_goes_through_the_middleware() -> None:
    seen: list[Any] = []

    async def watch(call: Any, call_next: Any) -> Any:
        seen.append((call.method, call.params.get("requestState")))
        call.params["_meta"] = {"acme/round": len(seen)}
        return await call_next()

    async with rounds(asks("s", q=ASK), DONE, answers=ADA, middleware=[watch]) as (client, asked):
        await client.call_tool("x")
    assert seen == [("tools/call", None), ("tools/call", "s")]
    assert [(each.params or {})["_meta"]["acme/round"] for each in asked] == [1, 2]


async def test_the_last_result_is_checked_against_the_output_schema() -> None:
    number = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools = [{"name": "x", "inputSchema": {"type": "object"}, "outputSchema": number}]
    answers: dict[str, Any] = {
        "tools/list": {"tools": tools, "ttlMs": 0, "cacheScope": "private"},
        "tools/call": lambda params: (
            {"content": [], "structuredContent": {"n": "one"}} if "inputResponses" in params else asks(q=ASK)
        ),
    }
    async with scripted(answers, revision=MODERN, capabilities=TOOLS, answers=ADA) as (client, _, _wire):
        with pytest.raises(RemoteProtocolError, match="'x' breaks its own output schema"):
            await client.call_tool("x")
        answer = await client.call_tool_once("x")
        assert isinstance(answer, types.InputRequiredResult)
        with pytest.raises(RemoteProtocolError, match="'x' breaks its own output schema"):
            await client.call_tool_once("x", input_responses={})


async def test_parallel_calls_keep_their_answers_and_states_apart() -> None:
    """Section Client Requirements, 4: not for any other request that is under way."""

    def serve(params: dict[str, Any]) -> Any:
        if "inputResponses" not in params:
            return asks(f"state of {params['name']}", **{params["name"]: ASK})
        return {"content": [text(repr((params["inputResponses"], params["requestState"])))]}

    answers = {"tools/call": serve}
    results: dict[str, str] = {}
    async with scripted(answers, revision=MODERN, capabilities=TOOLS, answers=ADA) as (client, _, _wire):

        async def call(name: str) -> None:
            results[name] = (await client.call_tool(name)).text

        async with trio.open_nursery() as nursery:
            for name in "abcdefgh":
                nursery.start_soon(call, name)
    assert results == {name: repr(({name: accepted("Ada")}, f"state of {name}")) for name in "abcdefgh"}


@pytest.mark.parametrize("inputs", [1, 3])
async def test_cancelling_the_call_cancels_the_callbacks_and_nothing_is_sent(inputs: int) -> None:
    """There is no request under way while the user thinks, so there is nothing to tell the server."""
    started: list[int] = []
    ended: list[int] = []

    async def elicit(params: Any) -> Any:
        started.append(1)
        try:
            await trio.sleep_forever()
        finally:
            ended.append(1)

    asking_for = asks(**{f"q{number}": ASK for number in range(inputs)})
    async with rounds(asking_for, DONE, answers=Answers(elicitation=elicit)) as (client, asked):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "x")
                await trio.testing.wait_all_tasks_blocked()
                assert (len(started), len(ended)) == (inputs, 0)
                scope.cancel()
        assert len(ended) == inputs
        assert len(asked) == 1
        assert (await client.call_tool("x")).text == "done"


async def test_a_cancellation_at_every_step_leaves_nothing() -> None:
    running: set[object] = set()

    async def elicit(params: Any) -> Any:
        mark = object()
        running.add(mark)
        try:
            await trio.lowlevel.checkpoint()
        finally:
            running.discard(mark)
        return {"name": "Ada"}

    async def scenario() -> None:
        results = [asks(a=ASK, b=ASK), asks("s", c=ASK), DONE]
        async with rounds(*results, answers=Answers(elicitation=elicit)) as (client, _):
            await client.call_tool("x")

    async def check() -> None:
        await trio.testing.wait_all_tasks_blocked()
        assert running == set()

    assert await cancel_everywhere(scenario, check) >= 20


# --- by hand ------------------------------------------------------------------------------------------------------


async def test_rounds_by_hand() -> None:
    declared = types.ClientCapabilities(elicitation=types.ElicitationCapability(form={}))
    question = asks("s", q=ASK, u=request("elicitation/create", url()))
    async with rounds(question, DONE, capabilities=declared) as (client, asked):
        first = await client.call_tool_once("x", {"a": 1}, meta={"a/b": 1})
        assert isinstance(first, types.InputRequiredResult)
        assert first.input_requests is not None
        assert isinstance(first.input_requests["q"].params, types.ElicitRequestFormParams)
        responses = {"q": types.ElicitResult(action="accept", content={"name": "Ada"}), "u": {"action": "decline"}}
        second = await client.call_tool_once(
            "x", {"a": 1}, input_responses=responses, request_state=first.request_state
        )
        assert not isinstance(second, types.InputRequiredResult)
        assert second.text == "done"
    assert sent(asked[1]) == {
        "name": "x",
        "arguments": {"a": 1},
        "inputResponses": {"q": accepted("Ada"), "u": {"action": "decline"}},
        "requestState": "s",
    }


async def test_by_hand_the_limits_hold_too() -> None:
    many = {f"q{number}": ASK for number in range(MAX_INPUT_REQUESTS + 1)}
    async with rounds(asks(**many), asks(), asks(q={"method": "acme/ask"})) as (client, _):
        with pytest.raises(RemoteProtocolError, match="inputs at once"):
            await client.call_tool_once("x")
        with pytest.raises(RemoteProtocolError, match="sent neither inputRequests"):
            await client.call_tool_once("x")
        with pytest.raises(RemoteProtocolError, match="not a valid InputRequiredResult"):
            await client.call_tool_once("x")
        with pytest.raises(TypeError, match="input_responses must be a mapping, got list"):
            await client.call_tool_once("x", input_responses=[])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="the response to the input 'q' must be a model or a mapping, got int"):
            await client.call_tool_once("x", input_responses={"q": 5})


async def test_the_legacy_era_has_no_rounds() -> None:
    """A field that means nothing there changes nothing; one round is all there is."""
    odd = {"content": [], "resultType": "input_required"}
    answers = {"tools/call": odd, "prompts/get": {"messages": []}, "resources/read": {"contents": []}}
    async with scripted(answers, capabilities=TOOLS) as (client, asked, _):
        assert (await client.call_tool("x")).content == []
        result = await client.call_tool_once("x")
        assert not isinstance(result, types.InputRequiredResult)
        for more in ({"input_responses": {}}, {"request_state": ""}):
            with pytest.raises(LocalProtocolError, match="rounds of input, which revision 2025-11-25 does not have"):
                await client.call_tool_once("x", **more)
    assert len(asked) == 2


async def test_a_modern_server_may_not_send_requests_of_its_own() -> None:
    faults: list[Exception] = []

    def callback(params: Any) -> Any:
        pytest.fail("the callback was called")

    async with scripted(
        {}, revision=MODERN, answers=Answers(elicitation=callback), options=SessionOptions(on_error=faults.append)
    ) as (_, _asked, wire):
        await wire.send(Request(1, "elicitation/create", form()))
        await trio.testing.wait_all_tasks_blocked()
    assert ["the server sent the request 'elicitation/create'" in str(fault) for fault in faults] == [True]
