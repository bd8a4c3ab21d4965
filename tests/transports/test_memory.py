"""`memory_link_pair`: two links back to back."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
import trio
import trio.testing

from tests.injection import cancel_everywhere
from trio_mcp import TransportError
from trio_mcp.jsonrpc.messages import ErrorResponse, Incoming, Notification, Request, Response, TransportFailure
from trio_mcp.link import Link
from trio_mcp.low_level import SessionMessage, memory_link_pair

both = pytest.mark.parametrize("encode", [False, True], ids=["shared", "encoded"])
UNENCODABLE = {"half": "\ud800"}


async def pass_on(link: Link, message: Incoming) -> None:
    await link.write.send(SessionMessage(message))


async def take(link: Link) -> Any:
    return (await link.read.receive()).message


async def test_encoded_ends_share_no_objects() -> None:
    """With ``encode`` a change to what was sent does not show on the other side."""
    async with memory_link_pair(encode=True) as (ours, theirs):
        content = {"list": [1]}
        await pass_on(ours, Request(1, "m", content))
        content["list"].append(2)
        assert (await take(theirs)).params == {"list": [1]}


@both
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_closing_in_any_order_ends_both_ends(encode: bool, order: tuple[int, ...]) -> None:
    """However the four halves are closed, and twice, nothing hangs and leaving the block is clean."""
    with trio.fail_after(5):
        async with memory_link_pair(encode=encode) as (ours, theirs):
            halves = [ours.read, ours.write, theirs.read, theirs.write]
            for index in order:
                await halves[index].aclose()
                await halves[index].aclose()
            for link in (ours, theirs):
                with pytest.raises(trio.ClosedResourceError):
                    await link.read.receive()
                with pytest.raises(trio.ClosedResourceError):
                    await pass_on(link, Notification("late"))


@both
async def test_a_closed_reader_breaks_the_peers_writing(encode: bool) -> None:
    """The peer no longer reads: writing says so instead of filling a buffer."""
    async with memory_link_pair(encode=encode) as (ours, theirs):
        await theirs.read.aclose()
        with pytest.raises(trio.BrokenResourceError):
            await pass_on(ours, Notification("m"))


@both
async def test_leaving_the_block_wakes_every_waiting_task(encode: bool) -> None:
    """A reader or writer outside the block, even on a clone, does not wait forever once the block is left."""
    woken: list[str] = []

    async def wait(name: str, *operations: Any) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.EndOfChannel):
            for operation in operations:
                await operation()
        woken.append(name)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery, memory_link_pair(encode=encode) as (ours, _):
            nursery.start_soon(wait, "reader", ours.read.receive)
            full = [lambda: pass_on(ours, Notification("m"))] * 1000
            nursery.start_soon(wait, "writer", *full)
            await trio.testing.wait_all_tasks_blocked()
            assert not woken
    assert sorted(woken) == ["reader", "writer"]


@both
async def test_buffers_are_bounded(encode: bool) -> None:
    """A side that does not read makes the other wait."""
    sent = 0
    async with memory_link_pair(encode=encode) as (ours, _):
        with trio.move_on_after(0.05):
            while True:
                await pass_on(ours, Notification("m"))
                sent += 1
                assert sent < 1000
    assert sent > 0


@both
async def test_what_is_raised_in_the_block_leaves_it_as_the_very_object(encode: bool) -> None:
    error = RuntimeError("mine")
    with pytest.raises(RuntimeError) as caught:
        async with memory_link_pair(encode=encode):
            raise error
    assert caught.value is error


@both
async def test_sending_is_a_checkpoint(encode: bool) -> None:
    """Whatever becomes of the message: a loop of sends can be cancelled, and lets others run."""
    for message in (Notification("good"), Notification("bad", UNENCODABLE), Request(1, "bad", UNENCODABLE)):
        async with memory_link_pair(encode=encode) as (ours, _):
            with trio.testing.assert_checkpoints():
                await pass_on(ours, message)


@both
async def test_cancellation_at_every_step_leaves_both_ends_consistent(encode: bool) -> None:
    """A message whose sending was cancelled has not arrived; one that was sent has; both ends still work after it."""
    sent: list[int] = []
    received: list[int] = []
    problems: list[str] = []

    async def scenario() -> None:
        sent.clear()
        received.clear()
        async with memory_link_pair(encode=encode) as (ours, theirs):

            async def write() -> None:
                for number in range(3):
                    await pass_on(ours, Notification("n", {"n": number}))
                    sent.append(number)

            async def read() -> None:
                async for item in theirs.read:
                    received.append(item.message.params["n"])

            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read)
                    await write()
                    await ours.write.aclose()
            finally:
                with contextlib.suppress(trio.WouldBlock, trio.EndOfChannel):
                    while True:
                        received.append(theirs.read.receive_nowait().message.params["n"])  # type: ignore[attr-defined]
                if received != sent:
                    problems.append(f"sent {sent}, received {received}")
                with trio.CancelScope(shield=True):
                    await pass_on(theirs, Notification("after"))
                    assert await take(ours) == Notification("after")

    async def after() -> None:
        assert not problems

    assert await cancel_everywhere(scenario, after) > 5


async def test_what_cannot_be_encoded_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    """A request fails its own call, a result becomes an error response, a notification is logged; what follows arrives.

    The sender may have no reader any more: that must not end the link.
    """
    async with memory_link_pair(encode=True) as (ours, theirs):
        with pytest.raises(trio.WouldBlock):  # `send` reports it
            ours.write.send_nowait(SessionMessage(Request("x", "bad", UNENCODABLE)))  # type: ignore[attr-defined]
        await pass_on(ours, Request("x", "bad", UNENCODABLE))
        failure = await take(ours)
        assert isinstance(failure, TransportFailure)
        assert failure.request_id == "x"
        assert isinstance(failure.error, TransportError)
        await pass_on(ours, Response(7, UNENCODABLE))
        answer = await take(theirs)
        assert isinstance(answer, ErrorResponse)
        assert (answer.id, answer.error.code) == (7, -32603)
        caplog.clear()
        await pass_on(ours, Notification("bad", UNENCODABLE))
        await theirs.write.aclose()
        await pass_on(ours, Request(1, "bad", UNENCODABLE))
        await pass_on(ours, Notification("good"))
        assert await take(theirs) == Notification("good")
    assert "Notification was not sent" in caplog.records[0].getMessage()
