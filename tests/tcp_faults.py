"""A proxy before an engine that speaks RESP: it breaks, holds and refuses connections, and drops messages."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Self

import attrs
import trio

__all__ = ["CuttingProxy", "Replies"]

MESSAGE = re.compile(rb">\d+\r\n\$\d+\r\n[ps]?message\r\n")
"""What a message of publish/subscribe begins with, in RESP 3."""


@attrs.define(eq=False)
class Replies:
    """Splits what an engine sends into replies and pushes, each of them whole."""

    _unread: bytearray = attrs.Factory(bytearray)
    _place: int = 0
    _missing: int = 1  # values of the first reply that begin at the place, or later

    def feed(self, data: bytes | bytearray) -> list[bytes]:
        """Add what was received, and return what is complete."""
        self._unread += data
        found = []
        while self._is_whole():
            found.append(bytes(self._unread[: self._place]))
            del self._unread[: self._place]
            self._place, self._missing = 0, 1
        return found

    def _is_whole(self) -> bool:
        while self._missing:
            end = self._unread.find(b"\r\n", self._place)
            if end < 0:
                return False
            kind, rest = chr(self._unread[self._place]), self._unread[self._place + 1 : end]
            after = end + 2
            if kind in "$!=" and (size := int(rest)) >= 0:
                after += size + 2
                if after > len(self._unread):
                    return False
            elif kind in "*~>%|":
                self._missing += max(0, int(rest)) * (2 if kind in "%|" else 1) + (kind == "|")
            self._missing -= 1
            self._place = after
        return True


@attrs.define(eq=False)
class CuttingProxy:
    """Passes bytes between a port and the Unix socket of an engine. If that does not listen, it closes connections.

    Attributes:
        port: Where it listens.
        cutting: Whether it passes requests only, and breaks a connection in place of the first response.
        deaf: Whether it drops the messages of publish/subscribe, and passes the replies.
    """

    path: str
    port: int = 0
    cutting: bool = False
    deaf: bool = False
    _passing: trio.Event = attrs.Factory(trio.Event)
    _connections: set[trio.CancelScope] = attrs.Factory(set)
    _nursery: trio.Nursery | None = None
    _listening: trio.CancelScope = attrs.Factory(trio.CancelScope)

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, path: str) -> AsyncIterator[Self]:
        """Run a proxy until the end of the block."""
        proxy = cls(path)
        proxy._passing.set()
        # Held while it refuses connections: of sockets that are not listening, several may have the address.
        with _bound(0) as held:
            proxy.port = held.getsockname()[1]
            async with trio.open_nursery() as nursery:
                proxy._nursery = nursery
                await nursery.start(proxy._listen)
                yield proxy
                nursery.cancel_scope.cancel()

    def cut(self) -> None:
        """Break all connections."""
        for each in self._connections:
            each.cancel()

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Hold all bytes for the block, and then pass them on."""
        self._passing = trio.Event()
        try:
            yield
        finally:
            self._passing.set()

    @contextlib.asynccontextmanager
    async def refusing(self) -> AsyncIterator[None]:
        """Break all connections, and refuse new ones for the block, as if nothing listened."""
        assert self._nursery is not None
        self._listening.cancel()
        self.cut()
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                await self._nursery.start(self._listen)

    async def _listen(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with _bound(self.port) as sock, trio.CancelScope() as self._listening:
            sock.listen(1024)
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
            task_status.started()
            await trio.serve_listeners(self._serve, [listener], handler_nursery=self._nursery)

    async def _serve(self, client: trio.SocketStream) -> None:
        with trio.CancelScope() as scope:
            self._connections.add(scope)
            try:
                with contextlib.suppress(OSError):
                    server = await trio.open_unix_socket(self.path)
                    async with client, server, trio.open_nursery() as nursery:
                        nursery.start_soon(self._ask, client, server, scope)
                        nursery.start_soon(self._reply, server, client, scope)
            finally:
                self._connections.discard(scope)
                await trio.aclose_forcefully(client)

    async def _ask(self, client: trio.SocketStream, server: trio.SocketStream, scope: trio.CancelScope) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            async for data in client:
                await self._passing.wait()
                await server.send_all(data)
        scope.cancel()

    async def _reply(self, server: trio.SocketStream, client: trio.SocketStream, scope: trio.CancelScope) -> None:
        replies = Replies()
        with contextlib.suppress(trio.BrokenResourceError):
            async for data in server:
                if self.cutting:
                    break
                found = replies.feed(data)
                if self.deaf:
                    found = [each for each in found if not MESSAGE.match(each)]
                await self._passing.wait()
                await client.send_all(b"".join(found))
        scope.cancel()


def _bound(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    return sock
