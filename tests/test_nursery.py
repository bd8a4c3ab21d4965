"""`background_nursery`: an implementation detail that nobody outside may notice."""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel

from trio_mcp._nursery import background_nursery


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
