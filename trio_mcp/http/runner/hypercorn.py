"""Serving an ASGI application on hypercorn, with one function that can be started in a nursery and ends gracefully.

Hypercorn 0.18 parses the protocol. This module closes gaps in it, so that a peer's misbehaviour costs only its own
connection:

* Cleartext HTTP/2 is not spoken, neither by ``Upgrade: h2c`` nor by prior knowledge: either can take the whole server
  down. HTTP/2 over TLS is, by ALPN; see `http2`.
* A peer that stops reading has a time limit, after which the connection is dropped; hypercorn waits for it in a shield.
* What the application leaves unread of a body is dropped instead of blocking the connection forever.
* A client that has already sent its next request, and then leaves, is noticed.
* The idle timeout is a deadline, not a task started anew for each request; the head and the body of a response are sent
  together; and data that is already there is handled without waiting a turn of the event loop.
* An exception ends only its connection, with a line in the log.
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
from itertools import chain
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

from trio_mcp._checks import check_count, check_text
from trio_mcp._log import logger
from trio_mcp._nursery import closing, without_cancellation
from trio_mcp.http.runner.http2 import MAX_FRAMING, PIECE, Http2
from trio_mcp.http.server.asgi import GONE, Gone

__all__ = ["HttpConnection", "ServerLimits", "configured", "serve_asgi"]

MAX_RECEIVED = 64 * 1024
"""Bytes read at a time, and kept of further requests while one is being answered (chosen)."""

# Written by hand, so that a connection over the limit costs no parser.
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"


class QuietConfig(Config):
    """Hypercorn's configuration without its logs and the ``Server`` header; the ``Date`` is formatted once a second."""

    errorlog = None
    include_server_header = False
    # The header's resolution is a second, so it need not be formatted for every response.
    _dated: tuple[int, list[tuple[bytes, bytes]]] = (0, [])

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        now = int(time.time())
        if self._dated[0] != now:
            self._dated = (now, super().response_headers(protocol))
        return self._dated[1]


def configured(host: str, port: int) -> Config:
    """Return hypercorn's configuration for one address.

    Raises:
        TypeError: If the host is not a string, or the port not an integer.
        ValueError: If the host is empty, or the port out of range.
    """
    check_text("host", host)
    check_count("port", port, least=0, most=65535)
    config = QuietConfig()
    # An IPv6 address needs brackets to tell its colons from the port's (RFC 3986, section 3.2.2).
    config.bind = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    return config


@attrs.frozen
class ServerLimits:
    """Limits on the connections of one server.

    Attributes:
        connections: How many may be open at once; further ones are answered with 503 and closed.
        write_timeout: Seconds that a peer may take to read 64 KiB once its buffers are full, before it is dropped.
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

    When started in a nursery it returns the URLs that are actually bound, one for each of ``config.bind``: with the
    port that the system has chosen for port 0, and ``http+unix://`` with the percent-encoded path for a Unix socket.

    Args:
        app: An ASGI application; its lifespan protocol is not used.
        config: Hypercorn's configuration: addresses, TLS, timeouts.
        limits: Limits on connections.
        shutdown: Returns when no new work should be accepted. It should also end streams that are endless.
        idle: Returns when no new connections are needed any more. Until then they are accepted even after ``shutdown``,
            for messages that belong to work under way.
        task_status: Receives the URLs.

    Raises:
        OSError: If an address can't be bound.

    When cancelled, it ends at once, and exchanges under way are cancelled.
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

    # `trio.serve_listeners` closes a connection's stream with an await of its own, which in a cancelled scope would
    # replace a KeyboardInterrupt by Cancelled. So those are collected here and raised at the very end.
    interruptions: list[BaseException] = []
    async with closing(interrupt):
        with _sockets(config) as sockets:
            listeners, urls = _listeners(config, sockets)
            async with trio.open_nursery() as serving:
                async with trio.open_nursery() as accepting:
                    # Two nurseries: cancelling this one closes the listeners, while connections run on in the other.
                    await accepting.start(
                        partial(trio.serve_listeners, serve_connection, listeners, handler_nursery=serving)
                    )
                    task_status.started(urls)
                    await shutdown()
                    # One deadline for both: waiting to close the listeners uses up the grace of the connections.
                    deadline = trio.current_time() + limits.grace
                    with trio.CancelScope(deadline=deadline):
                        await idle()
                    accepting.cancel_scope.cancel("the server is ending")
                # From here on a connection ends with its current request; those that wait for one end now.
                await context.terminated.set()
                for connection in tuple(connections):
                    connection.shut_if_idle()
                serving.cancel_scope.deadline = deadline


async def _refuse(stream: Any) -> None:
    """Answer a connection over the limit with 503, if that needs no TLS handshake, and close it."""
    with trio.move_on_after(1):  # seconds; chosen: the buffers of a new connection are empty
        try:
            if isinstance(stream, trio.SocketStream):
                await stream.send_all(REFUSED)
        except trio.BrokenResourceError:
            pass
    await trio.aclose_forcefully(stream)


@contextlib.contextmanager
def _sockets(config: Config) -> Iterator[Sockets]:
    """Bind the sockets for a block, and close them at its end; the files of Unix sockets are removed."""
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
            # Only a socket is removed: the path may hold something else by now.
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
                # https_compatible: browsers and many clients close without the TLS goodbye; HTTP marks its own ends.
                listener = trio.SSLListener(listener, tls, https_compatible=True)
            listeners.append(listener)
            urls.append(_url(scheme, sock))
    return listeners, urls


def _url(scheme: str, sock: stdlib_socket.socket) -> str:
    # The socket's own name, not the configured one: it has the port that the system chose for port 0.
    name = sock.getsockname()
    if sock.family == stdlib_socket.AF_UNIX:
        return f"{scheme}+unix://{quote(name, safe='')}"
    host, port = name[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


# --- one connection ---------------------------------------------------------------------------------------------


class HttpConnection:
    """A connection, from its acceptance to its end.

    Args:
        app: The ASGI application.
        config: Hypercorn's configuration.
        context: Hypercorn's context, whose `terminated` says that the server is ending.
        stream: The connection's stream.
        write_timeout: Seconds that the peer may take to read a `PIECE` once its buffers are full.
    """

    def __init__(self, app: Any, config: Config, context: WorkerContext, stream: Any, *, write_timeout: float) -> None:
        self.stream = stream
        self._app = app
        self._config = config
        self._context = context
        self._write_timeout = write_timeout
        self.protocol: Any = None
        self._sending = trio.Lock()
        self._waiting = trio.CancelScope()  # around the reader's wait for the next bytes
        self._deadline = math.inf  # until when the head of the next request must be complete
        self._idle = True  # no request is under way

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
                data: bytes | None = b"..."  # anything that enters the loop
                with contextlib.suppress(_ClientLeft):
                    while data:
                        data = await self.receive()
                        if data is not None:
                            await self.protocol.handle(RawData(data))
                # Ends the streams, so that the applications learn that the client has left.
                await self.protocol.handle(Closed())
                await self.close()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer is gone
        except Exception as exc:
            logger.warning("an HTTP connection failed: %s", _said(exc))

    async def _shake_hands(self) -> bool:
        """Do the TLS handshake; the peer has as much time for it as for the head of a request.

        Returns:
            Whether it succeeded.
        """
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
        # Never HTTP/2 without TLS, whatever the first bytes look like: see the module's docstring.
        if tls and self.stream.selected_alpn_protocol() == "h2":
            return Http2(*given, write_timeout=self._write_timeout)
        return Http1(*given, receive=self.receive, patience=self._write_timeout)

    async def receive(self) -> bytes | None:
        """Return the next bytes from the peer: empty at the end of the connection, None if the time ran out.

        The deadline applies to the wait alone: what has been read is handled, whatever the time is then.
        """
        timeout = self._config.read_timeout
        patience = math.inf if timeout is None else trio.current_time() + timeout
        with trio.CancelScope(deadline=min(self._deadline, patience)) as self._waiting:
            try:
                if not isinstance(self.stream, trio.SocketStream):
                    return bytes(await self.stream.receive_some(MAX_RECEIVED))
                # Fewer layers than `receive_some` between the socket and the protocol: every request comes through
                # here. Ask for the descriptor each time: a closed socket has none (-1), and the number that it had may
                # belong to another connection by now.
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
            # A deadline in the past also ends the next wait, should the reader not be waiting just now.
            self._deadline = -math.inf
            self._waiting.cancel("the server is ending")

    async def protocol_send(self, event: Event) -> None:
        """Act on an event of the protocol: send bytes, close, or note whether the connection is idle."""
        if isinstance(event, RawData):
            data = memoryview(event.data)
            if data and isinstance(self.stream, trio.SocketStream) and not self._sending.locked():
                # Nearly always the system takes all of it at once, which needs no deadline and no turn of the event
                # loop. If its buffer is full, or the connection broken, `_send` deals with the rest. Not while another
                # task is sending: the bytes would get in between.
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
        """Close the connection; TLS says goodbye, within the write timeout."""
        with trio.move_on_after(self._write_timeout):
            if isinstance(self.stream, trio.SocketStream):
                with contextlib.suppress(trio.BrokenResourceError, trio.BusyResourceError, trio.ClosedResourceError):
                    await self.stream.send_eof()
            await self.stream.aclose()

    async def _send(self, data: memoryview) -> bool:
        """Send everything, or close the connection: nothing can follow data that was cut off."""
        try:
            self._sending.acquire_nowait()  # without the checkpoint of `acquire`
        except trio.WouldBlock:
            await self._sending.acquire()
        whole = False

        async def end() -> None:
            self._sending.release()
            if not whole:
                await trio.aclose_forcefully(self.stream)

        async with closing(end):
            # BusyResourceError: the stream is being closed, which does not take the lock.
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
                whole = await self._send_pieces(data)
        return whole

    async def _send_pieces(self, data: memoryview) -> bool:
        """Send the data piece by piece, each with its own timeout, so that a large response may take long."""
        for start in range(0, len(data), PIECE):
            with trio.CancelScope(deadline=trio.current_time() + self._write_timeout) as scope:
                await self.stream.send_all(data[start : start + PIECE])
            if scope.cancelled_caught:
                return False
        return True


class Http1(H11Protocol):
    """HTTP/1.1 that stays HTTP/1.1: no HTTP/2 and no WebSocket (RFC 9110, section 7.8: a server may ignore an Upgrade).

    The head of a response waits for the first piece of the body, as ASGI allows, and they leave together. A request
    whose end is ambiguous is refused with 400, and the connection ends.
    """

    _head = b""
    _framing = 0  # bytes of the body that were not content, less a quarter of the content

    def __init__(self, *given: Any, receive: Callable[[], Awaitable[bytes | None]], patience: float) -> None:
        super().__init__(*given)
        # Hypercorn sets this event when the response has been sent, and `handle` waits on it with a request in hand.
        self.can_read = _NextRequest(self, receive, patience)

    async def handle(self, event: Event) -> None:
        """Act on bytes received. What has arrived of a body is passed on in one piece, however it was chunked."""
        if not isinstance(event, RawData):
            await super().handle(event)
            return
        connection, body = self.connection, bytearray()
        # RFC 9112, section 9.6: after a request with "Connection: close" anything further is ignored. h11 would report
        # an error, which would spoil the response to that request.
        if connection.their_state is not h11.MUST_CLOSE:
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
                    # Content pays for a quarter of itself; see `MAX_FRAMING`.
                    self._framing -= len(found.data) * 5 // 4
                    if self._framing > MAX_FRAMING:  # RFC 9112, section 7.1.1: limit chunk extensions
                        raise h11.RemoteProtocolError("the chunks of the body are more framing than content")
                    continue
                if body and self.stream is not None:
                    await self.stream.handle(Body(stream_id=STREAM_ID, data=bytes(body)))
                    body.clear()
                if isinstance(found, h11.Request):
                    await self.send(Updated(idle=False))
                    await self._create_stream(found)
                elif found is h11.PAUSED:  # pipelining: the next request waits for the response to this one
                    await self.can_read.clear()
                    await self.can_read.wait()
                elif isinstance(found, h11.EndOfMessage) and self.stream is not None:
                    await self.stream.handle(EndBody(stream_id=STREAM_ID))
                else:
                    break
            except h11.RemoteProtocolError as error:
                # Only if no response has begun: it could not be told from the rest of one.
                if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    await self._send_error_response(self._status_of(error))
                await self.send(Closed())
                break

    def _status_of(self, error: h11.RemoteProtocolError) -> int:
        """Return the status for a malformed request: h11's suggestion, corrected in two cases."""
        status = error.error_status_hint
        if status == 501:
            # h11 suggests 501 for every transfer coding but chunked. RFC 9112, section 6.3, demands 400 if chunked is
            # not the last one, as the end of the body is unknown then.
            return 400
        if status == 431 and self.connection.their_state is h11.ERROR and self.stream is None:
            # RFC 9112, section 3: 414 if the request line itself is too long.
            return 431 if b"\n" in self.connection.trailing_data[0] else 414
        return status

    async def _create_stream(self, request: h11.Request) -> None:
        target, headers = request.target, list(request.headers)
        self._framing = 0
        if not request.http_version.startswith(b"1."):
            raise h11.RemoteProtocolError("only HTTP/1.0 and HTTP/1.1 are supported", error_status_hint=505)
        # h11 holds a head against the limit only while it is incomplete: one that came in one piece would pass.
        if len(target) > self.config.h11_max_incomplete_size:
            raise h11.RemoteProtocolError("the target is too long", error_status_hint=414)
        if len(target) + sum(map(len, chain.from_iterable(headers))) > self.config.h11_max_incomplete_size:
            raise h11.RemoteProtocolError("the fields are too long", error_status_hint=431)
        fields = dict(headers)
        if b"transfer-encoding" in fields and (b"content-length" in fields or request.http_version < b"1.1"):
            # RFC 9112, sections 6.1 and 6.3: a proxy in front may have seen the end of this request elsewhere, and take
            # the rest for another request (request smuggling).
            raise h11.RemoteProtocolError("the end of the request is ambiguous")
        scheme, separator, rest = target.partition(b"://")
        if separator and scheme.lower() in (b"http", b"https"):
            # RFC 9112, section 3.2.2: a server must accept an absolute URL, whose host replaces the Host field. So the
            # host guard sees the host that counts.
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
            # After the peer's error h11 sends nothing any more: the response has nowhere to go.
            if connection.their_state != h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response):
            # Held back for the body: one write, and usually one packet.
            self._head = b"".join(parts)
            # Tell the client how long the connection is kept, so that it closes first and never sends a request into a
            # connection that is being closed. h11 is DONE if the request was read to its end, and the client has not
            # asked for the connection to be closed.
            done = connection.their_state is h11.DONE and not self.context.terminated.is_set()
            if done and self.keep_alive_requests < self.config.keep_alive_max_requests:
                said = b"keep-alive: timeout=%d\r\n\r\n" % self.config.keep_alive_timeout
                self._head = self._head.removesuffix(b"\r\n") + said
            return
        if self._head:
            parts, self._head = [self._head, *parts], b""
        # Small parts are joined: a write and often a packet for each would cost more than the copy.
        if sum(map(len, parts)) <= PIECE:
            parts = [b"".join(parts)]
        for part in parts:  # a large body is not copied, so a client that doesn't read it costs no second copy
            if part:
                await self.send(RawData(data=part))


class _ClientLeft(Exception):
    """The client has left while another of its requests was waiting."""


class _NextRequest(EventWrapper):
    """The event that the reader waits for while a request must wait for the response to the one before.

    It reads on meanwhile, because otherwise no task would notice that the client has left.

    Args:
        protocol: The protocol, which gets the bytes that arrive meanwhile.
        receive: Returns the next bytes; empty at the end, None when the time has run out.
        patience: Seconds to wait for the response once more has arrived than is kept.
    """

    def __init__(self, protocol: H11Protocol, receive: Callable[[], Awaitable[bytes | None]], patience: float) -> None:
        super().__init__()
        self.protocol = protocol
        self._receive = receive
        self._patience = patience
        self._left = False

    async def wait(self) -> None:
        # Raised only after the nursery is closed, or it would come out as an ExceptionGroup.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            await super().wait()
            nursery.cancel_scope.cancel("the response has been sent")
        if self._left:
            raise _ClientLeft

    async def _watch(self) -> None:
        """Read on, within bounds, to learn whether the client leaves."""
        connection = self.protocol.connection
        room = MAX_RECEIVED - len(connection.trailing_data[0])
        while room > 0:
            data = await self._receive()
            if not data:
                break
            connection.receive_data(data)
            room -= len(data)
        else:
            # Full. Without reading there is no telling whether the client is still there, so its time is limited.
            await trio.sleep(self._patience)
        self._left = True
        await self.set()


class Tasks:
    """The task group in which hypercorn starts its tasks.

    Here what the application leaves unread blocks no task, and what it raises ends only its exchange.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.spawn = nursery.start_soon

    async def spawn_app(
        self, app: Any, config: Config, scope: Scope, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        # Bounded: while the application doesn't read, the connection stops reading, and TCP slows the client down.
        put, receive = trio.open_memory_channel[ASGIReceiveEvent](config.max_app_queue_size)
        gone = Gone()
        if scope["type"] == "http":
            scope["extensions"][GONE] = gone  # type: ignore[assignment]

        # Twice "try without waiting first": the common case takes no turn of the event loop.
        async def next_event() -> ASGIReceiveEvent:
            try:
                try:
                    return receive.receive_nowait()
                except trio.WouldBlock:
                    return await receive.receive()
            except trio.EndOfChannel:
                return {"type": "http.disconnect"}

        async def run() -> None:
            # Closing the receiving end wakes a `hand_over` that waits for room in it.
            with receive:
                try:
                    await app(scope, next_event, send)
                except Exception as exc:
                    logger.exception("%s %s failed", scope.get("method"), scope.get("path"), exc_info=exc)
            # Tells hypercorn that the application has ended: it sends a 500 if there was no response.
            await send(None)

        async def hand_over(event: ASGIReceiveEvent) -> None:
            if event["type"] == "http.disconnect":
                # Closing the channel says so, instead of an event in it, because nothing may wait here: this may run in
                # the application's own task, as it sends the end of its response, with the request partly unread.
                put.close()
                gone.happened()
                return
            try:
                try:
                    put.send_nowait(event)
                except trio.WouldBlock:
                    await put.send(event)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the application has ended, or was told that the client has left

        self.spawn(run)
        return hand_over


def _address(family: int, get: Callable[[], Any]) -> tuple[str, int] | None:
    # A peer that has already gone has no address any more; its connection fails later by itself.
    try:
        found: tuple[str, int] | None = parse_socket_addr(family, get())
    except OSError:
        return None
    return found


def _said(exc: BaseException) -> str:
    """Return an exception as one line: of a group, its first member."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return f"{type(exc).__name__}: {exc}"
