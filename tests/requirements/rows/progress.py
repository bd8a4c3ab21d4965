"""``basic/patterns/progress``, until 2025-11-25 ``basic/utilities/progress``, from the server's side."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from tests.requirements.case import Case
from tests.requirements.model import Topic, since
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


async def reports(case: Case, tool: str, token: Any, arguments: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """What is reported of one call until it is answered."""
    async with case.hand() as hand:
        result = await hand.call(tool, arguments, **({} if token is None else {"progressToken": token}))
        assert result["content"][0]["text"] == "done"
        return hand.heard_of(PROGRESS)


@topic.row(FLOW, "A request with a string as its progress token gets progress with that token.")
async def string_token(case: Case) -> None:
    found = await reports(case, "work", "a token", {"steps": 2})
    assert [each["progressToken"] for each in found] == ["a token"] * 2


@topic.row(FLOW, "A request with an integer as its progress token gets progress with that token.")
async def integer_token(case: Case) -> None:
    found = await reports(case, "work", 0, {"steps": 2})
    assert [each["progressToken"] for each in found] == [0, 0]
    assert all(type(each["progressToken"]) is int for each in found)


@topic.row("basic/patterns/progress#behavior-requirements", "A request without a progress token gets no progress.")
async def no_token(case: Case) -> None:
    assert await reports(case, "work", None, {"steps": 2}) == []


@topic.row(FLOW, "Progress grows from one notification to the next.")
async def grows(case: Case) -> None:
    found = await reports(case, "work", "t", {"steps": 5})
    assert [each["progress"] for each in found] == [1, 2, 3, 4, 5]


@topic.row(FLOW, "Progress may have a total.")
async def total(case: Case) -> None:
    found = await reports(case, "work", "t", {"steps": 3})
    assert [each["total"] for each in found] == [3, 3, 3]


@topic.row(FLOW, "Progress may have a message.", since("2025-03-26"))
async def message(case: Case) -> None:
    found = await reports(case, "work", "t", {"steps": 2})
    assert [each["message"] for each in found] == ["step 1", "step 2"]


@topic.row(FLOW, "Progress may be a fraction, and come without total or message.")
async def fractions(case: Case) -> None:
    found = await reports(case, "half", "t")
    assert found == [{"progressToken": "t", "progress": 0.25}, {"progressToken": "t", "progress": 0.5}]


@topic.row(
    "basic/patterns/progress#behavior-requirements", "Progress of two concurrent requests goes to the token of each."
)
async def two_at_once(case: Case) -> None:
    async with case.hand() as hand:
        first = await hand.request("tools/call", {"name": "work", "arguments": {"steps": 2}}, progressToken="first")
        second = await hand.request("tools/call", {"name": "work", "arguments": {"steps": 3}}, progressToken="second")
        await hand.answer(first)
        await hand.answer(second)
        tokens = [each["progressToken"] for each in hand.heard_of(PROGRESS)]
    assert (tokens.count("first"), tokens.count("second")) == (2, 3)


@topic.row("basic/patterns/progress#implementation-notes", "After the answer no progress is sent.")
async def none_after_the_answer(case: Case) -> None:
    async with case.hand() as hand:
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
    "tokens_are_unique",
    FLOW,
    "A session's progress tokens are unique among its requests.",
    "tests/protocol/test_peer.py::test_the_progress_token_is_the_id_and_goes_into_a_copy",
)
topic.held(
    "only_for_what_is_active",
    "basic/patterns/progress#behavior-requirements",
    "Progress that fits no request in flight is reported as a fault and otherwise ignored.",
    "tests/protocol/test_peer.py::test_progress_that_fits_no_request_is_a_fault",
)
