"""Serves an HTTP/1.1 connection in one task, which reads a request, runs the application, and repeats."""

from __future__ import annotations

import math
import re
import time
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any, Final, Literal
from urllib.parse import unquote

import trio

from trio_mcp._log import logger
from trio_mcp.http.framing import TOKEN, Fields, FramingError
from trio_mcp.http.runner.h1.hangups import Hangups
from trio_mcp.http.runner.h1.incoming import RequestHead, RequestHeads, RequestReader
from trio_mcp.http.runner.h1.parsers import ParseFields, parse_with_h11
from trio_mcp.http.runner.settings import ServerLimits, ServerSettings
from trio_mcp.http.runner.wire import MAX_RECEIVED, PIECE, DeadlineStream, address, lifetime
from trio_mcp.http.server.asgi import DRAIN_TIME, DRAINED, EXTRAS, Extras

__all__ = ["AcceptedConnection", "AsgiExchange", "LeanRunner"]

# These are the versions of ASGI and of its specification for HTTP; 2.3 is the first version in which a scope has
# `state`.
ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii") for status in HTTPStatus}
# The pattern matches header fields that can be sent (RFC 9110, sections 5.1 and 5.5).
_FIELDS = re.compile(rb"(?:" + TOKEN + rb": [^\x00\r\n]*\r\n)*")
_LENGTH = re.compile(rb"[0-9]{1,19}")


class LeanRunner:
    """A runner that needs no hypercorn: it serves HTTP/1.1 on the connections of one server, with one task for each.

    Args:
        app: The ASGI application.
        settings: The settings of the server.
        limits: Limits on connections.
        parse: Parses the fields of a head.

    Attributes:
        ending: Whether each response says that its connection ends.
        protocols: The protocols over TLS, by their names in ALPN.
    """

    def __init__(
        self, app: Any, settings: ServerSettings, limits: ServerLimits, parse: ParseFields = parse_with_h11
    ) -> None:
        self.app = app
        self.settings = settings
        self.heads = RequestHeads(parse, settings.max_head)
        self.hangups = Hangups(limits.write_timeout)
        self.head_timeout = limits.head_timeout
        self.write_timeout = limits.write_timeout
        self.ending = False
        self.protocols = ["http/1.1"]
        self._dated = 0
        self._fields: Fields = []

    def connect(self, stream: Any) -> AcceptedConnection:
        return AcceptedConnection(self, stream)

    async def run(self) -> None:
        """Watch for clients that leave, until cancelled."""
        await self.hangups.run()

    async def end(self) -> None:
        self.ending = True

    def response_fields(self) -> Fields:
        """Return the header fields that every response carries."""
        # The date's resolution is a second, so it need not be formatted for every response.
        now = int(time.time())
        if now != self._dated:
            self._dated = now
            self._fields = self.settings.response_fields()
        return self._fields


class AsgiExchange(Extras):
    """A request and its response, as the application sees them through ASGI.

    Args:
        connection: The connection.
        head: The head of the request.
        fields: All header fields of the request.

    Attributes:
        begun: Whether any part of a response has been written.
        finished: Whether the whole response has been written.
        lasting: Whether the connection may outlive the exchange; known once the response has begun.
        fault: The status of the refusal, if the framing of the body was refused.
        taken: Whether the application has taken the connection over.
    """

    # The application can refuse a request at once, because `_linger` reads the rest of the body.
    lingers = True

    def __init__(self, connection: AcceptedConnection, head: RequestHead, fields: Fields) -> None:
        self._connection = connection
        self._head = head
        self._fields = fields
        self._given = False  # whether the application has received the end of the body
        self._start: tuple[int, Fields] | None = None
        # The framing says how the client learns where the response ends.
        self._framing: Literal["length", "chunks", "close", "none"] = "none"
        self._owed = 0  # bytes of the response's Content-Length that have not been sent
        self._rest = b""  # bytes that `send_nowait` could not send
        self._waits = head.expects  # whether the client waits for 100 Continue
        self._over: trio.Event | None = None
        self.begun = False
        self.finished = False
        self.lasting = False
        self.fault: int | None = None
        self.taken = False

    async def run(self, app: Any, scope: dict[str, Any]) -> None:
        """Let the application serve the request. An exception that it raises ends only the exchange."""
        head = self._head
        # A fragment does not belong in a target (RFC 9112, section 3.2). If one is sent, it counts as part of the path
        # or the query.
        path, _, query = head.target.partition(b"?")
        scope = {
            **scope,
            "http_version": head.version,
            "method": head.method,
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "headers": self._fields,
            "state": {},
            "extensions": {EXTRAS: self},
        }
        try:
            await app(scope, self.receive, self.send)
        except Exception as exc:
            logger.exception("%s %s failed", head.method, scope["path"], exc_info=exc)

    # --- the request ----------------------------------------------------------------------------------------------

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next event (`receive` of ASGI)."""
        connection = self._connection
        # Reading continues even if the client has left: bytes that it sent before may still be on their way.
        while not (self._given or self.finished or self.taken):
            event = self.receive_nowait()
            if event is not None:
                return event
            # `100 Continue` is sent only when the application asks for the body: a client whose request is refused on
            # the basis of its head need not send the body (RFC 9110, section 10.1.1).
            if self._waits:
                self._waits = False
                await connection.wire.send(CONTINUE)
            data = await connection.wire.receive()
            if data:
                connection.incoming.feed(data)
            else:
                self._given = True
                connection.left()
        # An application that waits for the client to leave continues at the end of the exchange, too.
        if not (self._happened or self.finished or self.taken):
            if self._over is None:
                self._over = trio.Event()
            await self._over.wait()
        return {"type": "http.disconnect"}

    def receive_nowait(self) -> MutableMapping[str, Any] | None:
        incoming = self._connection.incoming
        if self._given:  # only a wait can show that the client leaves
            return None
        try:
            data = b"" if incoming.complete else incoming.body()
        except FramingError as exc:
            # `AcceptedConnection._serve` sends the refusal once the application has ended: this function must not wait.
            self.fault, self._given = exc.status, True
            self.happened()
            return {"type": "http.disconnect"}
        if not data and not incoming.complete:
            return None
        self._given = incoming.complete
        return {"type": "http.request", "body": data, "more_body": not incoming.complete}

    def happened(self) -> None:
        super().happened()
        if self._over is not None:
            self._over.set()

    async def take_over(self) -> tuple[trio.abc.Stream, bytes]:
        if self._start is not None or self._given or self.taken:
            raise RuntimeError("the connection can't be taken over: the request was read, or the response has begun")
        self.taken = True
        connection = self._connection
        # From now on the application has the socket and may close it, after which its number may belong to another
        # connection.
        connection.forget()
        await trio.lowlevel.checkpoint()
        return connection.wire.stream, connection.incoming.rest()

    # --- the response ---------------------------------------------------------------------------------------------

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the response (`send` of ASGI)."""
        kind = message["type"]
        if kind == "http.response.start" and self._start is None and not self.taken:
            # The head is kept until the first piece of the body: both are sent in one write, and if that piece is the
            # whole body, its length is known.
            self._start = message["status"], message.get("headers", ())
            return
        if kind != "http.response.body" or self._start is None or self.finished:
            raise RuntimeError(f"the application sent the ASGI message {kind!r}, which is not allowed at this point")
        if self.fault is not None:
            return  # the runner sends the refusal
        body, more = message.get("body", b""), message.get("more_body", False)
        parts = [self._rest] if self.begun else [self._begin(*self._start, body, more)]
        parts += self._framed(body, more)
        self._rest = b""
        # Small parts are joined: a write, and often a packet, for each part would cost more than the copy. A large body
        # is not copied, so a client that doesn't read costs no second copy.
        if len(body) <= PIECE:
            parts = [b"".join(parts)]
        self.begun, self.finished = True, not more
        for part in parts:
            if part and not await self._connection.wire.send(part):
                self.lasting = False
                self.happened()
                break
        if self.finished and self._over is not None:
            self._over.set()

    def send_nowait(self, piece: bytes) -> bool:
        if not self.begun or self.finished or self.fault is not None:
            raise trio.WouldBlock
        data = b"".join(self._framed(piece, True))
        sent = self._connection.wire.send_nowait(data)
        self._rest = data[sent:]
        return not self._rest

    def _begin(self, status: int, given: Fields, body: bytes, more: bool) -> bytes:
        """Decide how the response is framed, and return its head.

        Raises:
            ValueError: If this is not the head of a final response, or a field could be read as several.
        """
        head, shared = self._head, self._connection.shared
        fields = [*shared.response_fields()]
        length, asks_to_close = None, False
        for name, value in given:
            if name == b"content-length":
                if _LENGTH.fullmatch(value) is None:
                    raise ValueError(f"the Content-Length of a response must be 1 to 19 digits, got {value[:100]!r}")
                length = int(value)
            elif name == b"connection":
                asks_to_close = value.lower() == b"close"
            elif name != b"transfer-encoding":  # the runner itself decides the framing
                fields.append((name, value))
        if length is None and not more:
            length = len(body)
        # RFC 9112, section 6.3: a response without a body needs no framing; otherwise its length marks its end if it is
        # known, and chunks do if not.
        if status in (204, 304):
            self._framing = "none"
        elif length is not None:
            fields.append((b"content-length", b"%d" % length))
            self._framing, self._owed = "length", length
        # RFC 9112, section 6.1: HTTP/1.0 has no transfer coding, so the end of the connection ends the body.
        elif head.version == "1.0":
            self._framing = "close"
        else:
            fields.append((b"transfer-encoding", b"chunked"))
            self._framing = "chunks"
        if head.method == "HEAD":  # a HEAD gets the fields of a GET, with the length (RFC 9110, section 9.3.2)
            self._framing = "none"
        lasts = head.lasting and not asks_to_close and not shared.ending and self._framing != "close"
        self.lasting = lasts and self._connection.requests < shared.settings.keep_alive_requests and self._is_read(more)
        if not self.lasting:
            fields.append((b"connection", b"close"))
        else:
            # Tell the client how long the connection is kept, so that it closes first and never sends a request on a
            # connection that is being closed.
            fields.append((b"keep-alive", b"timeout=%d" % shared.settings.keep_alive_timeout))
        return head_of(status, fields)

    def _is_read(self, more: bool) -> bool:
        """Return whether the request has been read to its end; drop the rest of it if the response is complete."""
        incoming = self._connection.incoming
        try:
            # Nothing is dropped before the last piece of the response: until then the application may still read it.
            while not more and not incoming.complete and incoming.body():
                pass
        except FramingError:
            return False
        return incoming.complete

    def _framed(self, body: bytes, more: bool) -> list[bytes]:
        if self._framing == "chunks":
            # An empty chunk would mark the end of the body (RFC 9112, section 7.1).
            parts = [b"%x\r\n" % len(body), body, b"\r\n"] if body else []
            return parts if more else [*parts, b"0\r\n\r\n"]
        if self._framing == "length":
            self._owed -= len(body)
            if self._owed < 0 or (self._owed and not more):
                # Later bytes on this connection would look like the rest of this response.
                self.lasting = False
                raise RuntimeError("the response is not as long as its Content-Length says")
        return [] if self._framing == "none" else [body]


class AcceptedConnection:
    """A connection that a client has opened, served over HTTP/1.1 until it ends.

    Args:
        shared: The runner, which is the same for all connections.
        stream: The connection's stream: a socket's, or TLS over one.
    """

    __slots__ = (
        "_crowded",
        "_descriptor",
        "_ending",
        "_exchange",
        "_idle",
        "_left",
        "_patience",
        "_rested",
        "_scope",
        "_shut",
        "incoming",
        "requests",
        "shared",
        "wire",
    )

    def __init__(self, shared: LeanRunner, stream: Any) -> None:
        self.shared = shared
        self.wire = DeadlineStream(stream, shared.settings.read_timeout, shared.write_timeout)
        self.incoming = RequestReader(shared.heads)
        self._descriptor = -1
        self._exchange: AsgiExchange | None = None
        self._idle = True  # whether no request is under way
        self._left = False  # whether the client has left
        self._shut = False  # whether no further request is served
        self._ending = False  # whether the connection ends as soon as it is idle
        self._patience = 0.0  # how long it is idle before that, in seconds, if it has promised another request
        self._rested = -math.inf  # when it became idle after a response
        self._crowded = 0  # the number of the request after which too much was waiting at the last check, or 0
        self.requests = 0
        self._scope: dict[str, Any] = {}

    async def run(self) -> None:
        """Serve requests until either end closes the connection."""
        settings = self.shared.settings
        async with lifetime(self.wire.stream):
            # The peer has as much time for the TLS handshake as for the head of a request.
            if not await self.wire.shake_hands(min(settings.handshake_timeout, self.shared.head_timeout)):
                return
            # The parts that are the same in the scopes of all requests are made once.
            socket = self.wire.socket
            self._scope = {
                "type": "http",
                "asgi": ASGI,
                "scheme": "https" if self.wire.tls else "http",
                "root_path": settings.root_path,
                "client": address(socket.getpeername),
                "server": address(socket.getsockname),
            }
            self._descriptor = socket.fileno()
            task = trio.lowlevel.current_task()
            context = task.context.copy()
            self.shared.hangups.watch(self._descriptor, self)
            try:
                while (found := await self._next_head()) is not None and await self._serve(*found):
                    # The context is replaced after each request, so that the next one does not see its context
                    # variables, which may be another principal's, and an idle connection does not keep them. The copy
                    # takes effect when this task next continues, before the next request.
                    task.context = context.copy()
            finally:
                self.forget()
            # Leaving the block closes the stream forcefully; closing the stream before that lets TLS send its
            # close_notify.
            await self.wire.close()

    def forget(self) -> None:
        """Stop watching for the client to leave."""
        self.shared.hangups.forget(self._descriptor, self)

    def shut_if_idle(self, patience: float = 0.0) -> None:
        """End the connection; see `RunnableConnection`."""
        self._ending, self._patience = True, patience
        # A request that a busy process has not seen yet would be lost, and it is unknown to its client whether it was.
        if not self._idle or self.wire.unread():
            return
        if trio.current_time() < self._rested + patience:
            self.wire.expire_at(self._rested + patience)
        else:
            self._shut = True
            self.wire.shut("the server is ending")

    def left(self) -> None:
        self._left = True
        if self._exchange is not None:
            self._exchange.happened()

    def look(self) -> None:
        """Give up a client if, at two checks in a row, it has sent more after its request than is read ahead.

        If such a client left, that would not be noticed: the end of its data comes after what it has sent before, for
        which there is no room.
        """
        crowded = 0
        if self._exchange is not None and self.incoming.complete:
            if self.incoming.ahead + self.wire.unread() >= MAX_RECEIVED:
                crowded = self.requests
            if crowded and crowded == self._crowded:
                self.left()
        self._crowded = crowded

    async def _next_head(self) -> tuple[RequestHead, Fields] | None:
        """Return the head of the next request; None if the connection ends instead."""
        # A connection that has just been accepted still gets its first request served: its client could not know that
        # the server is ending.
        if self._shut or (self._ending and self.requests and not self._patience):
            return None
        self._idle = True
        begun = not self.requests  # the time for the first head counts from the beginning of the connection
        if begun:
            patience = self.shared.head_timeout
        else:
            self._rested = trio.current_time()
            patience = self._patience if self._ending else self.shared.settings.keep_alive_timeout
        self.wire.expire_at(trio.current_time() + patience)
        waited = False
        try:
            while (found := self.incoming.head()) is None:
                # The time for a head counts from its first byte: a head that trickles in must not last as long as an
                # idle connection may. A server that is ending has set a deadline in the past, which must stay.
                if waited and not begun and not self._shut:
                    begun = True
                    self.wire.expire_at(trio.current_time() + self.shared.head_timeout)
                data = await self.wire.receive()
                waited = True
                if not data:
                    return None
                self.incoming.feed(data)
        except FramingError as exc:
            await self._refuse(exc.status)
            return None
        self._idle = False
        self.wire.expire_at(math.inf)
        if not waited:  # without a wait, a series of pipelined requests would let no other task run
            await trio.lowlevel.checkpoint()
        return found

    async def _serve(self, head: RequestHead, fields: Fields) -> bool:
        """Serve a request.

        Returns:
            Whether the connection can serve another request.
        """
        names = self.shared.settings.server_names
        if names and dict(fields).get(b"host", b"").decode("latin-1") not in names:
            # The setting `server_names` comes from hypercorn, and so does the status for other hosts.
            await self._refuse(404)
            return False
        self.requests += 1
        exchange = self._exchange = AsgiExchange(self, head, fields)
        # The client may have left with its request still unread; the application gets the request nevertheless.
        if self._left:
            exchange.happened()
        try:
            await exchange.run(self.shared.app, self._scope)
        finally:
            self._exchange = None
        # A response that began before the server was ending has promised one more request.
        lasts = exchange.finished and exchange.lasting
        if exchange.taken or lasts:  # a connection that was taken over must not be read here any more
            return lasts
        # If there is no response, the application has failed or the body's framing was refused: a client that waits
        # must get a response.
        if not exchange.begun and (exchange.fault or not self._left):
            await self._refuse(exchange.fault or 500)
        elif exchange.finished and (not self.incoming.complete or self.incoming.ahead or self.wire.unread()):
            await self._linger()
        return False

    async def _refuse(self, status: int) -> None:
        fields = [*self.shared.response_fields(), (b"content-length", b"0"), (b"connection", b"close")]
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
                    # Read no more, but don't close yet: a proxy whose writes block reads the response, while one whose
                    # connection is reset responds with 502.
                    await trio.sleep_forever()


def head_of(status: int, fields: Fields) -> bytes:
    """Check the head of a response, and return it as bytes.

    Raises:
        ValueError: If this is not the head of a final response, or a field could be read as several.
    """
    lines = b"".join([b"%b: %b\r\n" % field for field in fields])
    # There must be as many lines as fields: a field with a line break would look like two.
    if not 200 <= status <= 999 or _FIELDS.fullmatch(lines) is None or lines.count(b"\n") != len(fields):
        raise ValueError(f"the head of the response is invalid: status {status}, fields {fields!r:.1000}")
    return (_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status) + lines + b"\r\n"
