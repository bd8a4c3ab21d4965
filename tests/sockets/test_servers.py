"""Servers on TCP, TLS and Unix sockets: their connections, their limits and their end."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.peer import call
from tests.sockets.support import KINDS, contexts, opening, served
from tests.waiting import eventually
from trio_mcp import Client, Context, McpError, Server, ToolsListChanged, TransportError
from trio_mcp.low_level import Link, tcp_client
from trio_mcp.sockets import serving
from trio_mcp.sockets.stream_link import link_on_terms
from trio_mcp.types.error_codes import OVERLOADED

each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
async def test_a_client_calls_tools(kind: str, tmp_path: Path) -> None:
    async with served(kind, tmp_path) as it:
        assert it.url.startswith(
            {"tcp": "tcp://127.0.0.1:", "tls": "tls://127.0.0.1:", "unix": f"unix:{tmp_path}"}[kind]
        )
        async with it.client() as client:
            assert (await client.call_tool("note", {"text": "ä\u2028\0"})).data == "ä\u2028\0"
            size = 3_000_000
            assert (await client.call_tool("large", {"size": size})).data == "x" * size
        await eventually(lambda: not it.server.statistics().sessions)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_a_url_is_a_target(kind: str, tmp_path: Path) -> None:
    async with served(kind, tmp_path) as it, Client(it.url) as client:
        assert (await client.call_tool("note", {"text": "x"})).data == "x"


async def test_each_connection_is_a_session_of_one_run(tmp_path: Path) -> None:
    async with served("unix", tmp_path) as it, it.client() as one, it.client() as two:
        for client in (one, two):
            await client.call_tool("note", {"text": "x"})
        statistics = it.server.statistics()
        assert (statistics.runs, statistics.sessions) == (1, 2)


@each_kind
async def test_the_exception_of_a_handler_and_a_broken_connection_end_nothing_else(kind: str, tmp_path: Path) -> None:
    async with served(kind, tmp_path) as it, it.client() as client:
        for _ in range(3):
            assert (await client.call_tool("fail")).is_error
            async with await it.connect() as broken:
                await broken.send_all(b"{")
        assert (await client.call_tool("note", {"text": "x"})).data == "x"


async def test_who_the_peer_is(tmp_path: Path) -> None:
    """A Unix socket tells process, user and group, and the principal may be made of them."""
    server = Server("test", principal=lambda ctx: f"user {ctx.transport_metadata['peer'].uid}")

    @server.tool
    async def who(ctx: Context) -> list[Any]:
        return [*ctx.transport_metadata["peer"], ctx.principal.subject]

    async with trio.open_nursery() as nursery:
        url = await nursery.start(server.serve_unix, tmp_path / "mcp.sock")
        async with Client(url) as client:
            assert (await client.call_tool("who")).data == [
                os.getpid(),
                os.getuid(),
                os.getgid(),
                f"user {os.getuid()}",
            ]
        nursery.cancel_scope.cancel()


async def test_the_certificate_of_a_client(tmp_path: Path) -> None:
    context, trusting = contexts(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(tmp_path / "cert.pem")
    trusting.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server = Server("test")

    @server.tool
    async def who(ctx: Context) -> list[str]:
        return list(ctx.transport_metadata["certificate"]["subject"][0][0])

    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(server.serve_tcp, port=0, ssl_context=context))
        async with Client(lambda: tcp_client(url, ssl_context=trusting)) as client:
            assert (await client.call_tool("who")).data == ["commonName", "test"]
        nursery.cancel_scope.cancel()


# --- limits -------------------------------------------------------------------------------------------------------


@each_kind
async def test_connections_are_limited(kind: str, tmp_path: Path) -> None:
    """A further one is closed; it finds a place once another has left."""
    async with served(kind, tmp_path, max_connections=1) as it:
        async with it.client() as client:
            await client.list_tools()
            with pytest.raises(TransportError, match=r"closed the connection before|the TLS handshake"):
                async with it.client() as other:
                    await other.list_tools()
            await client.list_tools()

        async def admitted() -> bool:
            try:
                async with it.client() as client:
                    return bool(await client.list_tools())
            except TransportError:
                return False

        await eventually(admitted)


@each_kind
async def test_many_clients_at_once_leave_nothing_behind(kind: str, tmp_path: Path) -> None:
    async with served(kind, tmp_path) as it:

        async def come_and_go(number: int) -> None:
            stream = await it.connect()
            if number % 2:
                await stream.send_all(opening(call(1, "hold")))
            await stream.aclose()

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(come_and_go, number)
        tasks = trio.lowlevel.current_statistics().tasks_living
        await eventually(lambda: not it.server.statistics().sessions)
        async with it.client() as client:
            await client.list_tools()
        assert trio.lowlevel.current_statistics().tasks_living < tasks
        assert it.held == 0


@each_kind
async def test_a_client_that_does_not_read_is_dropped(
    kind: str, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Its handlers are cancelled, and others are served meanwhile."""
    async with served(kind, tmp_path, write_timeout=7.0) as it:
        connected = it.client()
        if kind == "tls":
            stream: Any = trio.SSLStream(await it.connect(), it.trusting, server_hostname="127.0.0.1")  # type: ignore[arg-type]
        else:
            stream = await it.connect()
        async with stream, connected as client:
            await stream.send_all(opening(call(1, "hold"), *(call(n, "large", size=1_000_000) for n in range(2, 20))))
            await eventually(lambda: it.held)
            began = trio.current_time()
            await client.call_tool("note", {"text": "x"})
            await eventually(lambda: not it.held)
            assert trio.current_time() - began == pytest.approx(7.5, abs=1.0)
            await client.call_tool("note", {"text": "x"})


# --- the end ------------------------------------------------------------------------------------------------------


@each_kind
async def test_the_end_waits_for_requests_under_way_and_takes_no_new_ones(kind: str, tmp_path: Path) -> None:
    async with served(kind, tmp_path) as it, it.client() as client, it.client() as idle:
        for each in (idle, client):
            await each.list_tools()
        held: list[Any] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect, held, client, "hold")
            await eventually(lambda: it.held)
            it.shutdown.set()
            # The idle connection is closed, no new one accepted, and a further request refused.
            await eventually(lambda: it.server.statistics().sessions == 1)
            with pytest.raises(McpError) as caught:
                await client.call_tool("note", {"text": "x"})
            assert caught.value.code == OVERLOADED
            with pytest.raises(TransportError):
                async with it.client():
                    pass
            assert not it.ended.is_set()
            it.proceed.set()
            await it.ended.wait()
        assert (held, it.calls) == ([("hold", "held")], [])


async def collect(results: list[Any], client: Client, tool: str) -> None:
    results.append((tool, (await client.call_tool(tool)).data))


@each_kind
@pytest.mark.parametrize("how", ["shutdown", "cancel"])
async def test_listeners_are_told_of_the_end(kind: str, how: str, tmp_path: Path) -> None:
    """Each ``subscriptions/listen`` is answered, so that the client knows that it has missed nothing."""
    async with (
        served(kind, tmp_path) as it,
        it.client() as client,
        client.listen(tools_list_changed=True) as events,
    ):
        it.server.remove_tool("fail")
        (it.shutdown.set if how == "shutdown" else it.stop.cancel)()
        assert [event async for event in events] == [ToolsListChanged()]


async def test_the_grace_ends(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with served("unix", tmp_path, grace=4.0) as it, await it.connect() as stream, it.client() as client:
        await stream.send_all(opening(call(1, "hold")))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lost, client)
            await eventually(lambda: it.held == 2)
            began = trio.current_time()
            it.shutdown.set()
            await it.ended.wait()
            # The one connection reads nothing and does not close its end either.
            assert 4.0 <= trio.current_time() - began <= 4.6
        assert it.held == 0


async def lost(client: Client) -> None:
    with pytest.raises(TransportError):
        await client.call_tool("hold")


async def test_a_handshake_under_way_does_not_hold_up_the_end(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with served("tls", tmp_path) as it, await it.connect():
        await trio.testing.wait_all_tasks_blocked(0.01)
        began = trio.current_time()
        it.shutdown.set()
        await it.ended.wait()
        assert trio.current_time() - began < 0.1


async def test_a_connection_that_comes_as_the_server_ends_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is accepted already, but its session has not begun when the others are told of the end."""
    begun, proceed = trio.Event(), trio.Event()

    @contextlib.asynccontextmanager
    async def slow_link(*arguments: Any) -> AsyncIterator[Link]:
        begun.set()
        await proceed.wait()
        async with link_on_terms(*arguments) as link:
            yield link

    monkeypatch.setattr(serving, "link_on_terms", slow_link)
    async with served("unix", tmp_path) as it, await it.connect():
        await begun.wait()
        it.shutdown.set()
        await trio.testing.wait_all_tasks_blocked()
        proceed.set()
        with trio.fail_after(2):  # the grace is longer
            await it.ended.wait()


async def test_a_fault_of_the_library_ends_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with served("unix", tmp_path) as it, it.client() as client:
        with monkeypatch.context() as patch:
            patch.setattr(serving, "peer_credentials", lambda _: 1 / 0)
            with pytest.raises(TransportError):
                async with it.client():
                    pass
        await client.list_tools()
    assert [record.getMessage() for record in caplog.records] == ["a connection failed"]


async def test_ctrl_c_in_a_handler_gets_out(tmp_path: Path) -> None:
    server = Server("test")

    @server.tool
    async def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.RaisesGroup(KeyboardInterrupt):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(server.serve_unix, tmp_path / "mcp.sock")
            async with Client(url) as client:
                with contextlib.suppress(TransportError):
                    await client.call_tool("interrupt")
                await trio.sleep_forever()


# --- addresses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_an_address_off_loopback_needs_tls_or_leave(host: str, tmp_path: Path) -> None:
    server = Server("test")
    with pytest.raises(
        ValueError, match=r"can be reached from other machines.* pass ssl_context=, or allow_remote=True"
    ):
        await server.serve_tcp(host, 0)
    for more in ({"allow_remote": True}, {"ssl_context": contexts(tmp_path)[0]}):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(server.serve_tcp, host, 0, **more))
            assert url.startswith("tls://" if "ssl_context" in more else "tcp://")
            nursery.cancel_scope.cancel()


async def test_a_port_in_use(tmp_path: Path) -> None:
    async with served("tcp", tmp_path) as it:
        port = int(it.url.rpartition(":")[2])
        with pytest.raises(OSError, match=f"can't listen on 127.0.0.1:{port}: Address already in use"):
            await Server("test").serve_tcp(port=port)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"port": "80"}, "port must be an integer, got '80'"),
        ({"port": 70_000}, "port must be from 0 to 65535, got 70000"),
        ({"host": ""}, "host must be a non-empty string"),
        ({"ssl_context": "cert.pem"}, "ssl_context must be an ssl.SSLContext, got str"),
        ({"max_connections": 0}, "max_connections must be at least 1, got 0"),
        ({"head_timeout": 0}, "head_timeout must be more than 0 seconds, got 0"),
        ({"path": "/x"}, "got an unexpected keyword argument 'path'; it takes host"),
        ({"host": "no.such.host.invalid"}, "can't listen on no.such.host.invalid:8000"),
    ],
)
async def test_wrong_arguments(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError, OSError), match=error):
        await Server("test").serve_tcp(**arguments)


@pytest.mark.parametrize(
    ("transport", "arguments", "error"),
    [
        ("unix", {}, "missing 1 required positional argument: 'path'"),
        ("unix", {"path": "x", "port": 1}, "unexpected keyword argument 'port'"),
        ("tcp", {"mode": 0o600}, "unexpected keyword argument 'mode'"),
        ("http", {"mode": 0o600}, "unexpected keyword argument 'mode'"),
        ("stdio", {"path": "x"}, "takes no 'path'"),
        ("streamable-http", {}, r"got 'streamable-http'; did you mean 'http'\?$"),
    ],
)
def test_run_refuses_the_arguments_and_names_of_others(transport: Any, arguments: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        Server("test").run(transport, **arguments)
