"""Serves connections with hypercorn: the runner, and the connections that it creates.

Hypercorn 0.18 parses the protocol. This package closes gaps in hypercorn, so that a peer's misbehaviour affects only
its own connection:

* Cleartext HTTP/2 is not served, neither by ``Upgrade: h2c`` nor by prior knowledge: either can take the whole server
  down. HTTP/2 over TLS is served, by ALPN; see `http2`.
* A peer that stops reading has a time limit, after which the connection is dropped; hypercorn itself waits for such a
  peer in a shielded scope.
* The part of a body that the application leaves unread is dropped, also for a moment after the response, instead of
  blocking the connection forever.
* A client that leaves after it has sent its next request is noticed.
* The idle timeout is a deadline, not a task for each request; the head and the body of a response are sent
  together; and data that has already arrived is handled without another iteration of the event loop.
* An exception ends only its connection, with a line in the log.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from trio_mcp.http.runner.hypercorn.http1 import ClientLeft, Http1
from trio_mcp.http.runner.hypercorn.http2 import Http2
from trio_mcp.http.runner.hypercorn.settings import QuietConfig
from trio_mcp.http.runner.hypercorn.tasks import ConnectionTasks
from trio_mcp.http.runner.settings import ServerLimits, ServerSettings
from trio_mcp.http.runner.wire import DeadlineStream, address, lifetime
from trio_mcp.http.server.asgi import DRAIN_TIME

__all__ = ["HttpConnection", "HypercornRunner"]


class HypercornRunner:
    """The runner that uses hypercorn, for the connections of one server.

    Args:
        app: The ASGI application.
        settings: The settings of the server.
        limits: Limits on connections.
    """

    def __init__(self, app: Any, settings: ServerSettings, limits: ServerLimits) -> None:
        self._config: Config = settings.config or QuietConfig()
        self.protocols = self._config.alpn_protocols
        self._app = app
        self._limits = limits
        self._context = WorkerContext(None)

    def connect(self, stream: Any) -> HttpConnection:
        return HttpConnection(self._app, self._config, self._context, self._limits, stream)

    async def run(self) -> None:
        """Do nothing: the connections share no task."""

    async def end(self) -> None:
        await self._context.terminated.set()


class HttpConnection:
    """A connection that a client has opened, served by hypercorn until it ends.

    Args:
        app: The ASGI application.
        config: Hypercorn's configuration.
        context: Hypercorn's context; its event ``terminated`` is set when the server is ending.
        limits: Limits on connections.
        stream: The connection's stream.
    """

    def __init__(self, app: Any, config: Config, context: WorkerContext, limits: ServerLimits, stream: Any) -> None:
        self.wire = DeadlineStream(stream, config.read_timeout, limits.write_timeout)
        self._app = app
        self._config = config
        self._context = context
        self._limits = limits
        self.protocol: Any = None
        self._idle = True  # whether no request is under way
        self._silent = False  # whether nothing has arrived since the deadline was set
        self._left = trio.Event()  # set when nothing more will arrive
        self._taken = False  # whether the application has taken the connection over
        self._shut = False  # whether no further request is served
        self._ending = False  # whether the connection ends as soon as it is idle
        self._patience = 0.0  # how long it is idle before that, in seconds, if it has promised another request
        self._rested = -math.inf  # when it became idle after a response

    async def run(self) -> None:
        """Serve requests until either end closes the connection."""
        async with lifetime(self.wire.stream):
            # The peer has as much time for the TLS handshake as for the head of a request.
            if await self.wire.shake_hands(min(self._config.ssl_handshake_timeout, self._limits.head_timeout)):
                await self._serve()

    async def _serve(self) -> None:
        async with trio.open_nursery() as nursery:
            self.protocol = self._choose_protocol(nursery)
            await self.protocol.initiate()
            # The time limit for the first head runs from here (after any TLS handshake), not from the client's first
            # byte. Even if the server is ending, a connection that has just been accepted gets its first request
            # served: its client could not know.
            self._expect(self._limits.head_timeout)
            # An HTTP/2 client must send the preface within the time of a head; then the connection may be idle.
            self._silent = isinstance(self.protocol, Http2)
            data: bytes | None = b"..."  # any value will do: it is only for entering the loop
            with contextlib.suppress(ClientLeft):
                while data:
                    data = await self.wire.receive()
                    if data is not None:
                        if self._silent:
                            self._silent = False
                            is_head = isinstance(self.protocol, Http1)
                            self._expect(self._limits.head_timeout if is_head else self._config.keep_alive_timeout)
                        await self.protocol.handle(RawData(data))
            self._left.set()
            if not self._taken:  # otherwise the application has the connection now, and ends it
                # This ends the streams, so that the application learns that the client has left.
                await self.protocol.handle(Closed())
                await self.wire.close()

    def _choose_protocol(self, nursery: trio.Nursery) -> Any:
        wire, socket = self.wire, self.wire.socket
        given = (
            self._app,
            self._config,
            self._context,
            ConnectionTasks(nursery, self),
            ConnectionState({}),
            wire.tls,
            address(socket.getpeername),
            address(socket.getsockname),
            self.protocol_send,
        )
        # HTTP/2 is served only over TLS, whatever the first bytes are: see the docstring of this module.
        if wire.tls and wire.stream.selected_alpn_protocol() == "h2":
            return Http2(*given, write_timeout=self._limits.write_timeout)
        return Http1(*given, receive=wire.receive, patience=self._limits.write_timeout)

    async def take_over(self) -> tuple[trio.abc.Stream, bytes]:
        """Hand the connection over to the application; see `Extras.take_over`."""
        if self._taken or not isinstance(self.protocol, Http1):
            raise RuntimeError("the connection can't be taken over: it is not HTTP/1.1, or was taken over before")
        head = self.protocol.head_to_take()
        self._taken = True
        # The reader now only waits for the client to leave. It is stopped, because a stream must not have two readers.
        self.wire.stop_waiting("the application takes the connection over")
        await self._left.wait()
        # The bytes after the head are the beginning of the other protocol; h11 has kept them unread.
        return self.wire.stream, head + self.protocol.connection.trailing_data[0]

    def send_nowait(self, piece: bytes) -> bool:
        """Send a piece of a response's body; see `Extras.send_nowait`."""
        if self._taken or not isinstance(self.protocol, Http1):
            raise trio.WouldBlock
        return self.protocol.send_nowait(piece, self.wire)

    def shut_if_idle(self, patience: float = 0.0) -> None:
        """End the connection; see `RunnableConnection`. Over HTTP/2, refuse further requests."""
        self._ending, self._patience = True, patience
        if isinstance(self.protocol, Http2):
            self.protocol.refusing = True
        elif self.wire.unread():  # it would be lost, and its client could not know whether it was
            return
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if not self._idle:
            return
        if isinstance(self.protocol, Http1) and trio.current_time() < self._rested + self._patience:
            self.wire.expire_at(self._rested + self._patience)
        else:
            self._shut = True
            self.wire.shut("the server is ending")

    def _expect(self, seconds: float) -> None:
        """Give the client a number of seconds to send something, unless the server is ending."""
        if not self._shut:
            self.wire.expire_at(trio.current_time() + seconds)

    async def protocol_send(self, event: Event) -> None:
        """Act on an event of the protocol: send bytes, close, or note whether the connection is idle."""
        if isinstance(event, RawData):
            # Hypercorn learns of a broken connection only from the event `Closed`: without it, the streams would
            # continue.
            if not await self.wire.send(event.data):
                await self.protocol.handle(Closed())
        elif isinstance(event, Closed):
            if self.protocol.has_unread_body:
                # For a moment, the reader still drops what arrives: closing at once would reset the connection, which
                # might destroy the response before the client has read it (RFC 9112, section 9.6).
                await self.wire.end_sending()
                with trio.move_on_after(DRAIN_TIME):
                    await self._left.wait()
            await self.wire.close()
            await self.protocol.handle(Closed())
        elif isinstance(event, Updated):
            self._idle = event.idle
            if event.idle:
                self._rested = trio.current_time()
            # Over HTTP/2 the next bytes need not begin a request: they may be a PING.
            self._silent = event.idle and isinstance(self.protocol, Http1)
            self.wire.expire_at(trio.current_time() + self._config.keep_alive_timeout if event.idle else math.inf)
            # A request may have been under way when the server began to end, so the connection ends only now. Over
            # HTTP/2, the client has just been told.
            if self._ending or (isinstance(self.protocol, Http2) and self._context.terminated.is_set()):
                self._end_if_idle()
