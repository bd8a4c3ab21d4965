"""A server of a group that is lost and comes back: the others do not notice."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from tests.client.group_servers import AT_ONCE, CALCULATOR, NEVER, Flaky, Oops, Statuses, add
from tests.client.servers import make_server, script
from tests.forks import children
from tests.waiting import eventually
from trio_mcp import (
    Backoff,
    ClientGroup,
    Link,
    LocalProtocolError,
    ProcessExited,
    Server,
    ServerStatus,
    SessionClosed,
    TransportError,
    memory_link_pair,
)

DYING = script("import os; os._exit(7)", after="die")


async def test_a_lost_server_comes_back_and_the_others_do_not_notice() -> None:
    flaky = Flaky()
    statuses = Statuses()
    async with ClientGroup(
        {"flaky": flaky, "good": make_server()},
        reconnect=AT_ONCE,
        on_status=statuses,
    ) as group:
        lost: list[TransportError] = []

        async def wait_in_vain() -> None:
            with pytest.raises(TransportError, match="server 'flaky'") as caught:
                await group.call_tool("flaky__wait")
            lost.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait_in_vain)
            unharmed = trio.CancelScope()

            @nursery.start_soon
            async def go_on() -> None:
                with unharmed:
                    await group.call_tool("good__wait")

            await trio.testing.wait_all_tasks_blocked()
            flaky.cut()
            await statuses.until("flaky", "failed")
            assert await add(group, "good") == 3
            assert await add(group, "flaky") == 3  # waits until it is back
            unharmed.cancel()
        assert unharmed.cancelled_caught
        assert len(lost) == len({id(error) for error in lost}) == 3
        assert all(error.server == "flaky" for error in lost)
    assert [state for name, state in statuses.heard if name == "good"] == ["connecting", "connected", "closed"]
    assert [state for name, state in statuses.heard if name == "flaky"] == [
        *("connecting", "connected", "failed", "connecting", "connected", "closed")
    ]


async def test_a_server_that_comes_back_changed_is_listed_again() -> None:
    def with_resource() -> Server:
        server = Server("x")

        @server.resource("x://y")
        async def y() -> str:
            return "here"

        return server

    flaky = Flaky(with_resource())
    statuses = Statuses()
    async with ClientGroup({"flaky": flaky, "other": with_resource()}, reconnect=AT_ONCE, on_status=statuses) as group:
        with pytest.raises(LocalProtocolError, match="'flaky' and 'other' all have"):
            await group.read_resource("x://y")
        flaky.server = make_server()
        flaky.cut()
        await statuses.until("flaky", "failed")
        await statuses.until("flaky", "connected")
        assert (await group.read_resource("x://y")).contents


async def test_delays_grow_up_to_a_bound_and_a_call_raises_at_once_when_its_server_will_not_be_there_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    flaky = Flaky()
    reconnect = Backoff(first=1, factor=3, longest=20, jitter=0, attempts=None)
    statuses = Statuses()
    async with ClientGroup({"a": flaky}, reconnect=reconnect, max_wait=5, on_status=statuses) as group:
        flaky.refusal = TransportError("still away")
        flaky.cut()
        await statuses.until("a", "failed")
        lost_at = trio.current_time()
        await trio.sleep(70)
        assert [at - lost_at for at in flaky.attempts[1:]] == pytest.approx([1, 4, 13, 33, 53])
        started = trio.current_time()
        status = group.status["a"]
        assert status.retry_at == pytest.approx(lost_at + 73)
        await trio.sleep(status.retry_at - trio.current_time() + 0.5)  # type: ignore[operator]
        started = trio.current_time()
        with pytest.raises(TransportError, match=r"server 'a': is not connected; .*in 19\.5 s: still away") as caught:
            await add(group, "a")
        assert trio.current_time() == started
        assert caught.value.__cause__ is group.status["a"].cause
        listed = await group.list_tools()
        assert "still away" in str(listed.errors["a"])
        flaky.refusal = None
        await trio.sleep(16)
        assert await add(group, "a") == 3  # 3.5 seconds early, which is less than max_wait


async def test_a_long_connection_ends_a_row_of_failures(autojump_clock: trio.testing.MockClock) -> None:
    flaky = Flaky()
    reconnect = Backoff(first=1, factor=10, longest=100, jitter=0, attempts=None)
    statuses = Statuses()
    async with ClientGroup({"a": flaky}, reconnect=reconnect, on_status=statuses):
        delays: list[float] = []
        for lasted in (0, 50, 99, 100, 0):
            await trio.sleep(lasted)
            flaky.cut()
            status = await statuses.until("a", "failed")
            delays.append(status.retry_at - trio.current_time())  # type: ignore[operator]
            await statuses.until("a", "connected")
    assert delays == pytest.approx([1, 10, 100, 1, 10])


async def test_a_server_that_is_given_up_stays_failed(autojump_clock: trio.testing.MockClock) -> None:
    flaky = Flaky()
    statuses = Statuses()
    async with ClientGroup({"a": flaky}, reconnect=NEVER, on_status=statuses) as group:
        flaky.cut()
        status = await statuses.until("a", "failed")
        assert status.retry_at is None
        assert isinstance(status.cause, SessionClosed)
        started = trio.current_time()
        with pytest.raises(TransportError, match="will not be retried: the peer closed the link"):
            await add(group, "a")
        assert trio.current_time() == started
        await trio.sleep(1000)
        assert len(flaky.attempts) == 1


async def test_a_call_waits_no_longer_than_max_wait(autojump_clock: trio.testing.MockClock) -> None:
    @contextlib.asynccontextmanager
    async def silent() -> AsyncIterator[Link]:
        async with memory_link_pair() as (ours, _):
            yield ours

    async with ClientGroup({"a": silent, "b": make_server()}, require="none", max_wait=3) as group:
        started = trio.current_time()
        with pytest.raises(TransportError, match="server 'a': is not connected yet"):
            await add(group, "a")
        assert trio.current_time() - started == pytest.approx(3)
        with pytest.raises(LocalProtocolError, match="not connected, so not asked: 'a'"):
            await group.read_resource("x://y")


async def test_an_on_status_that_raises_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(name: str, status: ServerStatus) -> None:
        raise Oops

    async with ClientGroup({"a": make_server()}, on_status=fail) as group:
        assert await add(group, "a") == 3
    assert "on_status failed" in caplog.text


# --- processes ----------------------------------------------------------------------------------------------------


async def test_a_killed_process_comes_back_and_the_others_go_on() -> None:
    with trio.fail_after(60):
        async with ClientGroup({"a": CALCULATOR, "b": CALCULATOR}, reconnect=AT_ONCE, max_wait=30) as group:
            before = children()
            assert len(before) == 2
            statuses: list[str] = []

            async def call(server: str) -> None:
                try:
                    await group.call_tool(f"{server}__wait")
                except ProcessExited as exc:
                    statuses.append(f"{exc.server} {exc.returncode}")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, "a")
                nursery.start_soon(call, "b")
                await trio.testing.wait_all_tasks_blocked(0.05)
                before[0].kill()
                await eventually(lambda: statuses)
                nursery.cancel_scope.cancel()
            (hit,) = statuses
            lost, other = ("a", "b") if hit.startswith("a") else ("b", "a")
            assert hit == f"{lost} -9"
            assert group.status[other].state == "connected"
            assert await add(group, other) == 3
            assert await add(group, lost) == 3
            after = children()
            assert before[1] in after
            assert before[0] not in after
            assert len(after) == 2
    assert children() == []


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_file_with_two_servers_over_stdio(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    entry = {"command": "${PYTHON}", "args": ["-m", "trio_mcp.cli.demo_server"], "cwd": "${HERE:-.}"}
    servers = {"one": entry, "two": {**entry, "type": "stdio", "env": {"X": "1"}}, "three": {"disabled": True}}
    path.write_text(json.dumps({"mcpServers": servers}))
    async with ClientGroup.from_config(path, environ={"PYTHON": sys.executable}, mode=mode) as group:
        assert sorted(group.clients) == ["one", "two"]
        tools = await group.list_tools()
        assert {tool.name for tool in tools} >= {"one__add", "two__add"}
        assert (await add(group, "one"), await add(group, "two")) == (3, 3)
    assert children() == []


async def test_a_server_that_crashes_on_every_call_is_restarted_each_time() -> None:
    with trio.fail_after(60):
        async with ClientGroup({"a": DYING}, reconnect=AT_ONCE, max_wait=30) as group:
            for _ in range(3):
                with pytest.raises(ProcessExited, match=r"server 'a': .*exited with status 7"):
                    await group.call_tool("a__die")
