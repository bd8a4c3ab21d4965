"""``timeout=`` of a tool: what its function may take, not counting the user's time."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import pytest
import trio
from trio.testing import MockClock

from tests.server.harness import LEGACY, MODERN, both_eras
from tests.server.input_harness import Name
from trio_mcp import Answers, Client, Context, Depends, Server, ToolError
from trio_mcp.client.tool_results import ToolResult

every_way = pytest.mark.parametrize(
    ("revision", "park"),
    [(LEGACY, False), (MODERN, False), (MODERN, True)],
    ids=["legacy", "replayed", "parked"],
)


async def answer(question: Any) -> dict[str, str]:
    await trio.sleep(100)
    return {"name": "Ann"}


async def called(
    function: Any, revision: str = MODERN, timeout: float | None = 5, park: bool = False, **arguments: Any
) -> tuple[ToolResult, float]:
    """Offer a function as a tool, call it, and return the result and how long it took."""
    server = Server("test")
    server.add_tool(function, name="x", timeout=timeout, park_input=park)
    async with Client(server, mode=revision, answers=Answers(elicitation=answer)) as client:
        started = trio.current_time()
        result = await client.call_tool("x", arguments)
        await trio.testing.wait_all_tasks_blocked()
        assert server.statistics().incoming == 0
        return result, trio.current_time() - started


GIVEN_UP = "the tool 'x' took longer than 5 s and was cancelled"


@both_eras
async def test_a_function_that_takes_longer_is_cancelled(revision: str, autojump_clock: MockClock) -> None:
    ends: list[str] = []

    async def slow(seconds: float) -> str:
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            ends.append("cancelled")
            raise
        return "done"

    result, took = await called(slow, revision, seconds=4.9)
    assert (result.text, took) == ("done", pytest.approx(4.9))
    result, took = await called(slow, revision, seconds=6)
    assert (result.text, result.is_error, took, ends) == (GIVEN_UP, True, pytest.approx(5), ["cancelled"])
    result, took = await called(slow, revision, None, seconds=200)
    assert (result.text, took) == ("done", pytest.approx(200))


@every_way
async def test_the_users_time_does_not_count(revision: str, park: bool, autojump_clock: MockClock) -> None:
    async def tool(before: float, after: float, ctx: Context) -> str:
        await ctx.once("before", trio.sleep, before)
        for _ in range(2):
            await ctx.elicit("Who?", Name)
        await trio.sleep(after)
        return "done"

    for before, after, text, took in [(4, 4, "done", 208), (6, 0, GIVEN_UP, 5), (1, 6, GIVEN_UP, 206)]:
        result, seconds = await called(tool, revision, park=park, before=before, after=after)
        assert (result.text, seconds) == (text, pytest.approx(took))


@every_way
async def test_a_task_that_asks_stops_the_time_of_all(revision: str, park: bool, autojump_clock: MockClock) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.gather(ctx.elicit("Who?", Name), ctx.elicit("Who else?", Name))
        return "done"

    result, seconds = await called(tool, revision, park=park)
    assert (result.text, seconds) == ("done", pytest.approx(100))


async def test_a_dependency_counts_and_cleans_up(autojump_clock: MockClock) -> None:
    ends: list[str] = []

    async def slow() -> Any:
        try:
            await trio.sleep(3)
            yield 1
        finally:
            ends.append("closed")

    async def tool(one: Annotated[int, Depends(slow)]) -> int:
        await trio.sleep(3)
        return one

    result, _ = await called(tool)
    assert (result.text, ends) == (GIVEN_UP, ["closed"])


async def test_a_thread_is_abandoned() -> None:
    release = threading.Event()

    def block() -> None:
        release.wait(30)

    try:
        result, _ = await called(block, timeout=0.01)
    finally:
        release.set()
    assert (result.text, result.is_error) == ("the tool 'x' took longer than 0.01 s and was cancelled", True)


async def test_what_a_function_raises_in_time_is_its_own(autojump_clock: MockClock) -> None:
    async def own_timeout() -> None:
        with trio.fail_after(1):
            await trio.sleep(2)

    async def told() -> None:
        raise ToolError("told")

    assert (await called(own_timeout))[0].text == "the tool 'x' failed"
    assert (await called(told))[0].text == "told"


async def test_a_cancelled_call_has_not_timed_out(autojump_clock: MockClock) -> None:
    with trio.move_on_after(3):
        await called(trio.sleep_forever)
    assert trio.current_time() == pytest.approx(3)


@pytest.mark.parametrize(("timeout", "error"), [(0, ValueError), (-1, ValueError), ("5", TypeError), (True, TypeError)])
def test_a_wrong_timeout_is_refused(timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="tool 'sleep_forever': timeout must be"):
        Server("test").add_tool(trio.sleep_forever, timeout=timeout)
