"""A client's life: entering, leaving, closing early, losing its server."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.lowlevel

from tests.client.servers import make_server, say_nothing
from tests.forks import children
from tests.injection import cancel_everywhere
from tests.peer import Peer, played
from trio_mcp import (
    CallOptions,
    Client,
    LocalProtocolError,
    ProcessExited,
    RequestTimeout,
    Server,
    SessionClosed,
    SessionOptions,
    StdioServerParameters,
    TransportError,
)
from trio_mcp.client.targets import link_factory
from trio_mcp.low_level import Link, stdio_client
from trio_mcp.types.versions import LATEST_LEGACY, LATEST_MODERN


class Oops(Exception):
    pass


def stdio_target() -> StdioServerParameters:
    return StdioServerParameters(sys.executable, ["-m", "trio_mcp.cli.demo_server"])


@pytest.mark.parametrize("error", [Oops("x"), ExceptionGroup("mine", [Oops("y")]), KeyboardInterrupt(), SystemExit(3)])
async def test_what_is_raised_in_the_block_leaves_it_as_the_very_object(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        async with Client(make_server()) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
            raise error
    assert caught.value is error


async def test_several_clients_close_in_any_order_from_any_task_and_the_others_go_on() -> None:
    server = make_server()
    async with Client(server) as first, Client(server) as second, Client(stdio_target()) as third:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.aclose)
        assert (await second.call_tool("add", {"a": 1, "b": 2})).data == 3
        await third.aclose()
        assert (await second.call_tool("add", {"a": 2, "b": 2})).data == 4
        with pytest.raises(SessionClosed):
            await first.call_tool("add", {"a": 1, "b": 2})
        with pytest.raises(SessionClosed):
            await third.call_tool("add", {"a": 1, "b": 2})
        await first.aclose()
        await second.aclose()
        await trio.lowlevel.checkpoint()  # and the block itself was never cancelled


async def test_a_close_that_is_cancelled_closes_all_the_same() -> None:
    async with Client(stdio_target()) as client:
        [process] = children()
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.aclose()
        with trio.fail_after(10):
            await client.aclose()
        assert not process.is_running()


async def test_closing_before_entering_is_a_no_op_and_entering_twice_an_error() -> None:
    client = Client(make_server())
    await client.aclose()
    with pytest.raises(LocalProtocolError, match="not connected"):
        await client.list_tools()
    async with client:
        await client.list_tools()
    with pytest.raises(LocalProtocolError, match="only once"):
        async with client:
            pass


def test_a_client_that_is_left_in_another_task_is_closed_and_says_so() -> None:
    """Trio says after that that its state is corrupted, as the nursery is still open where the client was entered."""
    client = Client(make_server())

    async def leave_elsewhere() -> None:
        async with trio.open_nursery() as nursery:

            async def enter(task_status: trio.TaskStatus[None]) -> None:
                await client.__aenter__()
                task_status.started()
                await trio.sleep_forever()

            await nursery.start(enter)
            with pytest.raises(LocalProtocolError, match=r"must be left in the task that entered it, .*enter'; it is"):
                await client.__aexit__(None, None, None)
            with pytest.raises(SessionClosed):
                await client.list_tools()
            nursery.cancel_scope.cancel()

    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="Nursery stack corrupted"), allow_unwrapped=True):
        trio.run(leave_elsewhere)


async def test_what_failed_to_connect_shows_the_programs_own_steps_and_where_it_was_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[Link]:
        async with played_wrongly() as link:
            yield link

    @contextlib.asynccontextmanager
    async def played_wrongly() -> AsyncIterator[Link]:
        async with contextlib.AsyncExitStack():
            raise TransportError("no such place") from OSError(2, "gone")
        yield

    caplog.set_level("DEBUG", "trio_mcp")
    for target, names in (
        (StdioServerParameters("no-such-command"), ["start_process"]),
        (connect, ["connect", "played_wrongly"]),
    ):
        with pytest.raises(TransportError) as failed:
            await Client(target).__aenter__()
        assert [step.name for step in failed.traceback][1:] == names
        assert failed.value.__cause__ is not None
        (record,) = [each for each in caplog.records if each.exc_info]
        caplog.clear()
        assert "entering a Client failed" in record.getMessage()


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_a_server_that_exits_at_once(mode: str) -> None:
    target = StdioServerParameters(sys.executable, ["-c", "import sys; sys.exit('no such database')"])
    with pytest.raises(ProcessExited, match="no such database") as caught:
        async with Client(target, mode=mode):
            pass
    assert caught.value.returncode == 1


async def test_a_server_that_prints_garbage() -> None:
    code = "import time\nwhile True: print('Usage: foo [options]', flush=True); time.sleep(0.1)"
    target = StdioServerParameters(sys.executable, ["-c", code], shutdown_grace=0.1)
    with pytest.raises(TransportError, match=r"connect_timeout=1\.5.*not MCP: invalid JSON.*is it an MCP server"):
        async with Client(
            target,
            options=SessionOptions(calls=CallOptions(connect_timeout=1.5, probe_timeout=0.5), on_error=lambda _: None),
        ):
            pass


async def test_a_server_that_never_answers(autojump_clock: trio.testing.MockClock) -> None:
    options = SessionOptions(calls=CallOptions(connect_timeout=9, probe_timeout=4))
    started = trio.current_time()
    with pytest.raises(TransportError, match=r"did not complete the connection within connect_timeout=9 seconds"):
        async with Client(played(say_nothing), options=options):
            pass
    assert trio.current_time() - started == pytest.approx(9)


@pytest.mark.parametrize("mode", ["auto", LATEST_LEGACY, LATEST_MODERN])
@pytest.mark.parametrize(
    ("given", "options", "limit", "seconds"),
    [
        ({"timeout": 2}, {}, "timeout", 2),
        ({}, {"timeout": 2}, "timeout", 2),
        ({"timeout": 2}, {"timeout": 300}, "timeout", 2),
        ({"timeout": 60}, {}, "connect_timeout", 30),
        ({"timeout": None}, {}, "connect_timeout", 30),
        ({"timeout": 2}, {"connect_timeout": 120}, "connect_timeout", 120),
        ({"timeout": 60}, {"connect_timeout": 3}, "connect_timeout", 3),
    ],
)
async def test_the_timeout_of_calls_shortens_connecting_unless_that_has_its_own(
    given: dict[str, Any],
    options: dict[str, Any],
    limit: str,
    seconds: float,
    mode: str,
    autojump_clock: trio.testing.MockClock,
) -> None:
    started = trio.current_time()
    with pytest.raises(TransportError, match=rf" within {limit}={seconds} seconds"):
        async with Client(
            played(say_nothing), mode=mode, options=SessionOptions(calls=CallOptions(**options)), **given
        ):
            pass
    assert trio.current_time() - started == pytest.approx(seconds)


async def test_the_timeout_of_calls_does_not_hurry_a_list_of_ways(autojump_clock: trio.testing.MockClock) -> None:
    """It needs some seconds to give up a way that connects and says nothing."""
    async with Client([played(say_nothing), make_server()], timeout=2) as client:
        assert trio.current_time() > 2
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    with pytest.raises(TransportError, match="within connect_timeout=3 seconds"):
        async with Client(
            [played(say_nothing)] * 2, options=SessionOptions(calls=CallOptions(timeout=2, connect_timeout=3))
        ):
            pass


async def test_a_short_timeout_leaves_time_for_the_handshake_with_a_server_that_ignores_the_probe(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def ignore_the_first(wire: Peer) -> None:
        await wire.receive()
        await wire.receive()  # its cancellation
        await wire.greet()
        await wire.serve()

    async with Client(played(ignore_the_first), timeout=2) as client:
        assert client.protocol_version == LATEST_LEGACY
        assert trio.current_time() < 2


@pytest.mark.parametrize(
    ("argument", "error", "match"),
    [
        ({"target": "server.py"}, TypeError, r"StdioServerParameters\(sys.executable, \['server.py'\]\)"),
        ({"target": "npx"}, TypeError, r"StdioServerParameters\('npx', \[arguments\]\)"),
        ({"target": {"mcpServers": {}}}, TypeError, r"ClientGroup.from_config\("),
        ({"target": "gopher://x"}, ValueError, "no transport for gopher://"),
        ({"mode": "modern"}, ValueError, "mode must be one of auto, legacy"),
        ({"timeout": 0}, ValueError, "timeout must be more than 0 seconds, got 0"),
        ({"timeout": "soon"}, TypeError, "timeout must be a number of seconds or None, got 'soon'"),
        ({"options": CallOptions()}, TypeError, r"options must be SessionOptions\(…\), got CallOptions"),
        ({"answers": print}, TypeError, r"answers must be Answers\(…\), got builtin_function_or_method"),
        ({"cache": {}}, TypeError, "cache"),
        ({"principal": 5}, TypeError, "principal"),
        ({"capabilities": ["roots"]}, TypeError, "capabilities must be a model or a mapping"),
        ({"client_info": {"name": "me"}}, TypeError, "client_info must be an Implementation, got dict"),
    ],
)
def test_bad_arguments_are_refused_at_once(argument: dict[str, object], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Client(**{"target": Server("x"), **argument})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        ({"timeout": 3}, 3),
        ({"timeout": 3, "options": SessionOptions(calls=CallOptions(timeout=9))}, 3),
        ({"timeout": None, "options": SessionOptions(calls=CallOptions(timeout=3, total_timeout=20))}, 20),
        ({"options": SessionOptions(calls=CallOptions(timeout=3))}, 3),
    ],
)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_one_keyword_limits_every_call(
    mode: str, arguments: dict[str, Any], limit: float, autojump_clock: trio.testing.MockClock
) -> None:
    async def start_slowly(peer: Peer) -> None:
        await trio.sleep(1)
        await make_server().serve(peer.link)

    async with Client(played(start_slowly), mode=mode, **arguments) as client:
        assert client.protocol_version == (LATEST_MODERN if mode == "auto" else LATEST_LEGACY)
        started = trio.current_time()
        with pytest.raises(RequestTimeout):
            await client.call_tool("wait")
        assert trio.current_time() - started == limit


async def test_a_cancellation_at_every_step_of_connecting_calling_and_closing_leaves_nothing() -> None:
    server = make_server()

    async def scenario() -> None:
        async with Client(server) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
            await client.call_tool("count", {"to": 2}, on_progress=lambda _: None)
            await client.aclose()

    async def check() -> None:
        await trio.testing.wait_all_tasks_blocked()
        assert server.statistics().runs == 0

    assert await cancel_everywhere(scenario, check) >= 60


@contextlib.asynccontextmanager
async def opening() -> AsyncIterator[Link]:
    async with link_factory(make_server())() as link:
        yield link


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_async_context_manager_connects_once(mode: str) -> None:
    """It may be what other libraries take; a function that makes it can be called again."""
    target = opening()
    async with Client(target, mode=mode) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    with pytest.raises(LocalProtocolError, match="connects once: pass a function that makes it: lambda:"):
        async with Client(target, mode=mode):
            pass
    async with Client(stdio_client(stdio_target()), mode=mode) as client:
        assert await client.list_tools()


async def test_an_async_context_manager_is_not_one_of_several_ways() -> None:
    with pytest.raises(TypeError, match="is used again and again, so pass a function that makes it"):
        Client([make_server(), opening()])
