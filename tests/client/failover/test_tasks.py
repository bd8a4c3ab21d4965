"""A task, when the way on which a client waits for it dies: one result, and each of its questions is put once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from pydantic import BaseModel

from tests.client.failover.fakes import Way
from tests.extensions.tasks.processes import Door, shared
from tests.waiting import eventually
from trio_mcp import Answers, Client, Context, FailoverParameters, McpError, OutcomeUnknown, Server, Switch
from trio_mcp._nursery import background_nursery
from trio_mcp.extensions import TaskPolicy, Tasks
from trio_mcp.low_level import Link, memory_link_pair
from trio_mcp.server.base_server import core_of
from trio_mcp.stores import SqliteStores, Stores
from trio_mcp.types import METHOD_NOT_FOUND

MODERN = "2026-07-28"


class Trip(BaseModel):
    city: str


@attrs.define
class Works:
    """Tools, what they have done, and what they have asked.

    Attributes:
        began: The steps that have begun.
        put: The questions that were put to the client's callback.
        answering: Set when the callback has been called.
        thought: Set to let the callback answer.
        created: Set when a call has become a task.
        respond: How long the response to such a call takes, after that.
        seconds: How long a step takes.
    """

    policy: TaskPolicy = attrs.Factory(lambda: TaskPolicy(after=0, poll=0.5, on_loss="rerun"))
    began: list[str] = attrs.Factory(list)
    put: list[str] = attrs.Factory(list)
    answering: trio.Event = attrs.Factory(trio.Event)
    thought: trio.Event = attrs.Factory(trio.Event)
    created: trio.Event = attrs.Factory(trio.Event)
    respond: float = 0
    seconds: float = 10

    async def step(self, name: str) -> str:
        self.began.append(name)
        await trio.sleep(self.seconds)
        return name

    async def answer(self, question: Any) -> dict[str, str]:
        self.put.append(question.message)
        self.answering.set()
        await self.thought.wait()
        return {"city": "Oslo"}

    def server(self, stores: Stores | None, *, listens: bool = True) -> Server:
        async def refuse(context: Context, call_next: Callable[[], Any]) -> Any:
            if context.method == "subscriptions/listen" and not listens:
                raise McpError(METHOD_NOT_FOUND, "unknown method")
            return await call_next()

        async def respond(context: Context, call_next: Callable[[], Any]) -> Any:
            result = await call_next()
            if context.method == "tools/call":
                self.created.set()
                await trio.sleep(self.respond)
            return result

        tasks = Tasks()
        middleware = [respond, tasks.middleware, refuse]
        server = Server("shop", stores=stores, extensions=[tasks], middleware=middleware)

        @server.tool(task=self.policy)
        async def travel(ctx: Context) -> str:
            await ctx.once("first", self.step, "first")
            found = await ctx.elicit("Where to?", Trip)
            await ctx.once("second", self.step, "second")
            return "nowhere" if found.data is None else found.data.city

        server.add_tool(self.buy, name="buy", task=self.policy)
        server.add_tool(self.buy, name="look", task=self.policy, annotations={"readOnlyHint": True})
        return server

    async def buy(self) -> str:
        return await self.step("buy")


@attrs.define
class Scene:
    """A client with two ways, each to a replica of the server, which share their stores.

    Attributes:
        client: The client.
        ways: The ways.
        doors: The stores as each replica sees them.
        switches: What the client was told of.
    """

    client: Client
    ways: list[Way]
    doors: list[Door]
    switches: list[Switch]

    def passed(self, way: int, method: str) -> int:
        """Return how many requests with a method the client has sent on a way."""
        return sum(getattr(each, "method", None) == method for each in self.ways[way].passed)

    async def switched(self) -> None:
        await eventually(lambda: self.client.transport.carrier == "b")


@contextlib.asynccontextmanager
async def replicas(works: Works, **options: Any) -> AsyncIterator[Scene]:
    """Run two replicas, as HTTP servers run, whatever becomes of the links to them."""
    doors, switches, ways = [], list[Switch](), list[Way]()
    async with contextlib.AsyncExitStack() as stack:
        stores = shared()
        for name in "ab":
            doors.append(Door(stores))
            server = works.server(doors[-1], **options)
            run = await stack.enter_async_context(core_of(server).open_run())

            @contextlib.asynccontextmanager
            async def opened(run: Any = run) -> AsyncIterator[Link]:
                async with memory_link_pair() as (ours, theirs), background_nursery() as nursery:
                    nursery.start_soon(run.serve_link, theirs)
                    yield ours

            ways.append(Way(opened, name))  # type: ignore[arg-type]
        target = FailoverParameters(ways, on_switch=switches.append)
        answers = Answers(elicitation=works.answer)
        with trio.fail_after(1000):  # against a hang only
            async with Client(target, mode=MODERN, answers=answers, extensions=[Tasks()]) as client:
                yield Scene(client, ways, doors, switches)


async def while_it_polls_or_listens(made: Scene, works: Works) -> None:
    works.thought.set()
    await trio.sleep(5)
    assert works.began == ["first"]
    made.ways[0].down()


async def silently(made: Scene, works: Works) -> None:
    works.thought.set()
    await trio.sleep(5)
    made.ways[0].stall()


async def while_the_question_is_put(made: Scene, works: Works) -> None:
    await works.answering.wait()
    made.ways[0].down()
    await made.switched()
    works.thought.set()


async def between_the_answer_and_its_update(made: Scene, works: Works) -> None:
    await works.answering.wait()
    made.ways[0].stall()  # what the client sends from here on is lost
    works.thought.set()
    await trio.sleep(1)
    made.ways[0].down()


async def after_the_update_was_carried_out(made: Scene, works: Works) -> None:
    works.thought.set()
    await eventually(lambda: made.passed(0, "tasks/update"))
    made.ways[0].down()


async def in_the_second_half(made: Scene, works: Works) -> None:
    works.thought.set()
    await eventually(lambda: works.began == ["first", "second"])
    made.ways[0].down()


MOMENTS = [
    while_it_polls_or_listens,
    silently,
    while_the_question_is_put,
    between_the_answer_and_its_update,
    after_the_update_was_carried_out,
    in_the_second_half,
]


@pytest.mark.parametrize("listens", [True, False], ids=["listening", "polling"])
@pytest.mark.parametrize("fail", MOMENTS, ids=lambda moment: moment.__name__)
async def test_the_result_of_a_task_arrives_by_the_other_way(
    fail: Any, listens: bool, autojump_clock: trio.testing.MockClock
) -> None:
    works = Works()
    async with replicas(works, listens=listens) as made, trio.open_nursery() as nursery:
        nursery.start_soon(fail, made, works)
        assert (await made.client.call_tool("travel")).data == "Oslo"
        assert made.client.transport.carrier == "b"
        assert (len(made.switches), made.client.transport.unknown) == (1, 0)
        assert (made.passed(0, "tools/call"), made.passed(1, "tools/call")) == (1, 0)
        assert (made.passed(1, "subscriptions/listen") > 0) == listens
    assert works.began == ["first", "second"]
    assert works.put == ["Where to?"]


@pytest.mark.parametrize(("tool", "listed"), [("look", True), ("look", False), ("buy", True)])
async def test_a_call_that_has_made_a_task_is_repeated_only_if_any_call_of_its_tool_may_be(
    tool: str, listed: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Its response, with the id of the task, is lost with the way."""
    works = Works(respond=3)
    async with replicas(works) as made, trio.open_nursery() as nursery:
        if listed:
            await made.client.list_tools()

        async def lose() -> None:
            await works.created.wait()
            made.ways[0].down()

        nursery.start_soon(lose)
        if tool == "look" and listed:
            assert (await made.client.call_tool(tool)).data == "buy"
        else:
            with pytest.raises(OutcomeUnknown):
                await made.client.call_tool(tool)
            await made.switched()
            await trio.sleep(100)
    assert works.began == ["buy"] * (2 if tool == "look" and listed else 1)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_requests_about_a_task_are_repeated(method: str, autojump_clock: trio.testing.MockClock) -> None:
    """Each of them may be done twice: the second answer to a question and the second cancellation are ignored."""
    works = Works()
    async with replicas(works) as made:
        task = await Tasks.of(made.client).start("travel")
        async for state in task.watch():
            if state.status == "input_required":
                break
        assert state.input_requests is not None
        (key,) = state.input_requests
        responses = {key: {"action": "accept", "content": {"city": "Bergen"}}}

        async def request() -> None:
            if method == "tasks/update":
                params = {"taskId": task.id, "inputResponses": responses}
                await made.client.request(method, params, retry=True)
            elif method == "tasks/cancel":
                await task.cancel()
            else:
                await task.get()

        before = made.passed(0, method)
        made.ways[0].stall()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(request)
            await trio.sleep(1)
            made.ways[0].down()
        assert made.passed(0, method) == before
        assert made.passed(1, method) >= 1
        expected = {"tasks/get": "input_required", "tasks/update": "working", "tasks/cancel": "cancelled"}
        assert (await task.get()).status == expected[method]


async def test_a_call_that_is_cancelled_while_no_way_works_cancels_its_task(
    autojump_clock: trio.testing.MockClock,
) -> None:
    works = Works()
    async with replicas(works) as made:
        made.ways[1].refuse()
        with trio.move_on_after(5) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(made.client.call_tool, "buy")
                await trio.sleep(4)
                made.ways[0].down()
        assert scope.cancelled_caught
        made.ways[1].accept()
        await eventually(lambda: made.passed(1, "tasks/cancel") == 1)
        (task,) = made.doors[0].__dict__["_tasks"].values()
        await eventually(lambda: task.task.status == "cancelled")


async def test_a_task_outlives_its_process_if_another_way_leads_to_one_with_the_same_file(tmp_path: Path) -> None:
    """The one that remains takes the task up, and the client finds it there; over HTTP."""
    works = Works(TaskPolicy(after=0, poll=0.1, on_loss="rerun"), seconds=0.3)
    works.thought.set()
    async with trio.open_nursery() as nursery:
        scopes, urls = [trio.CancelScope(), trio.CancelScope()], list[str]()

        async def serve(scope: trio.CancelScope, task_status: trio.TaskStatus[str]) -> None:
            with scope:
                server = works.server(SqliteStores(tmp_path / "tasks.db"))
                await server.serve_http(port=0, task_status=task_status)

        for scope in scopes:
            urls.append(await nursery.start(partial(serve, scope)))

        async def end_the_first() -> None:
            await eventually(lambda: works.began)
            scopes[0].cancel()

        nursery.start_soon(end_the_first)
        answers = Answers(elicitation=works.answer)
        async with Client(urls, mode=MODERN, answers=answers, extensions=[Tasks()]) as client:
            assert (await client.call_tool("travel")).data == "Oslo"
            assert client.transport.carrier == urls[1]
        nursery.cancel_scope.cancel()
    assert works.began == ["first", "first", "second"]  # the first one was interrupted
    assert works.put == ["Where to?"]
