"""``basic/patterns/progress``, until 2025-11-25 ``basic/utilities/progress``, from the server's side."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from tests.peer import Peer
from tests.requirements.case import Case
from tests.requirements.model import Topic
from trio_mcp import Context, Server


def server() -> Server:
    made = Server("progress")

    @made.tool
    async def work(steps: int, ctx: Context) -> str:
        """Report each step."""
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps, f"step {step}")
        return "done"

    @made.tool
    async def half(ctx: Context) -> str:
        """Report fractions, and nothing else."""
        await ctx.report_progress(0.25)
        await ctx.report_progress(0.5)
        return "done"

    @made.tool
    async def linger(ctx: Context) -> str:
        """Leave a task behind that reports after the answer."""

        async def late() -> None:
            await trio.testing.wait_all_tasks_blocked()
            await ctx.report_progress(2)

        await ctx.report_progress(1)
        trio.lowlevel.spawn_system_task(late)
        return "done"

    return made


topic = Topic("Progress", server)

PROGRESS = "notifications/progress"
FLOW = "basic/patterns/progress#progress-flow"
BEHAVIOUR = "basic/patterns/progress#behavior-requirements"


@topic.row(FLOW, "Progress comes before the answer, grows, names the request's token and may have total and message.")
async def reported(case: Case) -> None:
    async with case.hand() as hand:
        for token in ("a token", 0):
            await hand.call("work", {"steps": 3}, progressToken=token)
            found = hand.heard_of(PROGRESS)
            hand.heard.clear()
            assert [each["progressToken"] for each in found] == [token] * 3
            assert {type(each["progressToken"]) for each in found} == {type(token)}
            assert [(each["progress"], each["total"]) for each in found] == [(1, 3), (2, 3), (3, 3)]
            messages = [each.get("message") for each in found]
            assert messages == ([None] * 3 if case.revision == "2024-11-05" else ["step 1", "step 2", "step 3"])


@topic.row(BEHAVIOUR, "A request without a progress token gets no progress.")
async def no_token(hand: Peer) -> None:
    await hand.call("work", {"steps": 2})
    assert hand.heard_of(PROGRESS) == []


@topic.row(FLOW, "Progress may be a fraction, and come without total or message.")
async def fractions(hand: Peer) -> None:
    await hand.call("half", progressToken="t")
    found = hand.heard_of(PROGRESS)
    assert found == [{"progressToken": "t", "progress": 0.25}, {"progressToken": "t", "progress": 0.5}]


@topic.row(BEHAVIOUR, "Progress of two concurrent requests goes to the token of each.")
async def two_at_once(hand: Peer) -> None:
    first = await hand.request("tools/call", {"name": "work", "arguments": {"steps": 2}}, progressToken="first")
    second = await hand.request("tools/call", {"name": "work", "arguments": {"steps": 3}}, progressToken="second")
    await hand.answer(first)
    await hand.answer(second)
    tokens = [each["progressToken"] for each in hand.heard_of(PROGRESS)]
    assert (tokens.count("first"), tokens.count("second")) == (2, 3)


@topic.row("basic/patterns/progress#implementation-notes", "After the answer no progress is sent.")
async def none_after_the_answer(hand: Peer) -> None:
    await hand.call("linger", progressToken="t")
    await hand.call("half")
    assert [each["progress"] for each in hand.heard_of(PROGRESS)] == [1]


@topic.row(FLOW, "A client's callback gets progress before the call returns.")
async def callback(case: Case) -> None:
    found: list[Any] = []

    async with case.client() as client:
        await client.call_tool("half", on_progress=lambda event: found.append(event.progress))
        assert found == [0.25, 0.5]


topic.held(
    """
    A session's progress tokens are unique among its requests.
        basic/patterns/progress#progress-flow the_progress_token_is_the_id_and_goes_into_a_copy
    Progress that fits no request in flight is reported as a fault and otherwise ignored.
        basic/patterns/progress#behavior-requirements progress_that_fits_no_request_is_a_fault
    """,
    tests="tests/protocol/test_peer.py::test_",
)
