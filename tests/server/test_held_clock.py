"""Virtual time stands still while a sync function runs in its thread, so `autojump_clock` never jumps over one."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import AsyncIterator
from typing import Annotated

import pytest
import trio
import trio.testing

from tests.server.harness import both_eras, client_of, give_up
from trio_mcp import Context, Depends, FunctionOptions, RequestTimeout, Server
from trio_mcp.server.functions import held_clock

server = Server("shop", functions=FunctionOptions(max_sync_threads=2))


def work() -> str:
    time.sleep(0.002)  # real time, in which a jump of the clock would fail every deadline
    return "done"


def provided() -> str:
    return work()


@server.tool
def plain() -> str:
    return work()


@server.tool
def depending(it: Annotated[str, Depends(provided)]) -> str:
    return it


@server.tool
def telling(ctx: Context) -> str:
    for number in range(3):
        trio.from_thread.run(ctx.report_progress, number)
        work()
    trio.from_thread.run_sync(trio.lowlevel.current_task)
    return "done"


@server.resource("shop://stock")
def stock() -> str:
    return work()


@server.prompt
def greeting() -> str:
    return work()


@server.tool
def sleeper(seconds: float) -> float:
    began = trio.from_thread.run_sync(trio.current_time)
    work()
    trio.from_thread.run(trio.sleep, seconds)
    work()
    return trio.from_thread.run_sync(trio.current_time) - began


@server.tool
def stuck(ctx: Context) -> None:
    trio.from_thread.run(ctx.report_progress, 1)
    assert RELEASE.wait(60)


RELEASE = threading.Event()


@both_eras
async def test_the_clock_never_jumps_over_a_thread(revision: str, autojump_clock: trio.testing.MockClock) -> None:
    """Each call has a deadline of one second, which any jump would reach."""
    async with client_of(server, revision, timeout=1) as client:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(3):  # more than there are threads for
                for name in ("plain", "depending", "telling"):
                    nursery.start_soon(client.call_tool, name)
                nursery.start_soon(client.read_resource, "shop://stock")
                nursery.start_soon(client.get_prompt, "greeting")
        assert trio.current_time() == began
    assert autojump_clock.autojump_threshold == 0


@both_eras
async def test_a_thread_that_sleeps_in_the_event_loop_lets_time_pass(
    revision: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with client_of(server, revision) as client, trio.open_nursery() as nursery:

        async def sleep(seconds: float) -> None:
            assert (await client.call_tool("sleeper", {"seconds": seconds})).data == seconds

        for seconds in (10.0, 20.0):
            nursery.start_soon(sleep, seconds)
    assert autojump_clock.autojump_threshold == 0


async def in_a_thread() -> str:
    return await trio.to_thread.run_sync(work)


@contextlib.asynccontextmanager
async def lifespan(_: Server) -> AsyncIterator[str]:
    """As one that opens a database does."""
    yield await in_a_thread()
    await in_a_thread()


@both_eras
async def test_nor_over_a_thread_that_an_async_function_or_a_lifespan_starts(
    revision: str, autojump_clock: trio.testing.MockClock
) -> None:
    own = Server("own threads", lifespan=lifespan)

    @own.tool
    async def tool() -> str:
        return await in_a_thread()

    began = trio.current_time()
    async with client_of(own, revision, timeout=1) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(client.call_tool, "tool")
        # The test itself may start a thread, too.
        await in_a_thread()
        assert trio.current_time() == began
    assert autojump_clock.autojump_threshold == 0


async def test_time_passes_for_what_such_a_thread_waits_for_in_the_event_loop(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with client_of(server):
        began = trio.current_time()
        await trio.to_thread.run_sync(trio.from_thread.run, trio.sleep, 10)
        assert trio.current_time() == began + 10


async def test_an_abandoned_thread_holds_the_clock_until_it_ends(autojump_clock: trio.testing.MockClock) -> None:
    RELEASE.clear()
    async with client_of(server) as client:
        told = trio.Event()

        async def call() -> None:
            await client.call_tool("stuck", on_progress=lambda _: told.set())

        await give_up(told.wait, call)
        with trio.move_on_after(1) as scope:
            await trio.to_thread.run_sync(time.sleep, 0.01)
        assert not scope.cancel_called
        RELEASE.set()
        await trio.sleep(1)
    assert autojump_clock.autojump_threshold == 0


async def test_a_thread_that_is_stuck_is_jumped_over_in_the_end(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the test would hang, without a word on what it waited for."""
    monkeypatch.setattr(held_clock, "PATIENCE", 0.01)
    RELEASE.clear()
    async with client_of(server) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("stuck", timeout=1)
        RELEASE.set()


async def test_a_threshold_that_the_test_sets_meanwhile_stays(mock_clock: trio.testing.MockClock) -> None:
    mock_clock.autojump_threshold = 0
    RELEASE.clear()
    async with client_of(server) as client, trio.open_nursery() as nursery:
        told = trio.Event()
        nursery.start_soon(lambda: client.call_tool("stuck", on_progress=lambda _: told.set()))
        await told.wait()
        mock_clock.autojump_threshold = math.inf
        RELEASE.set()
    assert mock_clock.autojump_threshold == math.inf
