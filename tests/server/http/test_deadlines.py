"""A deadline ends a wait, never its outcome; and every wait of a connection has one.

Time is Trio's `MockClock`: a deadline fires in the very turn of the event loop that a test wants.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from pathlib import Path
from typing import Any

import h2.connection
import pytest
import trio
import trio.testing

from tests.server.http.certificate import over_tls
from tests.server.http.in_memory import App, over_memory, tls_client
from trio_mcp.http.runner.hypercorn.settings import QuietConfig
from trio_mcp.http.runner.settings import ServerLimits

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
IDLE = QuietConfig().keep_alive_timeout
HEAD = ServerLimits().head_timeout


async def answer(stream: Any) -> bytes:
    """Return what comes back, up to the end of one response or of the connection."""
    got = b""
    while b"ok" not in got and (chunk := await stream.receive_some()):
        got += chunk
    return got


async def ended(stream: Any) -> float:
    """When the server closes the connection, whatever it says before."""
    with contextlib.suppress(trio.BrokenResourceError):
        while await stream.receive_some():
            pass
    return trio.current_time()


def asked(client: h2.connection.H2Connection) -> bytes:
    """Return the bytes of a request."""
    fields = {":method": "GET", ":scheme": "https", ":authority": "localhost", ":path": "/"}
    client.send_headers(client.get_next_available_stream_id(), list(fields.items()), end_stream=True)
    return client.data_to_send()


def beginning(trusted: ssl.SSLContext) -> bytes:
    """Return the first bytes that a TLS client sends."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        trusted.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


# --- a request that arrives as the deadline fires -------------------------------------------------------------------


@pytest.mark.parametrize("why", ["idle", "ending", "ending before it is seen"])
@pytest.mark.parametrize("used", [False, True], ids=["first", "next"])
async def test_a_request_that_arrives_as_the_wait_for_it_ends_is_answered(
    used: bool, why: str, mock_clock: trio.testing.MockClock
) -> None:
    """Both happen in one turn of the event loop: what has arrived is served, also if it has not been read yet."""
    app = App()
    async with over_memory(app, QuietConfig()) as (stream, connection, http):
        if used:
            await stream.send_all(GET)
            assert (await answer(stream)).startswith(b"HTTP/1.1 200")
        await trio.testing.wait_all_tasks_blocked()
        os.write(stream.socket.fileno(), GET)
        if why == "idle":
            mock_clock.jump(IDLE + 1)
        else:
            if why == "ending":  # in the turn in which the reader is woken, before it runs
                with connection.wire.stream.socket.dup() as same:
                    await trio.lowlevel.wait_readable(same)
            await http.end()
            connection.shut_if_idle()
        got = await answer(stream)
        assert app.begun == 1 + used
        assert got.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_over_tls_too(protocol: str, tmp_path: Path, mock_clock: trio.testing.MockClock) -> None:
    app = App()
    config, trusted = over_tls(tmp_path)
    trusted.set_alpn_protocols([protocol])
    async with over_memory(app, config, tls=config.create_ssl_context()) as (stream, _, _):
        client = await tls_client(stream, trusted)
        request = GET
        if protocol == "h2":
            http2 = h2.connection.H2Connection()
            http2.initiate_connection()
            await client.send_all(http2.data_to_send())
            request = asked(http2)
        await trio.testing.wait_all_tasks_blocked()

        async def deliver_late(data: bytes) -> None:
            os.write(stream.socket.fileno(), data)
            mock_clock.jump(IDLE + 1)

        stream.send_all = deliver_late  # type: ignore[assignment, method-assign]
        await client.send_all(request)
        assert b"ok" in await answer(client)


async def test_half_a_head_that_arrives_as_the_idle_time_ends_is_not_awaited(
    mock_clock: trio.testing.MockClock,
) -> None:
    app = App()
    async with over_memory(app, QuietConfig()) as (stream, _, _):
        await trio.testing.wait_all_tasks_blocked()
        os.write(stream.socket.fileno(), GET[:-1])
        mock_clock.jump(IDLE + 1)
        assert await answer(stream) == b""
        assert app.begun == 0


@pytest.mark.parametrize("before", [b"", GET], ids=["first", "next"])
async def test_a_head_that_comes_byte_by_byte_is_not_awaited(
    before: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    app = App()
    async with over_memory(app, QuietConfig()) as (stream, _, _), trio.open_nursery() as nursery:
        if before:
            await stream.send_all(before)
            await answer(stream)

        async def drip() -> None:
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(GET[:-2])
                while True:
                    await stream.send_all(b"x")
                    await trio.sleep(0.9)

        nursery.start_soon(drip)
        assert await ended(stream) == pytest.approx(HEAD)
        assert app.begun == (before == GET)


async def test_the_time_for_a_head_begins_with_its_first_byte(autojump_clock: trio.testing.MockClock) -> None:
    app = App()
    async with over_memory(app, QuietConfig()) as (stream, _, _):
        await stream.send_all(GET)
        assert (await answer(stream)).startswith(b"HTTP/1.1 200")
        await trio.sleep(20)
        async with trio.open_nursery() as nursery:

            async def drip() -> None:
                with contextlib.suppress(trio.BrokenResourceError):
                    for byte in GET:
                        await stream.send_all(bytes([byte]))
                        await trio.sleep(0.9)

            nursery.start_soon(drip)
            assert await ended(stream) == pytest.approx(20 + HEAD)
        assert app.begun == 1


@pytest.mark.parametrize(("used", "lasts"), [(False, HEAD), (True, IDLE)], ids=["first", "next"])
async def test_an_idle_connection_lasts_longer_than_one_that_was_never_used(
    used: bool, lasts: float, autojump_clock: trio.testing.MockClock
) -> None:
    async with over_memory(App(), QuietConfig()) as (stream, _, _):
        if used:
            await stream.send_all(GET)
            await answer(stream)
        assert await ended(stream) == pytest.approx(lasts)


async def test_over_http2_a_ping_neither_begins_a_head_nor_keeps_the_connection(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    config, trusted = over_tls(tmp_path)
    trusted.set_alpn_protocols(["h2"])
    async with over_memory(App(), config, tls=config.create_ssl_context()) as (stream, _, _):
        client = await tls_client(stream, trusted)
        http2 = h2.connection.H2Connection()
        http2.initiate_connection()
        await client.send_all(http2.data_to_send() + asked(http2))
        await answer(client)
        for _ in range(3):
            await trio.sleep(20)
            http2.ping(b"12345678")
            await client.send_all(http2.data_to_send())
        assert await ended(client) == pytest.approx(config.keep_alive_timeout)


def test_idle_connections_outlive_those_of_common_proxies() -> None:
    """nginx and the load balancers of the large clouds keep them for 60 seconds by default."""
    assert IDLE > 60


# --- every wait has a deadline --------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0], ids=["nothing", "half a hello", "a hello"])
async def test_a_tls_handshake_that_does_not_come_is_not_awaited(
    part: float, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    config, trusted = over_tls(tmp_path)
    async with over_memory(App(), config, tls=config.create_ssl_context()) as (stream, _, _):
        hello = beginning(trusted)
        if part:
            await stream.send_all(hello[: int(len(hello) * part)])
        assert await ended(stream) == pytest.approx(HEAD)


async def test_a_tls_handshake_that_comes_byte_by_byte_is_not_awaited(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    config, trusted = over_tls(tmp_path)
    tls = config.create_ssl_context()
    async with over_memory(App(), config, tls=tls) as (stream, _, _), trio.open_nursery() as nursery:

        async def drip() -> None:
            with contextlib.suppress(trio.BrokenResourceError):
                for byte in beginning(trusted):
                    await stream.send_all(bytes([byte]))
                    await trio.sleep(1)

        nursery.start_soon(drip)
        assert await ended(stream) == pytest.approx(HEAD)


async def test_a_tls_handshake_has_less_time_if_the_configuration_says_so(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    config, _ = over_tls(tmp_path)
    config.ssl_handshake_timeout = 2
    async with over_memory(App(), config, tls=config.create_ssl_context()) as (stream, _, _):
        assert await ended(stream) == pytest.approx(2)


@pytest.mark.parametrize(
    ("protocol", "says"), [("http/1.1", 0), ("http/1.1", -3), ("h2", 0), ("h2", 10), ("h2", 30), ("h2", -3)]
)
async def test_after_its_handshake_a_client_has_the_time_for_a_head(
    protocol: str, says: int, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    app = App()
    config, trusted = over_tls(tmp_path)
    trusted.set_alpn_protocols([protocol])
    async with over_memory(app, config, tls=config.create_ssl_context()) as (stream, _, _):
        client = await tls_client(stream, trusted)
        http2 = h2.connection.H2Connection()
        http2.initiate_connection()
        request = http2.data_to_send() + asked(http2) if protocol == "h2" else GET
        if says:
            await client.send_all(request[:says])
        assert await ended(client) == pytest.approx(config.keep_alive_timeout if protocol == "h2" and says else HEAD)
        assert app.begun == 0
