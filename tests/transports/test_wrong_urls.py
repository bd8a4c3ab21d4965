"""A URL of the wrong scheme, or of no server at all: the error says which to try."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.server.http.certificate import over_tls
from trio_mcp import Client, Disconnected, HttpError, Server, TransportError
from trio_mcp.errors import TrioMcpError


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    over_tls(folder)
    return folder


@pytest.fixture
async def url_of(nursery: trio.Nursery, tls: Path) -> AsyncIterator[Callable[[str], str]]:
    """Return the URLs of servers, by their kind, without the scheme."""
    config, _ = over_tls(tls)
    config.bind = ["127.0.0.1:0"]
    server = Server("s")
    http: str = await nursery.start(lambda task_status: server.serve_http(port=0, task_status=task_status))
    https: str = await nursery.start(lambda task_status: server.serve_http(config=config, task_status=task_status))
    ws: str = await nursery.start(lambda task_status: server.serve_websocket(port=0, task_status=task_status))
    listener = trio.socket.socket()
    await listener.bind(("127.0.0.1", 0))  # bound, but not listening
    places = {
        **{name: url.partition("://")[2] for name, url in {"http": http, "https": https, "ws": ws}.items()},
        "none": f"127.0.0.1:{listener.getsockname()[1]}/mcp",
    }
    yield places.__getitem__
    listener.close()
    nursery.cancel_scope.cancel()


WRONG: tuple[tuple[str, str, type[TrioMcpError], str], ...] = (
    ("http", "https", Disconnected, "RemoteProtocolError: Server disconnected.*; does its URL begin with https://?"),
    ("https", "http", Disconnected, "SSL.*; does its URL begin with http://?"),
    ("ws", "http", HttpError, "The URL of a server over HTTP begins with http:// or https://"),
    ("wss", "http", TransportError, "SSL.*; does its URL begin with ws://?"),
    ("ws", "https", TransportError, "did not respond to the WebSocket handshake.*; does its URL begin with wss://?"),
    ("http", "ws", TrioMcpError, "use a URL that begins with ws:// or wss://"),
    ("tls", "http", TransportError, r"does the server use TLS\?"),
    *(
        (scheme, "none", TransportError, "Connection refused; is the server running?")
        for scheme in ("http", "ws", "tcp")
    ),
)


@pytest.mark.parametrize(("scheme", "server", "kind", "said"), WRONG, ids=[f"{row[0]} to {row[1]}" for row in WRONG])
async def test_a_wrong_url_is_answered_with_what_to_try(
    url_of: Callable[[str], str], scheme: str, server: str, kind: type[TrioMcpError], said: str
) -> None:
    place = url_of(server)
    if scheme in ("tcp", "tls"):
        place = place.partition("/")[0]
    with trio.fail_after(30), pytest.raises(kind, match=said.replace("?", r"\?")):
        async with Client(f"{scheme}://{place}"):
            pass


def test_a_lost_connection_is_an_error_with_a_public_name() -> None:
    """What is printed at the end of a traceback can be imported, and caught."""
    assert f"{Disconnected.__module__}.{Disconnected.__qualname__}" == "trio_mcp.errors.Disconnected"


async def test_a_server_that_has_answered_is_not_suspected_of_tls(nursery: trio.Nursery) -> None:
    answered = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        if not answered.is_set():
            answered.set()
            body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
            head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            await stream.send_all(head.encode() + body)
        await stream.aclose()

    listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
    (listener,) = listeners
    port = listener.socket.getsockname()[1]
    with pytest.raises(Disconnected) as caught:
        async with Client(f"http://127.0.0.1:{port}/mcp"):
            pass
    assert answered.is_set()
    assert "https" not in str(caught.value)
    nursery.cancel_scope.cancel()
