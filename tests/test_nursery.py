"""`background_nursery`: an implementation detail that its users must not notice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import trio
import trio.lowlevel
import trio.testing

from tests.interruptions import interrupt
from trio_mcp import Client, Server
from trio_mcp._nursery import background_nursery, closing
from trio_mcp.jsonrpc.messages import SessionMessage
from trio_mcp.low_level import BaseSession


class Oops(Exception):
    pass


@pytest.mark.parametrize("error", [Oops(), ExceptionGroup("mine", [Oops()]), KeyboardInterrupt()])
async def test_the_blocks_exception_leaves_as_the_very_object(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        async with background_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise error
    assert caught.value is error


async def test_a_background_failure_leaves_the_block_unwrapped() -> None:
    async def fail() -> None:
        raise Oops

    with pytest.raises(Oops):
        async with background_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()


async def test_two_failures_leave_as_a_group() -> None:
    async def fail_on_the_way_out() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ZeroDivisionError

    with pytest.RaisesGroup(Oops, ZeroDivisionError):
        async with background_nursery() as nursery:
            nursery.start_soon(fail_on_the_way_out)
            await trio.testing.wait_all_tasks_blocked()
            raise Oops


async def test_ctrl_c_in_a_background_task_leaves_as_itself() -> None:
    """Not wrapped in the exception groups of the nurseries it crosses: callers catch a `KeyboardInterrupt`."""
    raised = KeyboardInterrupt()

    async def press() -> None:
        async with trio.open_nursery():
            raise raised

    with pytest.raises(KeyboardInterrupt) as caught:
        async with background_nursery() as nursery:
            nursery.start_soon(press)
            try:
                await trio.sleep_forever()
            finally:
                raise Oops
    assert caught.value is raised
    assert isinstance(raised.__cause__, BaseExceptionGroup)
    assert raised.__cause__.subgroup(Oops) is not None


async def test_cancelling_the_nursery_itself_ends_its_block_and_nothing_else() -> None:
    async with background_nursery() as nursery:
        nursery.cancel_scope.cancel()
        await trio.sleep_forever()
    await trio.lowlevel.checkpoint()


async def test_an_outer_cancellation_reaches_its_scope() -> None:
    with trio.CancelScope() as scope:
        async with background_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_what_closes_runs_before_the_background_tasks_end_and_replaces_nothing() -> None:
    order: list[str] = []

    async def background() -> None:
        try:
            await trio.sleep_forever()
        finally:
            order.append("background ends")

    async def close() -> None:
        order.append("close")
        raise ZeroDivisionError

    error = Oops()
    with pytest.raises(Oops) as caught:
        async with background_nursery(close) as nursery:
            nursery.start_soon(background)
            await trio.testing.wait_all_tasks_blocked()
            raise error
    assert caught.value is error
    assert order == ["close", "background ends"]


async def test_a_cancelled_close_does_not_hide_the_blocks_exception() -> None:
    error = Oops()
    with trio.CancelScope() as scope:
        with pytest.raises(Oops) as caught:
            async with background_nursery(trio.lowlevel.checkpoint):
                scope.cancel()
                raise error
        assert caught.value is error


INTERRUPTIONS = [KeyboardInterrupt, SystemExit, lambda: BaseExceptionGroup("", [KeyboardInterrupt(), ValueError()])]
ENDS = ["nothing", "an exception", "a group", "a timeout"]


async def leave(end: str, error: Exception) -> None:
    """Leave the block in this way."""
    if end == "a timeout":
        await trio.sleep_forever()
    elif end == "a group":
        raise ExceptionGroup("mine", [error])
    elif end == "an exception":
        raise error


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("interruption", INTERRUPTIONS)
async def test_what_interrupts_the_close_leaves(
    interruption: Callable[[], BaseException], end: str, autojump_clock: trio.testing.MockClock
) -> None:
    raised = interruption()
    error = Oops()

    async def close() -> None:
        raise raised

    for block in (background_nursery, closing):
        with trio.move_on_after(1), pytest.raises(type(raised)) as caught:  # a scope rebuilds groups
            async with block(close):
                await leave(end, error)
        assert caught.value is raised
        if end.startswith("a"):  # nothing is lost: the traceback has both
            assert raised.__context__ is not None


@pytest.mark.parametrize("block", [background_nursery, closing])
async def test_a_close_that_fails_in_a_cancelled_block_says_so(
    block: Callable[..., contextlib.AbstractAsyncContextManager[object]], autojump_clock: trio.testing.MockClock
) -> None:
    async def close() -> None:
        raise Oops

    with pytest.raises(Oops), trio.move_on_after(1):
        async with block(close):
            await trio.sleep_forever()


@pytest.mark.parametrize("block", [background_nursery, closing])
async def test_a_close_that_fails_after_an_exception_is_logged(
    block: Callable[..., contextlib.AbstractAsyncContextManager[object]], caplog: pytest.LogCaptureFixture
) -> None:
    error, failure = Oops(), ZeroDivisionError()

    async def close() -> None:
        raise failure

    with pytest.raises(Oops) as caught:
        async with block(close):
            raise error
    assert caught.value is error
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is failure


async def test_an_interruption_outlives_a_close_that_is_cancelled() -> None:
    with pytest.raises(KeyboardInterrupt), trio.CancelScope() as scope:
        async with closing(trio.lowlevel.checkpoint):
            scope.cancel()
            raise KeyboardInterrupt


@pytest.mark.parametrize("end", ENDS)
def test_ctrl_c_while_a_client_closes(end: str) -> None:
    error = Oops()

    async def main() -> None:
        with trio.move_on_after(1):
            async with Client(Server("s")):
                try:
                    await leave(end, error)
                finally:
                    interrupt()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


class Unread(trio.abc.SendChannel[SessionMessage]):
    """A link's sending half that takes nothing, and is cancelled while it closes."""

    def __init__(self) -> None:
        self.closing = trio.CancelScope()

    async def send(self, value: SessionMessage) -> None:
        await trio.sleep_forever()

    async def aclose(self) -> None:
        self.closing.cancel()
        await trio.lowlevel.checkpoint()


def test_ctrl_c_while_a_session_flushes_outlives_the_cancelled_close_of_its_link() -> None:
    write = Unread()

    async def main() -> None:
        _, read = trio.open_memory_channel[SessionMessage](1)
        async with BaseSession(read, write) as session, trio.open_nursery() as nursery:
            await session.send_notification("notifications/message", {})
            nursery.start_soon(press)
            with pytest.raises(KeyboardInterrupt), write.closing:
                await session.aclose()

    async def press() -> None:
        await trio.testing.wait_all_tasks_blocked()
        interrupt()

    trio.run(main)
