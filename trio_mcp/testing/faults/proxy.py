"""A proxy that passes bytes between a client and a server, over connections with injected faults."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import trio

from trio_mcp._checks import check_hook
from trio_mcp._nursery import EnteredOnce, background_nursery
from trio_mcp.errors import LocalProtocolError
from trio_mcp.testing.faults.flow import FaultInjector, Valve
from trio_mcp.testing.faults.steps import ON_WIRES, Faults, Reset, Tear

__all__ = ["FaultProxy"]

PIECE = 65536
"""The maximum number of bytes that are read at a time in one direction. An arbitrary choice."""

BACKLOG = 128
"""How many connections may wait to be accepted. An arbitrary choice."""

LINGER = 1.0
"""How many seconds the two sides of a torn connection get to close it. An arbitrary choice.

Until then the proxy reads what they send, since closing a socket with unread data would send a reset.
"""

_ABORT = struct.pack("ii", 1, 0)  # l_onoff, l_linger: a close is a reset (socket(7))
# The default ports of RFC 9110 (sections 4.2.1 and 4.2.2) and RFC 6455 (section 3); the other schemes have none.
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_LOOPBACK = "127.0.0.1"


class FaultProxy(FaultInjector, EnteredOnce):
    """A proxy with faults on its connections, over TCP or a Unix socket: ``async with FaultProxy(url) as proxy``.

    The proxy does not interpret the bytes that it passes on, so it works with every transport over sockets, with or
    without TLS. It is meant for tests, so it listens only on the loopback address or on a Unix socket.

    Args:
        target: Where the connections lead: a URL with a host and a port, of any scheme, or ``unix:/path``.
        faults: The faults of each connection, in order; those after the last one are left alone. For the same faults
            each time, pass ``itertools.repeat(Faults(...))``.
        on_sent: A sync function, called with each piece of data for the server just before it is passed on.
    """

    def __init__(
        self, target: str, faults: Iterable[Faults] = (), *, on_sent: Callable[[bytes], object] | None = None
    ) -> None:
        super().__init__(faults, ON_WIRES, "a wire")
        check_hook("on_sent", on_sent, sync=True)
        self._on_sent = on_sent
        self._target = urlsplit(target)
        self._port = self._target.port or _PORTS.get(self._target.scheme)
        if self._target.scheme != "unix" and (self._target.hostname is None or self._port is None):
            raise ValueError(f"a target must be a URL with a host and a port, or unix:/path; got {target!r}")
        self._address: str | tuple[str, int] | None = None
        self._listener: trio.SocketListener | None = None
        self._accepting = Valve()

    @property
    def url(self) -> str:
        """The URL at which a client reaches the target through this proxy."""
        if self._target.scheme == "unix":
            return f"unix:{self._address}"
        # A client checks a certificate against the host in its URL, and one for localhost is not valid for 127.0.0.1.
        host = "localhost" if self._target.hostname == "localhost" else _LOOPBACK
        return self._target._replace(netloc=f"{host}:{self.port}").geturl()

    @property
    def port(self) -> int:
        """The port that the proxy listens on.

        Raises:
            LocalProtocolError: If the proxy has no port: it listens on a Unix socket, or its block was not entered.
        """
        if not isinstance(self._address, tuple):
            raise LocalProtocolError("the proxy has no port: it listens on a Unix socket, or its block was not entered")
        return self._address[1]

    def refuse(self, cause: Exception | None = None) -> None:
        if self._listener is not None:
            # To stop accepting would not be enough: the system itself completes connections up to the backlog, and
            # those look open to their clients. Closing the listener also resets the connections that wait in the
            # backlog.
            self._listener.socket.close()
            self._listener = None
            self._accepting.close()
            # A Unix socket can't be bound while its file exists, even if no socket listens there (unix(7)).
            if isinstance(self._address, str):
                Path(self._address).unlink()

    def accept(self) -> None:
        if self._listener is None:
            assert self._address is not None, "the proxy's block was not entered"
            listening = _bound(self._address)
            listening.listen(BACKLOG)
            self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
            self._accepting.open()

    @contextlib.asynccontextmanager
    async def _lifetime(self) -> AsyncIterator[None]:
        # Entering a block is a checkpoint (docs/design.md, rule 11); this early, a cancellation finds nothing to close.
        await trio.lowlevel.checkpoint()
        with contextlib.ExitStack() as stack:
            if self._target.scheme == "unix":
                self._address = f"{stack.enter_context(TemporaryDirectory())}/socket"
            else:
                # This socket is bound and never listens: it keeps the port while new connections are refused.
                self._address = stack.enter_context(_bound((_LOOPBACK, 0))).getsockname()
            self.accept()
            # The stack closes the listener however the block ends, and before the folder of its socket is removed.
            stack.callback(self.refuse)
            async with background_nursery() as nursery:
                nursery.start_soon(self._accept_all, nursery)
                yield

    async def _accept_all(self, nursery: trio.Nursery) -> None:
        while True:
            await self._accepting.passed()
            # The valve is open when `passed` returns, and `refuse` can't run before the next checkpoint, so there is a
            # listener.
            assert self._listener is not None
            with contextlib.suppress(trio.ClosedResourceError):  # `refuse` has closed the listener
                nursery.start_soon(self._serve, await self._listener.accept())

    async def _serve(self, near: trio.SocketStream) -> None:
        # The sockets are closed instead of the streams: closing a stream is a checkpoint, where a `Cancelled` could
        # replace an exception raised in this block.
        with near.socket, self._opened() as connection:
            try:
                # The connecting is outside the connection's scope, so a call to `tear` takes effect once both sides are
                # connected.
                far = await self._connect()
            except OSError:
                _abort(near)  # a connection that was accepted can no longer be refused
                return
            with far.socket:
                await self._run(
                    connection,
                    self._flow(0, partial(near.receive_some, PIECE), partial(_send, far, self._on_sent)),
                    self._flow(1, partial(far.receive_some, PIECE), partial(_send, near, None)),
                )
                # Both directions must have ended before this: `_tear` reads, and Trio lets only one task at a time read
                # from a socket.
                if isinstance(connection.ending, Tear):
                    await _tear(near, far)
                elif isinstance(connection.ending, Reset):
                    _abort(near)
                    _abort(far)

    async def _connect(self) -> trio.SocketStream:
        if self._target.scheme == "unix":
            return await trio.open_unix_socket(self._target.path)
        assert self._target.hostname is not None
        assert self._port is not None
        return await trio.open_tcp_stream(self._target.hostname, self._port)


def _bound(address: str | tuple[str, int]) -> socket.socket:
    made = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    # The socket that keeps the port is bound to the same address, and connections of an earlier listener may still
    # exist. With this option Linux allows binding even so, as long as no other socket listens there (socket(7)).
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(address)
    return made


async def _send(stream: trio.SocketStream, watch: Callable[[bytes], object] | None, data: bytes) -> None:
    # The hook is called before the send: if a fault cuts the send off, the server may still have received part of the
    # data and acted on it.
    if watch is not None and data:
        watch(data)
    await (stream.send_all(data) if data else stream.send_eof())


async def _tear(*streams: trio.SocketStream) -> None:
    """End the sending direction of both streams, and read what the two sides still send."""
    for stream in streams:
        with contextlib.suppress(OSError):
            stream.socket.shutdown(socket.SHUT_WR)
    with trio.move_on_after(LINGER), contextlib.suppress(trio.BrokenResourceError):
        for stream in streams:
            while await stream.receive_some(PIECE):
                pass


def _abort(stream: trio.SocketStream) -> None:
    """Close a connection with a reset. Unix sockets have no resets: there, the peer sees an ordinary end."""
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
    stream.socket.close()
