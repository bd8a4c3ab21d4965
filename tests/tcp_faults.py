"""A proxy that breaks connections in the moment in which a response passes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Self

import attrs
import trio

__all__ = ["CuttingProxy"]


@attrs.define(eq=False)
class CuttingProxy:
    """Passes bytes between a port and the Unix socket of a server.

    Attributes:
        port: Where it listens.
        cutting: Whether it passes requests only, and breaks a connection in place of the first response.
    """

    path: str
    port: int = 0
    cutting: bool = False

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, path: str) -> AsyncIterator[Self]:
        """Run a proxy until the end of the block."""
        proxy = cls(path)
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, proxy._serve, 0, host="127.0.0.1"))
            proxy.port = listener.socket.getsockname()[1]
            yield proxy
            nursery.cancel_scope.cancel()

    async def _serve(self, client: trio.SocketStream) -> None:
        server = await trio.open_unix_socket(self.path)
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(self._pass, client, server, False, nursery.cancel_scope)
            nursery.start_soon(self._pass, server, client, True, nursery.cancel_scope)

    async def _pass(
        self, source: trio.SocketStream, sink: trio.SocketStream, back: bool, end: trio.CancelScope
    ) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            async for data in source:
                if back and self.cutting:
                    break
                await sink.send_all(data)
        end.cancel()
