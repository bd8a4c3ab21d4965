"""Heads of requests, as RFC 9110, 9112 and 9113 have them: methods, versions, lengths, the last request."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio.testing

from tests.server.http.http2_client import over_http2
from tests.server.http.in_memory import App, everything, over_memory
from tests.server.http.test_framing import said
from trio_mcp import Server
from trio_mcp.http.runner.hypercorn.settings import QuietConfig

END = b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize("method", [b"get", b"Get", b"head", b"post"])
async def test_methods_are_case_sensitive(method: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """RFC 9110, 9.1. A ``head`` that was taken for HEAD left its answer without a body."""
    async with Server("s").asgi_app() as app:
        for path in (b" /health", b" /mcp"):
            got = await said(app, method + path + END)
            assert got.startswith((b"HTTP/1.1 405", b"HTTP/1.1 404"))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("version", [b"2.0", b"3.0", b"0.9", b"9.9"])
async def test_another_major_version_is_505(version: bytes, autojump_clock: trio.testing.MockClock) -> None:
    """RFC 9110, 15.6.6."""
    app = App()
    got = await said(app, (b"GET /" + END).replace(b"1.1", version) * 2)
    assert got.startswith(b"HTTP/1.1 505")
    assert got.count(b"HTTP/1.1") == 1
    assert app.begun == 0


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"x" * 100_000 + END, b"414"),
        (b"GET /" + b"x" * 100_000, b"414"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, b"431"),
        # Complete before anything is looked at.
        (b"GET /" + b"x" * 17_000 + END, b"414"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 17_000 + b"\r\n\r\n", b"431"),
    ],
)
async def test_the_part_that_is_too_long_is_named(
    data: bytes, status: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    """RFC 9112, 3: of a target it is 414; RFC 6585, 5: of the fields 431."""
    app = App()
    assert (await said(app, data)).startswith(b"HTTP/1.1 " + status)
    assert app.begun == 0


@pytest.mark.parametrize("after", [b"GET /" + END, b"garbage", b"\r\n\r\n", b"x" * 100_000])
@pytest.mark.parametrize("together", [True, False])
async def test_data_after_the_last_request_is_dropped_and_the_request_answered(
    after: bytes, together: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """RFC 9112, 9.6."""
    app = App()
    async with over_memory(app, QuietConfig()) as (stream, _, _):
        for data in [b"GET /" + END + after] if together else [b"GET /" + END, after]:
            await stream.send_all(data)
        got = await everything(stream)
    assert got.startswith(b"HTTP/1.1 200")
    assert got.count(b"HTTP/1.1") == app.begun == 1


async def test_a_whole_url_is_taken_with_its_host() -> None:
    """RFC 9112, 3.2.2: the host of the URL counts, not the field."""
    async with Server("s").asgi_app(allowed_hosts=["localhost"]) as app:
        for host, refused in ((b"localhost", False), (b"evil.example", True)):
            got = await said(app, b"GET http://%s/mcp" % host + END)
            assert got.startswith(b"HTTP/1.1 403") is refused


# --- HTTP/2 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["", "G T", "(", "GET\x7f"])
async def test_a_method_that_is_not_a_token_is_malformed(
    method: str, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """RFC 9113, 8.3.1; RFC 9110, 9.1."""
    async with over_http2(App(), tmp_path) as (client, _, _):
        await client.reset(await client.open(b"", method=method))


async def test_the_table_of_a_connection_grows_no_further_than_it_does_by_default(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """RFC 7541, 4.2. Each field is searched for in the whole table, so a client could make responses slow."""
    async with over_http2(App(), tmp_path, table=2**30) as (client, _, _):
        assert await client.status(await client.open(b"")) == "200"
        assert client.connection.decoder.header_table_size == 4096
