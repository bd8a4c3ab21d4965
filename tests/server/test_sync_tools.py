"""Sync tools run in threads, under a limit of their own: they delay no task, and no task waits for an abandoned one."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
import trio.testing

from tests.server.harness import LEGACY, MODERN, both_eras, client_of, every_revision, give_up, server_with
from trio_mcp import Context, FunctionOptions
from trio_mcp.server.base_server import core_of


class Gate:
    """Blocks real threads until it is opened, and counts them."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self._open = threading.Event()
        self._lock = threading.Lock()

    def block(self) -> str:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self._open.wait(60)
        with self._lock:
            self.inside -= 1
        return "through"

    def open(self) -> None:
        self._open.set()

    async def holds(self, count: int = 1) -> None:
        while self.inside < count:
            await trio.lowlevel.checkpoint()


@every_revision
async def test_blocked_sync_tools_do_not_delay_an_async_one(revision: str) -> None:
    """45 calls, more than there are threads for."""
    gate = Gate()

    async def quick() -> str:
        return "quick"

    results: list[Any] = []
    async with client_of(server_with(gate.block, quick), revision) as client:

        async def block() -> None:
            results.append((await client.call_tool("block")).content[0].text)

        async with trio.open_nursery() as nursery:
            for _ in range(45):
                nursery.start_soon(block)
            await gate.holds(40)
            assert (await client.call_tool("quick")).content[0].text == "quick"
            assert len((await client.list_tools()).tools) == 2
            assert results == []
            gate.open()
    assert results == ["through"] * 45
    assert gate.most == 40


async def test_max_sync_tools_is_the_limit_and_holds_across_clients() -> None:
    gate = Gate()
    server = server_with(gate.block, functions=FunctionOptions(max_sync_threads=3))
    async with client_of(server, MODERN) as one, client_of(server, LEGACY) as other, trio.open_nursery() as nursery:
        for client in (one, other) * 3:
            nursery.start_soon(client.call_tool, "block")
        await gate.holds(3)
        await trio.testing.wait_all_tasks_blocked()
        assert gate.inside == 3
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0  # that is the application's
        gate.open()
    assert gate.most == 3


@both_eras
async def test_cancelling_a_call_returns_at_once(revision: str) -> None:
    gate = Gate()
    server = server_with(gate.block, functions=FunctionOptions(max_sync_threads=1))
    server.add_tool(lambda: 1, name="next")
    async with client_of(server, revision) as client:
        await give_up(gate.holds, client.call_tool, "block")
        assert gate.inside == 1  # the thread can't be stopped
        assert (await client.list_tools()).tools
        await trio.testing.wait_all_tasks_blocked()
        assert core_of(server).settings.surroundings.threads.limiter.borrowed_tokens == 1
        gate.open()
        assert not (await client.call_tool("next")).is_error  # the thread's place is free again


def test_a_thread_left_behind_by_one_run_takes_no_place_in_the_next() -> None:
    """The token of a thread that outlives its run never comes back, so each run has its own limiter."""
    gate = Gate()
    server = server_with(gate.block, functions=FunctionOptions(max_sync_threads=1))
    server.add_tool(lambda: 1, name="one")

    async def leave_one_behind() -> None:
        async with client_of(server) as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "block")
            await gate.holds()
            nursery.cancel_scope.cancel()

    async def call_one() -> None:
        async with client_of(server) as client:
            assert not (await client.call_tool("one")).is_error

    trio.run(leave_one_behind)
    try:
        trio.run(call_one)
    finally:
        gate.open()


@both_eras
async def test_a_thread_can_check_whether_its_call_is_cancelled(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else tells it: progress after the cancellation goes nowhere, and what it raises is not heard."""
    reported, ended = trio.Event(), trio.Event()
    cancelled = threading.Event()

    def work(ctx: Context) -> None:
        try:
            trio.from_thread.run(ctx.report_progress, 1)
            trio.from_thread.run_sync(reported.set)
            assert cancelled.wait(60)
            trio.from_thread.run(ctx.report_progress, 2)
            trio.from_thread.check_cancelled()
        except trio.Cancelled:
            trio.from_thread.run_sync(ended.set)
            raise RuntimeError("unheard") from None

    server = server_with(work)
    async with client_of(server, revision) as client:
        await give_up(reported.wait, client.call_tool, "work")
        while server.statistics().running:
            await trio.lowlevel.checkpoint()
        cancelled.set()
        await ended.wait()
        await trio.testing.wait_all_tasks_blocked()
    assert not caplog.records
