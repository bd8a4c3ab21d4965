"""Clients of sockets: one clear error for everything that can be wrong."""

from __future__ import annotations

import gc
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.injection import cancel_everywhere
from tests.listening import hold, port_of
from tests.sockets.support import KINDS, contexts, served
from trio_mcp import Client, TransportError
from trio_mcp.low_level import tcp_client, unix_client


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("tcp://127.0.0.1", "is not a valid URL: write tcp://HOST:PORT"),
        ("tcp://127.0.0.1:0", "write tcp://HOST:PORT"),
        ("tls://:8000", "write tls://HOST:PORT"),
        ("tcp://127.0.0.1:8000/mcp", "write tcp://HOST:PORT"),
        ("tcp://user@127.0.0.1:8000", "write tcp://HOST:PORT"),
        ("tcp:127.0.0.1:8000", "write tcp://HOST:PORT"),
        ("tcp://127.0.0.1:99999", "is not a valid URL: Port out of range"),
        ("tcp://[::1", "is not a valid URL: Invalid IPv6 URL"),
        ("unix:", "must not be empty"),
        ("unix://host/path", "write unix:/PATH, without a host"),
        ("unix:/" + "x" * 200, "may be at most"),
        ("ftp://x", "there is no transport for ftp:// URLs; use one of http://, https://, "),
        ("no url", "'no url' is not a URL"),
    ],
)
def test_a_wrong_url_is_refused_before_anything_is_tried(url: str, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        Client(url)


@pytest.mark.parametrize(
    ("arguments", "kind", "error"),
    [
        (("unix:/x",), ValueError, "'unix:/x' is the URL of a Unix socket: use unix_client"),
        (("http://x",), ValueError, "must begin with tcp://, tls:// or unix:"),
        ((7,), TypeError, "must be a string, got int"),
        (("tcp://127.0.0.1:1", ssl.create_default_context()), ValueError, "does not use TLS: write tls://"),
    ],
)
async def test_wrong_arguments(arguments: Any, kind: type[Exception], error: str) -> None:
    url, *context = arguments
    with pytest.raises(kind, match=error):
        async with tcp_client(url, ssl_context=context[0] if context else None):
            pass


def leave_behind(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


async def test_nobody_listens(tmp_path: Path) -> None:
    with hold() as held:
        port = port_of(held)
        with pytest.raises(TransportError, match=f"can't connect to tcp://127.0.0.1:{port}: Connection refused"):
            async with tcp_client(f"tcp://127.0.0.1:{port}"):
                pass
    path = tmp_path / "mcp.sock"
    for make, error in (
        (lambda: None, "No such file or directory"),
        (lambda: path.write_text("x"), "it is not a socket"),
        (lambda: leave_behind(path), "no server is listening on it"),
    ):
        make()  # type: ignore[no-untyped-call]
        with pytest.raises(TransportError, match=f"can't connect to {path}: {error}"):
            async with unix_client(path):
                pass


async def test_tls_on_one_side_alone(tmp_path: Path) -> None:
    """Both errors say what to write instead."""
    async with served("tls", tmp_path) as it:
        with pytest.raises(TransportError, match=r"limit, or does it speak TLS\? \(For TLS, write tls://127.0.0.1:"):
            async with Client(it.url.replace("tls:", "tcp:")):
                pass
        with pytest.raises(TransportError, match=r"the certificate of .* was not accepted: self-signed certificate"):
            async with Client(it.url):
                pass
    async with served("tcp", tmp_path) as it:
        url = it.url.replace("tcp:", "tls:")
        with pytest.raises(
            TransportError,
            match=r"the TLS handshake with .* failed: does the server use TLS\? \(If not, write tcp://127",
        ):
            async with tcp_client(url, ssl_context=contexts(tmp_path)[1]):
                pass


@asynccontextmanager
async def answering(data: bytes) -> AsyncIterator[str]:
    """Serve a port that answers whatever comes with the same bytes, and ends."""

    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(data)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        yield f"tcp://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak MCP: its first line begins with b'HTTP/1.1 400"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "does not speak MCP"),
        (b"", "has closed the connection before it responded: is the server at its connection limit"),
        (b'{"jsonrpc":"2.0","method":"m"}\n', "has closed the connection$"),
    ],
)
async def test_a_server_of_another_kind(data: bytes, error: str) -> None:
    async with answering(data) as url:
        with pytest.raises(TransportError, match=error):
            async with Client(url):
                pass


async def test_a_server_that_does_not_answer_the_tls_handshake_is_given_up(autojump_clock: MockClock) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(TransportError, match="did not respond within 10 seconds"),
    ):
        async with tcp_client(f"tls://127.0.0.1:{silent.getsockname()[1]}"):
            pass
    assert 10 <= trio.current_time() < 11


@pytest.mark.parametrize("kind", KINDS)
async def test_a_connect_that_is_cancelled_at_any_step_leaves_nothing_open(kind: str, tmp_path: Path) -> None:
    """A socket that is not closed would be a ResourceWarning, and so an error."""
    async with served(kind, tmp_path) as it:

        async def connect() -> None:
            async with unix_client(it.url) if kind == "unix" else tcp_client(it.url, ssl_context=it.trusting):
                pass

        assert await cancel_everywhere(connect, trio.lowlevel.checkpoint) > 5
        gc.collect()
