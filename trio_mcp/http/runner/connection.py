"""One HTTP connection on hypercorn's Trio worker, hardened: what a peer does to it costs nobody else anything.

Hypercorn 0.18 reads the protocol, and this adds what it leaves open:

* Cleartext HTTP/2 is not spoken, neither by ``Upgrade: h2c`` nor by prior knowledge: either can take the whole server
  down. HTTP/2 over TLS is, by ALPN; see `http2`.
* A peer that stops reading is given a time, then the connection is dropped; hypercorn waits for it in a shield.
* What the application leaves unread of a body is dropped instead of blocking the connection for ever.
* A client that has sent its next request already, and leaves, is noticed.
* The idle time is a deadline, not a task that is started anew for each request; head and body of an answer leave in one
  piece; nothing waits a turn of the event loop for what is there already.
* An exception ends this connection, with a line in the log.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import EventWrapper, WorkerContext
from hypercorn.typing import ASGIReceiveEvent, ConnectionState, Scope
from hypercorn.utils import parse_socket_addr

from trio_mcp.http.runner.http2 import PIECE, Http2
from trio_mcp.http.server.asgi import GONE, Gone

__all__ = ["HttpConnection"]

logger = logging.getLogger("trio_mcp")

MAX_RECEIVED = 64 * 1024


class HttpConnection(TCPServer):
    """A connection from its acceptance to its end.

    Args:
        app: The ASGI application.
        config: Hypercorn's.
        context: Hypercorn's; `terminated` says that the server is ending.
        stream: The connection.
        write_timeout: Seconds that the peer may take to read a `PIECE`, once its buffers are full.
    """

    def __init__(self, app: Any, config: Config, context: WorkerContext, stream: Any, *, write_timeout: float) -> None:
        super().__init__(app, config, context, {}, stream)
        self._write_timeout = write_timeout
        self._reading = trio.CancelScope()
        self._idle = True

    async def run(self) -> None:
        """Serve requests until either end closes the connection."""
        try:
            await self._serve()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer is gone
        except Exception as exc:
            logger.warning("an HTTP connection failed: %s", _said(exc))
        finally:
            await trio.aclose_forcefully(self.stream)

    async def _serve(self) -> None:
        tls = isinstance(self.stream, trio.SSLStream)
        protocol: Any = partial(Http1, receive=self._receive, patience=self._write_timeout)
        if tls:
            try:
                with trio.fail_after(self.config.ssl_handshake_timeout):
                    await self.stream.do_handshake()
            except (trio.BrokenResourceError, trio.TooSlowError):
                return
            if self.stream.selected_alpn_protocol() == "h2":
                protocol = partial(Http2, write_timeout=self._write_timeout)
        socket = (self.stream.transport_stream if tls else self.stream).socket
        async with ForgivingTaskGroup() as self._task_group:
            self.protocol = protocol(
                self.app,
                self.config,
                self.context,
                self._task_group,
                ConnectionState({}),
                tls,
                _address(socket.family, socket.getpeername),
                _address(socket.family, socket.getsockname),
                self.protocol_send,
            )
            await self.protocol.initiate()
            self._set_idle(True)
            with self._reading:
                await self._read_data()
            if self._reading.cancelled_caught:
                await self.protocol.handle(Closed())
            await self._close()

    async def _read_data(self) -> None:
        data = b"..."
        try:
            while data:
                data = await self._receive()
                await self.protocol.handle(RawData(data))
        except _ClientLeft:
            pass
        await self.protocol.handle(Closed())

    async def _receive(self) -> bytes:
        """What comes next from the peer; nothing at its end."""
        if self.config.read_timeout is None:
            return await self._next()
        with trio.move_on_after(self.config.read_timeout):
            return await self._next()
        return b""

    async def _next(self) -> bytes:
        try:
            if not isinstance(self.stream, trio.SocketStream):
                return bytes(await self.stream.receive_some(MAX_RECEIVED))
            # Fewer layers between the socket and the protocol: this is where an idle connection waits. A closed socket
            # has no descriptor: the number it had may be another connection's by now.
            socket = self.stream.socket
            while socket.fileno() >= 0:
                await trio.lowlevel.wait_readable(socket)
                with contextlib.suppress(BlockingIOError):
                    return os.read(socket.fileno(), MAX_RECEIVED)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        return b""

    def shut_if_idle(self) -> None:
        """End the connection unless a request is under way."""
        if self._idle:
            self._reading.cancel("the server is ending")

    def _set_idle(self, idle: bool) -> None:
        self._idle = idle
        self._reading.deadline = trio.current_time() + self.config.keep_alive_timeout if idle else float("inf")
        if self.context.terminated.is_set():
            self.shut_if_idle()

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, RawData):
            if event.data and not await self._send(event.data):
                await self.protocol.handle(Closed())
        elif isinstance(event, Closed):
            await self._close()
            await self.protocol.handle(Closed())
        elif isinstance(event, Updated):
            self._set_idle(event.idle)

    async def _close(self) -> None:
        with trio.move_on_after(self._write_timeout):  # TLS says goodbye
            await super()._close()

    async def _send(self, data: bytes) -> bool:
        """Send it all, or close the connection: what the peer has got of it has no end, so nothing can follow."""
        if not self.send_lock.locked() and isinstance(self.stream, trio.SocketStream):
            # What the system takes at once, as it nearly always does, needs no deadline and no turn of the event loop.
            try:
                data = data[os.write(self.stream.socket.fileno(), data) :]
            except OSError:
                pass  # full, or broken: what comes next finds out
            if not data:
                return True
        try:
            self.send_lock.acquire_nowait()
        except trio.WouldBlock:
            await self.send_lock.acquire()
        whole = False
        try:
            whole = await self._send_pieces(memoryview(data))
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            pass  # busy: it is being closed, which needs no lock
        finally:
            self.send_lock.release()
            if not whole:
                await trio.aclose_forcefully(self.stream)
        return whole

    async def _send_pieces(self, data: memoryview) -> bool:
        """Each piece has the same time, so that a large answer takes as long as it takes."""
        for start in range(0, len(data), PIECE):
            with trio.CancelScope(deadline=trio.current_time() + self._write_timeout) as scope:
                await self.stream.send_all(data[start : start + PIECE])
            if scope.cancelled_caught:
                return False
        return True


class Http1(H11Protocol):
    """HTTP/1.1 that stays HTTP/1.1: no HTTP/2, no WebSocket. (RFC 9110, section 7.8: a server may ignore an Upgrade.)

    The head of an answer waits for the first piece of the body, as ASGI allows, and they leave together.
    """

    _head = b""

    def __init__(self, *given: Any, receive: Callable[[], Awaitable[bytes]], patience: float) -> None:
        super().__init__(*given)
        self.can_read = _NextRequest(self, receive, patience)

    async def _check_protocol(self, event: Any) -> None:
        pass

    async def _create_stream(self, request: h11.Request) -> None:
        target, headers = request.target, list(request.headers)
        scheme, separator, rest = target.partition(b"://")
        if separator and scheme.lower() in (b"http", b"https"):
            # RFC 9112, section 3.2.2: a whole URL is to be taken, and its host instead of the field's.
            host, slash, path = rest.partition(b"/")
            target = slash + path or b"/"
            headers = [(b"host", host), *((name, value) for name, value in headers if name != b"host")]
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=headers,
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()

    async def _send_h11_event(self, event: Any) -> None:
        try:
            data = self.connection.send(event)
        except h11.LocalProtocolError:
            if self.connection.their_state != h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response):
            self._head = data
        elif self._head or data:
            data, self._head = self._head + data, b""
            await self.send(RawData(data=data))


class _ClientLeft(Exception):
    """The client has left while another of its requests was waiting."""


class _NextRequest(EventWrapper):
    """What the reader waits for, when it has a request that must wait for the answer to the one before.

    Args:
        protocol: Gets what comes meanwhile.
        receive: Gives the next bytes; nothing at the end.
        patience: Seconds for the answer when more has come than is kept.
    """

    def __init__(self, protocol: H11Protocol, receive: Callable[[], Awaitable[bytes]], patience: float) -> None:
        super().__init__()
        self._protocol = protocol
        self._receive = receive
        self._patience = patience
        self._left = False

    async def wait(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            await super().wait()
            nursery.cancel_scope.cancel("the answer has been sent")
        if self._left:
            raise _ClientLeft

    async def _watch(self) -> None:
        """Read on, within bounds: else nobody would learn that the client has left."""
        connection = self._protocol.connection
        room = MAX_RECEIVED - len(connection.trailing_data[0])
        while room > 0:
            data = await self._receive()
            if not data:
                break
            connection.receive_data(data)
            room -= len(data)
        else:
            await trio.sleep(self._patience)  # there is no telling whether it is still there
        self._left = True
        await self.set()


class ForgivingTaskGroup(TaskGroup):
    """Runs the application so that what it leaves unread blocks nobody, and what it raises ends one exchange."""

    async def spawn_app(
        self, app: Any, config: Config, scope: Scope, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        put, receive = trio.open_memory_channel[ASGIReceiveEvent](config.max_app_queue_size)
        gone = Gone()
        if scope["type"] == "http":
            scope["extensions"][GONE] = gone  # type: ignore[assignment]

        async def next_event() -> ASGIReceiveEvent:
            try:
                return receive.receive_nowait()
            except trio.WouldBlock:
                return await receive.receive()

        async def run() -> None:
            with receive:
                try:
                    await app(scope, next_event, send, trio.to_thread.run_sync, trio.from_thread.run)
                except Exception as exc:
                    logger.exception("%s %s failed", scope.get("method"), scope.get("path"), exc_info=exc)
            await send(None)

        async def hand_over(event: ASGIReceiveEvent) -> None:
            if event["type"] == "http.disconnect":
                gone.happened()
            try:
                try:
                    put.send_nowait(event)
                except trio.WouldBlock:
                    await put.send(event)
            except trio.BrokenResourceError:
                pass  # the application has ended

        self.spawn(run)
        return hand_over


def _address(family: int, get: Callable[[], Any]) -> tuple[str, int] | None:
    try:
        found: tuple[str, int] | None = parse_socket_addr(family, get())
    except OSError:
        return None
    return found


def _said(exc: BaseException) -> str:
    """An exception in one line; of a group its first member."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return f"{type(exc).__name__}: {exc}"
