"""Serving an ASGI application on hypercorn, from one function that can be started in a nursery and ended with grace.

Hypercorn 0.18 reads the protocol, and this adds what it leaves open, so that what a peer does to its connection costs
nobody else anything:

* Cleartext HTTP/2 is not spoken, neither by ``Upgrade: h2c`` nor by prior knowledge: either can take the whole server
  down. HTTP/2 over TLS is, by ALPN; see `http2`.
* A peer that stops reading is given a time, then the connection is dropped; hypercorn waits for it in a shield.
* What the application leaves unread of a body is dropped instead of blocking the connection forever.
* A client that has sent its next request already, and leaves, is noticed.
* The idle time is a deadline, not a task that is started anew for each request; head and body of an answer leave in one
  piece; nothing waits a turn of the event loop for what is there already.
* An exception ends this connection, with a line in the log.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket as stdlib_socket
import stat
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import attrs
import h11
import trio
from hypercorn.config import Config, Sockets
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.worker_context import EventWrapper, WorkerContext
from hypercorn.typing import ASGIReceiveEvent, ConnectionState, Scope
from hypercorn.utils import parse_socket_addr

from trio_mcp._log import logger
from trio_mcp._nursery import closing, without_cancellation
from trio_mcp.http.runner.http2 import MAX_FRAMING, PIECE, Http2
from trio_mcp.http.server.asgi import GONE, Gone

__all__ = ["HttpConnection", "ServerLimits", "configured", "serve_asgi"]

MAX_RECEIVED = 64 * 1024

REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"


class QuietConfig(Config):
    """Hypercorn's configuration without logs and a ``Server`` header; the ``Date`` is written once a second."""

    errorlog = None
    include_server_header = False
    _dated: tuple[int, list[tuple[bytes, bytes]]] = (0, [])

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        now = int(time.time())
        if self._dated[0] != now:
            self._dated = (now, super().response_headers(protocol))
        return self._dated[1]


def configured(host: str, port: int) -> Config:
    """Hypercorn's configuration for one address.

    Raises:
        TypeError, ValueError: The address can't be one.
    """
    if not isinstance(host, str) or not host:
        raise TypeError(f"host must be a name or an address, got {host!r}")
    if isinstance(port, bool) or not isinstance(port, int):
        raise TypeError(f"port must be an integer, got {port!r}")
    if not 0 <= port < 65536:
        raise ValueError(f"port must be between 0 and 65535, got {port}")
    config = QuietConfig()
    config.bind = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    return config


@attrs.frozen
class ServerLimits:
    """What the connections of one server may cost.

    Attributes:
        connections: How many there are at once; further ones are answered with 503 and closed.
        write_timeout: Seconds that a peer may take to read 64 KiB, once its buffers are full, before it is dropped.
        grace: Seconds that exchanges under way are given when the server ends.
    """

    connections: int = 1000
    write_timeout: float = 30.0
    grace: float = 5.0


async def serve_asgi(
    app: Any,
    config: Config,
    *,
    limits: ServerLimits | None = None,
    shutdown: Callable[[], Awaitable[object]] = trio.sleep_forever,
    idle: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an application until ``shutdown`` returns, and then until what is under way has ended.

    Starting it in a nursery gives the URLs that are really bound, one for each of ``config.bind``: with the port that
    the system has chosen for port 0, and ``http+unix://`` with the percent-encoded path for a Unix socket.

    Args:
        app: An ASGI application; its lifespan protocol is not used.
        config: Hypercorn's: addresses, TLS, timeouts.
        limits: What connections may cost.
        shutdown: Returns when no new work shall be taken. Whoever has endless streams ends them then, too.
        idle: Returns when no connection is needed any more but those that there are; so long they are accepted, for
            what belongs to work under way.
        task_status: Gets the URLs.

    Raises:
        OSError: An address can't be bound.

    When cancelled, it ends at once: exchanges under way are cancelled.
    """
    limits = limits or ServerLimits()
    context = WorkerContext(None)
    connections: set[HttpConnection] = set()

    async def serve_connection(stream: Any) -> None:
        if len(connections) >= limits.connections:
            await _refuse(stream)
            return
        connection = HttpConnection(app, config, context, stream, write_timeout=limits.write_timeout)
        connections.add(connection)
        try:
            await connection.run()
        except BaseException as exc:
            if (interruption := without_cancellation(exc)) is not None:
                interruptions.append(interruption)
            raise
        finally:
            connections.discard(connection)

    async def interrupt() -> None:
        for exc in interruptions:
            raise exc

    # Trio closes a connection's stream with an await of its own, which in a cancelled scope would lose Ctrl-C.
    interruptions: list[BaseException] = []
    async with closing(interrupt):
        with _sockets(config) as sockets:
            listeners, urls = _listeners(config, sockets)
            async with trio.open_nursery() as serving:
                async with trio.open_nursery() as accepting:
                    # Cancelling this nursery closes the listeners; the connections are the other's.
                    await accepting.start(
                        partial(trio.serve_listeners, serve_connection, listeners, handler_nursery=serving)
                    )
                    task_status.started(urls)
                    await shutdown()
                    deadline = trio.current_time() + limits.grace
                    with trio.CancelScope(deadline=deadline):
                        await idle()
                    accepting.cancel_scope.cancel("the server is ending")
                await context.terminated.set()
                for connection in tuple(connections):
                    connection.shut_if_idle()
                serving.cancel_scope.deadline = deadline


async def _refuse(stream: Any) -> None:
    with trio.move_on_after(1):
        try:
            if isinstance(stream, trio.SocketStream):
                await stream.send_all(REFUSED)
        except trio.BrokenResourceError:
            pass
    await trio.aclose_forcefully(stream)


@contextlib.contextmanager
def _sockets(config: Config) -> Iterator[Sockets]:
    """The bound sockets; those of Unix sockets leave no file behind."""
    try:
        sockets = config.create_sockets()
    except OSError as exc:
        _close_abandoned(exc)
        raise OSError(exc.errno, f"can't listen on {', '.join(config.bind)}: {exc.strerror or exc}") from exc
    everyone = [*sockets.secure_sockets, *sockets.insecure_sockets, *sockets.quic_sockets]
    paths = [sock.getsockname() for sock in everyone if sock.family == stdlib_socket.AF_UNIX]
    try:
        yield sockets
    finally:
        for sock in everyone:
            sock.close()
        for path in paths:
            try:
                if stat.S_ISSOCK(os.stat(path).st_mode):
                    os.unlink(path)
            except OSError:
                pass


def _close_abandoned(exc: OSError) -> None:
    """Close what hypercorn opened before it failed: it leaves that to the garbage collector."""
    for frame, _ in traceback.walk_tb(exc.__traceback__):
        for value in frame.f_locals.values():
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, stdlib_socket.socket):
                    each.close()


def _listeners(config: Config, sockets: Sockets) -> tuple[list[Any], list[str]]:
    listeners: list[Any] = []
    urls: list[str] = []
    tls = config.create_ssl_context()
    for scheme, group in (("https", sockets.secure_sockets), ("http", sockets.insecure_sockets)):
        for sock in group:
            sock.listen(config.backlog)
            listener: Any = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
            if scheme == "https":
                assert tls is not None
                listener = trio.SSLListener(listener, tls, https_compatible=True)
            listeners.append(listener)
            urls.append(_url(scheme, sock))
    return listeners, urls


def _url(scheme: str, sock: stdlib_socket.socket) -> str:
    name = sock.getsockname()
    if sock.family == stdlib_socket.AF_UNIX:
        return f"{scheme}+unix://{quote(name, safe='')}"
    host, port = name[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


# --- one connection ---------------------------------------------------------------------------------------------


class HttpConnection:
    """A connection from its acceptance to its end.

    Args:
        app: The ASGI application.
        config: Hypercorn's.
        context: Hypercorn's; `terminated` says that the server is ending.
        stream: The connection.
        write_timeout: Seconds that the peer may take to read a `PIECE`, once its buffers are full.
    """

    def __init__(self, app: Any, config: Config, context: WorkerContext, stream: Any, *, write_timeout: float) -> None:
        self.stream = stream
        self._app = app
        self._config = config
        self._context = context
        self._write_timeout = write_timeout
        self.protocol: Any = None
        self._sending = trio.Lock()
        self._waiting = trio.CancelScope()  # the reader's, for the next bytes
        self._deadline = math.inf  # for the head of a request to be there
        self._idle = True

    async def run(self) -> None:
        """Serve requests until either end closes the connection."""
        async with closing(partial(trio.aclose_forcefully, self.stream)):
            await self._serve()

    async def _serve(self) -> None:
        try:
            if isinstance(self.stream, trio.SSLStream) and not await self._shake_hands():
                return
            async with trio.open_nursery() as nursery:
                self.protocol = self._choose_protocol(nursery)
                await self.protocol.initiate()
                await self.protocol_send(Updated(idle=True))
                data: bytes | None = b"..."
                with contextlib.suppress(_ClientLeft):
                    while data:
                        data = await self.receive()
                        if data is not None:
                            await self.protocol.handle(RawData(data))
                await self.protocol.handle(Closed())
                await self.close()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer is gone
        except Exception as exc:
            logger.warning("an HTTP connection failed: %s", _said(exc))

    async def _shake_hands(self) -> bool:
        """The peer has no more time for this than for the head of a request."""
        try:
            with trio.fail_after(min(self._config.ssl_handshake_timeout, self._config.keep_alive_timeout)):
                await self.stream.do_handshake()
        except (trio.BrokenResourceError, trio.TooSlowError):
            return False
        return True

    def _choose_protocol(self, nursery: trio.Nursery) -> Any:
        tls = isinstance(self.stream, trio.SSLStream)
        socket = (self.stream.transport_stream if tls else self.stream).socket
        given = (
            self._app,
            self._config,
            self._context,
            Tasks(nursery),
            ConnectionState({}),
            tls,
            _address(socket.family, socket.getpeername),
            _address(socket.family, socket.getsockname),
            self.protocol_send,
        )
        if tls and self.stream.selected_alpn_protocol() == "h2":
            return Http2(*given, write_timeout=self._write_timeout)
        return Http1(*given, receive=self.receive, patience=self._write_timeout)

    async def receive(self) -> bytes | None:
        """What comes next from the peer; nothing at its end, None if it was not there in time.

        The deadline is that of the wait alone: what has been read is handled, whatever the time is then.
        """
        timeout = self._config.read_timeout
        patience = math.inf if timeout is None else trio.current_time() + timeout
        with trio.CancelScope(deadline=min(self._deadline, patience)) as self._waiting:
            try:
                if not isinstance(self.stream, trio.SocketStream):
                    return bytes(await self.stream.receive_some(MAX_RECEIVED))
                # Fewer layers between the socket and the protocol: this is where an idle connection waits. A closed
                # socket has no descriptor: the number it had may be another connection's by now.
                socket = self.stream.socket
                while socket.fileno() >= 0:
                    await trio.lowlevel.wait_readable(socket)
                    with contextlib.suppress(BlockingIOError):
                        return os.read(socket.fileno(), MAX_RECEIVED)
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            return b""
        return None

    def shut_if_idle(self) -> None:
        """End the connection unless a request is under way."""
        if self._idle:
            self._deadline = -math.inf
            self._waiting.cancel("the server is ending")

    async def protocol_send(self, event: Event) -> None:
        """Do what the protocol wants done."""
        if isinstance(event, RawData):
            data = memoryview(event.data)
            if data and isinstance(self.stream, trio.SocketStream) and not self._sending.locked():
                # What the system takes at once, as it nearly always does, needs no deadline and no turn of the event
                # loop. Where it is full, or broken, what comes next finds out.
                with contextlib.suppress(OSError):
                    data = data[os.write(self.stream.socket.fileno(), data) :]
            if data and not await self._send(data):
                await self.protocol.handle(Closed())
        elif isinstance(event, Closed):
            await self.close()
            await self.protocol.handle(Closed())
        elif isinstance(event, Updated):
            self._idle = event.idle
            self._deadline = trio.current_time() + self._config.keep_alive_timeout if event.idle else math.inf
            self._waiting.deadline = min(self._waiting.deadline, self._deadline)
            if self._context.terminated.is_set():
                self.shut_if_idle()

    async def close(self) -> None:
        """Close it; TLS says goodbye, and has a time for that."""
        with trio.move_on_after(self._write_timeout):
            if isinstance(self.stream, trio.SocketStream):
                with contextlib.suppress(trio.BrokenResourceError, trio.BusyResourceError, trio.ClosedResourceError):
                    await self.stream.send_eof()
            await self.stream.aclose()

    async def _send(self, data: memoryview) -> bool:
        """Send it all, or close the connection: what the peer has got of it has no end, so nothing can follow."""
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        whole = False

        async def end() -> None:
            self._sending.release()
            if not whole:
                await trio.aclose_forcefully(self.stream)

        async with closing(end):
            # Busy: it is being closed, which needs no lock.
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
                whole = await self._send_pieces(data)
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

    The head of an answer waits for the first piece of the body, as ASGI allows, and they leave together. A request
    whose end is in doubt is refused with 400, and the connection ends.
    """

    _head = b""
    _framing = 0  # bytes of the body that were no content, less a quarter of the content

    def __init__(self, *given: Any, receive: Callable[[], Awaitable[bytes | None]], patience: float) -> None:
        super().__init__(*given)
        self.can_read = _NextRequest(self, receive, patience)

    async def handle(self, event: Event) -> None:
        """Act on what has been received. What there is of a body is handed over in one piece, whatever its chunks."""
        if not isinstance(event, RawData):
            await super().handle(event)
            return
        connection, body = self.connection, bytearray()
        if connection.their_state is not h11.MUST_CLOSE:  # RFC 9112, 9.6: else the client has said that it was the last
            connection.receive_data(event.data)
            self._framing += len(event.data)
        while connection.their_state is not h11.MUST_CLOSE:
            if connection.they_are_waiting_for_100_continue:
                fields = self.config.response_headers("h11")
                await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=fields))
            try:
                found = connection.next_event()
                if isinstance(found, h11.Data):
                    body += found.data
                    self._framing -= len(found.data) * 5 // 4
                    if self._framing > MAX_FRAMING:  # RFC 9112, 7.1.1
                        raise h11.RemoteProtocolError("the chunks of the body are more framing than content")
                    continue
                if body and self.stream is not None:
                    await self.stream.handle(Body(stream_id=STREAM_ID, data=bytes(body)))
                    body.clear()
                if isinstance(found, h11.Request):
                    await self.send(Updated(idle=False))
                    await self._create_stream(found)
                elif found is h11.PAUSED:
                    await self.can_read.clear()
                    await self.can_read.wait()
                elif isinstance(found, h11.EndOfMessage) and self.stream is not None:
                    await self.stream.handle(EndBody(stream_id=STREAM_ID))
                else:
                    break
            except h11.RemoteProtocolError as error:
                if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    await self._send_error_response(self._status_of(error))
                await self.send(Closed())
                break

    def _status_of(self, error: h11.RemoteProtocolError) -> int:
        status = error.error_status_hint
        if status == 501:
            return 400  # h11 says 501 of every coding but chunked, but 400 is a must where chunked is not the last
        if status == 431 and self.stream is None and b"\n" not in self.connection.trailing_data[0]:
            return 414  # RFC 9112, 3: it is the request line that is too long
        return status

    async def _create_stream(self, request: h11.Request) -> None:
        target, headers = request.target, list(request.headers)
        self._framing = 0
        if not request.http_version.startswith(b"1."):
            raise h11.RemoteProtocolError("this is HTTP/1.1", error_status_hint=505)
        fields = dict(headers)
        if b"transfer-encoding" in fields and (b"content-length" in fields or request.http_version < b"1.1"):
            # RFC 9112, 6.1 and 6.3: who is in front of us may have seen its end elsewhere.
            raise h11.RemoteProtocolError("the end of the request can be read in two ways")
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
                method=request.method.decode("ascii"),
                raw_path=target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()

    async def _send_h11_event(self, event: Any) -> None:
        connection: Any = self.connection
        try:
            parts: list[bytes] = connection.send_with_data_passthrough(event)
        except h11.LocalProtocolError:
            if connection.their_state != h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response):
            self._head = b"".join(parts)
            # h11 is done with a request that was read to its end, on a connection that the client does not want closed.
            done = connection.their_state is h11.DONE and not self.context.terminated.is_set()
            if done and self.keep_alive_requests < self.config.keep_alive_max_requests:
                said = b"keep-alive: timeout=%d\r\n\r\n" % self.config.keep_alive_timeout
                self._head = self._head.removesuffix(b"\r\n") + said
            return
        if self._head:
            parts, self._head = [self._head, *parts], b""
        if sum(map(len, parts)) <= PIECE:
            parts = [b"".join(parts)]
        for part in parts:  # a large body goes out as it is: whoever does not read it costs no copy
            if part:
                await self.send(RawData(data=part))


class _ClientLeft(Exception):
    """The client has left while another of its requests was waiting."""


class _NextRequest(EventWrapper):
    """What the reader waits for, when it has a request that must wait for the answer to the one before.

    Args:
        protocol: Gets what comes meanwhile.
        receive: Gives the next bytes; nothing at the end, None when it is given up.
        patience: Seconds for the answer when more has come than is kept.
    """

    def __init__(self, protocol: H11Protocol, receive: Callable[[], Awaitable[bytes | None]], patience: float) -> None:
        super().__init__()
        self.protocol = protocol
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
        connection = self.protocol.connection
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


class Tasks:
    """What hypercorn starts its tasks with: here what the application leaves unread blocks nobody, and what it raises
    ends one exchange."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.spawn = nursery.start_soon

    async def spawn_app(
        self, app: Any, config: Config, scope: Scope, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        put, receive = trio.open_memory_channel[ASGIReceiveEvent](config.max_app_queue_size)
        gone = Gone()
        if scope["type"] == "http":
            scope["extensions"][GONE] = gone  # type: ignore[assignment]

        async def next_event() -> ASGIReceiveEvent:
            try:
                try:
                    return receive.receive_nowait()
                except trio.WouldBlock:
                    return await receive.receive()
            except trio.EndOfChannel:
                return {"type": "http.disconnect"}

        async def run() -> None:
            with receive:
                try:
                    await app(scope, next_event, send)
                except Exception as exc:
                    logger.exception("%s %s failed", scope.get("method"), scope.get("path"), exc_info=exc)
            await send(None)

        async def hand_over(event: ASGIReceiveEvent) -> None:
            if event["type"] == "http.disconnect":
                # The end of the channel says so, since nothing may wait here: the application itself can be the one
                # that tells, by its last word, with a part of the request still unread.
                put.close()
                gone.happened()
                return
            try:
                try:
                    put.send_nowait(event)
                except trio.WouldBlock:
                    await put.send(event)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the application has ended, or nothing more is due to it

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
