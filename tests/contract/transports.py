"""Every transport of the package, as `check_transport` takes it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio
import trio.testing

from tests.contract.stdio_child import LIMIT, MALFORMED
from tests.forks import command
from tests.server.http.certificate import over_tls
from trio_mcp import Server, StdioServerParameters
from trio_mcp._nursery import background_nursery, start
from trio_mcp.jsonrpc import Malformed
from trio_mcp.low_level import (
    Link,
    SessionMessage,
    failover_client,
    memory_link_pair,
    stdio_client,
    stream_link,
    tcp_client,
    unix_client,
    websocket_client,
)
from trio_mcp.server.base_server import core_of
from trio_mcp.sockets.listening import peer_credentials


class _Session:
    """What a transport's server end takes for a session; the link itself is given away."""

    ending = False

    async def end_listening(self) -> None:
        pass

    async def wait_idle(self) -> None:
        pass

    wait_settled = aclose = end_listening


@attrs.define
class Given:
    """A link that a server has opened.

    Attributes:
        link: The link.
        done: Ends its block when set.
        ended: Set when the block has ended.
    """

    link: Link
    done: trio.Event = attrs.Factory(trio.Event)
    ended: trio.Event = attrs.Factory(trio.Event)


class _Run:
    """A run of a server, but for what it does with a link."""

    def __init__(self, run: Any, serve_opening: Callable[..., Awaitable[None]]) -> None:
        self._run = run
        self.serve_opening = serve_opening

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)


class Giving(Server):
    """A server that serves no sessions, but gives its links away.

    Attributes:
        links: Where they go.
    """

    def __init__(self) -> None:
        super().__init__("giving")
        self._give, self.links = trio.open_memory_channel[Given](0)

        core = core_of(self)
        core.open_run = partial(self._open_run, core.open_run)  # type: ignore[method-assign]

    @contextlib.asynccontextmanager
    async def _open_run(self, open_run: Callable[[], Any]) -> AsyncIterator[Any]:
        async with open_run() as run:
            yield _Run(run, self._serve_opening)

    async def _serve_opening(self, opening: Any, opened: Callable[[Any], object]) -> None:
        async with opening as link:
            opened(_Session())
            given = Given(link)
            await self._give.send(given)
            await given.done.wait()
        given.ended.set()


Serve = Callable[..., Awaitable[None]]
Connect = Callable[[str], contextlib.AbstractAsyncContextManager[Any]]


@contextlib.asynccontextmanager
async def served(serve: Serve, connect: Connect) -> AsyncIterator[tuple[Any, Link]]:
    """Run a server, connect to it, and yield what `connect` yields, and the server's link.

    Args:
        serve: The unbound method of a server.
        connect: Connects to its URL.
    """
    server = Giving()
    async with background_nursery() as nursery:
        url = await start(nursery, partial(serve, server))
        async with connect(url) as client:
            given = await server.links.receive()
            yield client, given.link
        given.done.set()
        await given.ended.wait()


@contextlib.asynccontextmanager
async def served_raw(serve: Serve, connect: Connect) -> AsyncIterator[tuple[Link, Any]]:
    """Do what `served` does, the other way round."""
    async with served(serve, connect) as (stream, link):
        yield link, stream


@contextlib.asynccontextmanager
async def accepting(
    open_listener: Callable[[], Awaitable[tuple[trio.SocketListener, str]]],
    connect: Connect,
    prepare: Callable[[trio.SocketStream], Awaitable[Any]],
) -> AsyncIterator[tuple[Link, Any]]:
    """Accept a client, and yield its link and the stream at our end.

    Args:
        open_listener: Listens, and returns where.
        connect: Connects to that URL.
        prepare: Makes of what is accepted the stream to yield.
    """
    listener, url = await open_listener()
    streams: list[Any] = []
    ready = trio.Event()
    async with listener, background_nursery() as nursery:

        @nursery.start_soon
        async def accept() -> None:
            stream = await listener.accept()
            with contextlib.closing(stream.socket):
                streams.append(await prepare(stream))
                ready.set()
                await trio.sleep_forever()

        async with connect(url) as link:
            await ready.wait()
            yield link, streams[0]
            # The other end need not wait for an answer to its close.
            reset(streams[0])


async def as_it_is(stream: trio.SocketStream) -> trio.SocketStream:
    return stream


def reset(stream: Any) -> None:
    """Destroy a connection: its other end gets a reset."""
    sock = getattr(stream, "transport_stream", stream).socket
    if sock.fileno() < 0:
        return  # it is closed already
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@contextlib.asynccontextmanager
async def cutting(raw: Callable[[], Any]) -> AsyncIterator[tuple[Link, Callable[[], None]]]:
    """Turn a connection with a raw end into one that can be cut."""
    async with raw() as (link, stream), background_nursery() as nursery:

        @nursery.start_soon
        async def read() -> None:
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async for _ in stream:
                    pass

        yield link, lambda: reset(stream)
        nursery.cancel_scope.cancel()


# --- streams of our own -----------------------------------------------------------------------------------------------


async def connect_raw(url: str) -> trio.SocketStream:
    """Connect to the address in a URL."""
    if url.startswith("unix:"):
        return await trio.open_unix_socket(url.removeprefix("unix:"))
    host, port = url.split("//")[1].split("/")[0].split(":")
    return await trio.open_tcp_stream(host, int(port))


@contextlib.asynccontextmanager
async def connected(prepare: Callable[[trio.SocketStream], Awaitable[Any]], url: str) -> AsyncIterator[Any]:
    """Connect to a URL with a stream of our own."""
    stream = await connect_raw(url)
    with contextlib.closing(stream.socket):
        yield await prepare(stream)


async def listen(scheme: str) -> tuple[trio.SocketListener, str]:
    """Listen on a free port."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    return listener, f"{scheme}://127.0.0.1:{listener.socket.getsockname()[1]}"


async def listen_unix(path: Callable[[], Path]) -> tuple[trio.SocketListener, str]:
    """Listen on a Unix socket."""
    await trio.lowlevel.checkpoint()
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(name := path()))
    sock.listen(5)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock)), f"unix:{name}"


async def _head(stream: trio.SocketStream) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += await stream.receive_some(1)
    return head


async def upgraded(stream: trio.SocketStream) -> trio.SocketStream:
    """Open a WebSocket by hand, as its client."""
    await stream.send_all(
        b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mcp\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert b" 101 " in await _head(stream)
    return stream


async def upgrading(stream: trio.SocketStream) -> trio.SocketStream:
    """Open a WebSocket by hand, as its server."""
    found = re.search(rb"Sec-WebSocket-Key: (\S+)", await _head(stream), re.IGNORECASE)
    assert found is not None
    accept = base64.b64encode(hashlib.sha1(found[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    await stream.send_all(
        b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: mcp\r\n"
        b"Sec-WebSocket-Accept: %s\r\n\r\n" % accept
    )
    return stream


def text_frame(text: bytes, *, masked: bool) -> bytes:
    """Return a text frame (RFC 6455, section 5.2); the key of its mask is zero, so the text stays readable."""
    mask = 0x80 if masked else 0
    if len(text) < 126:
        head = struct.pack("!BB", 0x81, mask | len(text))
    elif len(text) < 2**16:
        head = struct.pack("!BBH", 0x81, mask | 126, len(text))
    else:
        head = struct.pack("!BBQ", 0x81, mask | 127, len(text))
    return head + bytes(4 if masked else 0) + text


# --- the table --------------------------------------------------------------------------------------------------------

Arguments = dict[str, Any]
TRANSPORTS: dict[str, Callable[[Path], Arguments]] = {}
"""By name: what `check_transport` is given, from a folder for files."""

SERVER_ENDS: dict[str, Callable[[Path], Arguments]] = {}
"""The same for the rules about bytes and losses at the server's end; `TRANSPORTS` has them at the client's."""


def register(
    table: dict[str, Callable[[Path], Arguments]], name: str
) -> Callable[[Callable[[Path], Arguments]], Callable[[Path], Arguments]]:
    """Add a transport to a table."""

    def add(make: Callable[[Path], Arguments]) -> Callable[[Path], Arguments]:
        table[name] = make
        return make

    return add


register(TRANSPORTS, "memory")(lambda _: {"pair": memory_link_pair})
register(TRANSPORTS, "memory, encoded")(lambda _: {"pair": partial(memory_link_pair, encode=True)})


@contextlib.asynccontextmanager
async def socket_pair(*kinds: Any) -> AsyncIterator[tuple[Any, Any]]:
    """Connect two sockets, and open a link on each, or leave it as it is."""
    async with contextlib.AsyncExitStack() as stack:
        ends = []
        for sock in map(trio.socket.from_stdlib_socket, socket.socketpair()):
            stream = await stack.enter_async_context(trio.SocketStream(sock))
            ends.append(stream)
        yield tuple(
            [
                stream if kind is None else await stack.enter_async_context(kind(stream))
                for stream, kind in zip(ends, kinds, strict=True)
            ]
        )


@register(TRANSPORTS, "stream_link")
def on_streams(_: Path) -> Arguments:
    small = partial(stream_link, max_message_size=LIMIT)
    return {"pair": partial(socket_pair, stream_link, stream_link), "raw": partial(socket_pair, small, None)}


def with_raw(raw: Callable[[], Any], **arguments: Any) -> Arguments:
    return {"raw": raw, "cut": partial(cutting, raw), "max_message_size": LIMIT, **arguments}


@register(TRANSPORTS, "TCP")
def over_tcp(_: Path) -> Arguments:
    raw = partial(accepting, partial(listen, "tcp"), partial(tcp_client, max_message_size=LIMIT), as_it_is)
    return with_raw(raw, pair=partial(served, partial(Server.serve_tcp, port=0), tcp_client))


@register(SERVER_ENDS, "TCP")
def tcp_server(_: Path) -> Arguments:
    serve = partial(Server.serve_tcp, port=0, max_message_size=LIMIT)
    return with_raw(partial(served_raw, serve, partial(connected, as_it_is)))


def _contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    config, client = over_tls(folder)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(config.certfile, config.keyfile)
    return server, client


async def _encrypted(context: ssl.SSLContext, server_side: bool, stream: trio.SocketStream) -> Any:
    name = None if server_side else "127.0.0.1"
    encrypted = trio.SSLStream(stream, context, server_hostname=name, server_side=server_side)
    await encrypted.do_handshake()
    return encrypted


@register(TRANSPORTS, "TLS")
def tls_both(folder: Path) -> Arguments:
    server, client = _contexts(folder)
    connect = partial(tcp_client, ssl_context=client)
    raw = partial(
        accepting, partial(listen, "tls"), partial(connect, max_message_size=LIMIT), partial(_encrypted, server, True)
    )
    return with_raw(raw, pair=partial(served, partial(Server.serve_tcp, port=0, ssl_context=server), connect))


@register(SERVER_ENDS, "TLS")
def tls_server(folder: Path) -> Arguments:
    server, client = _contexts(folder)
    serve = partial(Server.serve_tcp, port=0, ssl_context=server, max_message_size=LIMIT)
    return with_raw(partial(served_raw, serve, partial(connected, partial(_encrypted, client, False))))


def _paths(folder: Path) -> Callable[[], Path]:
    return lambda: folder / f"s{next(_NUMBERS)}"


_NUMBERS = itertools.count()


async def _serve_unix(path: Callable[[], Path], server: Server, **options: Any) -> None:
    await server.serve_unix(path(), **options)


@register(TRANSPORTS, "Unix socket")
def over_unix(folder: Path) -> Arguments:
    path = _paths(folder)
    raw = partial(accepting, partial(listen_unix, path), partial(unix_client, max_message_size=LIMIT), as_it_is)
    return {"pair": partial(served, partial(_serve_unix, path), unix_client), "raw": raw, "max_message_size": LIMIT}


@register(SERVER_ENDS, "Unix socket")
def unix_server(folder: Path) -> Arguments:
    serve = partial(_serve_unix, _paths(folder), max_message_size=LIMIT)
    return {"raw": partial(served_raw, serve, partial(connected, as_it_is)), "max_message_size": LIMIT}


def websocket(runner: str) -> None:
    """Register the WebSocket on one of the HTTP runners."""
    serve = partial(Server.serve_websocket, port=0, runner=runner)

    @register(TRANSPORTS, f"WebSocket, {runner}")
    def both(_: Path) -> Arguments:
        client = partial(websocket_client, max_message_size=LIMIT)
        raw = partial(accepting, partial(listen, "ws"), client, upgrading)
        pair = partial(served, serve, websocket_client)
        return with_raw(raw, pair=pair, frame=partial(text_frame, masked=False))

    @register(SERVER_ENDS, f"WebSocket, {runner}")
    def server(_: Path) -> Arguments:
        raw = partial(served_raw, partial(serve, max_message_size=LIMIT), partial(connected, upgraded))
        return with_raw(raw, frame=partial(text_frame, masked=True))


for name in ("h11", "hypercorn"):
    websocket(name)


@register(TRANSPORTS, "failover")
def over_ways(_: Path) -> Arguments:
    """One way is enough: the same code carries a session over any of them."""
    pair = partial(served, partial(Server.serve_tcp, port=0), lambda url: failover_client([url]))
    # The end of one connection is what it hides from a client: it opens the next.
    return {"pair": pair, "traits": {"no_end"}}


# --- stdio ------------------------------------------------------------------------------------------------------------


class _Reads(trio.abc.ReceiveChannel[SessionMessage]):
    """What the child process has received, with its `Malformed`s."""

    def __init__(self, inner: trio.abc.ReceiveChannel[SessionMessage]) -> None:
        self._inner = inner

    async def receive(self) -> SessionMessage:
        item = await self._inner.receive()
        if getattr(item.message, "method", None) == MALFORMED:
            return SessionMessage(Malformed(-32700, item.message.params["reason"]))  # type: ignore[union-attr, index]
        return item

    async def aclose(self) -> None:
        await self._inner.aclose()


@contextlib.asynccontextmanager
async def _child(path: Callable[[], Path], mode: str, **options: Any) -> AsyncIterator[tuple[Link, trio.SocketStream]]:
    """Start a server process, and yield the client's link and the stream that stands for the server's end."""
    listener, url = await listen_unix(path)
    program = [*CHILD, mode, url.removeprefix("unix:")]
    async with listener, stdio_client(StdioServerParameters(program[0], program[1:]), **options) as client:
        stream = await listener.accept()
        with contextlib.closing(stream.socket):
            yield client, stream


CHILD = command(
    str(Path(__file__).with_name("stdio_child.py")), "trio_mcp.stdio.server", "trio_mcp.sockets.stream_link"
)


@register(TRANSPORTS, "stdio")
def over_stdio(folder: Path) -> Arguments:
    path = _paths(folder)

    @contextlib.asynccontextmanager
    async def pair() -> AsyncIterator[tuple[Link, Link]]:
        async with _child(path, "serve") as (client, stream), stream_link(stream) as server:
            yield client, server

    @contextlib.asynccontextmanager
    async def cut() -> AsyncIterator[tuple[Link, Callable[[], None]]]:
        async with _child(path, "copy") as (client, stream):
            credentials = peer_credentials(stream.socket)
            assert credentials is not None
            yield client, lambda: os.kill(credentials.pid, signal.SIGKILL)

    raw = partial(_child, path, "copy", max_message_size=LIMIT)
    return {"pair": pair, "raw": raw, "cut": cut, "max_message_size": LIMIT, "places": 6}


@register(SERVER_ENDS, "stdio")
def stdio_server_end(folder: Path) -> Arguments:
    path = _paths(folder)

    @contextlib.asynccontextmanager
    async def raw() -> AsyncIterator[tuple[Link, trio.abc.Stream]]:
        listener, url = await listen_unix(path)
        program = [*CHILD, "serve", url.removeprefix("unix:"), "small"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        async with listener, background_nursery() as nursery:
            process = await start(nursery, partial(trio.run_process, program, **pipes))
            stream = await listener.accept()
            async with trio.StapledStream(process.stdin, process.stdout) as wire, stream_link(stream) as link:
                yield Link(_Reads(link.read), link.write), wire
            await process.wait()

    return {"raw": raw, "max_message_size": LIMIT}
