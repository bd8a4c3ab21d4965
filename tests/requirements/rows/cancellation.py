"""``basic/patterns/cancellation``, until 2025-11-25 ``basic/utilities/cancellation``, from the server's side."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.peer import Peer
from tests.requirements.case import Case
from tests.requirements.model import LEGACY, MODERN, NotOverHttp, Topic
from trio_mcp import Context, RequestTimeout, Server
from trio_mcp.jsonrpc.messages import Response


def server() -> Server:
    made = Server("cancellation")
    ended: list[str] = []
    news = trio.Condition()

    @made.tool
    async def hold(ctx: Context, name: str = "it") -> None:
        """Report that it runs, and wait forever."""
        await ctx.report_progress(1)
        try:
            await trio.sleep_forever()
        except trio.Cancelled as exc:
            with trio.CancelScope(shield=True):
                async with news:
                    ended.append(f"{name}: {exc.reason}")
                    news.notify_all()
            raise

    @made.tool
    async def wait_for_end() -> str:
        """Return the name and reason of the next `hold` that ends."""
        async with news:
            while not ended:
                await news.wait()
            return ended.pop(0)

    @made.tool
    async def echo(text: str) -> str:
        """Give the text back."""
        return text

    return made


topic = Topic("Cancellation", server)

CALL = "tools/call"
FLOW = "basic/patterns/cancellation#cancellation-flow"
BEHAVIOUR = "basic/patterns/cancellation#behavior-requirements"
ERRORS = "basic/patterns/cancellation#error-handling"
NOTIFIED = NotOverHttp("what cancels a modern request over HTTP is the end of its response, not a notification", MODERN)
LEFT = NotOverHttp("the client's link leaves the response to a request that is cancelled, and would not see the answer")


async def running(hand: Any, name: str = "it", request_id: Any = None) -> Any:
    """Start `hold`, and give its id when it runs."""
    started = await hand.request(
        CALL, {"name": "hold", "arguments": {"name": name}}, request_id=request_id, progressToken=f"runs {name}"
    )
    await hand.hear("notifications/progress")
    return started


async def ended(hand: Any) -> Any:
    return (await hand.call("wait_for_end"))["content"][0]["text"]


@topic.row(FLOW, "A cancelled request stops, is told the reason, and is not answered.", not_over_http=NOTIFIED)
async def stops(hand: Peer) -> None:
    for reason in ("another request was faster", None, ["because"]):
        cancelled = await running(hand)
        await hand.cancel(cancelled, **({} if reason is None else {"reason": reason}))
        told = await ended(hand)
        assert told == f"it: {reason}" if isinstance(reason, str) else told.startswith("it: ")
        await hand.call("echo", {"text": "x"})
        assert cancelled not in hand.answered


@topic.row(BEHAVIOUR, "A cancellation stops the request that it names, and no other.", not_over_http=NOTIFIED)
async def no_other(hand: Peer) -> None:
    first, second = await running(hand, "first", request_id=5), await running(hand, "second", request_id="5")
    await hand.cancel(second)
    assert (await ended(hand)).startswith("second: ")
    await hand.cancel(first)
    assert (await ended(hand)).startswith("first: ")


@topic.row("basic/utilities/cancellation#behavior-requirements", "initialize can't be cancelled.", LEGACY, LEFT)
async def not_initialize(case: Case) -> None:
    async with case.greeting() as hand:
        request = await hand.request("initialize", hand.hello())
        await hand.cancel(request)
        assert isinstance(await hand.answer(request), Response)


@topic.row(
    ERRORS,
    "A cancellation without the valid id of a request in flight is ignored.",
    not_over_http=NOTIFIED,
)
async def of_nothing(hand: Peer) -> None:
    held = await running(hand)
    for params in ({"requestId": "unknown"}, {"reason": "just so"}, None, {"requestId": [1]}):
        await hand.notify("notifications/cancelled", params)
        await hand.call("echo", {"text": "x"})
    assert hand.answered >= hand.asked - {held}
    await hand.cancel(held)
    assert (await ended(hand)).startswith("it: ")


@topic.row(ERRORS, "A cancellation of an answered request is ignored.", not_over_http=NOTIFIED)
async def too_late(hand: Peer) -> None:
    done = await hand.request(CALL, {"name": "echo", "arguments": {"text": "x"}})
    await hand.answer(done)
    await hand.cancel(done)
    await hand.call("echo", {"text": "y"})
    assert hand.answered == hand.asked


@topic.row(ERRORS, "A second cancellation of one request is ignored.", not_over_http=NOTIFIED)
async def twice(hand: Peer) -> None:
    held = await running(hand)
    await hand.cancel(held)
    await hand.cancel(held)
    await ended(hand)
    await hand.call("echo", {"text": "y"})
    assert hand.answered == hand.asked - {held}


@topic.row(FLOW, "Cancelling a call in the client stops it on the server.")
async def scope(case: Case) -> None:
    async with case.client() as client, trio.open_nursery() as nursery:
        started = trio.Event()

        async def see(*_: Any) -> None:
            started.set()

        async def call() -> None:
            await client.call_tool("hold", on_progress=see)

        nursery.start_soon(call)
        await started.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            assert (await client.call_tool("wait_for_end")).text.startswith("it: ")


@topic.row("basic/patterns/cancellation#timeouts", "A request whose timeout has run out is cancelled on the server.")
async def timeout(case: Case) -> None:
    async with case.client() as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("hold", timeout=0.2)
        assert (await client.call_tool("wait_for_end")).text.startswith("it: ")


topic.held(
    """
    A request that is cancelled while it waits for its turn never starts.
        basic/patterns/cancellation#behavior-requirements peer.py::test_cancelling_a_queued_request
    A cancellation that crosses the response on its way is ignored.
        basic/patterns/cancellation#timing-considerations
        peer.py::test_a_cancellation_that_comes_after_the_answer_changes_nothing
    Messages that arrive late for a cancelled request are ignored.
        basic/patterns/cancellation#behavior-requirements
        peer.py::test_late_messages_for_a_cancelled_request_are_ignored
    A cancellation is sent only for a request that was sent and is not settled.
        basic/patterns/cancellation#behavior-requirements
        peer.py::test_cancelling_an_unsent_or_settled_request_sends_nothing
    """,
    tests="tests/protocol/test_",
)
