"""The responses of a server with tasks (SEP-2663): questions, bad input, limits, and access to tasks."""

from __future__ import annotations

import contextlib
import logging
from typing import Annotated, Any

import pytest
import trio
from pydantic import BaseModel
from trio.testing import MockClock

from tests.extensions.tasks.processes import answer, client_of, done, get, processes, shared, start
from tests.peer import settle
from tests.waiting import eventually
from trio_mcp import (
    Answers,
    Client,
    Context,
    Depends,
    InputRequired,
    McpError,
    McpLogHandler,
    Server,
    UnknownTool,
    UrlElicitationRequired,
)
from trio_mcp.extensions import TaskOptions, TaskPolicy, Tasks
from trio_mcp.middleware import Caching, RateLimit
from trio_mcp.stores import MemoryStores
from trio_mcp.types import INVALID_PARAMS, OVERLOADED

AT_ONCE = TaskPolicy(after=0)


class Name(BaseModel):
    name: str


def server_with(*tools: Any, options: TaskOptions | None = None, policy: TaskPolicy = AT_ONCE, **more: Any) -> Server:
    server = Server("studio", stores=MemoryStores(now=trio.current_time), extensions=[Tasks(options)], **more)
    for each in tools:
        server.add_tool(each, task=policy)
    return server


async def refused(client: Any, method: str, **params: Any) -> McpError:
    with pytest.raises(McpError) as caught:
        await client.request(method, params)
    return caught.value


async def test_after_0_makes_a_task_of_every_call(autojump_clock: MockClock) -> None:
    async with client_of(server_with(_hello)) as client:
        for _ in range(20):
            await start(client, "_hello")


# --- questions ----------------------------------------------------------------------------------------------------


async def test_a_key_that_is_asked_again_gets_a_new_name(autojump_clock: MockClock) -> None:
    """Each key of inputRequests is unique over the life of a task (Task Update Requests)."""

    async def twice(ctx: Context) -> str | InputRequired:
        state = ctx.input_state or 0
        if state < 3:
            return InputRequired({"who": ctx.elicit(f"Who {state}?", Name)}, state=state + 1)
        return str(ctx.input_responses["who"].content)

    async with client_of(server_with(twice)) as client:
        task_id = await start(client, "twice")
        for key in ("who", "who#2", "who#3"):
            asked = (await done(client, task_id, "input_required"))["inputRequests"]
            assert list(asked) == [key]
            # A question that was answered before gets no second answer.
            await answer(client, task_id, **{"who": {"name": "stale"}} if key != "who" else {})
            await answer(client, task_id, **{key: {"name": key}})
        state = await done(client, task_id)
        assert state["result"]["content"][0]["text"] == "{'name': 'who#3'}"


async def test_a_key_answered_in_a_round_of_the_call_is_not_used_again_by_the_task(autojump_clock: MockClock) -> None:
    async def order(ctx: Context) -> str | InputRequired:
        if ctx.input_responses.get("who") is None:
            return InputRequired({"who": ctx.elicit("Who?", Name)}, state=1)
        await ctx.detach()
        if ctx.input_state == 1:
            return InputRequired({"who": ctx.elicit("Who else?", Name)}, state=2)
        return str(ctx.input_responses["who"].content)

    async with client_of(server_with(order, policy=TaskPolicy(mode="manual"))) as client:
        first = await client.request("tools/call", {"name": "order", "arguments": {}})
        assert first["resultType"] == "input_required"
        responses = {"who": {"action": "accept", "content": {"name": "Ann"}}}
        params = {"name": "order", "arguments": {}, "requestState": first["requestState"], "inputResponses": responses}
        task_id = (await client.request("tools/call", params))["taskId"]
        assert list((await done(client, task_id, "input_required"))["inputRequests"]) == ["who#2"]
        await answer(client, task_id, **{"who#2": {"name": "Bob"}})
        assert (await done(client, task_id))["result"]["content"][0]["text"] == "{'name': 'Bob'}"


async def test_a_page_that_a_tool_needs_is_asked_for_by_the_task(autojump_clock: MockClock) -> None:
    async def pay(ctx: Context) -> str:
        if not ctx.input_responses:
            raise UrlElicitationRequired(ctx.elicit_url("Pay", "https://example.com/pay", key="page"))
        return "paid"

    async with client_of(server_with(pay)) as client:
        task_id = await start(client, "pay")
        asked = (await done(client, task_id, "input_required"))["inputRequests"]
        assert asked["page"]["params"]["url"] == "https://example.com/pay"
        await client.request("tasks/update", {"taskId": task_id, "inputResponses": {"page": {"action": "accept"}}})
        assert (await done(client, task_id))["result"]["content"][0]["text"] == "paid"


async def test_a_dependency_may_ask_and_its_answer_is_replayed(autojump_clock: MockClock) -> None:
    async def who(ctx: Context) -> str:
        found = await ctx.elicit("Who?", Name, key="who")
        return found.data.name if found.data else ""

    async def greet(name: Annotated[str, Depends(who)], ctx: Context) -> str:
        again = await ctx.elicit("Who else?", Name, key="else")
        return f"{name} {again.data.name if again.data else ''}"

    async with client_of(server_with(greet)) as client:
        task_id = await start(client, "greet")
        for key in ("who", "else"):
            assert list((await done(client, task_id, "input_required"))["inputRequests"]) == [key]
            await answer(client, task_id, **{key: {"name": key}})
        assert (await done(client, task_id))["result"]["content"][0]["text"] == "who else"


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_replay_that_asks_something_else_fails_the_task(swallows: bool, autojump_clock: MockClock) -> None:
    runs: list[int] = []

    async def fickle(ctx: Context) -> str:
        runs.append(1)
        try:
            await ctx.elicit(f"Question {len(runs)}?", Name, key="who")
        except Exception:
            if not swallows:
                raise
        return "done"

    async with client_of(server_with(fickle)) as client:
        task_id = await start(client, "fickle")
        await done(client, task_id, "input_required")
        await answer(client, task_id, who={"name": "Ann"})
        state = await done(client, task_id)
        assert state["status"] == "failed"
        assert state["error"]["message"] == "the tool did not repeat the question 'who', which has been answered"


# --- bad input ----------------------------------------------------------------------------------------------------


async def ask(ctx: Context) -> str:
    found = await ctx.elicit("Who?", Name, key="who")
    return found.data.name if found.data else found.action


@pytest.mark.parametrize(
    ("responses", "said"),
    [
        (None, "must be an object"),
        ([], "must be an object"),
        ({f"k{number}": {} for number in range(10_000)}, "10000 entries; 100 is the limit"),
        ({"who": 5}, "not valid"),
        ({"who": {"action": "shrug"}}, "not valid"),
        ({"who": {"action": "accept", "content": {"name": 5}}}, "does not fit the form"),
        ({"who": {"action": "accept", "content": {}}}, "does not fit the form"),
        ({"who": {"action": "accept", "content": {"name": "x" * 2000}}}, "too large: 1000 bytes"),
    ],
)
async def test_bad_responses_are_refused_and_the_question_stays(
    responses: Any, said: str, autojump_clock: MockClock
) -> None:
    async with client_of(server_with(ask, options=TaskOptions(max_size=1000))) as client:
        task_id = await start(client, "ask")
        before = await done(client, task_id, "input_required")
        error = await refused(client, "tasks/update", taskId=task_id, inputResponses=responses)
        assert error.code == INVALID_PARAMS
        assert said in error.message
        assert await get(client, task_id) == before
        await answer(client, task_id, who={"name": "Ann"})
        assert (await done(client, task_id))["result"]["content"][0]["text"] == "Ann"


async def test_responses_to_unknown_keys_and_after_the_end_are_ignored(autojump_clock: MockClock) -> None:
    async with client_of(server_with(ask)) as client:
        task_id = await start(client, "ask")
        before = await done(client, task_id, "input_required")
        assert (await answer(client, task_id, other={"name": "x"}))["resultType"] == "complete"
        assert await get(client, task_id) == before
        for name in ("Ann", "Bob"):  # the second one comes too late
            assert (await answer(client, task_id, who={"name": name}))["resultType"] == "complete"
        ended = await done(client, task_id)
        assert ended["result"]["content"][0]["text"] == "Ann"
        assert (await answer(client, task_id, who={"name": "Eve"}))["resultType"] == "complete"
        assert (await client.request("tasks/cancel", {"taskId": task_id}))["resultType"] == "complete"
        assert await get(client, task_id) == ended


@pytest.mark.parametrize("task_id", [None, 5, "", "x", "x" * 10_000, "\x00", {}, ["x"]])
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_forged_ids_are_unknown(method: str, task_id: Any) -> None:
    async with client_of(server_with(ask)) as client:
        error = await refused(client, method, taskId=task_id, inputResponses={})
        assert error.code == INVALID_PARAMS
        assert "unknown task" in error.message


async def test_polls_without_pause_are_refused_where_the_server_limits_rates(autojump_clock: MockClock) -> None:
    """Task Polling: a refused poll affects neither the task nor later polls."""
    async with client_of(server_with(_hello, middleware=[RateLimit(rate=1, burst=5)])) as client:
        task_id = await start(client, "_hello")
        for _ in range(4):
            await get(client, task_id)
        error = await refused(client, "tasks/get", taskId=task_id)
        assert (error.code, error.data) == (OVERLOADED, {"retryAfter": 1})
        await trio.sleep(1)
        assert (await get(client, task_id))["status"] == "completed"


async def test_a_result_that_is_too_large_fails_the_task(autojump_clock: MockClock) -> None:
    async def large() -> str:
        return "x" * 2000

    async with client_of(server_with(large, options=TaskOptions(max_size=1500))) as client:
        state = await done(client, await start(client, "large"))
        assert state["status"] == "failed"
        assert "the limit is 1500" in state["error"]["message"]


async def test_a_call_that_is_too_large_is_refused(autojump_clock: MockClock) -> None:
    async def echo(text: str, ctx: Context) -> str:
        await trio.sleep(5)
        return "x"

    async with client_of(server_with(echo, options=TaskOptions(max_size=1500))) as client:
        error = await refused(client, "tools/call", name="echo", arguments={"text": "x" * 2000})
        assert "too large for a task" in error.message


async def test_a_step_that_is_too_large_is_the_tools_error(autojump_clock: MockClock) -> None:
    async def steps(ctx: Context) -> str:
        for number in range(10):
            await ctx.once(f"step-{number}", str, "x" * 400)
        return "x"

    async with client_of(server_with(steps, options=TaskOptions(max_size=1500))) as client:
        state = await done(client, await start(client, "steps"))
        assert state["result"]["isError"] is True


@pytest.mark.parametrize("text", ["x" * 400, "ü" * 200], ids=["ASCII", "UTF-8"])
async def test_steps_at_the_same_time_share_the_limit(text: str, autojump_clock: MockClock) -> None:
    """The limit is one of bytes, in keys and in values."""
    failed: list[ValueError] = []

    async def steps(ctx: Context) -> str:
        async def step(number: int) -> None:
            try:
                await ctx.once(f"{number}{text}", str, text)
            except ValueError as exc:
                failed.append(exc)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(step, number)
        return "x"

    async with client_of(server_with(steps, options=TaskOptions(max_size=1700))) as client:
        await done(client, await start(client, "steps"))
    assert len(failed) == 3


async def test_what_earlier_rounds_of_the_call_have_brought_counts(autojump_clock: MockClock) -> None:
    async def order(ctx: Context) -> str:
        await ctx.elicit("Who?", Name, key="who")
        await ctx.detach()
        return "ordered"

    server = server_with(order, options=TaskOptions(max_size=1500), policy=TaskPolicy(mode="manual"))
    async with Client(
        server, extensions=[Tasks()], answers=Answers(elicitation=lambda _: {"name": "x" * 2000})
    ) as client:
        with pytest.raises(McpError, match="too large for a task"):
            await client.call_tool("order")


@pytest.mark.parametrize("mode", ["optional", "required"])
@pytest.mark.parametrize("declares", [False, True])
async def test_a_hidden_tool_looks_like_none(mode: Any, declares: bool, autojump_clock: MockClock) -> None:
    server = server_with(_hello, policy=TaskPolicy(mode=mode, after=0), visible=lambda ctx, entry: False)
    async with Client(server, extensions=[Tasks()] if declares else []) as client:
        with pytest.raises(UnknownTool):
            await client.call_tool("_hello")


async def test_a_cache_outside_tasks_keeps_no_task(autojump_clock: MockClock) -> None:
    """Its next caller would get the task of another one."""
    tasks = Tasks()
    server = Server("studio", middleware=[Caching({"_hello"}), tasks.middleware], extensions=[tasks])
    server.add_tool(_hello, task=AT_ONCE)
    async with client_of(server) as client:
        assert await start(client, "_hello") != await start(client, "_hello")


async def test_questions_that_are_too_large_fail_the_task(autojump_clock: MockClock) -> None:
    async def verbose(ctx: Context) -> str:
        await trio.sleep(1)
        await ctx.elicit("x" * 2000, Name)
        return "x"

    async with client_of(server_with(verbose, options=TaskOptions(max_size=1500))) as client:
        state = await done(client, await start(client, "verbose"))
        assert state["status"] == "failed"
        assert "the questions take" in state["error"]["message"]


async def test_a_tool_that_parks_its_questions_can_not_be_a_task() -> None:
    with pytest.raises(ValueError, match="park_input=True does not go with task="):
        server_with().add_tool(ask, task="optional", park_input=True)


# --- limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["optional", "manual"])
@pytest.mark.parametrize("limit", ["max_tasks", "max_running"])
async def test_more_tasks_than_there_is_room_for_are_refused(mode: Any, limit: str, autojump_clock: MockClock) -> None:
    cancelled: list[int] = []

    async def work(ctx: Context) -> str:
        try:
            await ctx.detach()
            await trio.sleep(10)
        except BaseException:
            cancelled.append(1)
            raise
        return "done"

    options = TaskOptions(**{limit: 2})
    server = server_with(work, options=options, policy=TaskPolicy(mode=mode, after=0.5))
    async with client_of(server) as client:
        ids = [await start(client, "work") for _ in range(2)]
        error = await refused(client, "tools/call", name="work")
        assert error.code == OVERLOADED
        assert "try again later" in error.message
        assert cancelled == [1]
        for each in ids:
            assert (await done(client, each))["status"] == "completed"


async def test_a_question_that_finds_no_room_is_refused_clearly(autojump_clock: MockClock) -> None:
    policy = TaskPolicy(after=10)
    async with client_of(server_with(ask, options=TaskOptions(max_tasks=1), policy=policy)) as client:
        await start(client, "ask")
        error = await refused(client, "tools/call", name="ask")
        assert error.code == OVERLOADED
        assert "the maximum number of tasks" in error.message


async def test_a_store_that_is_away_is_one_clear_error(autojump_clock: MockClock) -> None:
    def define(server: Server) -> None:
        server.add_tool(ask, task=AT_ONCE)

    async with processes(define, shared(), 1) as (one,):
        task_id = await start(one.client, "ask")
        await done(one.client, task_id, "input_required")
        one.door.shut.add("*")
        for method, params in (
            ("tasks/get", {"taskId": task_id}),
            ("tasks/update", {"taskId": task_id, "inputResponses": {"who": {"action": "decline"}}}),
            ("tasks/cancel", {"taskId": task_id}),
            ("tools/call", {"name": "ask"}),
        ):
            error = await refused(one.client, method, **params)
            assert (error.code, error.message) == (OVERLOADED, "the server's store of tasks is busy; try again later")
        one.door.shut.clear()
        await trio.sleep(1)
        await answer(one.client, task_id, who={"name": "Ann"})
        assert (await done(one.client, task_id))["status"] == "completed"


# --- whose a task is ----------------------------------------------------------------------------------------------


async def test_another_principals_task_is_unknown(autojump_clock: MockClock) -> None:
    who = ["ann"]
    calls: list[str] = []

    def principal(ctx: Context) -> str:
        calls.append(ctx.method)
        return who[0]

    async def whoami(ctx: Context) -> str:
        await ctx.elicit("Who?", Name, key="who")
        assert ctx.principal is not None
        return f"{ctx.principal.subject} {dict(ctx.principal.claims)}"

    async with client_of(server_with(whoami, principal=principal)) as client:
        task_id = await start(client, "whoami")
        await done(client, task_id, "input_required")
        who[0] = "bob"
        unknown = await refused(client, "tasks/get", taskId="nothing")
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            error = await refused(client, method, taskId=task_id, inputResponses={"who": {"action": "cancel"}})
            assert (error.code, error.message) == (unknown.code, unknown.message)
        who[0] = "ann"
        await answer(client, task_id, who={"name": "x"})
        before = calls.count("tools/call")
        assert (await done(client, task_id))["result"]["content"][0]["text"] == "ann {}"
        assert calls.count("tools/call") == before == 1


async def test_a_mounted_servers_tool_runs_as_a_task_of_the_outer_one(autojump_clock: MockClock) -> None:
    tasks = Tasks()

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> Any:
        yield "inner state"

    inner = Server("inner", extensions=[tasks], lifespan=lifespan)
    outer = Server("outer", extensions=[tasks])

    @inner.tool(task=AT_ONCE)
    async def work(ctx: Context) -> str:
        await ctx.elicit("Who?", Name, key="who")
        return str(ctx.state)

    @outer.tool(name="work", task=TaskPolicy(mode="required"))
    async def other() -> str:
        return "other"

    outer.mount(inner, prefix="in")
    async with client_of(outer) as client:
        task_id = await start(client, "in__work")
        await done(client, task_id, "input_required")
        await answer(client, task_id, who={"name": "x"})
        assert (await done(client, task_id))["result"]["content"][0]["text"] == "inner state"


async def test_only_the_outer_servers_policies_count_for_a_mounted_tool() -> None:
    """A tool of the mounted server is not confused with one of the outer server that has the same name."""
    tasks = Tasks()
    inner, outer = Server("inner", extensions=[tasks]), Server("outer", extensions=[tasks])
    inner.add_tool(_hello, name="work")
    outer.add_tool(_hello, name="work", task="required")
    outer.mount(inner, prefix="in")
    async with Client(outer) as client:  # without the extension
        assert (await client.call_tool("in__work")).data == "hello"


async def _hello() -> str:
    return "hello"


# --- what stays secret ------------------------------------------------------------------------------------------


async def test_no_id_is_in_a_log_record_or_a_repr(caplog: pytest.LogCaptureFixture, autojump_clock: MockClock) -> None:
    caplog.set_level(logging.DEBUG)
    reprs: list[str] = []

    async def work(ctx: Context) -> str:
        reprs.append(repr(ctx))
        logging.getLogger("app").info("working")
        await ctx.report_progress(1, 2)
        await ctx.once("step", trio.sleep, 1)
        await ctx.elicit("Who?", Name, key="who")
        raise RuntimeError("a bug")

    server = server_with(work)
    async with client_of(server) as client:
        task = await Tasks.of(client).start("work")
        assert task.id is not None
        await done(client, task.id, "input_required")
        await refused(client, "tasks/update", taskId=task.id, inputResponses=5)
        await answer(client, task.id, who={"name": "x"})
        await done(client, task.id)
        other = await Tasks.of(client).start("work")
        assert other.id is not None
        await other.cancel()
        await settle()
        reprs += [repr(task), repr(server), repr(client)]
    text = caplog.text + "".join(f"{record.__dict__}" for record in caplog.records) + "".join(reprs)
    assert task.id not in text
    assert other.id not in text


async def test_records_of_a_replay_are_sent_to_no_client(autojump_clock: MockClock) -> None:
    handler = McpLogHandler()
    app = logging.getLogger("app.of.tasks")
    app.addHandler(handler)
    app.setLevel(logging.INFO)

    async def work(ctx: Context) -> str:
        app.info("before")
        await ctx.elicit("Who?", Name, key="who")
        app.info("after")
        return "done"

    try:
        async with client_of(server_with(work)) as client:
            task_id = await start(client, "work")
            await done(client, task_id, "input_required")
            await answer(client, task_id, who={"name": "x"})
            assert (await done(client, task_id))["status"] == "completed"
    finally:
        app.removeHandler(handler)
    assert handler.dropped == 0


# --- listening ----------------------------------------------------------------------------------------------------


async def test_a_listener_hears_of_each_change_whoever_makes_it(autojump_clock: MockClock) -> None:
    """Each notification has the state that tasks/get would return (Task Status Notifications)."""

    async def work(ctx: Context) -> str:
        await ctx.elicit("Who?", Name, key="who")
        await trio.sleep(1)
        await ctx.report_progress(1, 2)
        await trio.sleep(1)
        return "done"

    def define(server: Server) -> None:
        server.add_tool(work, task=AT_ONCE)

    async with processes(define, shared()) as (one, two):
        task_id = await start(one.client, "work")
        heard: list[tuple[str, str | None]] = []
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                async for state in Tasks.of(two.client).task(task_id).watch():
                    heard.append((state.status, state.status_message))

            nursery.start_soon(listen)
            await trio.sleep(3)
            two.server.remove_tool("work")  # the other one runs it
            await answer(one.client, task_id, who={"name": "x"})
            began = trio.current_time()
            await eventually(lambda: heard[-1:] == [("completed", None)])
            assert trio.current_time() - began < 2.1
        assert heard == [("input_required", None), ("working", None), ("working", "1 of 2"), ("completed", None)]
