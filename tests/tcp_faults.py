"""A proxy before an engine that speaks RESP: it breaks, holds and refuses connections, and drops messages."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Self

import attrs
import trio

__all__ = ["HABITS", "CuttingProxy", "ProxyProcess", "Replies"]

HABITS = {
    "passing": "It passes everything.",
    "broken": "It has broken all connections, and passes what comes on new ones.",
    "refusing": "It has broken all connections, and refuses new ones, as if nothing listened.",
    "cutting": "It breaks each connection in place of the first response.",
    "holding": "It holds all bytes, and passes them on later.",
    "deaf": "It drops the messages of publish/subscribe.",
}

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

    async def be(self, habit: str) -> None:
        """Take on one of the `HABITS`, in place of the one before."""
        assert self._nursery is not None
        assert habit in HABITS
        self.cutting, self.deaf = habit == "cutting", habit == "deaf"
        if habit == "holding":
            self._passing = trio.Event()
        else:
            self._passing.set()
        if habit == "refusing":
            self._listening.cancel()
        elif self._listening.cancel_called:
            await self._nursery.start(self._listen)
        if habit in ("refusing", "broken"):
            for each in self._connections:
                each.cancel()

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


@attrs.define(eq=False)
class ProxyProcess:
    """A proxy in a process of its own, which no load of this one delays.

    Attributes:
        port: Where it listens.
    """

    port: int
    _process: trio.Process
    _said: AsyncIterator[str]

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, path: str) -> AsyncIterator[Self]:
        """Run one until the end of the block."""
        command = [sys.executable, "-m", "tests.tcp_faults", path]
        process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            said = _lines(process.stdout)
            yield cls(int(await anext(said)), process, said)
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()

    async def be(self, habit: str) -> None:
        """Let it take on one of the `HABITS`, and wait until it has."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(f"{habit}\n".encode())
        await anext(self._said)


async def _lines(stream: trio.abc.ReceiveStream) -> AsyncIterator[str]:
    rest = b""
    async for data in stream:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode()


async def _serve_orders(path: str) -> None:
    async with CuttingProxy.to(path) as proxy:
        print(proxy.port, flush=True)
        async for habit in _lines(trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))):
            await proxy.be(habit)
            print(habit, flush=True)


if __name__ == "__main__":
    trio.run(_serve_orders, sys.argv[1])
