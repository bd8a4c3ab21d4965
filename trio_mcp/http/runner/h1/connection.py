"""One HTTP/1.1 connection, served by one task: it reads a request, runs the application, and goes on to the next."""

from __future__ import annotations

import math
from typing import Any, Protocol

import trio
from hypercorn.config import Config

from trio_mcp.http.runner.h1.exchange import ASGI, Exchange, head_of
from trio_mcp.http.runner.h1.hangups import Hangups
from trio_mcp.http.runner.h1.incoming import Head, Heads, Incoming
from trio_mcp.http.runner.heads import Fields, Malformed
from trio_mcp.http.runner.wire import MAX_RECEIVED, Wire, address, lifetime
from trio_mcp.http.server.asgi import DRAIN_TIME, DRAINED

__all__ = ["Connection", "Shared"]


class Shared(Protocol):
    """What the connections of one server share."""

    app: Any
    config: Config
    heads: Heads
    hangups: Hangups
    write_timeout: float
    ending: bool


class Connection:
    """A connection, from its acceptance to its end.

    Args:
        shared: What all connections share.
        stream: The connection's stream: a socket's, or TLS over one.
    """

    __slots__ = (
        "_crowded",
        "_exchange",
        "_idle",
        "_left",
        "_requests",
        "_scope",
        "_shared",
        "config",
        "incoming",
        "wire",
    )

    def __init__(self, shared: Shared, stream: Any) -> None:
        self.wire = Wire(stream, shared.config, shared.write_timeout)
        self.incoming = Incoming(shared.heads)
        self.config = shared.config
        self._shared = shared
        self._exchange: Exchange | None = None
        self._idle = True  # no request is under way
        self._left = False  # the client has left
        self._crowded = 0  # the request behind which too much was waiting at the last look
        self._requests = 0
        self._scope: dict[str, Any] = {}

    @property
    def may_last(self) -> bool:
        """Whether another request may follow this one."""
        return not self._shared.ending and self._requests < self.config.keep_alive_max_requests

    async def run(self) -> None:
        """Serve requests until either end closes the connection."""
        async with lifetime(self.wire.stream):
            # The peer has as much time for the TLS handshake as for the head of a request.
            if not await self.wire.shake_hands(min(self.config.ssl_handshake_timeout, self.config.keep_alive_timeout)):
                return
            socket = self.wire.socket
            self._scope = {
                "type": "http",
                "asgi": ASGI,
                "scheme": "https" if self.wire.tls else "http",
                "root_path": self.config.root_path,
                "client": address(socket.getpeername),
                "server": address(socket.getsockname),
            }
            descriptor = socket.fileno()
            self._shared.hangups.watch(descriptor, self)
            try:
                while (found := await self._next_head()) is not None and await self._serve(*found):
                    pass
            finally:
                self._shared.hangups.forget(descriptor, self)
            await self.wire.close()

    def shut_if_idle(self) -> None:
        """End the connection unless a request is under way."""
        if self._idle:
            self.wire.stop_waiting("the server is ending")

    def look(self) -> None:
        """Give a client up that has sent more behind its request, two looks long, than is read ahead.

        Its end could not be noticed any more: that comes only after what it has sent, which has no place.
        """
        crowded = 0
        if self._exchange is not None and self.incoming.complete:
            if self.incoming.ahead + self.wire.unread() >= MAX_RECEIVED:
                crowded = self._requests
            if crowded and crowded == self._crowded:
                self.left()
        self._crowded = crowded

    def left(self) -> None:
        self._left = True
        if self._exchange is not None:
            self._exchange.happened()

    async def _next_head(self) -> tuple[Head, Fields] | None:
        """Return the head of the next request; None if the connection ends instead."""
        if self._shared.ending:
            return None
        self._idle = True
        self.wire.expire_at(trio.current_time() + self.config.keep_alive_timeout)
        waited = False
        try:
            while (found := self.incoming.head()) is None:
                data = await self.wire.receive()
                waited = True
                if not data:
                    return None
                self.incoming.feed(data)
        except Malformed as exc:
            await self._refuse(exc.status)
            return None
        self._idle = False
        self.wire.expire_at(math.inf)
        if not waited:  # pipelined requests must let other tasks run
            await trio.lowlevel.checkpoint()
        return found

    async def _serve(self, head: Head, fields: Fields) -> bool:
        """Serve a request.

        Returns:
            Whether the connection lasts.
        """
        names = self.config.server_names
        if names and dict(fields).get(b"host", b"").decode("latin-1") not in names:
            await self._refuse(404)
            return False
        self._requests += 1
        exchange = self._exchange = Exchange(self, head, fields)
        if self._left:
            exchange.happened()
        try:
            await exchange.run(self._shared.app, self._scope)
        finally:
            self._exchange = None
        if exchange.unanswered and (exchange.fault or not self._left):
            await self._refuse(exchange.fault or 500)
        elif exchange.finished and not self.incoming.complete:
            await self._linger()
        return exchange.finished and exchange.lasting

    async def _refuse(self, status: int) -> None:
        fields = [*self.config.response_headers("h11"), (b"content-length", b"0"), (b"connection", b"close")]
        await self.wire.send(head_of(status, fields))
        await self._linger()

    async def _linger(self) -> None:
        """Read what the client still sends, within bounds, before the connection is closed.

        The operating system resets a connection that is closed with data unread, and the reset may destroy the response
        before the client has read it (RFC 9112, section 9.6).
        """
        await self.wire.end_sending()
        left = DRAINED
        with trio.move_on_after(DRAIN_TIME):
            while data := await self.wire.receive():
                left -= len(data)
                if left < 0:
                    # A proxy whose writes block looks at the response; one that is reset answers 502.
                    await trio.sleep_forever()
