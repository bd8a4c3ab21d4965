"""Whatever its server sends, a client that waits for a task ends in time, and asks each question once."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings, strategies as st

from tests.effort import examples
from tests.extensions.task_server import ASK, completed, created, failed, needs, state, task_server
from trio_mcp import Answers, McpError, TrioMcpError
from trio_mcp.extensions import Tasks
from trio_mcp.jsonrpc.messages import ErrorData

TOTAL = 600.0

intervals = st.sampled_from([None, 0, 1, 1000, 10**9, 10**400, -1, "1", True])
lives = st.sampled_from([None, None, None, 0, 1, 5000, 10**400, "x"])
keys = st.sampled_from(["a", "b", "c"])


@st.composite
def states(draw: st.DrawFn) -> Any:
    """Draw a result of tasks/get, well-formed or not."""
    known = [
        state(),
        state("cancelled"),
        completed(),
        completed(isError=True),
        failed(),
        needs(*draw(st.sets(keys))),
        state("input_required", inputRequests={draw(keys): draw(st.sampled_from([ASK, {}, {"method": "x"}, 1]))}),
        state(draw(st.sampled_from(["done", "", "WORKING", 1, None]))),
        state(taskId="other"),
        {"resultType": "complete"},
        ErrorData(-32602, "no such task"),
    ]
    told = draw(st.sampled_from(known))
    if isinstance(told, dict) and "status" in told:
        interval = draw(intervals)
        told = {**told, "ttlMs": draw(lives)} if interval is None else {**told, "pollIntervalMs": interval}
    return told


@settings(max_examples=examples(300))
@given(
    told=st.lists(states(), min_size=1, max_size=12),
    update=st.sampled_from([{"resultType": "complete"}, ErrorData(-32603, "no"), {"resultType": "task"}]),
    slow=st.sampled_from([0.0, 0.5, 20.0]),
    by_hand=st.booleans(),
)
def test_a_wait_ends_and_each_question_is_asked_once(told: Any, update: Any, slow: float, by_hand: bool) -> None:
    asked: list[Any] = []

    async def elicit(params: object) -> Any:
        asked.append(params)
        await trio.sleep(slow)
        return {"name": "Ada"}

    async def main() -> None:
        answers = Answers(elicitation=elicit)
        async with task_server(*told, answers=answers, update=update, honors=None) as (client, server):
            began = trio.current_time()
            try:
                if by_hand:
                    task = await Tasks.of(client).start("x")
                    await task.result(total_timeout=TOTAL)
                else:
                    await client.call_tool("x", total_timeout=TOTAL)
            except (TrioMcpError, McpError):
                pass
            assert trio.current_time() - began <= TOTAL + 1
            # There are three keys, and each is asked once.
            assert len(asked) <= 3
            times = server.polled
            assert all(later - earlier >= 0.049 for earlier, later in itertools.pairwise(times) if not asked)
            sent = [key for responses in server.responses() for key in responses]
            assert len(sent) == len(set(sent))
            assert set(server.first) == set(created())

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("status", ["working", "completed", "cancelled", "failed", "input_required"])
async def test_a_task_that_is_created_and_forgotten_is_an_error(
    status: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Task Creation: tasks/get must find the task; if it does not, the client stops polling."""
    async with task_server(ErrorData(-32602, "no such task"), first=created(status=status)) as (client, server):
        with pytest.raises(McpError, match="no such task"):
            await client.call_tool("x")
        assert len(server.polled) == 1
