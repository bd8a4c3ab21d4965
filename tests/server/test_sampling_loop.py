"""`ctx.sample` with functions and types: a loop on the rounds, in which each function runs once."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
import trio
from pydantic import BaseModel, Field
from pydantic_core import to_json

from tests.injection import cancel_everywhere
from tests.peer import settle
from tests.server.harness import LEGACY, MODERN, client_of, give_up
from tests.server.input_harness import Name, hand_client, said, text_of
from trio_mcp import Answers, Context, Depends, McpError, Server, ToolError, types

every_way = pytest.mark.parametrize(
    ("revision", "park"), [(LEGACY, False), (MODERN, False), (MODERN, True)], ids=["legacy", "replayed", "parked"]
)
Reply = dict[str, Any]


class City(BaseModel):
    name: str
    people: int = Field(gt=0)
    founded: datetime.date | None = None


def uses(*calls: tuple[str, dict[str, Any]]) -> Reply:
    blocks = [
        {"type": "tool_use", "id": f"u{number}", "name": name, "input": given}
        for number, (name, given) in enumerate(calls)
    ]
    return {"role": "assistant", "content": blocks, "model": "m", "stopReason": "toolUse"}


class Model:
    """Gives its replies in turn, and keeps what it was asked."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.asked: list[types.CreateMessageRequestParams] = []

    def __call__(self, params: types.CreateMessageRequestParams) -> Reply:
        self.asked.append(params)
        return self._replies.pop(0)

    @property
    def results(self) -> list[tuple[str, bool]]:
        """The results of tools in the last question: text, and whether it is an error."""
        blocks = self.asked[-1].messages[-1].content_as_list
        return [
            ("".join(part.text for part in block.content if isinstance(part, types.TextContent)), bool(block.is_error))
            for block in blocks
            if isinstance(block, types.ToolResultContent)
        ]


async def sampled(
    body: Callable[[Context], Any],
    model: Model,
    revision: str = MODERN,
    park: bool = False,
    *,
    features: Sequence[Any] = ("tools",),
    **options: Any,
) -> Any:
    """Run the body of a tool whose client has this model; return its value."""
    server = Server("test", **options)
    values = []

    async def tool(ctx: Context) -> str:
        values.append(await body(ctx))
        return "done"

    server.add_tool(tool, park_input=park)
    async with client_of(server, revision, answers=Answers(sampling=model, sampling_features=features)) as client:
        result = await client.call_tool("tool")
    assert result.text == "done", result.text
    return values[-1]


@every_way
async def test_functions_run_once_and_the_model_is_asked_again(revision: str, park: bool) -> None:
    calls: list[str] = []

    def weather(city: str, days: int = 1) -> dict[str, int]:
        """Look at the weather.

        Args:
            city: Where.
        """
        calls.append(f"{city} {days}")
        return {"rain": 3}

    async def population(city: Annotated[str, Field(description="Which")], ctx: Context) -> int:
        calls.append(f"{city} {ctx.method}")
        return 700_000

    model = Model(
        uses(("weather", {"city": "Oslo", "days": "2"}), ("population", {"city": "Oslo"})),
        uses(("weather", {"city": "Bergen"})),
        said("It rains."),
    )
    reply = await sampled(
        lambda ctx: ctx.sample("Rain?", max_tokens=9, tools=[weather, population], system_prompt="Be brief."),
        model,
        revision,
        park,
    )
    assert isinstance(reply, types.CreateMessageResult)
    assert reply.content_as_list[0] == types.TextContent(text="It rains.")
    assert sorted(calls[:2]) == ["Oslo 2", "Oslo tools/call"]
    assert calls[2:] == ["Bergen 1"]
    assert model.results == [('{"rain":3}', False)]
    first, second, _ = model.asked
    assert first.tools is not None
    described = {tool.name: tool for tool in first.tools}
    assert described["weather"].description == "Look at the weather."
    assert described["weather"].input_schema["properties"]["city"] == {"description": "Where.", "type": "string"}
    assert list(described["population"].input_schema["properties"]) == ["city"]
    assert [message.role for message in second.messages] == ["user", "assistant", "user"]
    assert {asked.system_prompt for asked in model.asked} == {"Be brief."}


@every_way
async def test_by_default_the_model_may_call_nine_times(revision: str, park: bool) -> None:
    """As often as a `Client` answers by default, and then it must say something."""
    numbers = []

    def look() -> None:
        numbers.append(len(numbers))

    model = Model(*[uses(("look", {}))] * 9, said("seen"))
    await sampled(lambda ctx: ctx.sample("?", max_tokens=9, tools=[look]), model, revision, park)
    assert len(numbers) == 9
    assert [asked.tool_choice and asked.tool_choice.mode for asked in model.asked] == [None] * 9 + ["none"]


@every_way
async def test_what_goes_wrong_goes_back_to_the_model(revision: str, park: bool, caplog: Any) -> None:
    def refuse() -> None:
        raise ToolError("not today")

    async def break_down() -> None:
        raise RuntimeError("a secret")

    model = Model(
        uses(("refuse", {}), ("break_down", {}), ("refuse", {"x": 1}), ("weather", {})),
        said("I give up."),
    )
    await sampled(lambda ctx: ctx.sample("?", max_tokens=9, tools=[refuse, break_down]), model, revision, park)
    assert model.results == [
        ("not today", True),
        ("the tool 'break_down' failed", True),
        ("invalid arguments for the tool 'refuse': x: there is no such argument", True),
        ("unknown tool: 'weather'; the tools are: refuse, break_down", True),
    ]
    assert "a secret" in caplog.text


@every_way
async def test_an_mcp_error_of_a_function_is_raised_by_the_sampling(revision: str, park: bool) -> None:
    waits, ended = trio.Event(), []

    async def refuse() -> None:
        await waits.wait()
        raise McpError(-7, "no")

    async def wait() -> None:
        waits.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.append("wait")

    async def body(ctx: Context) -> int:
        with pytest.raises(McpError, match="no") as caught:
            await ctx.sample("?", max_tokens=9, tools=[refuse, wait])
        return caught.value.code

    assert await sampled(body, Model(uses(("wait", {}), ("refuse", {}))), revision, park) == -7
    assert ended == ["wait"]


@every_way
async def test_functions_that_are_called_together_run_together(revision: str, park: bool) -> None:
    met = trio.Event()

    async def first() -> str:
        await met.wait()
        return "first"

    async def second() -> str:
        met.set()
        return "second"

    model = Model(uses(("first", {}), ("second", {})), said("done"))
    await sampled(lambda ctx: ctx.sample("?", max_tokens=9, tools=[first, second]), model, revision, park)
    assert model.results == [("first", False), ("second", False)]


def provided(ctx: Context) -> str:
    return ctx.method


@every_way
async def test_a_function_may_have_dependencies_ask_and_be_sync(revision: str, park: bool) -> None:
    """Two calls of it ask beside each other, in an order of their own."""

    def confirm(what: str, ctx: Context, method: Annotated[str, Depends(provided)]) -> str:
        answer = trio.from_thread.run(ctx.elicit, f"Really {what}?", Name)
        return f"{what} {method} {answer.data.name if answer.data else None}"

    model = Model(uses(("confirm", {"what": "a"}), ("confirm", {"what": "b"})), said("done"))
    questions: list[str] = []

    def fill_in(params: Any) -> Any:
        questions.append(params.message)
        return {"name": params.message}

    server = Server("test")

    async def tool(ctx: Context) -> str:
        await ctx.sample("?", max_tokens=9, tools=[confirm])
        return (await ctx.elicit("Last?", Name)).action

    server.add_tool(tool, park_input=park)
    answers = Answers(sampling=model, sampling_features=("tools",), elicitation=fill_in)
    async with client_of(server, revision, answers=answers) as client:
        assert (await client.call_tool("tool")).text == "accept"
    assert model.results == [("a tools/call Really a?", False), ("b tools/call Really b?", False)]
    assert sorted(questions) == ["Last?", "Really a?", "Really b?"]


def secret() -> str:
    return "real"


@every_way
async def test_a_mounted_server_calls_functions_by_its_own_settings(
    revision: str, park: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def reveal(it: Annotated[str, Depends(secret)]) -> str:
        return it

    def fail() -> None:
        raise RuntimeError("told")

    inner, outer = Server("inner", expose_errors=True), Server("outer")

    async def tool(ctx: Context) -> None:
        await ctx.sample("?", max_tokens=9, tools=[reveal, fail])

    inner.add_tool(tool, park_input=park)
    outer.mount(inner)
    model = Model(uses(("reveal", {}), ("fail", {})), said("done"))
    answers = Answers(sampling=model, sampling_features=("tools",))
    async with client_of(outer, revision, answers=answers) as client:
        with inner.override(secret, lambda: "stand-in"):
            assert not (await client.call_tool("tool")).is_error
    assert model.results == [("stand-in", False), ("the tool 'fail' failed: RuntimeError: told", True)]


TYPES: dict[str, tuple[Any, Any, dict[str, Any], Any]] = {
    "a model": (City, City(name="Oslo", people=7), {"name": "Oslo", "people": 7}, {"name": "Oslo", "people": 0}),
    "a date in it": (
        City,
        City(name="Oslo", people=7, founded=datetime.date(1040, 1, 1)),
        {"name": "Oslo", "people": 7, "founded": "1040-01-01"},
        {"name": "Oslo", "people": 7, "founded": "long ago"},
    ),
    "a list": (list[City], [City(name="a", people=1)], {"value": [{"name": "a", "people": 1}]}, {"value": 3}),
    "a number": (int, 5, {"value": 5}, {"value": "five"}),
}
every_type = pytest.mark.parametrize(("kind", "value", "given", "wrong"), TYPES.values(), ids=TYPES)


@every_way
@every_type
async def test_an_answer_with_a_type_is_a_call(
    kind: Any, value: Any, given: Any, wrong: Any, revision: str, park: bool
) -> None:
    ran = []

    def look() -> str:
        ran.append("look")
        return "seen"

    model = Model(
        said("Well."), uses(("final_response", wrong), ("look", {})), uses(("look", {}), ("final_response", given))
    )
    assert (
        await sampled(lambda ctx: ctx.sample("?", max_tokens=9, tools=[look], result_type=kind), model, revision, park)
        == value
    )
    assert ran == ["look"]  # not beside the answer
    assert "calling the tool final_response" in str(model.asked[1].messages[-1].content)
    (problem, is_error), seen = model.results
    assert problem.startswith("this is not a valid answer: ")
    assert (is_error, seen) == (True, ("seen", False))
    assert all(asked.tool_choice is not None and asked.tool_choice.mode == "required" for asked in model.asked)


@every_way
@every_type
@pytest.mark.parametrize("fence", ["{}", "```json\n{}\n```\n"], ids=["plain", "fenced"])
async def test_a_client_without_tools_is_asked_for_text(
    kind: Any, value: Any, given: Any, wrong: Any, fence: str, revision: str, park: bool
) -> None:
    def text(arguments: dict[str, Any]) -> str:
        return fence.replace("{}", to_json(arguments.get("value", arguments)).decode())

    model = Model(said(text(wrong)), said(text(given)))
    assert (
        await sampled(
            lambda ctx: ctx.sample("?", max_tokens=9, result_type=kind, system_prompt="Be kind."),
            model,
            revision,
            park,
            features=(),
        )
        == value
    )
    first, second = model.asked
    assert first.tools is None
    assert (first.system_prompt or "").startswith("Be kind.\n\nRespond with JSON")
    assert "This is not a valid answer: " in str(second.messages[-1].content)


LOOK = uses(("look", {}))
RESULT = {"type": "tool_result", "toolUseId": "u0", "content": []}
ENDS: dict[str, tuple[dict[str, Any], list[Reply], int, str]] = {
    "only calls": ({}, [LOOK] * 3, 2, "gave no answer in 3 rounds"),
    "no valid answer": ({"result_type": int}, [said("five"), LOOK, LOOK], 1, "gave no answer in 3 rounds"),
    "uses of a user": ({}, [LOOK | {"role": "user"}], 0, "the client's reply can't come from a model"),
    "results": ({}, [LOOK | {"content": [RESULT]}], 0, "the client's reply can't come from a model"),
    "too many at once": ({}, [uses(*[("look", {})] * 33)], 0, "called 33 tools at once; 32 is the limit"),
}


@every_way
@pytest.mark.parametrize(("details", "replies", "calls", "text"), ENDS.values(), ids=ENDS)
async def test_a_model_without_an_answer_fails_the_sampling(
    details: dict[str, Any], replies: list[Reply], calls: int, text: str, revision: str, park: bool
) -> None:
    ran, replies = [], list(replies)

    def look() -> None:
        ran.append("look")

    async def tool(ctx: Context) -> str:
        return str(await ctx.sample("?", max_tokens=9, tools=[look], max_rounds=3, **details))

    server = Server("test")
    server.add_tool(tool, park_input=park)
    # By hand: a `Client` would refuse to send a call where the model must not make one.
    async with hand_client(server, revision, lambda _: replies.pop(0)) as client:
        result = await client.tool("tool")
    assert result["isError"]
    assert text in text_of(result)
    assert len(ran) == calls


@every_way
async def test_cancelling_the_request_cancels_the_functions(revision: str, park: bool) -> None:
    started, ended = trio.Event(), trio.Event()

    async def wait() -> None:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    server = Server("test")

    async def tool(ctx: Context) -> None:
        await ctx.sample("?", max_tokens=9, tools=[wait])

    server.add_tool(tool, park_input=park)
    answers = Answers(sampling=Model(uses(("wait", {}))), sampling_features=("tools",))
    async with client_of(server, revision, answers=answers) as client:
        await give_up(started.wait, client.call_tool, "tool")
        await ended.wait()


@every_way
async def test_a_cancellation_at_any_step_leaves_no_function_running(revision: str, park: bool) -> None:
    running = []

    async def work() -> None:
        running.append(1)
        try:
            await trio.lowlevel.checkpoint()
        finally:
            running.pop()

    server = Server("test")

    async def tool(ctx: Context) -> int:
        return await ctx.sample("?", max_tokens=9, tools=[work], result_type=int)

    server.add_tool(tool, park_input=park)

    def model(params: types.CreateMessageRequestParams) -> Reply:
        return uses(("work", {}), ("work", {})) if len(params.messages) == 1 else uses(("final_response", {"value": 1}))

    answers = Answers(sampling=model, sampling_features=("tools",))
    async with client_of(server, revision, answers=answers) as client:

        async def check() -> None:
            await settle()
            assert not running
            assert not server.statistics().running

        assert await cancel_everywhere(lambda: client.call_tool("tool"), check) > 5


@pytest.mark.parametrize("revision", [LEGACY, MODERN, "2025-06-18"])
async def test_a_client_whose_model_has_no_tools_is_told_what_it_lacks(revision: str) -> None:
    server = Server("test")

    @server.tool
    async def tool(ctx: Context) -> None:
        await ctx.sample("?", max_tokens=9, tools=[trio.sleep_forever])

    async with hand_client(server, revision, capabilities={"sampling": {}}) as client:
        error = await client.error("tools/call", {"name": "tool"})
    assert "needs the client capability 'sampling.tools', which the client has not declared" in error.message


async def test_two_samplings_keep_their_calls_apart() -> None:
    """Both have the same question and the same calls, so only their place tells them apart; a key may name it."""
    rolled: list[int] = []

    def roll() -> int:
        rolled.append(len(rolled) + 1)
        return rolled[-1]

    model = Model(*[uses(("roll", {})), said("rolled")] * 3)

    async def body(ctx: Context) -> None:
        await ctx.sample("Roll!", max_tokens=9, tools=[roll])
        await ctx.sample("Roll!", max_tokens=9, tools=[roll])
        await ctx.sample("Roll!", max_tokens=9, tools=[roll], key="mine")

    await sampled(body, model)
    assert rolled == [1, 2, 3]
    assert model.results == [("3", False)]


async def test_the_results_are_bounded_by_the_state() -> None:
    def talk() -> str:
        return "x" * 1_000_000

    server = Server("test")

    @server.tool
    async def tool(ctx: Context) -> None:
        await ctx.sample("?", max_tokens=9, tools=[talk])

    async with hand_client(server, MODERN, lambda _: uses(("talk", {}))) as client:
        answer = await client.tool("tool")
    assert "1000000 is the limit" in answer.message


async def named_otherwise() -> None: ...


named_otherwise.__name__ = "final_response"
WRONG: dict[str, tuple[type[Exception], dict[str, Any], str]] = {
    "both kinds": (TypeError, {"tools": [provided, {"name": "x"}]}, "but not both"),
    "a type and a choice": (TypeError, {"result_type": int, "tool_choice": "auto"}, "tool_choice or result_type"),
    "the same name": (ValueError, {"tools": [trio.sleep, trio.sleep]}, "the name of two tools"),
    "our name": (ValueError, {"tools": [named_otherwise]}, "the name of two tools"),
    "no name": (ValueError, {"tools": [lambda: None]}, "not a valid tool name"),
    "no rounds": (ValueError, {"result_type": int, "max_rounds": 0}, "max_rounds"),
    "no type": (TypeError, {"result_type": trio.Event}, "result_type of sample"),
    "a slip": (TypeError, {"temprature": 1.0}, "did you mean 'temperature'"),
    "a word of FastMCP": (TypeError, {"mask_error_details": True}, "expose_errors"),
}


@pytest.mark.parametrize(("kind", "details", "text"), WRONG.values(), ids=WRONG)
async def test_a_mistake_is_told_where_it_is_made(kind: type[Exception], details: dict[str, Any], text: str) -> None:
    async def body(ctx: Context) -> None:
        with pytest.raises(kind, match=text):
            ctx.sample("?", max_tokens=9, **details)

    await sampled(body, Model())
