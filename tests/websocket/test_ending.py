"""The end of a WebSocket: of one session, of the server, and by cancellation."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock
from trio_websocket import serve_websocket
from wsproto import WSConnection

from tests.injection import cancel_everywhere
from tests.waiting import eventually
from tests.websocket.test_sessions import client_of
from tests.websocket.ways import Raw, Tools, every_way, on_our_runners, serving, tasks
from trio_mcp import HttpError, McpError, TransportError
from trio_mcp.jsonrpc.messages import Notification, TransportFailure
from trio_mcp.low_level import Link, SessionMessage, websocket_client

NOTE = SessionMessage(Notification("acme/note"))


@on_our_runners
async def test_a_server_that_ends_lets_requests_finish_and_refuses_others(way: str) -> None:
    tools, stop, said = Tools(), trio.Event(), []
    async with serving(tools.server, way, stop=stop) as url, client_of(url) as client, Raw.open(url) as idle:
        assert await idle.add(1) == 2
        await client.list_tools()  # for the schema of a result
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                said.append((await client.call_tool("wait")).is_error)

            nursery.start_soon(wait)
            await tools.started.wait()
            stop.set()
            assert await idle.closed() == (1012, "the server is ending")  # which had nothing under way
            with pytest.raises(McpError, match="the server is ending"):
                await client.call_tool("add", {"a": 1, "b": 2})
            # The runner still takes connections for work under way, but no session may begin.
            with pytest.raises((HttpError, TransportError), match=r"503|can't connect"):
                async with websocket_client(url):
                    pass
            tools.go.set()
        assert not said[0]
        with pytest.raises(TransportError, match=r"1012 \(service restart\): the server is ending"):
            await client.call_tool("add", {"a": 1, "b": 2})


@on_our_runners
async def test_a_handler_that_takes_too_long_is_cancelled(way: str) -> None:
    tools, stop = Tools(), trio.Event()
    async with serving(tools.server, way, stop=stop, grace=0.2) as url, client_of(url) as client:
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(TransportError, match="1012"):
                    await client.call_tool("wait")

            nursery.start_soon(wait)
            await tools.started.wait()
            stop.set()
        assert tools.cancelled.is_set()


@every_way
async def test_listeners_are_told_before_the_end(way: str) -> None:
    tools, scope = Tools(), trio.CancelScope()

    def late() -> None: ...

    async with (
        serving(tools.server, way, scope=scope) as url,
        client_of(url) as client,
        client.listen(tools_list_changed=True) as events,
    ):
        tools.server.add_tool(late)
        scope.cancel()
        assert [type(event).__name__ async for event in events] == ["ToolsListChanged"]


@on_our_runners
async def test_a_server_that_is_cancelled_tells_its_clients(way: str) -> None:
    tools, scope, before = Tools(), trio.CancelScope(), tasks()
    async with serving(tools.server, way, scope=scope) as url, Raw.open(url) as raw:
        assert await raw.add(1) == 2
        scope.cancel()
        assert await raw.closed() == (1012, "the server is ending")
        assert await raw.next() == (0, None)
        await eventually(lambda: tasks() == before)
        assert not tools.server.statistics().sessions


@every_way
@pytest.mark.parametrize(("code", "clean"), [(1000, True), (1001, True), (None, True), (1011, False), (4711, False)])
async def test_a_client_that_closes_gets_its_close_frame_back(way: str, code: int | None, clean: bool) -> None:
    tools = Tools()
    async with serving(tools.server, way) as url, Raw.open(url) as raw:
        assert await raw.add(1) == 2
        await raw.frame(8, b"" if code is None else code.to_bytes(2, "big") + b"bye")
        found, _ = await raw.closed()
        assert found == (1005 if code is None else code)
        with trio.fail_after(2):
            assert await raw.next() == (0, None)  # the server closes the connection first
        await eventually(lambda: not tools.server.statistics().sessions)


@every_way
async def test_a_session_that_fails_is_closed_with_a_reason(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Tools()

    async def fail(run: Any, opening: Any, opened: Any) -> None:
        async with opening:
            raise ZeroDivisionError

    monkeypatch.setattr("trio_mcp.server.run.Run.serve_opening", fail)
    async with serving(tools.server, way) as url:
        for _ in range(2):  # and the server goes on
            async with Raw.open(url) as raw:
                assert await raw.closed() == (1011, "the session failed")


# --- the link alone -----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def scripted(handler: Any, **options: Any) -> AsyncIterator[Link]:
    """Connect to a server that is a function of trio-websocket's connection."""

    async def serve(request: Any) -> None:
        await handler(await request.accept(subprotocol="mcp"))

    async with trio.open_nursery() as nursery:
        server = await nursery.start(
            lambda task_status: serve_websocket(serve, "127.0.0.1", 0, None, task_status=task_status)
        )
        async with websocket_client(f"ws://127.0.0.1:{server.port}/mcp", **options) as link:
            yield link
        nursery.cancel_scope.cancel()


async def rest(link: Link) -> list[Any]:
    return [item.message async for item in link.read]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (1000, None),
        (1001, "the server closed the WebSocket: 1001 (going away): bye"),
        (1009, "the server closed the WebSocket: 1009 (message too big): bye"),
        (1012, "the server closed the WebSocket: 1012 (service restart): bye"),
        (4000, "the server closed the WebSocket: 4000: bye"),
    ],
)
async def test_what_was_sent_before_the_end_arrives_and_the_loss_is_told_once(code: int, said: str | None) -> None:
    async def handler(connection: Any) -> None:
        for _ in range(3):
            await connection.send_message('{"jsonrpc": "2.0", "method": "acme/note"}')
        await connection.aclose(code, "bye\x1b")

    async with scripted(handler) as link:
        got = await rest(link)
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await link.write.send(NOTE)
    assert [str(each.error) if isinstance(each, TransportFailure) else each for each in got] == [
        *[Notification("acme/note")] * 3,
        *([] if said is None else [said + " "]),
    ]


async def test_a_connection_that_breaks_is_a_loss() -> None:
    async def handler(connection: Any) -> None:
        await connection.get_message()  # leaves the connection to the handler's end, which is that of the stream
        raise trio.BrokenResourceError

    with contextlib.suppress(BaseExceptionGroup):
        async with scripted(handler) as link:
            await link.write.send(NOTE)
            (failure,) = await rest(link)
            assert "the connection to the server was lost" in str(failure.error)


async def test_a_failure_below_is_the_loss_of_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a fault of trio-websocket, or of the parser, would be."""
    told: list[Any] = []

    async def handler(raw: Raw) -> None:
        await raw.next()
        await raw.frame(0x09, b"a ping goes through the parser")
        told.append(await raw.closed())

    def fail(connection: Any) -> None:
        raise ZeroDivisionError

    async with Raw.serving(handler) as url, websocket_client(url) as link:
        monkeypatch.setattr(WSConnection, "events", fail)
        await link.write.send(NOTE)
        (failure,) = await rest(link)
        assert str(failure.error) == "the connection to the server failed: ZeroDivisionError: "
        await eventually(lambda: told)
    assert told == [(1011, "the connection failed")]


async def test_the_last_messages_are_sent_and_the_server_hears_of_the_end() -> None:
    got: list[str] = []
    ended = trio.Event()

    async def handler(connection: Any) -> None:
        with contextlib.suppress(Exception):
            while True:
                got.append(await connection.get_message())
        got.append(connection.closed.code)
        ended.set()

    async with scripted(handler) as link:
        for _ in range(60):
            await link.write.send(NOTE)
        await link.write.aclose()
        await ended.wait()
        assert await rest(link) == []
    assert (len(got), got[-1]) == (61, 1000)


async def test_a_server_that_neither_reads_nor_closes_holds_nobody_up(autojump_clock: MockClock) -> None:
    async def handler(connection: Any) -> None:
        await trio.sleep_forever()

    async with scripted(handler, ping_timeout=1000) as link:
        with trio.move_on_after(5):
            while True:
                await link.write.send(SessionMessage(Notification("acme/note", {"text": "x" * 1_000_000})))
        begun = trio.current_time()
    assert trio.current_time() - begun < 3


async def test_a_client_that_is_cancelled_anywhere_leaves_nothing_open() -> None:
    tools = Tools()

    async def scenario() -> None:
        async with client_of(url) as client:
            await client.call_tool("add", {"a": 1, "b": 2})

    async def check() -> None:
        await eventually(lambda: not tools.server.statistics().sessions and tasks() == before)

    async with serving(tools.server) as url:
        before = tasks()
        assert await cancel_everywhere(scenario, check) > 30
