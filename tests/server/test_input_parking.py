"""Parked handlers: one task for all rounds, under one request at a time, and nothing left behind."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.injection import cancel_everywhere
from tests.server.harness import server_with
from tests.server.input_harness import EVERYTHING, MODERN, Name, Peer, accept, hand_client, text_of
from trio_mcp import Context, InputOptions, Server
from trio_mcp.low_level import memory_link_pair
from trio_mcp.server.base_server import core_of
from trio_mcp.server.run import Run
from trio_mcp.types.error_codes import INVALID_PARAMS, OVERLOADED


class Desk:
    """A server with one parked tool, and an account of what happens to it."""

    def __init__(self, **options: Any) -> None:
        self.events: list[str] = []
        self.entered = trio.Event()
        self.server = Server("test", **options)
        self.server.add_tool(self.tool, park_input=True)

    async def tool(self, ctx: Context, then: float = 0) -> str:
        self.events.append("start")
        try:
            answer = await ctx.elicit("Who?", Name)
            self.entered.set()
            await trio.sleep(then)
            return answer.data.name if answer.data else answer.action
        except trio.Cancelled:
            self.events.append("cancelled")
            raise
        finally:
            self.events.append("end")

    @property
    def parked(self) -> int:
        return self.server.statistics().parked


@contextlib.asynccontextmanager
async def link_to(run: Run) -> AsyncIterator[Peer]:
    """Open one more client of a run, as a later connection to the same process would be."""
    async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
        nursery.start_soon(run.serve_link, theirs)
        yield Peer(ours, MODERN, EVERYTHING)
        nursery.cancel_scope.cancel()


async def begin(client: Peer, **arguments: Any) -> dict[str, Any]:
    result = await client.ask("tools/call", {"name": "tool", "arguments": arguments})
    assert isinstance(result, dict), result
    assert result["resultType"] == "input_required"
    return result


def retry(asked: dict[str, Any], answer: Any = None, **arguments: Any) -> dict[str, Any]:
    responses = {"input-1": accept(name="Ann") if answer is None else answer}
    state = asked["requestState"]
    return {"name": "tool", "arguments": arguments, "requestState": state, "inputResponses": responses}


async def test_a_state_is_used_once_and_only_by_an_answer() -> None:
    desk = Desk()
    async with hand_client(desk.server) as client:
        asked = await begin(client)
        assert (await client.ask("tools/call", retry(asked, {"action": "maybe"}))).code == INVALID_PARAMS
        assert desk.parked == 1
        again = await client.ask("tools/call", {**retry(asked), "inputResponses": {}})
        assert again["inputRequests"] == asked["inputRequests"]
        assert again["requestState"] != asked["requestState"]
        assert text_of(await client.ask("tools/call", retry(again))) == "Ann"
        for state in (asked, again):
            refused = await client.ask("tools/call", retry(state))
            assert refused.code == INVALID_PARAMS
            assert "no handler is waiting for this requestState" in refused.message
    assert desk.events == ["start", "end"]


async def test_another_link_of_the_same_run_may_resume_and_another_run_asks_anew() -> None:
    desk = Desk(input=InputOptions(key=b"k" * 32))
    async with core_of(desk.server).open_run() as run:
        async with link_to(run) as first:
            asked = await begin(first)
        assert desk.events == ["start"]  # the client has disconnected, and the handler waits
        async with core_of(desk.server).open_run() as elsewhere, link_to(elsewhere) as stranger:
            anew = await stranger.ask("tools/call", retry(asked))
            assert anew["inputRequests"] == asked["inputRequests"]
            assert desk.events == ["start", "start"]
            assert text_of(await stranger.ask("tools/call", retry(anew))) == "Ann"
        async with link_to(run) as second:  # the first one waits on
            assert text_of(await second.ask("tools/call", retry(asked))) == "Ann"
    assert desk.events == ["start", "start", "end", "end"]


async def test_a_function_that_is_asked_anew_each_time_ends_with_its_rounds() -> None:
    """A client whose requests never reach the same process would otherwise start it again without an end."""
    desk = Desk(input=InputOptions(key=b"k" * 32, max_rounds=3))
    server = core_of(desk.server)
    async with server.open_run() as one, server.open_run() as two, link_to(one) as first, link_to(two) as second:
        asked = await begin(first)
        for client in (second, first):
            asked = await client.ask("tools/call", retry(asked))
        error = await second.ask("tools/call", retry(asked))
        assert "more than 3 rounds" in error.message


async def test_the_end_of_the_run_ends_what_is_parked() -> None:
    desk = Desk()
    async with core_of(desk.server).open_run() as run:
        async with link_to(run) as client:
            await begin(client)
        assert desk.parked == 1
    assert desk.events == ["start", "cancelled", "end"]
    assert desk.parked == 0


async def test_the_deadline_ends_what_is_parked(autojump_clock: MockClock) -> None:
    desk = Desk(input=InputOptions(ttl=60))
    async with core_of(desk.server).open_run() as run, link_to(run) as client:
        asked = await begin(client)
        await trio.sleep(59)
        assert desk.events == ["start"]
        await trio.sleep(2)
        assert desk.events == ["start", "cancelled", "end"]
        assert desk.parked == 0
        error = await client.ask("tools/call", retry(asked))
        assert "has expired" in error.message


async def test_a_resumed_handler_no_longer_has_a_deadline(autojump_clock: MockClock) -> None:
    desk = Desk(input=InputOptions(ttl=60))
    async with core_of(desk.server).open_run() as run, link_to(run) as client:
        asked = await begin(client, then=1000)
        assert text_of(await client.ask("tools/call", retry(asked, then=1000))) == "Ann"


async def test_too_many_parked_handlers_are_refused_before_they_start() -> None:
    desk = Desk(input=InputOptions(max_parked=2))
    async with hand_client(desk.server) as client:
        asked = await begin(client)
        await begin(client)
        error = await client.ask("tools/call", {"name": "tool", "arguments": {}})
        assert error.code == OVERLOADED
        assert desk.events == ["start", "start"]
        assert text_of(await client.ask("tools/call", retry(asked))) == "Ann"
        await begin(client)


@pytest.mark.parametrize("how", ["cancelled", "disconnected"])
async def test_the_end_of_a_live_request_cancels_its_handler(how: str) -> None:
    """As with any handler; and the handler has ended before the request's place is free."""
    desk = Desk()
    async with core_of(desk.server).open_run() as run:
        async with link_to(run) as client:
            asked = await begin(client, then=1e6)
            request = await client.request("tools/call", retry(asked, then=1e6))
            await desk.entered.wait()
            if how == "cancelled":
                await client.cancel(request, reason="enough")
                assert (await client.ask("tools/list", {}))["tools"]
                await trio.testing.wait_all_tasks_blocked()
                assert desk.events == ["start", "cancelled", "end"]
        assert desk.events == ["start", "cancelled", "end"]
        assert desk.parked == 0


async def test_questions_of_several_tasks_are_collected() -> None:

    async def tool(ctx: Context) -> str:
        found: dict[str, str] = {}

        async def ask(key: str) -> None:
            answer = await ctx.elicit(key, Name, key=key)
            found[key] = answer.data.name

        async with trio.open_nursery() as nursery:
            for key in "abc":
                nursery.start_soon(ask, key)
        return " ".join(found[key] for key in "abc")

    def answer(question: Any) -> Any:
        return accept(name=question.params["message"].upper())

    async with hand_client(server_with(tool, park_input=True), MODERN, answer) as client:
        assert text_of(await client.tool("tool")) == "A B C"


async def test_a_handler_that_gives_up_waiting_answers_the_request_that_comes_then(autojump_clock: MockClock) -> None:

    async def tool(ctx: Context) -> str:
        with trio.move_on_after(10):
            await ctx.elicit("Who?", Name)
        return "gave up"

    server = server_with(tool, park_input=True)

    async with core_of(server).open_run() as run, link_to(run) as client:
        asked = await begin(client)
        await trio.sleep(20)
        assert text_of(await client.ask("tools/call", retry(asked))) == "gave up"
        assert server.statistics().parked == 0


async def test_a_handler_that_fails_while_it_is_cancelled_does_no_harm(autojump_clock: MockClock) -> None:

    async def tool(ctx: Context) -> str:
        try:
            await ctx.elicit("Who?", Name)
        finally:
            raise ValueError("on the way out")

    server = server_with(tool, park_input=True, input=InputOptions(ttl=60))

    async with core_of(server).open_run() as run, link_to(run) as client:
        await begin(client)
        assert server.statistics().parked == 1
        await trio.sleep(61)
        assert server.statistics().parked == 0
        assert (await client.ask("tools/list", {}))["tools"]


async def test_a_parked_thread_is_unwound_at_the_deadline(autojump_clock: MockClock) -> None:
    unwound: list[str] = []
    left = trio.Event()

    def tool(ctx: Context) -> str:
        try:
            trio.from_thread.run(ctx.elicit, "Who?", Name)
        except Exception:
            unwound.append("swallowed")
        except BaseException as exc:
            unwound.append(type(exc).__name__)
            trio.from_thread.run_sync(left.set)
            raise
        return "?"

    server = server_with(tool, park_input=True, input=InputOptions(ttl=60))

    async with core_of(server).open_run() as run, link_to(run) as client:
        await begin(client)
        await trio.sleep(61)
        assert server.statistics().parked == 0
        await left.wait()
    assert unwound == ["RoundEnded"]


async def test_cancelling_the_request_anywhere_leaves_nothing_in_the_run(autojump_clock: MockClock) -> None:
    """The client cancels each of the two requests, at each step: the run lives on, with nothing parked for good."""
    desk = Desk(input=InputOptions(ttl=60))
    async with core_of(desk.server).open_run() as run:

        async def scenario() -> None:
            async with link_to(run) as client:
                asked = await begin(client)
                assert text_of(await client.ask("tools/call", retry(asked))) == "Ann"

        async def check() -> None:
            await trio.testing.wait_all_tasks_blocked()
            # A handler with an open question is parked until its deadline; one under a request would have none.
            assert desk.events.count("start") - desk.events.count("end") == desk.parked
            await trio.sleep(61)
            assert desk.parked == 0
            assert desk.events.count("start") == desk.events.count("end")
            desk.events.clear()

        assert await cancel_everywhere(scenario, check) > 20
        assert not [task.name for task in run.nursery.child_tasks if task.name.startswith("parked")]
