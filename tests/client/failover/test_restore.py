"""What a session had asked of its server holds after a switch, too."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from pydantic import BaseModel

from tests.client.failover.fakes import Broken, ExchangeWay, Way
from tests.client.failover.test_switch import BOTH, LEGACY, MODERN, connected, scene
from tests.waiting import eventually
from trio_mcp import (
    Answers,
    Client,
    Context,
    FailoverParameters,
    ResourceUpdated,
    Server,
    SessionOptions,
    ToolsListChanged,
)
from trio_mcp.jsonrpc.messages import Malformed, Request, TransportFailure
from trio_mcp.types import INVALID_REQUEST


class Form(BaseModel):
    got: str


async def take(events: Any, count: int) -> list[Any]:
    with trio.fail_after(60):
        return [await anext(events) for _ in range(count)]


@BOTH
@pytest.mark.parametrize("planned", [False, True])
async def test_subscriptions(mode: str, planned: bool, autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    first, second = made.ways
    server = first.server
    async with connected(made, mode, settle=1) as client:
        async with client.listen(tools_list_changed=True, resources=["shop://sign"]) as events:
            server.notify_resource_updated("shop://sign")
            assert await take(events, 1) == [ResourceUpdated("shop://sign")]
            first.down()
            await eventually(lambda: client.transport.carrier == "b")
            # What may have been missed is told.
            assert set(await take(events, 2)) == {ResourceUpdated("shop://sign"), ToolsListChanged()}
            if planned:
                first.accept()
                await eventually(lambda: client.transport.carrier == "a")
                await eventually(lambda: not second.open)
                await trio.sleep(1)
                while events.waiting:
                    await anext(events)
            for _ in range(2):
                server.notify_resource_updated("shop://sign")
                assert await take(events, 1) == [ResourceUpdated("shop://sign")]
        # The subscription has ended, and is not restored any more.
        await eventually(lambda: client.statistics().watched_resources == 0)
        assert client.statistics().subscription_requests == 0
        carrier = first if planned else second
        before, switches = len(carrier.passed), len(made.switches)
        carrier.cut()
        await eventually(lambda: len(made.switches) > switches)
        methods = {each.method for each in carrier.passed[before:] if isinstance(each, Request)}
        assert not {"resources/subscribe", "subscriptions/listen"} & methods


@pytest.mark.parametrize(
    "comes",
    [
        lambda request_id: TransportFailure(Broken("the connection broke"), request_id),
        lambda request_id: Malformed(INVALID_REQUEST, "half a response", request_id, expects_answer=False),
    ],
    ids=["failure", "malformed"],
)
async def test_a_subscription_that_has_moved_does_not_fail_with_its_old_exchange(
    comes: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """The exchange may break just as it is given up on the way that carried before."""
    made = scene()
    first = made.ways[0]
    second = made.ways[1] = ExchangeWay(first.server, "b")
    second.crossing = comes
    async with connected(made, MODERN, settle=1) as client:
        first.down()
        await eventually(lambda: client.transport.carrier == "b")
        async with client.listen(resources=["shop://sign"]) as events:
            first.accept()
            await eventually(lambda: client.transport.carrier == "a")
            await eventually(lambda: not second.open)
            while events.waiting:
                await anext(events)
            first.server.notify_resource_updated("shop://sign")
            assert await take(events, 1) == [ResourceUpdated("shop://sign")]


async def test_the_log_level_of_a_legacy_session(autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    async with connected(made) as client:
        await client.set_log_level("error")
        made.ways[0].down()
        await eventually(lambda: client.transport.carrier == "b")
        asked = [each for each in made.ways[1].passed if isinstance(each, Request)]
        assert [each.params for each in asked if each.method == "logging/setLevel"] == [{"level": "error"}]


async def test_a_question_of_the_server_is_cancelled_with_its_way(autojump_clock: trio.testing.MockClock) -> None:
    """It is asked anew by the call that is repeated, and the answer to the first goes nowhere."""
    made = scene()
    asked: list[str] = []

    @made.ways[0].server.tool(annotations={"readOnlyHint": True})
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", Form)
        return str(answer.action)

    async def respond(params: Any) -> Any:
        asked.append(params.message)
        try:
            if len(asked) == 1:
                await trio.sleep_forever()
        except trio.Cancelled:
            asked.append("cancelled")
            raise
        return {"got": "it"}

    async with Client(FailoverParameters(made.ways), mode=LEGACY, answers=Answers(elicitation=respond)) as client:
        await client.list_tools()
        results = []

        async def call() -> None:
            results.append((await client.call_tool("ask")).data)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await eventually(lambda: bool(asked))
            made.ways[0].down()
        assert results == ["accept"]
        assert sorted(asked) == ["Sure?", "Sure?", "cancelled"]
        assert client.session.statistics().incoming == 0


async def test_questions_of_two_ways_with_the_same_id(autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    release = trio.Event()
    asked: list[str] = []

    @made.ways[0].server.tool
    async def ask(text: str, ctx: Context) -> str:
        answer = await ctx.elicit(text, Form)
        return f"{text} {answer.data.got if answer.data else None}"

    async def respond(params: Any) -> Any:
        asked.append(params.message)
        await release.wait()
        return {"got": params.message}

    results = []
    async with Client(
        FailoverParameters(made.ways, settle=1), mode=LEGACY, answers=Answers(elicitation=respond)
    ) as client:

        async def call(text: str) -> None:
            results.append((await client.call_tool("ask", {"text": text})).data)

        made.ways[0].down()
        await eventually(lambda: client.transport.carrier == "b")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "old")
            await eventually(lambda: asked == ["old"])
            made.ways[0].accept()
            await eventually(lambda: client.transport.carrier == "a")
            nursery.start_soon(call, "new")
            await eventually(lambda: asked == ["old", "new"])
            release.set()
        assert sorted(results) == ["new new", "old old"]
        await eventually(lambda: made.ways[1].open == 0)


@BOTH
async def test_another_server_is_refused_and_reported_once(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    made.ways.append(Way(Server("bakery"), "c"))
    first, second, other = made.ways
    reports: list[str] = []
    options = SessionOptions(on_error=lambda error: reports.append(str(error)))
    async with Client(FailoverParameters([first, other, second]), mode=mode, options=options) as client:
        first.down()
        await eventually(lambda: client.transport.carrier == "b")
        await trio.sleep(60)
        assert (await client.call_tool("buy", {"text": "x"})).data == "x"
        assert client.transport.carrier == "b"
    assert len(reports) == 1
    assert "c can't carry the session: it leads to another server: 'bakery'" in reports[0]
    assert "instead of 'shop'" in reports[0]


async def test_another_revision_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    made.ways[1].server = Server("shop", revisions=[MODERN])
    reports: list[str] = []
    options = SessionOptions(on_error=lambda error: reports.append(str(error)))
    async with Client(made.ways, mode=LEGACY, options=options) as client:
        made.ways[0].cut()
        await eventually(lambda: made.ways[0].opened == 2)
        made.ways[0].down()
        await trio.sleep(10)
        assert client.transport.carrier is None
    assert len(reports) == 1
    assert "b can't carry the session: the server refused the session" in reports[0]
