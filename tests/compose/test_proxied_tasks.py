"""A proxy that hands the tasks of its upstream on: the ids are its own, everything else is the upstream's."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from pydantic import BaseModel

from tests.client.group_servers import Flaky
from tests.extensions.task_server import ASK, ID, completed, created, failed, needs, state, task_server
from tests.waiting import eventually
from trio_mcp import Answers, Client, Context, McpError, ProxyServer, Server
from trio_mcp.errors import LocalProtocolError
from trio_mcp.extensions import TaskOptions, TaskPolicy, Tasks
from trio_mcp.extensions.tasks.proxied import LONGEST_MS
from trio_mcp.jsonrpc.messages import ErrorData
from trio_mcp.stores import MemoryStores
from trio_mcp.types.error_codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    OVERLOADED,
)
from trio_mcp.types.versions import LATEST_LEGACY

AT_ONCE = TaskPolicy(after=0, poll=0.05)
MANUAL = TaskPolicy(mode="manual", poll=0.05)


class Trip(BaseModel):
    city: str


@attrs.define
class Studio:
    """An upstream: its server, whether each call became a task, and how many of its functions were cancelled."""

    server: Server = attrs.Factory(lambda: Server("studio", extensions=[Tasks()]))
    detached: list[bool] = attrs.Factory(list)
    cancelled: int = 0

    def __attrs_post_init__(self) -> None:
        @self.server.tool(task=MANUAL)
        async def render(scene: str, ctx: Context) -> str:
            self.detached.append(await ctx.detach())
            return f"{scene} is rendered"

        @self.server.tool(task=MANUAL)
        async def order(ctx: Context) -> str:
            first = await ctx.elicit("From where?", Trip, key="from")  # in a round of the call
            await ctx.detach()
            second = await ctx.elicit("Where to?", Trip, key="to")
            assert first.data is not None
            assert second.data is not None
            return f"{first.data.city} to {second.data.city}"

        @self.server.tool(task=AT_ONCE)
        async def ask(ctx: Context) -> str:
            found = await ctx.elicit("Where to?", Trip)
            return "" if found.data is None else found.data.city

        @self.server.tool(task=AT_ONCE)
        async def forever() -> None:
            try:
                await trio.sleep_forever()
            finally:
                self.cancelled += 1

        @self.server.tool(task=AT_ONCE)
        async def refuse() -> None:
            raise McpError(-31999, "closed on Sundays", {"day": 7})

        @self.server.tool(task=TaskPolicy(mode="required", after=0, poll=0.05))
        async def archive() -> str:
            return "archived"

        @self.server.tool
        async def plain() -> int:
            return 1

    def proxy(self, **settings: Any) -> ProxyServer:
        return ProxyServer(self.server, extensions=[Tasks()], **settings)


@contextlib.asynccontextmanager
async def in_memory(studio: Studio) -> AsyncIterator[Any]:
    yield studio.proxy()


@contextlib.asynccontextmanager
async def over_http(studio: Studio) -> AsyncIterator[Any]:
    async with trio.open_nursery() as nursery:
        upstream = await nursery.start(partial(studio.server.serve_http, port=0))
        proxy = ProxyServer(upstream, extensions=[Tasks()])
        yield await nursery.start(partial(proxy.serve_http, port=0))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("reached", [in_memory, over_http])
async def test_a_task_of_the_upstream_is_a_task_of_the_proxy(reached: Any) -> None:
    """Its questions reach the client, those before the task and those of the task, each once."""
    studio, asked = Studio(), list[str]()

    def answer(question: Any) -> dict[str, str]:
        asked.append(question.message)
        return {"city": "Oslo" if question.message == "From where?" else "Bergen"}

    answers = Answers(elicitation=answer)
    async with reached(studio) as target, Client(target, extensions=[Tasks()], answers=answers) as client:
        assert client.extensions == {"io.modelcontextprotocol/tasks": {}}
        assert (await client.call_tool("render", {"scene": "dawn"})).data == "dawn is rendered"
        assert studio.detached == [True]
        assert (await client.call_tool("order")).data == "Oslo to Bergen"
        assert asked == ["From where?", "Where to?"]
        assert (await client.call_tool("archive")).data == "archived"
        with pytest.raises(McpError) as caught:
            await client.call_tool("refuse")
        assert (caught.value.code, caught.value.data) == (-31999, {"day": 7})
        task = await Tasks.of(client).start("ask")
        statuses = []
        async for each in task.watch():
            statuses.append(each.status)
            if each.status == "input_required":
                assert each.input_requests is not None
                ((key, question),) = each.input_requests.items()
                assert question["params"]["message"] == "Where to?"
                responses = {key: {"action": "accept", "content": {"city": "Hamar"}}}
                await client.request("tasks/update", {"taskId": task.id, "inputResponses": responses})
        assert statuses[-1] == "completed"
        assert (await Tasks.of(client).task(str(task.id)).result()).text == "Hamar"


@pytest.mark.parametrize(("tool", "status"), [("ask", "input_required"), ("forever", "working")])
async def test_cancelling_a_task_of_the_proxy_cancels_that_of_the_upstream(tool: str, status: str) -> None:
    studio = Studio()
    async with Client(studio.proxy(), extensions=[Tasks()], capabilities={"elicitation": {"form": {}}}) as client:
        task = await Tasks.of(client).start(tool)
        async for each in task.watch():
            if each.status == status:
                break
        await task.cancel()
        assert [each.status async for each in task.watch()][-1] == "cancelled"
        assert studio.cancelled == (tool == "forever")


async def test_a_task_survives_the_process_of_its_proxy() -> None:
    """Another process with the same stores goes on, with the id that the first one has kept."""
    studio, stores = Studio(), MemoryStores()
    answers = Answers(elicitation=lambda question: {"city": "Oslo"})
    async with stores, trio.open_nursery() as nursery:
        url = await nursery.start(partial(studio.server.serve_http, port=0))

        def process() -> Client:
            proxy = ProxyServer(url, extensions=[Tasks()], stores=stores)
            return Client(proxy, extensions=[Tasks()], answers=answers)

        async with process() as client:
            task = await Tasks.of(client).start("ask")
            task_id = str(task.id)
        async with process() as client:
            assert (await Tasks.of(client).task(task_id, tool="ask").result()).data == "Oslo"
        nursery.cancel_scope.cancel()


async def test_without_the_declaration_of_its_client_a_call_stays_an_ordinary_one() -> None:
    """Capability Negotiation: what one client has declared says nothing about the others; the upstream judges each."""
    studio = Studio()
    proxy = studio.proxy()
    clients: list[dict[str, Any]] = [{}, {"mode": LATEST_LEGACY, "extensions": [Tasks()]}]
    for settings in clients:
        async with Client(proxy, **settings) as client:
            assert (await client.call_tool("render", {"scene": "dawn"})).data == "dawn is rendered"
            with pytest.raises(McpError) as caught:
                await client.call_tool("archive")
            assert caught.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert studio.detached == [False, False]


async def test_a_proxy_declares_the_extension_only_if_its_upstream_does() -> None:
    for upstream in (Server("plain"), Server("old", revisions=[LATEST_LEGACY], extensions=[Tasks()])):
        async with Client(ProxyServer(upstream, extensions=[Tasks()]), extensions=[Tasks()]) as client:
            assert client.extensions == {}
            assert client.capabilities.tools is not None


async def test_a_task_belongs_to_its_principal() -> None:
    """Auth binding: the upstream knows only the proxy, so the proxy tells its clients apart."""
    studio, who = Studio(), ["ada"]
    async with Client(studio.proxy(principal=lambda context: who[0]), extensions=[Tasks()]) as client:
        task = await Tasks.of(client).start("forever")
        who[0] = "eve"
        params: dict[str, Any] = {"taskId": task.id, "inputResponses": {}}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            for task_id in (task.id, "forged", "x" * 300, 3):
                with pytest.raises(McpError, match="unknown task") as caught:
                    await client.request(method, {**params, "taskId": task_id})
                assert caught.value.code == INVALID_PARAMS
        assert not studio.cancelled
        who[0] = "ada"
        await task.cancel()
        await eventually(lambda: studio.cancelled == 1)


async def test_changes_of_a_task_are_announced(autojump_clock: trio.testing.MockClock) -> None:
    """Task Status Notifications: complete states, under the proxy's id, only to those who listen."""
    studio, heard = Studio(), list[Any]()
    slow = TaskPolicy(after=0, poll=60)

    @studio.server.tool(task=slow)
    async def film(ctx: Context) -> str:
        await trio.sleep(3)  # twice, as the function runs again
        found = await ctx.elicit("Where to?", Trip)
        await ctx.report_progress(1, 2, "drawing")
        await trio.sleep(3)
        return "" if found.data is None else found.data.city

    @studio.server.tool
    async def chat() -> None:  # a call that is in flight meanwhile
        await trio.sleep(40)

    async def note(notification: Any) -> None:
        if notification.method != "notifications/subscriptions/acknowledged":
            heard.append((notification.method, notification.params["taskId"]))

    answers = Answers(elicitation=lambda question: {"city": "Oslo"})
    async with Client(studio.proxy(), extensions=[Tasks()], answers=answers, on_message=note) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "chat")
            began = trio.current_time()
            task = await Tasks.of(client).start("film")
            assert (await task.result()).text == "Oslo"
            assert 9 <= trio.current_time() - began < 10
        assert set(heard) == {("notifications/tasks", task.id)}
        await trio.sleep(20)
        assert studio.server.statistics().listening == 1  # for changes of the lists


async def test_a_task_is_followed_only_while_a_client_listens(autojump_clock: trio.testing.MockClock) -> None:
    studio = Studio()
    async with Client(studio.proxy(), extensions=[Tasks()]) as client:
        access = client.attached("io.modelcontextprotocol/tasks").calls.access
        task = await Tasks.of(client).start("forever")
        async with access.listen({"taskIds": [task.id]}):
            await trio.sleep(100)
            assert studio.server.statistics().listening == 2  # one for changes of the lists
        await trio.sleep(20)
        assert studio.server.statistics().listening == 1
        async with access.listen({"taskIds": [task.id]}):  # again
            await trio.sleep(1)
            assert studio.server.statistics().listening == 2


async def test_a_task_is_followed_again_when_the_upstream_is_back(autojump_clock: trio.testing.MockClock) -> None:
    async with MemoryStores(now=trio.current_time) as stores:
        upstream = Server("studio", stores=stores, extensions=[Tasks()])

        @upstream.tool(task=TaskPolicy(after=0, poll=60))
        async def ask(ctx: Context) -> str:
            found = await ctx.elicit("Where to?", Trip)
            return "" if found.data is None else found.data.city

        flaky = Flaky(upstream)

        async def answer(question: Any) -> dict[str, str]:
            flaky.cut()
            await trio.sleep(1)
            return {"city": "Oslo"}

        proxy, answers = ProxyServer(flaky, extensions=[Tasks()]), Answers(elicitation=answer)
        async with Client(proxy, extensions=[Tasks()], answers=answers) as client:
            assert (await client.call_tool("ask")).data == "Oslo"
            assert trio.current_time() < 10  # it was announced: clients that listen look every 30 seconds
        assert len(flaky.attempts) == 2


async def test_what_can_not_be_announced_is_not_listened_for(autojump_clock: trio.testing.MockClock) -> None:
    """The acknowledgement lists the tasks of the caller; changes come from an upstream that announces none, too."""
    states = [state(), state(), completed()]
    async with scripted(*states, first=created(pollIntervalMs=100)) as (client, upstream):
        access = client.attached("io.modelcontextprotocol/tasks").calls.access
        task = await Tasks.of(client).start("x")
        async with access.listen({"taskIds": [task.id, "unknown", ID]}) as subscription:
            assert subscription.honored.model_extra == {"taskIds": [task.id]}
        for wrong in ("x", [1], ["x"] * 1001):
            with pytest.raises(McpError, match="taskIds"):
                async with access.listen({"taskIds": wrong}):
                    pass
        assert (await task.result()).text == "done"
        assert len(upstream.listens) == 1


@contextlib.asynccontextmanager
async def scripted(*states: Any, stores: Any = None, **script: Any) -> AsyncIterator[tuple[Client, Any]]:
    """Yield a client of a proxy whose upstream is a script, and the script."""
    options = TaskOptions(max_tasks=1, max_size=1000)
    async with task_server(*states, **script) as (above, upstream):
        proxy = ProxyServer(above, extensions=[Tasks(options)], stores=stores)
        async with Client(proxy, extensions=[Tasks()]) as client:
            yield client, upstream


async def test_neither_id_is_told_to_the_other_side() -> None:
    async with scripted(needs("a"), completed()) as (client, upstream):
        task = await Tasks.of(client).start("x")
        assert task.id != ID
        assert (await task.get()).input_requests == {"a": ASK}
        responses = {"a": {"action": "decline"}}
        await client.request("tasks/update", {"taskId": task.id, "inputResponses": responses})
        assert (await task.get()).result == completed()["result"]
        await task.cancel()
        assert upstream.responses() == [responses]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert {(each.params or {})["taskId"] for each in upstream.of(method)} == {ID}
        with pytest.raises(McpError, match="unknown task"):
            await Tasks.of(client).task(ID).get()


async def test_a_task_of_which_no_client_knows_is_cancelled() -> None:
    """The store has no room for it, so its client gets an error, which must not leave work behind."""
    async with scripted(state()) as (client, upstream):
        await Tasks.of(client).start("x")
        with pytest.raises(McpError) as caught:
            await Tasks.of(client).start("x")
        assert caught.value.code == OVERLOADED
        await eventually(lambda: len(upstream.of("tasks/cancel")) == 1)


async def test_an_id_that_is_too_long_to_be_kept_is_refused() -> None:
    async with scripted(state(), first=created(taskId="x" * 1000)) as (client, upstream):
        with pytest.raises(McpError, match="too long"):
            await Tasks.of(client).start("x")
        await eventually(lambda: len(upstream.of("tasks/cancel")) == 1)


@pytest.mark.parametrize("took_effect", [False, True])
async def test_a_task_of_a_call_that_is_cancelled_meanwhile_is_cancelled(took_effect: bool) -> None:
    class Slow(MemoryStores):
        async def add_task(self, *arguments: Any, **more: Any) -> Any:
            adding.set()
            if not took_effect:
                await trio.sleep_forever()
            with trio.CancelScope(shield=True):
                await added.wait()
                return await super().add_task(*arguments, **more)

    adding, added = trio.Event(), trio.Event()
    async with scripted(state(), stores=Slow()) as (client, upstream), trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "x")
        await adding.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
            added.set()
            await eventually(lambda: len(upstream.of("tasks/cancel")) == 1)


async def test_an_id_is_kept_for_as_long_as_the_upstream_keeps_its_task() -> None:
    """Task: the time to live may change over the lifetime of a task; the proxy bounds it."""
    now = [1000.0]
    states = [state(ttlMs=5_000), state(ttlMs=50_000), state(ttlMs=1_000), state(ttlMs=None)]
    async with scripted(*states, stores=MemoryStores(now=lambda: now[0]), first=created(ttlMs=5_000)) as (client, _):
        task = await Tasks.of(client).start("x")
        assert [(await task.get()).ttl_ms for _ in range(2)] == [5_000, 50_000]
        now[0] += 49
        assert [(await task.get()).ttl_ms for _ in range(2)] == [1_000, LONGEST_MS]
        now[0] += LONGEST_MS / 1000
        with pytest.raises(McpError, match="unknown task"):
            await task.get()


MALFORMED: dict[str, tuple[dict[str, Any], Any]] = {
    "a created task": ({"first": created(status="odd")}, state()),
    "a state": ({}, state(status="odd")),
    "the state of another task": ({}, state(task_id="another")),
    "an outcome that is missing": ({}, state("completed")),
    "a question": ({}, state("input_required", inputRequests={"a": {"method": "elicitation/create"}})),
    "a question of another kind": ({}, state("input_required", inputRequests={"a": {"method": "tools/call"}})),
    "a question that is not an object": ({}, state("input_required", inputRequests={"a": 3})),
}


@pytest.mark.parametrize(("script", "told"), MALFORMED.values(), ids=MALFORMED)
async def test_what_the_upstream_breaks_is_not_handed_on(script: dict[str, Any], told: Any) -> None:
    async with scripted(told, **script) as (client, _):
        with pytest.raises(McpError, match="upstream server") as caught:
            task = await Tasks.of(client).start("x")
            await task.get()
        assert caught.value.code in (INTERNAL_ERROR, INVALID_PARAMS)
        assert ID not in str(caught.value)


async def test_errors_of_the_upstream_about_a_task_are_handed_on() -> None:
    async with scripted(ErrorData(INVALID_PARAMS, "it has expired"), failed(-31999)) as (client, _):
        task = await Tasks.of(client).start("x")
        with pytest.raises(McpError, match="it has expired"):
            await task.get()
        with pytest.raises(McpError) as caught:
            await task.result()
        assert caught.value.code == -31999


async def test_a_request_about_a_task_is_refused_before_the_upstream_gets_it() -> None:
    async with scripted(state()) as (client, upstream):
        task = await Tasks.of(client).start("x")
        bad: list[Any] = [None, [], {str(number): {} for number in range(101)}]
        for responses in bad:
            with pytest.raises(McpError, match="inputResponses"):
                await client.request("tasks/update", {"taskId": task.id, "inputResponses": responses})
        assert not upstream.of("tasks/update")


async def test_a_call_that_becomes_no_task_takes_no_more_steps_of_the_event_loop() -> None:
    studio = Studio()
    counted = []
    for proxy in (ProxyServer(studio.server), studio.proxy()):
        async with Client(proxy, extensions=[Tasks()]) as client:
            await client.call_tool("plain")
            counted.append(await steps_of(partial(client.call_tool, "plain")))
    assert counted[0] == counted[1]


async def steps_of(call: Callable[[], Any]) -> int:
    class Steps(trio.abc.Instrument):
        count = 0

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.count += 1

    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    try:
        await call()
    finally:
        trio.lowlevel.remove_instrument(steps)
    return steps.count


async def test_extensions_that_a_proxy_can_not_hand_on_are_refused() -> None:
    studio = Server("studio")
    bad: list[Any] = [{"com.example/x": {}}, [{"com.example/x": {}}], [object()], "tasks", [Tasks().server_side]]
    for extensions in bad:
        with pytest.raises(TypeError, match="extension"):
            ProxyServer(studio, extensions=extensions)
    tasks = Tasks()
    with pytest.raises(ValueError, match="given twice"):
        ProxyServer(studio, extensions=[tasks, tasks])
    with pytest.raises(ValueError, match="given twice"):
        ProxyServer(studio, extensions=[tasks], client={"extensions": [tasks]})
    async with Client(studio) as client:
        with pytest.raises(LocalProtocolError, match="made without the extension"):
            ProxyServer(client, extensions=[tasks])
