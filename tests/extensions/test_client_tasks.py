"""The client's side of tasks (``io.modelcontextprotocol/tasks``)."""

from __future__ import annotations

import gc
import logging
from typing import Any

import pytest
import trio
import trio.testing

from tests.client.listening import end
from tests.client.scripted import scripted, sent
from tests.extensions.task_server import ASK, ID, completed, created, failed, needs, state, task_server
from tests.injection import cancel_everywhere
from tests.peer import settle
from trio_mcp import (
    Answers,
    Client,
    InputError,
    LocalProtocolError,
    McpError,
    RemoteProtocolError,
    RequestTimeout,
    SessionOptions,
    ToolError,
    ToolResult,
)
from trio_mcp.extensions import TaskCancelled, TaskExpired, Tasks, TaskState
from trio_mcp.extensions.tasks import following
from trio_mcp.extensions.tasks.client import followed_of
from trio_mcp.jsonrpc.messages import ErrorData
from trio_mcp.types import meta

NAME = {"action": "accept", "content": {"name": "Ada"}}
ADA = Answers(elicitation=lambda _: {"name": "Ada"})


# --- call_tool waits a task out -----------------------------------------------------------------------------------


async def test_a_call_that_becomes_a_task_returns_its_result(autojump_clock: trio.testing.MockClock) -> None:
    """Each request declares the extension, and each request about the task has its id."""
    async with task_server(state(), state(), completed()) as (client, server):
        result = await client.call_tool("render", {"scene": "dawn"})
    assert result.text == "done"
    for request in server.asked:
        assert (request.params or {})["_meta"][meta.CLIENT_CAPABILITIES]["extensions"] == {
            "io.modelcontextprotocol/tasks": {}
        }
    assert [sent(each) for each in server.of("tasks/get")] == [{"taskId": ID}] * 3
    assert server.of("tasks/cancel") == []


async def test_the_result_is_that_of_a_call_without_a_task(autojump_clock: trio.testing.MockClock) -> None:
    """It is checked against the output schema, and its value is read as the result_type."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools = [{"name": "x", "inputSchema": {"type": "object"}, "outputSchema": schema}]
    listed = {"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private"}
    async with task_server(completed(structuredContent={"n": 1})) as (client, server):
        server.peer.replies = (lambda old: lambda request: listed if request.method == "tools/list" else old(request))(
            server.peer.replies
        )
        assert (await client.call_tool("x", result_type=dict[str, int])).data == {"n": 1}
        server.states = [completed(structuredContent={"n": "one"})]
        with pytest.raises(RemoteProtocolError, match="breaks its own output schema"):
            await client.call_tool("x")
        task = await Tasks.of(client).start("x")
        with pytest.raises(RemoteProtocolError, match="breaks its own output schema"):
            await task.result()


ENDS: list[tuple[dict[str, Any], type[Exception], str]] = [
    (failed(-32050, "out of film"), McpError, "out of film"),
    (state("cancelled"), TaskCancelled, "the task was cancelled$"),
    (state("cancelled", statusMessage="by the owner"), TaskCancelled, "by the owner"),
]


@pytest.mark.parametrize(("end", "kind", "text"), ENDS)
async def test_a_task_that_does_not_complete_raises(
    autojump_clock: trio.testing.MockClock, end: Any, kind: type[Exception], text: str
) -> None:
    async with task_server(end) as (client, server):
        with pytest.raises(kind, match=text):
            await client.call_tool("x")
        task = await Tasks.of(client).start("x")
        with pytest.raises(kind, match=text):
            await task.result()
    assert server.of("tasks/cancel") == []


async def test_a_tool_that_failed_has_completed(autojump_clock: trio.testing.MockClock) -> None:
    """Task Status: a result with isError is a result."""
    async with task_server(completed(isError=True)) as (client, _):
        result = await client.call_tool("x", result_type=int)
        assert result.is_error
        with pytest.raises(ToolError):
            _ = result.data


# --- what is malformed --------------------------------------------------------------------------------------------

BAD_STATES: list[Any] = [
    {"resultType": "complete"},
    state("done"),
    state(taskId="other"),
    state(taskId=7),
    state("completed"),
    state("completed", result=[]),
    state("completed", result={"resultType": "task", "content": []}),
    state("completed", result={"resultType": "input_required", "content": []}),
    state("completed", result={}),
    state("failed"),
    state("failed", error={"code": "x", "message": "m"}),
    state("failed", error={"code": True, "message": "m"}),
    state("input_required"),
    state("input_required", inputRequests=[]),
    state("input_required", inputRequests={f"k{n}": ASK for n in range(33)}),
    state("input_required", inputRequests={"k": {"method": "tools/call"}}),
    state("input_required", inputRequests={"k": 1}),
    state(pollIntervalMs=-1),
    state(pollIntervalMs="1"),
    state(pollIntervalMs=True),
    state(ttlMs="x"),
    {name: value for name, value in state().items() if name != "ttlMs"},
    {name: value for name, value in state().items() if name != "createdAt"},
    {**state(), "resultType": "task"},
    {**state(), "resultType": 1},
]


@pytest.mark.parametrize("bad", BAD_STATES)
async def test_a_malformed_state_fails_the_call_without_naming_the_task(
    autojump_clock: trio.testing.MockClock, bad: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The id is a secret, and a task for which no caller waits is cancelled."""
    caplog.set_level(logging.DEBUG)
    async with task_server(bad, answers=ADA) as (client, server):
        with pytest.raises(RemoteProtocolError) as caught:
            await client.call_tool("x")
        await settle()
    assert ID not in str(caught.value)
    assert ID not in caplog.text
    assert len(server.of("tasks/cancel")) == (0 if bad.get("result") is not None and bad["result"] != [] else 1)


@pytest.mark.parametrize(
    "bad", [{"resultType": "task"}, created(taskId=None), created(status="x"), created(ttlMs=-1), created(taskId=1)]
)
async def test_a_malformed_task_fails_the_call(autojump_clock: trio.testing.MockClock, bad: Any) -> None:
    async with task_server(first=bad) as (client, server):
        with pytest.raises(RemoteProtocolError, match="malformed task"):
            await client.call_tool("x")
        with pytest.raises(RemoteProtocolError, match="malformed task"):
            await Tasks.of(client).start("x")
    assert server.of("tasks/get") == []


async def test_a_task_for_another_request_is_an_invalid_response(autojump_clock: trio.testing.MockClock) -> None:
    """Capability Negotiation: only tools/call may become a task."""
    async with task_server(capabilities={"tools": {}, "prompts": {}}) as (client, server):
        server.peer.replies = lambda request: created()
        with pytest.raises(RemoteProtocolError, match="must not have the resultType 'task'"):
            await client.get_prompt("p")


async def test_a_server_of_the_legacy_era_is_not_told_of_tasks(autojump_clock: trio.testing.MockClock) -> None:
    replies: Any = {"tools/call": {"content": []}}
    async with scripted(replies, capabilities={"tools": {}}, extensions=[Tasks()]) as (client, _, wire):
        assert "extensions" not in (wire.opening.params or {})["capabilities"]  # type: ignore[union-attr]
        await client.call_tool("x")
        task = await Tasks.of(client).start("x")
        assert task.id is None
        with pytest.raises(LocalProtocolError):
            await Tasks.of(client).task("1").get()


async def test_a_status_that_is_final_stays(autojump_clock: trio.testing.MockClock) -> None:
    async with task_server(completed()) as (client, server):
        task = await Tasks.of(client).start("x")
        await task.result()
        server.states = [state()]
        with pytest.raises(RemoteProtocolError, match="from 'completed', which is final, to 'working'"):
            await task.get()
        assert (await task.result()).text == "done"


# --- polling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "interval"),
    [
        (None, 1.0),
        (2500, 2.5),
        (0, following.SHORTEST_INTERVAL),
        pytest.param(10**400, following.LONGEST_INTERVAL, id="long"),
        (1500.5, 1.5005),
    ],
)
async def test_the_server_suggests_how_often_it_is_polled(
    autojump_clock: trio.testing.MockClock, stated: Any, interval: float
) -> None:
    """Task Polling; within bounds. The interval may change. A new task is polled without delay."""
    more = {} if stated is None else {"pollIntervalMs": stated}
    async with task_server(
        state(**more), state(**more), state(pollIntervalMs=100), completed(), first=created(**more)
    ) as (client, server):
        await client.call_tool("x")
    assert server.polled[0] == pytest.approx(0)
    gaps = [later - earlier for earlier, later in zip(server.polled, server.polled[1:], strict=False)]
    assert gaps == pytest.approx([interval, interval, 0.1])


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "input_required"])
async def test_a_task_that_is_created_in_another_status_is_looked_at_at_once(
    autojump_clock: trio.testing.MockClock, status: str
) -> None:
    async with task_server(completed(), first=created(status=status)) as (client, server):
        assert (await client.call_tool("x")).text == "done"
    assert server.polled == [0]


async def test_a_task_is_given_up_when_its_time_to_live_has_ended(autojump_clock: trio.testing.MockClock) -> None:
    """Task Polling: after createdAt plus ttlMs it may be considered no longer usable. The ttl may change."""
    async with task_server(state(ttlMs=5000), first=created(ttlMs=2000, pollIntervalMs=1500)) as (client, server):
        with pytest.raises(TaskExpired, match="5 seconds"):
            await client.call_tool("x")
        await settle()
    assert server.polled[-1] == pytest.approx(5.0)
    assert len(server.of("tasks/cancel")) == 1


async def test_the_last_look_may_find_the_result(autojump_clock: trio.testing.MockClock) -> None:
    states = [state(ttlMs=500), completed()]
    async with task_server(*states, first=created(ttlMs=500)) as (client, server):
        assert (await client.call_tool("x")).text == "done"
    assert server.polled == pytest.approx([0, 0.5])


# --- time limits and cancellation ---------------------------------------------------------------------------------


async def test_total_timeout_covers_the_task_and_cancels_it(autojump_clock: trio.testing.MockClock) -> None:
    async with task_server(state()) as (client, server):
        with pytest.raises(RequestTimeout, match="total_timeout"):
            await client.call_tool("x", total_timeout=3.5)
        assert trio.current_time() - server.began == pytest.approx(3.5)
        await settle()
        assert [sent(each) for each in server.of("tasks/cancel")] == [{"taskId": ID}]


async def test_timeout_applies_to_each_request(autojump_clock: trio.testing.MockClock) -> None:
    """It does not limit all requests together. A request without a response cancels the task."""
    async with task_server(*[state()] * 5, None) as (client, server):
        with pytest.raises(RequestTimeout):
            await client.call_tool("x", timeout=2)
        assert trio.current_time() - server.began == pytest.approx(7)
        await settle()
        assert len(server.of("tasks/cancel")) == 1


async def test_a_cancelled_call_hands_over_the_cancellation_and_leaves(autojump_clock: trio.testing.MockClock) -> None:
    """Even if the server never acknowledges it."""
    async with task_server(state(), cancelled=None) as (client, server):
        with trio.move_on_after(2.5):
            await client.call_tool("x")
        assert trio.current_time() - server.began == pytest.approx(2.5)
        await settle()
        assert len(server.of("tasks/cancel")) == 1
    assert trio.current_time() - server.began == pytest.approx(2.5)


async def test_a_call_that_is_cancelled_anywhere_leaves_no_task(autojump_clock: trio.testing.MockClock) -> None:
    """A task that the server has created is cancelled, or its result is returned; no request stays in flight."""
    async with task_server(state(), needs("a"), completed(), answers=ADA) as (client, server):
        ended: list[str] = []

        async def scenario() -> None:
            server.states = [state(), needs("a"), completed()]
            ended.append((await client.call_tool("x")).text)

        before = [0, 0]

        async def agrees() -> None:
            await settle()
            calls = len(server.of("tools/call"))
            over = len(server.of("tasks/cancel")) + len(ended)
            # A call that was cancelled before its response has arrived knows of no task.
            assert calls - over <= before[0] - before[1] + 1
            before[:] = [calls, over]
            assert client.statistics().session.outgoing == 0  # type: ignore[union-attr]

        await cancel_everywhere(scenario, agrees)
        assert {*ended} == {"done"}
        assert server.of("tasks/cancel")


async def test_a_handle_that_is_no_longer_waited_for_cancels_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with task_server(state()) as (client, server):
        task = await Tasks.of(client).start("x")
        with pytest.raises(RequestTimeout, match="total_timeout"):
            await task.result(total_timeout=2)
        with trio.move_on_after(2):
            await task.result()
        await settle()
        assert server.of("tasks/cancel") == []
        await task.cancel()
        assert [sent(each) for each in server.of("tasks/cancel")] == [{"taskId": ID}]


# --- questions ----------------------------------------------------------------------------------------------------


async def test_each_question_is_asked_once_and_answered_by_an_update(autojump_clock: trio.testing.MockClock) -> None:
    """Task Update Requests: a key that comes again in later polls is not asked again."""
    names = iter(["Ada", "Bob", "Cy"])
    answers = Answers(elicitation=lambda _: {"name": next(names)})
    states = [needs("a"), needs("a"), state(), needs("b", "c"), needs("c"), completed()]
    async with task_server(*states, answers=answers) as (client, server):
        assert (await client.call_tool("x")).text == "done"
    first, second = server.responses()
    assert first == {"a": {"action": "accept", "content": {"name": "Ada"}}}
    assert second.keys() == {"b", "c"}
    assert sent(server.of("tasks/update")[0])["taskId"] == ID


async def test_the_state_is_watched_while_a_question_is_asked(autojump_clock: trio.testing.MockClock) -> None:
    """No timeout includes the time in the callback. A task that ends meanwhile needs no answer."""

    async def slow(_: object) -> Any:
        await trio.sleep(100)
        return {"name": "Ada"}

    async with task_server(*[needs("a")] * 20, completed(), answers=Answers(elicitation=slow)) as (client, server):
        assert (await client.call_tool("x", timeout=5)).text == "done"
        assert trio.current_time() - server.began == pytest.approx(20)
    assert server.responses() == []


async def test_two_that_wait_for_one_task_ask_once_and_poll_once(autojump_clock: trio.testing.MockClock) -> None:
    asked: list[object] = []

    async def slow(params: object) -> Any:
        asked.append(params)
        await trio.sleep(3.5)
        return {"name": "Ada"}

    results: list[Any] = []
    async with task_server(*[needs("a")] * 6, completed(), answers=Answers(elicitation=slow)) as (client, server):
        task = await Tasks.of(client).start("x")
        other = Tasks.of(client).task(ID)

        async def wait(handle: Any) -> None:
            results.append(await handle.result())

        async def watch() -> None:
            results.extend([each.status async for each in task.watch()])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, task)
            nursery.start_soon(wait, other)
            nursery.start_soon(watch)
    assert len(asked) == 1
    assert len(server.responses()) == 1
    assert len(server.polled) == 7
    texts = [each.text for each in results if isinstance(each, ToolResult)]
    assert texts == ["done", "done"]
    assert [each for each in results if isinstance(each, str)] == ["working", "input_required", "completed"]


async def test_a_callback_that_fails_fails_the_wait_and_the_next_wait_asks_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tries = iter([ValueError("not now"), {"name": "Ada"}])

    def elicit(_: object) -> Any:
        answer = next(tries)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with task_server(needs("a"), needs("a"), completed(), answers=Answers(elicitation=elicit)) as (
        client,
        server,
    ):
        task = await Tasks.of(client).start("x")
        with pytest.raises(InputError, match="not now"):
            await task.result()
        assert server.of("tasks/update") == server.of("tasks/cancel") == []
        assert (await task.result()).text == "done"
    assert server.responses() == [{"a": NAME}]


async def test_answers_that_could_not_be_sent_are_sent_again_without_asking(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked: list[object] = []

    def elicit(params: object) -> dict[str, str]:
        asked.append(params)
        return {"name": "Ada"}

    answers = Answers(elicitation=elicit)
    refusals = iter([ErrorData(-32603, "not now"), {"resultType": "complete"}])
    async with task_server(needs("a"), needs("a"), completed(), answers=answers, update=lambda _: next(refusals)) as (
        client,
        server,
    ):
        task = await Tasks.of(client).start("x")
        with pytest.raises(McpError, match="not now"):
            await task.result()
        assert (await task.result()).text == "done"
    assert server.responses() == [{"a": NAME}, {"a": NAME}]
    assert len(asked) == 1


@pytest.mark.parametrize("stuck", [needs("a"), needs()])
async def test_a_task_that_needs_input_but_asks_nothing_new_is_given_up(
    autojump_clock: trio.testing.MockClock, stuck: Any
) -> None:
    async with task_server(stuck, answers=ADA) as (client, server):
        with pytest.raises(RemoteProtocolError, match="still needed input"):
            await client.call_tool("x")
        assert following.MAX_STUCK <= len(server.polled) <= following.MAX_STUCK + 2
        assert len(server.responses()) == len(stuck["inputRequests"])


async def test_a_task_that_asks_without_an_end_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    keys = iter(range(1000))
    async with task_server(lambda: needs(f"k{next(keys)}"), answers=ADA) as (client, server):
        with pytest.raises(RemoteProtocolError, match="max_input_rounds=10"):
            await client.call_tool("x")
    assert len(server.responses()) == 10


async def test_questions_before_the_task_are_ordinary_rounds(autojump_clock: trio.testing.MockClock) -> None:
    rounds = iter([{"resultType": "input_required", "inputRequests": {"q": ASK}, "requestState": "s"}, created()])
    async with task_server(completed(), first=lambda _: next(rounds), answers=ADA) as (client, server):
        task = await Tasks.of(client).start("x")
        assert task.id == ID
        assert (await task.result()).text == "done"
    assert sent(server.of("tools/call")[1])["inputResponses"] == {"q": NAME}


# --- listening ----------------------------------------------------------------------------------------------------


async def test_where_the_server_announces_changes_it_is_polled_slowly(autojump_clock: trio.testing.MockClock) -> None:
    async with task_server(state(), honors=True) as (client, server):
        results: list[Any] = []

        async def call() -> None:
            results.append(await client.call_tool("x"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await settle()
            assert sent(server.listens[0]) == {"notifications": {"taskIds": [ID]}}
            await server.acknowledge(taskIds=[ID])
            await trio.sleep(20)
            # Once because it is new, and once because the state may have changed before the acknowledgement.
            assert len(server.polled) == 2
            await server.announce(state(statusMessage="half"))
            await server.announce(completed("told"))
        assert trio.current_time() - server.began == pytest.approx(20)
        assert results[0].text == "told"
        await settle()
        assert [each.method for each in server.peer.heard] == ["notifications/cancelled"]  # listening has ended


async def test_a_lost_announcement_delays_only(autojump_clock: trio.testing.MockClock) -> None:
    async with task_server(state(), state(), completed(), honors=True) as (client, server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "x")
            await settle()
            await server.acknowledge(taskIds=[ID])
        assert trio.current_time() - server.began == pytest.approx(following.SLOW_INTERVAL)


@pytest.mark.parametrize("overtaken_by", ["an announcement", "the acknowledgement"])
async def test_a_poll_that_was_overtaken_is_soon_repeated(
    autojump_clock: trio.testing.MockClock, overtaken_by: str
) -> None:
    """Another process may have responded with an older state than that which was announced."""
    async with task_server(state(), lambda: None, completed(), honors=True) as (client, server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "x")
            await settle()
            if overtaken_by == "an announcement":
                await server.acknowledge(taskIds=[ID])
                await settle()
                await server.announce(state(statusMessage="half"))
            else:
                await trio.sleep(following.USUAL_INTERVAL)
                await settle()
                await server.acknowledge(taskIds=[ID])
            await settle()
            assert len(server.polled) == 2
            await server.peer.respond(server.of("tasks/get")[1], state())
        assert server.polled[2] == pytest.approx(server.polled[1] + following.SHORTEST_INTERVAL)


@pytest.mark.parametrize("offered", [{}, {"taskIds": []}, {"taskIds": ["other"]}, {"taskIds": ID}])
async def test_a_server_that_does_not_honor_the_filter_is_polled_and_not_asked_again(
    autojump_clock: trio.testing.MockClock, offered: Any
) -> None:
    async with task_server(state(), state(), completed(), honors=True) as (client, server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "x")
            await settle()
            await server.acknowledge(**offered)
        assert server.polled == pytest.approx([0, 1, 2])
        server.states = [completed()]
        await client.call_tool("x")
    assert len(server.listens) == 1


async def test_a_server_that_ends_the_stream_is_polled_and_listened_to_a_few_times(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with (
        task_server(*[state()] * 12, completed(), honors=True) as (client, server),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.call_tool, "x")
        for _ in range(following.MAX_ATTEMPTS_TO_HEAR):
            await trio.sleep(2.5)
            await server.acknowledge(taskIds=[ID])
            await settle()
            await server.peer.respond(server.listens[-1], end(server.listens[-1]))
    assert len(server.listens) == following.MAX_ATTEMPTS_TO_HEAR


async def test_a_server_that_never_acknowledges_is_polled(autojump_clock: trio.testing.MockClock) -> None:
    async with task_server(*[state()] * 30, completed(), honors=True) as (client, server):
        await client.call_tool("x")
        assert trio.current_time() - server.began == pytest.approx(30)
    assert len(server.listens) == 1


async def test_announcements_of_other_tasks_and_malformed_ones_harm_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    faults: list[str] = []
    options = SessionOptions(on_error=lambda error: faults.append(str(error)))
    async with (
        task_server(state(), honors=True, options=options) as (client, server),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.call_tool, "x")
        await settle()
        await server.acknowledge(taskIds=[ID])
        await server.announce(state(task_id="other"))
        await server.announce(state("done"))
        await server.announce({"status": "working"})
        await server.announce({"taskId": ID})
        await settle()
        await server.announce(completed())
        await server.announce(state())  # late: the task has ended
    assert len(faults) == 3
    assert not any(ID in text or "other" in text for text in faults)


async def test_a_watch_that_is_left_stops_to_listen_after_a_while(autojump_clock: trio.testing.MockClock) -> None:
    async with task_server(state(), honors=True) as (client, server):
        task = Tasks.of(client).task(ID)
        async for each in task.watch():
            assert each.status == "working"
            break
        await settle()
        await server.acknowledge(taskIds=[ID])
        await trio.sleep(2 * following.LINGER + 1)
        assert [each.method for each in server.peer.heard] == ["notifications/cancelled"]


# --- handles ------------------------------------------------------------------------------------------------------


async def test_a_watch_yields_the_states_that_differ_and_ends_with_the_final_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    states = [state(), state(), state(statusMessage="half"), needs("a"), completed()]
    async with task_server(*states) as (client, server):
        task = Tasks.of(client).task(ID)
        seen = [(each.status, each.status_message) async for each in task.watch()]
        assert seen == [("working", None), ("working", "half"), ("input_required", None), ("completed", None)]
        assert [each.status async for each in task.watch()] == ["completed"]
    assert server.polled == [0, 1, 2, 3, 4]
    assert server.responses() == []


async def test_a_task_is_found_again_by_its_id_in_another_connection(autojump_clock: trio.testing.MockClock) -> None:
    async with task_server() as (client, _):
        saved = (await Tasks.of(client).start("x")).id
    assert saved == ID
    async with task_server(completed(structuredContent={"result": 5})) as (client, server):
        task = Tasks.of(client).task(saved)
        result = await task.result(result_type=int)
        assert result.data == 5
        state_now = await task.get()
        assert isinstance(state_now, TaskState)
        assert server.of("tools/list") == []


async def test_a_result_at_once_makes_a_finished_handle(autojump_clock: trio.testing.MockClock) -> None:
    """A client must be prepared for a task and for a result (Capability Negotiation)."""
    content = {"resultType": "complete", "content": [{"type": "text", "text": "5"}]}
    async with task_server(first=content) as (client, server):
        task = await Tasks.of(client).start("x")
        assert task.id is None
        assert (await task.result(result_type=int)).data == 5
        assert [each async for each in task.watch()] == []
        await task.cancel()
        with pytest.raises(LocalProtocolError, match="no task"):
            await task.get()
    assert [each.method for each in server.asked] == ["tools/call"]


async def test_an_unknown_task_is_an_error_of_the_server(autojump_clock: trio.testing.MockClock) -> None:
    async with task_server(ErrorData(-32602, "no such task")) as (client, _):
        for call in ("get", "result"):
            with pytest.raises(McpError) as caught:
                await getattr(Tasks.of(client).task(ID), call)()
            assert caught.value.code == -32602


async def test_the_id_is_a_secret(autojump_clock: trio.testing.MockClock) -> None:
    async with task_server(state(), completed()) as (client, _):
        task = await Tasks.of(client).start("x")
        assert ID not in repr(task)
        assert ID not in repr(await task.get())
        assert "working" in repr(task)


async def test_a_client_keeps_nothing_of_tasks_without_a_handle(autojump_clock: trio.testing.MockClock) -> None:
    async with task_server(completed()) as (client, _):
        await client.call_tool("x")
        await settle()
        gc.collect()
        assert len(followed_of(client)) == 0


@pytest.mark.parametrize(("given", "kind"), [("", ValueError), (None, TypeError), (b"x", TypeError)])
async def test_an_id_is_a_string_with_something_in_it(
    autojump_clock: trio.testing.MockClock, given: Any, kind: type[Exception]
) -> None:
    async with task_server() as (client, _):
        with pytest.raises(kind, match="task_id"):
            Tasks.of(client).task(given)


def test_a_client_without_the_extension_has_no_tasks() -> None:
    with pytest.raises(LocalProtocolError, match=r"extensions=\[…\]"):
        Tasks.of(Client("http://localhost/mcp"))


async def test_a_missing_capability_surfaces(autojump_clock: trio.testing.MockClock) -> None:
    data: dict[str, Any] = {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    async with task_server(first=ErrorData(-32021, "missing", data)) as (client, _):
        with pytest.raises(McpError) as caught:
            await client.call_tool("x")
    assert (caught.value.code, caught.value.data) == (-32021, data)
