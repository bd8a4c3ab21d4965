"""The client's end of TCP, TLS and Unix sockets: connects to a server, and opens a link over the connection."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator

import trio

from trio_mcp._checks import check_on_trio
from trio_mcp._platform import check_unix_sockets
from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE
from trio_mcp.link import Link, connect_problem
from trio_mcp.sockets.addresses import Address, read_address, unix_path
from trio_mcp.sockets.listening import keep_alive
from trio_mcp.sockets.stream_link import PeerTerms, link_on_terms

__all__ = ["open_socket", "tcp_client", "unix_client"]

OPENING_TIMEOUT = 10.0
"""Seconds that connecting may take, including any TLS handshake. There is a limit because a server of another kind may
never respond; its value is the same as for WebSockets."""

AGAIN = 0.01
"""Seconds between attempts to connect while the backlog of a Unix socket is full: an arbitrary choice."""

MAYBE_FULL = " before it responded: is the server at its connection limit?"


@contextlib.asynccontextmanager
async def tcp_client(
    url: str, *, ssl_context: ssl.SSLContext | None = None, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
) -> AsyncIterator[Link]:
    """Connect to a server over TCP, ``tcp://host:port``, or over TLS, ``tls://host:port``, within ten seconds.

    At the end of the block, messages that were sent before are still delivered, as with `stream_link`. If the block is
    cancelled, the connection is closed at once.

    Args:
        url: The server's URL.
        ssl_context: How to check the server's certificate, for ``tls://``, and which certificate to present; the
            default is ``ssl.create_default_context()``.
        max_message_size: The maximum length of a line from the server, in bytes; a longer line is skipped.

    Raises:
        TransportError: If the server can't be reached, or its certificate is not accepted.
        ValueError: If the URL is not valid, or ``ssl_context`` is given for ``tcp://``.
        TypeError: If an argument is of the wrong type.
    """
    check_on_trio()
    address = read_address(url)
    if address.scheme == "unix":
        raise ValueError(f"{url!r} is the URL of a Unix socket: use unix_client")
    if ssl_context is not None and address.scheme != "tls":
        raise ValueError(f"ssl_context is given, but {url!r} does not use TLS: write tls://")
    stream = await open_socket(address, ssl_context)
    hint = (
        " before it responded: is the server at its connection limit, or does it speak TLS? "
        f"(For TLS, write tls://{address.place}.)"
    )
    if address.scheme == "tls":
        hint = MAYBE_FULL
    async with link_on_terms(stream, PeerTerms(url, guarded=True, hint=hint), max_message_size) as link:
        yield link


async def open_socket(
    address: Address, ssl_context: ssl.SSLContext | None = None, *, https_compatible: bool = False
) -> trio.abc.Stream:
    """Connect to an address, with TLS if its scheme is ``tls``, within ten seconds.

    Args:
        address: The address to connect to.
        ssl_context: How to check the server's certificate.
        https_compatible: Whether TLS may end without a close_notify, as with HTTP, which marks the end of a body
            itself.

    Raises:
        TransportError: If no server is listening at the address, or the certificate is not accepted.
    """
    with trio.move_on_after(OPENING_TIMEOUT):
        return await _opened(address, ssl_context, https_compatible)
    raise TransportError(f"{address.url} did not respond within {OPENING_TIMEOUT:g} seconds")


async def _opened(address: Address, ssl_context: ssl.SSLContext | None, https_compatible: bool) -> trio.abc.Stream:
    if address.scheme == "unix":
        return await _connected(address.place)
    try:
        stream = await trio.open_tcp_stream(address.host, address.port)
    except OSError as exc:
        raise TransportError(f"can't connect to {address.url}: {connect_problem(exc)}") from exc
    # A call may wait for hours. Without keep-alive probes, the loss of a server that has vanished would never be
    # noticed.
    keep_alive(stream.socket)
    if address.scheme != "tls":
        return stream
    return await _encrypted(stream, address, ssl_context or ssl.create_default_context(), https_compatible)


async def _encrypted(
    stream: trio.SocketStream, address: Address, context: ssl.SSLContext, https_compatible: bool
) -> trio.SSLStream[trio.SocketStream]:
    encrypted = trio.SSLStream(stream, context, server_hostname=address.host, https_compatible=https_compatible)
    try:
        # The handshake is done at once. During the first write, the handshake would be too late: a certificate that is
        # not accepted must make the opening fail, within its time limit.
        await encrypted.do_handshake()
    except trio.BrokenResourceError as exc:
        stream.socket.close()
        cause = exc.__cause__
        text = (
            f"the TLS handshake with {address.url} failed: "
            f"does the server use TLS? (If not, write tcp://{address.place}.)"
        )
        if isinstance(cause, ssl.SSLCertVerificationError):
            text = f"the certificate of {address.url} was not accepted: {cause.verify_message}"
        raise TransportError(text) from exc
    # Nothing may be awaited while an exception is handled: in a cancelled scope, that would replace a
    # `KeyboardInterrupt` by `Cancelled`.
    except BaseException:
        stream.socket.close()
        raise
    return encrypted


@contextlib.asynccontextmanager
async def unix_client(
    path: str | os.PathLike[str], *, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
) -> AsyncIterator[Link]:
    """Connect to a server on a Unix socket.

    Args:
        path: The path of the socket, or its URL: ``unix:/path``.
        max_message_size: The maximum length of a line from the server, in bytes; a longer line is skipped.

    Raises:
        TransportError: If there is no such socket, or no server is listening on it.
        ValueError: If a socket can't have this path.
        TypeError: If an argument is of the wrong type.
    """
    check_on_trio()
    name = unix_path(path)
    stream = await _connected(name)
    terms = PeerTerms(f"unix:{name}", guarded=True, hint=MAYBE_FULL)
    async with link_on_terms(stream, terms, max_message_size) as link:
        yield link


async def _connected(path: str) -> trio.SocketStream:
    await trio.lowlevel.checkpoint()
    check_unix_sockets()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        while True:  # noqa: ASYNC913 - there is a checkpoint above
            try:
                # On a Unix socket, `connect` does not block: if the backlog is full, it fails with EAGAIN (connect(2)).
                sock.connect(path)
                return trio.SocketStream(trio.socket.from_stdlib_socket(sock))
            except BlockingIOError:
                # Too many clients are waiting to be accepted. Trio's own `connect` is not used, because it would
                # consider the socket connected.
                await trio.sleep(AGAIN)
    except OSError as exc:
        sock.close()
        raise TransportError(f"can't connect to {path}: {_why_not(path, exc)}") from exc
    except BaseException:
        sock.close()
        raise


def _why_not(path: str, exc: OSError) -> str:
    if isinstance(exc, ConnectionRefusedError):
        # The system reports the same error for a file of another kind and for a socket that a server has left behind.
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                return "it is not a socket"
        return "no server is listening on it"
    return exc.strerror or str(exc)
