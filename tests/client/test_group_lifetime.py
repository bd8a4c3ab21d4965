"""The life of a group: servers that fail, come back, join and leave, each without the others."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from tests.client.servers import make_server, script
from tests.injection import cancel_after, cancel_everywhere
from trio_mcp import (
    ClientGroup,
    Link,
    LocalProtocolError,
    ProcessExited,
    Reconnect,
    Server,
    SessionClosed,
    StdioServerParameters,
    TransportError,
    memory_link_pair,
)
from trio_mcp._nursery import background_nursery
from trio_mcp.client import ServerStatus

CALCULATOR = StdioServerParameters(sys.executable, ["-m", "trio_mcp.cli.demo_server"], stderr="discard")
DYING = script("import os; os._exit(7)", after="die")
AT_ONCE = Reconnect(delay=0.01, max_delay=0.02)
NEVER = Reconnect(attempts=0)


class Oops(Exception):
    pass


class Flaky:
    """A server in memory whose connection can be cut, and that can refuse to be connected to."""

    def __init__(self, server: Server | None = None) -> None:
        self.server = server or make_server()
        self.refusal: Exception | None = None
        self.attempts: list[float] = []
        self.cut: Callable[[], object] = lambda: None

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Link]:
        self.attempts.append(trio.current_time())
        if self.refusal is not None:
            raise self.refusal
        async with memory_link_pair() as (ours, theirs), background_nursery() as nursery:
            await nursery.start(self.server.serve, theirs)
            self.cut = lambda: (theirs.read.close(), theirs.write.close())  # type: ignore[attr-defined]
            yield ours


async def until(group: ClientGroup, server: str, state: str) -> ServerStatus:
    """Wait until a server of a group is in a state."""
    while group.status[server].state != state:
        await group._changed.park()
    return group.status[server]


async def add(group: ClientGroup, server: str) -> int:
    value: int = (await group.call_tool(f"{server}__add", {"a": 1, "b": 2})).data
    return value


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
async def test_all_required_and_one_fails(failure: Exception) -> None:
    broken = Flaky()
    broken.refusal = failure
    silent = trio.Event()  # a server that takes for ever must not hold up the error

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
    with pytest.raises(TransportError, match=r"none of.*\n  'one': Oops: no one\n  'other': no other") as caught:
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


# --- losing and coming back ---------------------------------------------------------------------------------------


async def test_a_lost_server_comes_back_and_the_others_do_not_notice() -> None:
    flaky = Flaky()
    heard: list[tuple[str, str]] = []
    async with ClientGroup(
        {"flaky": flaky, "good": make_server()},
        reconnect=AT_ONCE,
        on_status=lambda name, status: heard.append((name, status.state)),
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
            await until(group, "flaky", "failed")
            assert await add(group, "good") == 3
            assert await add(group, "flaky") == 3  # waits until it is back
            unharmed.cancel()
        assert unharmed.cancelled_caught
        assert len(lost) == len({id(error) for error in lost}) == 3
        assert all(error.server == "flaky" for error in lost)
    assert [state for name, state in heard if name == "good"] == ["connecting", "connected", "closed"]
    assert [state for name, state in heard if name == "flaky"] == [
        *("connecting", "connected", "failed", "connecting", "connected", "closed")
    ]


async def test_delays_grow_up_to_a_bound_and_a_call_raises_at_once_when_its_server_will_not_be_there_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    flaky = Flaky()
    reconnect = Reconnect(delay=1, factor=3, max_delay=20, jitter=0)
    async with ClientGroup({"a": flaky}, reconnect=reconnect, max_wait=5) as group:
        flaky.refusal = TransportError("still away")
        flaky.cut()
        await until(group, "a", "failed")
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
    reconnect = Reconnect(delay=1, factor=10, max_delay=100, jitter=0)
    async with ClientGroup({"a": flaky}, reconnect=reconnect) as group:
        delays: list[float] = []
        for lasted in (0, 50, 99, 100, 0):
            await trio.sleep(lasted)
            flaky.cut()
            status = await until(group, "a", "failed")
            delays.append(status.retry_at - trio.current_time())  # type: ignore[operator]
            await until(group, "a", "connected")
    assert delays == pytest.approx([1, 10, 100, 1, 10])


async def test_delays_are_jittered_within_their_bounds() -> None:
    reconnect = Reconnect(delay=2, factor=2, max_delay=60, jitter=0.25)
    for failures, longest in ((1, 2), (2, 4), (3, 8), (6, 60), (10**9, 60)):
        delays = [reconnect.delay_after(failures) or 0 for _ in range(100)]
        assert all(longest * 0.75 <= delay <= longest for delay in delays)
        assert len(set(delays)) > 50
    assert Reconnect(attempts=2).delay_after(3) is None
    assert Reconnect(attempts=2).delay_after(2) is not None


@pytest.mark.parametrize(
    "bad", [{"delay": 0}, {"delay": "x"}, {"factor": 0.5}, {"max_delay": float("inf")}, {"jitter": 2}, {"attempts": -1}]
)
def test_bad_delays_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(bad))):
        Reconnect(**bad)


async def test_a_server_that_is_given_up_stays_failed(autojump_clock: trio.testing.MockClock) -> None:
    flaky = Flaky()
    async with ClientGroup({"a": flaky}, reconnect=NEVER) as group:
        flaky.cut()
        status = await until(group, "a", "failed")
        assert status.retry_at is None
        assert isinstance(status.cause, SessionClosed)
        started = trio.current_time()
        with pytest.raises(TransportError, match="not tried again: the peer closed the link"):
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
            before = psutil.Process().children()
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
                while not statuses:  # noqa: ASYNC110
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
            (hit,) = statuses
            lost, other = ("a", "b") if hit.startswith("a") else ("b", "a")
            assert hit == f"{lost} -9"
            assert group.status[other].state == "connected"
            assert await add(group, other) == 3
            assert await add(group, lost) == 3
            after = psutil.Process().children()
            assert before[1] in after
            assert before[0] not in after
            assert len(after) == 2
    assert psutil.Process().children() == []


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
    assert psutil.Process().children() == []


async def test_a_server_that_dies_of_every_call_is_started_anew_each_time() -> None:
    with trio.fail_after(60):
        async with ClientGroup({"a": DYING}, reconnect=AT_ONCE, max_wait=30) as group:
            for _ in range(3):
                with pytest.raises(ProcessExited, match=r"server 'a': .*exited with status 7"):
                    await group.call_tool("a__die")


# --- joining and leaving ------------------------------------------------------------------------------------------


async def test_adding_and_removing() -> None:
    async with ClientGroup({"a": make_server()}) as group:
        await group.add("b", make_server())
        assert await add(group, "b") == 3
        with pytest.raises(ValueError, match="there is a server 'b' in the group already"):
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


async def test_adding_what_can_not_be_connected_to() -> None:
    broken = Flaky()
    broken.refusal = Oops("no")
    async with ClientGroup({"a": make_server()}) as group:
        with pytest.raises(Oops):
            await group.add("b", broken)
        assert set(group.status) == {"a"}
        assert await add(group, "a") == 3
    async with ClientGroup({"a": make_server()}, require="any", reconnect=AT_ONCE) as group:
        await group.add("b", broken)
        assert group.status["b"].state == "failed"
        broken.refusal = None
        assert await add(group, "b") == 3


async def test_a_call_that_waits_for_a_server_which_is_removed() -> None:
    broken = Flaky()
    broken.refusal = Oops("no")
    async with ClientGroup({"a": broken}, require="none", reconnect=Reconnect(delay=4, jitter=0)) as group:
        await until(group, "a", "failed")
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def call() -> None:
                with pytest.raises(SessionClosed, match="server 'a': the connection is closed"):
                    await add(group, "a")

            await trio.testing.wait_all_tasks_blocked()
            await group.remove("a")


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


async def test_a_client_that_is_closed_by_hand_is_made_anew() -> None:
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
            {"a": servers[0], "b": servers[1], "lone": lone}, require="any", reconnect=Reconnect(delay=1000)
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
        assert psutil.Process().children(recursive=True) == []
        if not cancelled:
            break
    assert not cancelled
