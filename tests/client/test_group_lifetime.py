"""The life of a group: servers that fail, come back, join and leave, each without the others."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.client.group_servers import AT_ONCE, CALCULATOR, NEVER, Flaky, Oops, Statuses, add
from tests.client.servers import make_server, say_nothing, script
from tests.forks import children
from tests.injection import cancel_after, cancel_everywhere
from tests.peer import played
from trio_mcp import (
    Backoff,
    CallOptions,
    ClientGroup,
    Context,
    LocalProtocolError,
    McpError,
    ProcessExited,
    RequestTimeout,
    Server,
    SessionClosed,
    SessionOptions,
    StdioServerParameters,
    TransportError,
    UnknownTool,
)
from trio_mcp.low_level import Link
from trio_mcp.statistics import ServerStatus
from trio_mcp.types import PromptReference


async def test_what_a_server_writes_to_standard_error_comes_with_its_name(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProcessExited, match="server 'git'"):
        async with ClientGroup({"git": StdioServerParameters("sh", ["-c", "echo no repository >&2"])}):
            pass
    assert capfd.readouterr().err == "[git] no repository\n"


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
    broken = Flaky(refusal=failure)
    silent = played(say_nothing)  # it must not hold up the error
    group = ClientGroup({"good": make_server(), "slow": silent, "broken": broken})
    with pytest.raises(type(failure)) as caught:
        async with group:
            raise AssertionError("entered")
    assert caught.value is failure
    assert "'broken'" in str(failure) + "".join(getattr(failure, "__notes__", ()))
    assert {status.state for status in group.status.values()} == {"closed"}


async def test_any_required() -> None:
    one, other = Flaky(refusal=Oops("no one")), Flaky()
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
        with pytest.raises(UnknownTool, match="the group has no tool 'b__add'"):
            await add(group, "b")
        await group.add("b", make_server())
        assert await add(group, "b") == 3
        assert await add(group, "a") == 3


async def test_adding_what_can_not_be_connected_to(autojump_clock: trio.testing.MockClock) -> None:
    broken = Flaky(refusal=Oops("no"))
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
    broken = Flaky(refusal=Oops("no"))
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


@pytest.mark.again
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


@pytest.mark.again
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


# --- a server that is lost and comes back ----------------------------------------------------------------------------


DYING = script("import os; os._exit(7)", after="die")


async def test_a_lost_server_comes_back_and_the_others_do_not_notice() -> None:
    flaky = Flaky()
    statuses = Statuses()
    servers = {"flaky": flaky, "good": make_server()}
    async with ClientGroup(servers, reconnect=AT_ONCE, on_status=statuses) as group:
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
    silent = played(say_nothing)
    async with ClientGroup({"a": silent, "b": make_server()}, require="none", max_wait=3) as group:
        started = trio.current_time()
        with pytest.raises(TransportError, match="server 'a': is not connected yet"):
            await add(group, "a")
        assert trio.current_time() - started == pytest.approx(3)
        with pytest.raises(McpError, match="because they are not connected: 'a'"):
            await group.read_resource("x://y")


SLOW_TO_CONNECT = SessionOptions(calls=CallOptions(connect_timeout=60))
"""Without this, a short time limit of all calls bounds connecting as well."""


@pytest.mark.parametrize(
    ("options", "limits", "waits"),
    [
        ({}, {"timeout": 1}, 1),
        ({}, {"total_timeout": 1}, 1),
        ({}, {"timeout": 2, "total_timeout": 1}, 1),
        ({}, {"timeout": 10}, 3),
        ({}, {"timeout": None}, 3),
        ({"timeout": 1, "options": SLOW_TO_CONNECT}, {}, 1),
        ({"options": SessionOptions(calls=CallOptions(timeout=1, connect_timeout=60))}, {}, 1),
        ({"timeout": 1, "options": SLOW_TO_CONNECT}, {"timeout": 2}, 2),
    ],
)
async def test_a_call_waits_no_longer_than_its_own_time_limit(
    options: Any, limits: Any, waits: float, autojump_clock: trio.testing.MockClock
) -> None:
    silent = played(say_nothing)
    async with ClientGroup({"a": silent}, require="none", max_wait=3, **options) as group:
        calls: list[Any] = [
            partial(group.call_tool, "a__add", {"a": 1, "b": 2}, **limits),
            partial(group.get_prompt, "a__x", **limits),
            partial(group.read_resource, "x://y", server="a", **limits),
        ]
        if not limits.keys() - {"timeout"}:
            reference = PromptReference(name="a__x")
            calls += [partial(group.complete, reference, "argument", **limits)]
        for call in calls:
            started = trio.current_time()
            with pytest.raises(TransportError, match="server 'a': is not connected yet"):
                await call()
            assert trio.current_time() - started == pytest.approx(waits)
        if not limits.keys() - {"timeout"}:
            started = trio.current_time()
            assert list((await group.list_tools(**limits)).errors) == ["a"]
            assert trio.current_time() - started == pytest.approx(waits)


async def test_nor_for_the_lists_in_which_it_looks_up_a_shortened_name(autojump_clock: trio.testing.MockClock) -> None:
    silent = played(say_nothing)
    shortened = ClientGroup({"a": silent}).join("a", "t" * 300)
    async with ClientGroup({"a": silent}, require="none", max_wait=3) as group:
        started = trio.current_time()
        with pytest.raises(UnknownTool):
            await group.call_tool(shortened, timeout=1)
        assert trio.current_time() - started == pytest.approx(1)


@pytest.mark.parametrize("limits", [{"timeout": 1}, {"total_timeout": 1}, {"timeout": None, "total_timeout": 1}])
async def test_nor_for_a_server_that_does_not_say_what_it_has(
    limits: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """For a URI or a shortened name all servers may be asked, and one of them may hang."""

    async def hang(context: Context, call_next: Any) -> Any:
        if context.method.endswith("/list"):
            await trio.sleep_forever()
        return await call_next()

    good, silent = make_server(), Server("silent", middleware=[hang])
    for server in (good, silent):
        server.resource("x://y" if server is good else "x://z", name="y")(lambda: "text")
        server.tool(trio.sleep_forever, name="t")
    shortened = ClientGroup({"b": silent}).join("b", "t" * 300)
    async with ClientGroup({"a": good, "b": silent}) as group:
        started = trio.current_time()
        assert (await group.read_resource("x://y", **limits)).contents
        assert trio.current_time() - started == pytest.approx(1)
        with pytest.raises(UnknownTool):
            await group.call_tool(shortened, **limits)
        assert trio.current_time() - started == pytest.approx(2)


async def test_what_a_call_has_waited_for_its_server_counts_in_its_total(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = make_server()

    @server.tool
    async def slow() -> None:
        await trio.sleep(100)

    late = Flaky(server, refusal=TransportError("not yet"))
    async with ClientGroup({"a": late}, require="none", reconnect=Backoff(first=2, jitter=0)) as group:
        await trio.testing.wait_all_tasks_blocked()
        late.refusal = None
        started = trio.current_time()
        with pytest.raises(RequestTimeout) as caught:
            await group.call_tool("a__slow", total_timeout=3)
        assert trio.current_time() - started == pytest.approx(3)
        assert caught.value.limit == "total_timeout"


async def test_a_server_that_comes_back_as_the_total_runs_out_is_a_timeout(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """As on a busy machine, where the call goes on a little after its server is there."""

    def late(name: str, status: ServerStatus) -> None:
        if status.state == "connected":
            autojump_clock.jump(5)

    server = make_server()
    server.tool(trio.sleep_forever, name="slow")
    flaky = Flaky(server, refusal=TransportError("not yet"))
    reconnect = Backoff(first=2, jitter=0)
    async with ClientGroup({"a": flaky}, require="none", reconnect=reconnect, on_status=late) as group:
        await trio.testing.wait_all_tasks_blocked()
        flaky.refusal = None
        with pytest.raises(RequestTimeout) as caught:
            await group.call_tool("a__slow", total_timeout=3)
        assert caught.value.limit == "total_timeout"


async def test_an_on_status_that_raises_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(name: str, status: ServerStatus) -> None:
        raise Oops

    async with ClientGroup({"a": make_server()}, on_status=fail) as group:
        assert await add(group, "a") == 3
    assert "on_status failed" in caplog.text


# --- processes ----------------------------------------------------------------------------------------------------


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
