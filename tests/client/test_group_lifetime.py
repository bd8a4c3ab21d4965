"""The life of a group: servers that fail, come back, join and leave, each without the others."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
import trio

from tests.client.group_servers import AT_ONCE, CALCULATOR, NEVER, Flaky, Oops, Statuses, add
from tests.client.servers import make_server
from tests.forks import children
from tests.injection import cancel_after, cancel_everywhere
from trio_mcp import (
    Backoff,
    ClientGroup,
    Link,
    LocalProtocolError,
    Server,
    ServerStatus,
    SessionClosed,
    TransportError,
)

# --- entering -----------------------------------------------------------------------------------------------------


async def test_servers_are_connected_to_at_the_same_time() -> None:
    waiting = 0
    all_there = trio.Event()

    @contextlib.asynccontextmanager
    async def meet(server: Server) -> AsyncIterator[None]:
        nonlocal waiting
        waiting += 1
        if waiting == 5:
            all_there.set()
        await all_there.wait()
        yield

    with trio.fail_after(10):
        async with ClientGroup({str(number): Server("x", lifespan=meet) for number in range(5)}) as group:
            assert {status.state for status in group.status.values()} == {"connected"}


@pytest.mark.parametrize("failure", [TransportError("not today"), Oops("not today")])
async def test_if_all_are_required_one_failure_fails_the_group(failure: Exception) -> None:
    broken = Flaky()
    broken.refusal = failure
    silent = trio.Event()  # a server that takes forever must not hold up the error

    @contextlib.asynccontextmanager
    async def slow() -> AsyncIterator[Link]:
        await silent.wait()
        raise AssertionError
        yield

    group = ClientGroup({"good": make_server(), "slow": slow, "broken": broken})
    with pytest.raises(type(failure)) as caught:
        async with group:
            raise AssertionError("entered")
    assert caught.value is failure
    assert "'broken'" in str(failure) + "".join(getattr(failure, "__notes__", ()))
    assert {status.state for status in group.status.values()} == {"closed"}


async def test_any_required() -> None:
    one, other = Flaky(), Flaky()
    one.refusal = Oops("no one")
    async with ClientGroup({"one": one, "other": other}, require="any", reconnect=NEVER) as group:
        assert (group.status["one"].state, group.status["other"].state) == ("failed", "connected")
    other.refusal = TransportError("no other")
    with pytest.raises(
        TransportError, match=r"any of the group's.*\n  'one': Oops: no one\n  'other': no other"
    ) as caught:
        async with ClientGroup({"one": one, "other": other}, require="any"):
            pass
    assert caught.value.server is None
    with pytest.raises(Oops, match="no one") as alone:
        async with ClientGroup({"one": one}, require="any"):
            pass
    assert alone.value.__notes__ == ["while connecting to the server 'one' of a group"]


async def test_none_required_does_not_wait_but_calls_do() -> None:
    go = trio.Event()

    @contextlib.asynccontextmanager
    async def later(server: Server) -> AsyncIterator[None]:
        await go.wait()
        yield

    server = Server("x", lifespan=later)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with ClientGroup({"a": server}, require="none") as group, trio.open_nursery() as nursery:
        assert group.status == {"a": ServerStatus("connecting")}
        assert group.clients == {}
        with pytest.raises(KeyError, match="is not connected yet"):
            group.clients["a"]
        sums: list[int] = []

        async def call() -> None:
            sums.append((await group.call_tool("a__add", {"a": 1, "b": 2})).data)

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        go.set()
    assert sums == [3]


# --- joining and leaving ------------------------------------------------------------------------------------------


async def test_adding_and_removing() -> None:
    async with ClientGroup({"a": make_server()}) as group:
        await group.add("b", make_server())
        assert await add(group, "b") == 3
        with pytest.raises(ValueError, match="there is already a server 'b' in the group"):
            await group.add("b", make_server())
        outcomes: list[str] = []

        async def call() -> None:
            with pytest.raises(SessionClosed) as caught:
                await group.call_tool("b__wait")
            outcomes.append(str(caught.value))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            await group.remove("b")
        assert outcomes == ["server 'b': the session was closed"]
        assert set(group.status) == {"a"}
        with pytest.raises(LocalProtocolError, match="the group has no tool 'b__add'"):
            await add(group, "b")
        await group.add("b", make_server())
        assert await add(group, "b") == 3
        assert await add(group, "a") == 3


async def test_adding_what_can_not_be_connected_to(autojump_clock: trio.testing.MockClock) -> None:
    broken = Flaky()
    broken.refusal = Oops("no")
    async with ClientGroup({"a": make_server()}) as group:
        with pytest.raises(Oops):
            await group.add("b", broken)
        assert set(group.status) == {"a"}
        assert await add(group, "a") == 3
        await trio.sleep(1000)
        assert len(broken.attempts) == 1  # it is not tried again
    async with ClientGroup({"a": make_server()}, require="any", reconnect=AT_ONCE) as group:
        await group.add("b", broken)
        assert group.status["b"].state == "failed"
        broken.refusal = None
        assert await add(group, "b") == 3


async def test_a_call_that_waits_for_a_server_which_is_removed() -> None:
    broken = Flaky()
    broken.refusal = Oops("no")
    statuses = Statuses()
    reconnect = Backoff(first=4, longest=60, jitter=0)
    async with ClientGroup({"a": broken}, require="none", reconnect=reconnect, on_status=statuses) as group:
        await statuses.until("a", "failed")
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def call() -> None:
                with pytest.raises(SessionClosed, match="server 'a': the connection is closed"):
                    await add(group, "a")

            await trio.testing.wait_all_tasks_blocked()
            await group.remove("a")


@pytest.mark.parametrize("way", ["leave", "remove"])
async def test_a_connection_is_closed_in_good_order(way: str) -> None:
    trail: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        await trio.lowlevel.checkpoint()
        trail.append("closed in order")

    async with ClientGroup({"a": Server("x", lifespan=lifespan)}) as group:
        if way == "remove":
            await group.remove("a")
            assert trail == ["closed in order"]
    assert trail == ["closed in order"]


@pytest.mark.parametrize("way", ["remove", "aclose"])
async def test_a_close_that_is_cancelled_waits_for_nothing(way: str) -> None:
    flaky = Flaky()

    @contextlib.asynccontextmanager
    async def never_closes() -> AsyncIterator[Link]:
        try:
            async with flaky() as link:
                yield link
                await trio.sleep_forever()
        finally:
            ended.set()

    ended = trio.Event()
    async with ClientGroup({"a": never_closes}) as group:
        with trio.CancelScope() as scope:
            scope.cancel()
            await (group.remove("a") if way == "remove" else group.aclose())
        assert scope.cancelled_caught
        with trio.fail_after(10):
            await ended.wait()


@pytest.mark.parametrize("error", [Oops("x"), ExceptionGroup("mine", [Oops("y")]), KeyboardInterrupt(), SystemExit(3)])
async def test_what_is_raised_in_the_block_leaves_it_as_the_very_object(error: BaseException) -> None:
    broken = Flaky()
    broken.refusal = Oops("no")
    with pytest.raises(type(error)) as caught:
        async with ClientGroup({"a": make_server(), "b": broken}, require="any") as group:
            await add(group, "a")
            raise error
    assert caught.value is error


async def test_closing_early_from_another_task_and_again() -> None:
    async with ClientGroup({"a": make_server(), "b": CALCULATOR}) as group:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.aclose)
        assert {status.state for status in group.status.values()} == {"closed"}
        with pytest.raises(SessionClosed):
            await add(group, "a")
        with pytest.raises(LocalProtocolError):
            await group.add("c", make_server())
        await group.aclose()
        await trio.lowlevel.checkpoint()  # the block itself was never cancelled
    await ClientGroup({}).aclose()


async def test_a_client_closed_by_hand_is_replaced() -> None:
    async with ClientGroup({"a": make_server()}, reconnect=AT_ONCE) as group:
        first = group.clients["a"]
        await first.aclose()
        assert await add(group, "a") == 3
        assert group.clients["a"] is not first


# --- cancellation -------------------------------------------------------------------------------------------------


async def test_a_cancellation_anywhere_leaves_nothing_running() -> None:
    servers = [make_server(), make_server(), make_server()]
    lone = Flaky()

    async def scenario() -> None:
        lone.refusal = Oops("no")
        async with ClientGroup(
            {"a": servers[0], "b": servers[1], "lone": lone}, require="any", reconnect=Backoff(first=1000, longest=1000)
        ) as group:
            await group.list_tools()
            await group.add("c", servers[2])
            await add(group, "c")
            await group.remove("b")

    async def check() -> None:
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == living

    await trio.testing.wait_all_tasks_blocked()
    living = trio.lowlevel.current_statistics().tasks_living
    assert await cancel_everywhere(scenario, check) >= 100


async def test_a_cancelled_add_or_remove_leaves_the_group_in_order() -> None:
    async with ClientGroup({"a": make_server()}, require="all") as group:
        for step in range(1, 60):

            async def come_and_go() -> None:
                await group.add("b", make_server())
                await group.remove("b")

            await cancel_after(step, come_and_go)
            if "b" in group.status:
                await group.remove("b")
            assert await add(group, "a") == 3
        await trio.testing.wait_all_tasks_blocked()
        assert set(group.status) == {"a"}


async def test_a_cancellation_leaves_no_process() -> None:
    async def scenario() -> None:
        async with ClientGroup({"a": CALCULATOR, "b": CALCULATOR}) as group:
            await group.list_tools()

    for step in [*range(1, 12), *range(12, 400, 29)]:
        cancelled = await cancel_after(step, scenario)
        assert children(recursive=True) == []
        if not cancelled:
            break
    assert not cancelled
