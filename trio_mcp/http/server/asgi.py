"""One HTTP exchange as ASGI presents it: the request with its body, and the response, whole or as a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeAlias

import attrs
import trio

from trio_mcp.http.headers import EVENTS, JSON, Headers
from trio_mcp.http.rules.statuses import Refusal
from trio_mcp.jsonrpc.codec import Pieces
from trio_mcp.jsonrpc.messages import Batch, Incoming, Notification, Request
from trio_mcp.principal import Principal

__all__ = [
    "EXTRAS",
    "BodyTooLarge",
    "ClientGone",
    "CountedMessage",
    "Extras",
    "HttpAnswer",
    "HttpRequest",
    "Ledger",
    "NoRoom",
    "Owner",
    "ReceiveCallable",
    "Scope",
    "SendCallable",
]

Scope: TypeAlias = MutableMapping[str, Any]
ReceiveCallable: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
SendCallable: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
Fields: TypeAlias = Iterable[tuple[str, str]]
Owner: TypeAlias = tuple[str | None, str, str | None]
"""The `identity` of a `Principal`."""

DRAINED = 1024 * 1024
"""The maximum number of bytes of an unwanted body that are still read (arbitrary).

The operating system resets a connection that is closed with data unread, and the reset may destroy the response before
the client has read it."""

DRAIN_TIME = 1.0
"""Seconds that are allowed for reading the rest of an unwanted body (arbitrary)."""

# X-Accel-Buffering keeps a proxy from holding events back (2026-07-28 `basic/transports/streamable-http`, Receiving
# Messages). So does no-transform, because a proxy that compresses would buffer.
OF_EVENTS: Final = (
    ("content-type", EVENTS),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
)
"""The header fields of an event stream."""

AWAITED = ("notifications/cancelled", "notifications/progress")
"""Notifications that are accepted at any load, like responses, because work under way may wait for them."""


EXTRAS = "trio_mcp.extras"
"""The name of the ASGI extension through which our own runners offer an `Extras`."""


class Extras:
    """Services beyond ASGI that our own runners offer for one request.

    Attributes:
        lingers: Whether the runner itself reads the rest of a body after the response.
    """

    lingers = False
    # These defaults are class attributes, so that the object that is made for each request needs no __init__.
    _callback: Callable[[], object] | None = None
    _happened = False

    def receive_nowait(self) -> MutableMapping[str, Any] | None:
        """Return the next event like ASGI's ``receive``, if it has already arrived; None otherwise."""
        raise NotImplementedError

    def send_nowait(self, piece: bytes) -> bool:
        """Send a piece of the body of a response that has begun, and that goes on, without waiting.

        Returns:
            Whether all of it was sent. Otherwise the caller must send something with ASGI's ``send``, which sends the
            rest first.

        Raises:
            trio.WouldBlock: If nothing can be sent now, or this runner does not support this method.
        """
        raise trio.WouldBlock

    async def take_over(self) -> tuple[trio.abc.Stream, bytes]:
        """Take the connection over for another protocol, before anything is sent or any of the body is read.

        Returns:
            The stream, and the bytes that have been read from it: the head as it arrived, and everything after it.

        Raises:
            RuntimeError: If this runner does not support that, or it is too late.
        """
        raise RuntimeError("the connection can't be taken over: this runner serves only HTTP")

    def happened(self) -> None:
        """Record that the client has left or the exchange has ended, and call the function that `call` has set."""
        self._happened = True
        if self._callback is not None:
            self._callback()

    def call(self, callback: Callable[[], object] | None) -> None:
        """Set the function to call when the client leaves or the exchange ends; None removes it.

        If the client has left or the exchange has ended already, the function is called now. A caller of this method
        needs no task that waits for ``http.disconnect``.
        """
        self._callback = callback
        if callback is not None and self._happened:
            callback()


class BodyTooLarge(Exception):
    """The body of a request exceeds the size limit."""


class ClientGone(Exception):
    """The client left before its request was complete."""


class NoRoom(Exception):
    """The endpoint already has as much work under way as its limits allow."""


class Ledger:
    """A count of the work under way at an endpoint: request bodies while they are read, then messages until handled.

    Args:
        max_requests: How many requests may be under way at once, and how many bodies may be read at once.
        max_bytes: How many bytes the requests may have in total, and likewise the bodies. A single request or body may
            have more.

    Attributes:
        requests: How many requests are under way.
        request_bytes: The bytes of these requests, and of the notifications that wait to be handled.
        bodies: How many bodies are being read.
        body_bytes: How many bytes of these bodies have arrived.
    """

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self.requests = self.request_bytes = 0
        # Bodies are counted separately because each ends within `body_timeout`: if requests could use up the room for
        # bodies, a response for which all of them wait could not be read.
        self.bodies = self.body_bytes = 0

    def take(self, message: Incoming, size: int) -> CountedMessage:
        """Count a message until it is released.

        Args:
            message: The message. Responses and the notifications in `AWAITED` are always accepted, and not counted.
            size: Its size in bytes.

        Raises:
            NoRoom: If there is no room for it.
        """
        # A batch counts as the requests in it: otherwise max_requests would allow that many batches of any length.
        requests = 1
        if type(message) is Batch:
            requests = sum(type(item) is Request for item in message.items)
        elif type(message) is not Request:
            if type(message) is not Notification or message.method in AWAITED:
                return CountedMessage(self, 0, 0)
            requests = 0  # of other notifications, only the bytes are counted
        if requests and self.requests + requests > self.max_requests:
            raise NoRoom(f"max_requests={self.max_requests} would be exceeded: {self.requests} requests are under way")
        # A message may exceed this limit if no other is under way, because max_message_size limits a single message.
        if self.request_bytes and self.request_bytes + size > self.max_bytes:
            raise NoRoom(
                f"max_request_bytes={self.max_bytes} would be exceeded: {self.request_bytes} bytes are under way"
            )
        # Requests count until `CountedMessage.release`: a handler counts even after its client has hung up. Otherwise a
        # client could start any number of handlers by hanging up each time.
        self.requests += requests
        self.request_bytes += size
        return CountedMessage(self, requests, size)


@attrs.define(eq=False)
class CountedMessage:
    """A message that counts as under way until every reference to it has been released."""

    _ledger: Ledger
    _requests: int
    _size: int
    _keepers: int = 1

    def keep(self) -> None:
        """Add a reference."""
        self._keepers += 1

    def release(self) -> None:
        """Drop a reference; after the last one, the message no longer counts."""
        self._keepers -= 1
        if not self._keepers:
            self._ledger.requests -= self._requests
            self._ledger.request_bytes -= self._size


@attrs.define(eq=False)
class RequestBody:
    """A request body while it is being read, with a ledger that counts it.

    Args:
        limit: How many bytes the body may have.
        ledger: The ledger.

    Attributes:
        pieces: The pieces that have arrived.
        size: How many bytes have arrived.
    """

    _limit: int
    _ledger: Ledger
    pieces: Pieces = attrs.Factory(Pieces)
    size: int = 0

    def add(self, piece: bytes) -> None:
        """Add a piece that has arrived.

        Raises:
            BodyTooLarge: If the body exceeds its limit.
            NoRoom: If too many bytes of bodies are being read.
        """
        ledger = self._ledger
        # A piece is counted before it is checked, because `HttpRequest.body` subtracts the whole `size` in the end,
        # including that of a refused piece.
        self.size += len(piece)
        ledger.body_bytes += len(piece)
        if self.size > self._limit:
            raise BodyTooLarge
        # A body may exceed max_bytes if it is the only one, because its own limit bounds it.
        if ledger.bodies > 1 and ledger.body_bytes > ledger.max_bytes:
            raise NoRoom(f"the bodies that are being read exceed max_request_bytes={ledger.max_bytes}")
        self.pieces.add(piece)


class HttpRequest:
    """An HTTP request as the client sent it.

    Args:
        scope: ASGI's scope.
        receive: ASGI's receive callable.
        headers: The header fields.

    Attributes:
        scope: The ASGI scope.
        method: The method as sent: it is case-sensitive (RFC 9110, section 9.1).
        root: The path at which the application is mounted; empty if it is not mounted below another one.
        path: The path below ``root``, without a trailing slash.
        headers: The header fields.
        is_local: Whether the connection arrived on an address that only this machine can reach: loopback or a Unix
            socket.
        extras: The services of our own runners; None on another ASGI server.
        metadata: The metadata that handlers find in `Context.transport_metadata`.
        principal: The principal on whose behalf the request is made; None unless a token was accepted.
        owner: The identity of that principal, who owns what is made for the request.
        clock: Returns the time that the expiry of the principal is compared with, in seconds since the epoch; set with
            ``principal``.
        permitted: Whether the scopes have been checked from the header fields alone, so that the message need not be.
    """

    # These defaults are class attributes, because most servers check no tokens and therefore never set them.
    principal: Principal | None = None
    owner: Owner | None = None
    clock: Callable[[], float]
    permitted = False

    def __init__(self, scope: Scope, receive: ReceiveCallable, headers: Headers) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.headers = headers
        self.metadata: dict[str, Any] = {"headers": headers}
        self.root: str
        path: str = scope["path"]
        # ASGI's `path` includes `root_path`, but some servers and frameworks strip it.
        root = self.root = scope.get("root_path", "").rstrip("/")
        below = path[len(root) :] if root and (path + "/").startswith(root + "/") else path
        self.path = below.rstrip("/") or "/"
        server = scope.get("server")
        # A dual-stack socket shows IPv4 addresses with this prefix (RFC 4291, section 2.5.5.2). For a Unix socket, ASGI
        # gives the path, with None as the port; a server that doesn't know its address gives nothing. Both count as
        # local, which is the stricter choice.
        host = str(server[0]).removeprefix("::ffff:") if server and server[1] is not None else "::1"
        self.is_local = host == "::1" or host.startswith("127.")
        self.extras: Extras | None = scope.get("extensions", {}).get(EXTRAS)
        self._receive = receive
        self._complete = False

    async def body(self, limit: int, ledger: Ledger, timeout: float) -> bytes:
        """Read the body.

        Args:
            limit: How many bytes it may have.
            ledger: The ledger that counts it while it is read.
            timeout: Seconds that it may take to arrive.

        Raises:
            BodyTooLarge: If it has more than ``limit`` bytes; the rest is left unread.
            NoRoom: If too many bodies, or too many bytes of bodies, are being read.
            ClientGone: If the client has left.
            trio.TooSlowError: If the body took too long to arrive.
        """
        if ledger.bodies >= ledger.max_requests:
            raise NoRoom(f"max_requests={ledger.max_requests} would be exceeded: {ledger.bodies} bodies are being read")
        extras = self.extras
        event = None if extras is None else extras.receive_nowait()
        first = b"" if event is None else self._piece_of(event)
        if self._complete:  # usually the body arrives with the head: reading it takes no time, so it is not counted
            if len(first) > limit:
                raise BodyTooLarge
            return first
        ledger.bodies += 1
        body = RequestBody(limit, ledger)
        try:
            body.add(first)
            # Bytes that have arrived already need no deadline.
            while extras is not None and not self._complete and (event := extras.receive_nowait()) is not None:
                body.add(self._piece_of(event))
            if not self._complete:
                with trio.fail_after(timeout):
                    while not self._complete:
                        body.add(await self._next())
        finally:
            # The space that the body took is freed for others, even if the client left half-way or the exchange was
            # cancelled.
            ledger.bodies -= 1
            ledger.body_bytes -= body.size
        return body.pieces.joined()

    async def drain(self) -> None:
        """Read the rest of an unwanted body, within `DRAINED` bytes and `DRAIN_TIME`, unless the runner does so."""
        if self.extras is not None and self.extras.lingers:
            return
        # The reading is bounded, because a client could send without end. Beyond the bounds, the connection is reset.
        left = DRAINED
        with trio.move_on_after(DRAIN_TIME):
            while not self._complete and left > 0:
                try:
                    left -= len(await self._next())
                except ClientGone:
                    return

    async def _next(self) -> bytes:
        return self._piece_of(await self._receive())

    def _piece_of(self, event: MutableMapping[str, Any]) -> bytes:
        if event["type"] != "http.request":
            raise ClientGone
        self._complete = not event.get("more_body", False)
        body: bytes = event.get("body", b"")
        return body

    async def gone(self) -> None:
        """Wait until the client has left. Only one task may call this, and only once the body has been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class HttpAnswer:
    """An HTTP response, sent by `whole`, `whole_events` or `refuse`, or else by `start_events`, `send` and `finish`.

    Args:
        send: ASGI's send callable.
        fields: Header fields that every response of this exchange carries.

    Attributes:
        fields: The header fields that every response carries.
        started: Whether the head has been sent, or is being sent.
        finished: Whether nothing more will be sent.
    """

    def __init__(self, send: SendCallable, fields: Fields = ()) -> None:
        self._send = send
        self.fields = list(fields)
        self.started = False
        self.finished = False

    def end_connection(self, request: HttpRequest) -> None:
        """Let the connection end with the response, which lasts as long as the server.

        A client that used the connection again just then would lose a request.
        """
        if request.scope.get("http_version") in ("1.0", "1.1"):
            self.fields.append(("connection", "close"))

    async def whole(self, status: int, body: bytes = b"", fields: Fields = ()) -> None:
        """Send a response in one piece. The body is JSON unless the fields say otherwise."""
        # Both flags are set before sending, because the end of the exchange also calls the callback for a client that
        # leaves. The callback checks `finished` to tell the two apart.
        self.started = self.finished = True
        given = [*self.fields, *fields]
        if status not in (204, 304):  # RFC 9110, section 8.6: no Content-Length with 204, and that of a 200 with 304
            given.append(("content-length", str(len(body))))
        # Refusals and plain-text responses have a content type of their own, which is kept.
        for name, _ in given:
            if name.lower() == "content-type":
                break
        else:
            if body:
                given.append(("content-type", JSON))
        await self._start(status, given)
        await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal as the response."""
        await self.whole(refusal.status, refusal.body, refusal.headers)

    async def whole_events(self, events: bytes) -> None:
        """Send an event stream in one piece."""
        await self.whole(200, events, OF_EVENTS)

    async def start_events(self) -> None:
        """Start an event stream."""
        self.started = True
        await self._start(200, [*self.fields, *OF_EVENTS])

    async def _start(self, status: int, fields: Fields) -> None:
        # ASGI requires lower case. Latin-1 has a character for every octet of a field (RFC 9110, section 5.5).
        encoded = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in fields]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def send(self, data: bytes) -> None:
        """Send a piece of the stream; after the end, do nothing."""
        if not self.finished:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """End the stream, if it was started, with a last piece; calling this again does nothing."""
        if self.started and not self.finished:
            # The flag is set before sending, as in `whole`: a second call during the wait must not send a second end.
            self.finished = True
            await self._send({"type": "http.response.body", "body": data})
