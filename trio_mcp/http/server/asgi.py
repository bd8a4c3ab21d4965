"""One exchange of HTTP, as ASGI hands it over: the request with its body; the answer in one piece or as a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

import attrs
import trio

from trio_mcp.http.headers import EVENTS, JSON, Headers
from trio_mcp.jsonrpc.messages import Batch, Incoming, Notification, Request

__all__ = [
    "GONE",
    "BodyTooLarge",
    "ClientGone",
    "Gone",
    "Held",
    "HttpAnswer",
    "HttpRequest",
    "Ledger",
    "NoRoom",
    "ReceiveCallable",
    "Scope",
    "SendCallable",
]

Scope: TypeAlias = MutableMapping[str, Any]
ReceiveCallable: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
SendCallable: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
Fields: TypeAlias = Iterable[tuple[str, str]]

DRAINED = 1024 * 1024
"""Bytes of an unwanted body that are still read: the system resets a connection that is closed with something unread,
and the answer may be lost with it."""

DRAIN_TIME = 1.0

AWAITED = ("notifications/cancelled", "notifications/progress")
"""Notifications that are always taken, as answers are."""


GONE = "trio_mcp.gone"
"""The ASGI extension by which our own runner says at once that the client has left: a `Gone`."""


class Gone:
    """Tells whoever wants to know, without a task that waits for it."""

    _callback: Callable[[], object] | None = None
    _happened = False

    def happened(self) -> None:
        """The client has left, or the exchange is over."""
        self._happened = True
        if self._callback is not None:
            self._callback()

    def call(self, callback: Callable[[], object] | None) -> None:
        """Have a function called when it happens, at once if it has; None for nobody."""
        self._callback = callback
        if callback is not None and self._happened:
            callback()


class BodyTooLarge(Exception):
    """The body has more bytes than are taken."""


class ClientGone(Exception):
    """The client has left before its request was complete."""


class NoRoom(Exception):
    """More is under way than the endpoint takes."""


class Ledger:
    """Counts what is under way at an endpoint: bodies while they are read, then messages until they are settled.

    Bodies are counted apart, as every one of them is over in time: one of them may bring the answer that all requests
    under way wait for.

    Args:
        max_requests: How many requests are under way, and how many bodies are read, at once.
        max_bytes: How many bytes these have, and those; one alone may have more.

    Attributes:
        requests: How many requests are under way.
        request_bytes: How many bytes these have, and notifications that wait to be handled.
        bodies: How many bodies are being read.
        body_bytes: How many bytes of them are there.
    """

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self.requests = self.request_bytes = 0
        self.bodies = self.body_bytes = 0

    def take(self, message: Incoming, size: int) -> Held:
        """Enter a message, for the time until it is released.

        Args:
            message: What has come. What a handler under way may wait for is always taken, and is settled at once.
            size: Its bytes.

        Raises:
            NoRoom: There is no room for it.
        """
        requests = 1
        if type(message) is Batch:
            requests = sum(type(item) is Request for item in message.items)
        elif type(message) is not Request:
            if type(message) is not Notification or message.method in AWAITED:
                return Held(self, 0, 0)
            requests = 0
        if requests and self.requests + requests > self.max_requests:
            raise NoRoom(f"max_requests={self.max_requests} would be exceeded: {self.requests} are under way")
        if self.request_bytes and self.request_bytes + size > self.max_bytes:
            raise NoRoom(
                f"max_request_bytes={self.max_bytes} would be exceeded: {self.request_bytes} bytes are under way"
            )
        self.requests += requests
        self.request_bytes += size
        return Held(self, requests, size)


@attrs.define(eq=False)
class Held:
    """A message that is under way: until everybody who keeps it has released it."""

    _ledger: Ledger
    _requests: int
    _size: int
    _keepers: int = 1

    def keep(self) -> None:
        """One more keeps it."""
        self._keepers += 1

    def release(self) -> None:
        """One of them is done with it."""
        self._keepers -= 1
        if not self._keepers:
            self._ledger.requests -= self._requests
            self._ledger.request_bytes -= self._size


class HttpRequest:
    """What the client sent.

    Attributes:
        scope: ASGI's.
        method: As it was sent; RFC 9110, section 9.1: it is case-sensitive.
        root: Where the application is mounted; empty at the top.
        path: Below that, without a slash at its end.
        headers: Its fields.
        is_local: It came in on an address that only this machine can reach, a loopback one or a Unix socket's.
        extension: What tells that the client has left, where the ASGI server is ours.
    """

    def __init__(self, scope: Scope, receive: ReceiveCallable) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.root: str
        path: str = scope["path"]
        root = self.root = scope.get("root_path", "").rstrip("/")
        below = path[len(root) :] if root and (path + "/").startswith(root + "/") else path
        self.path = below.rstrip("/") or "/"
        self.headers = Headers(scope["headers"])
        server = scope.get("server")
        # IPv4 on a socket that takes both has a prefix (RFC 4291, section 2.5.5.2).
        host = str(server[0]).removeprefix("::ffff:") if server and server[1] is not None else "::1"
        self.is_local = host == "::1" or host.startswith("127.")
        self.extension: Gone | None = scope.get("extensions", {}).get(GONE)
        self._receive = receive
        self._complete = False

    async def body(self, limit: int, ledger: Ledger) -> bytes:
        """Read the body.

        Args:
            limit: How many bytes it may have.
            ledger: Where it counts meanwhile.

        Raises:
            BodyTooLarge: It has more than ``limit`` bytes; the rest is left unread.
            NoRoom: Too many bodies are being read, or too many bytes of them.
            ClientGone: The client has left.
        """
        if ledger.bodies >= ledger.max_requests:
            raise NoRoom(f"max_requests={ledger.max_requests} bodies are being read")
        ledger.bodies += 1
        body: bytes | bytearray = b""
        size = 0
        try:
            while not self._complete:
                piece = await self._next()
                size += len(piece)
                ledger.body_bytes += len(piece)
                if size > limit:
                    raise BodyTooLarge
                if ledger.bodies > 1 and ledger.body_bytes > ledger.max_bytes:
                    raise NoRoom(f"the bodies that are being read have max_request_bytes={ledger.max_bytes} bytes")
                if not body:
                    body = piece  # kept as it is, as there is mostly just the one
                elif piece:
                    if isinstance(body, bytes):  # pieces of a few bytes, each an object, cost many times their size
                        body = bytearray(body)
                    body += piece
        finally:
            ledger.bodies -= 1
            ledger.body_bytes -= size
        return bytes(body)

    async def drain(self) -> None:
        """Read what is left of an unwanted body, within bounds."""
        left = DRAINED
        with trio.move_on_after(DRAIN_TIME):
            while not self._complete and left > 0:
                try:
                    left -= len(await self._next())
                except ClientGone:
                    return

    async def _next(self) -> bytes:
        event = await self._receive()
        if event["type"] != "http.request":
            raise ClientGone
        self._complete = not event.get("more_body", False)
        body: bytes = event.get("body", b"")
        return body

    async def gone(self) -> None:
        """Wait until the client has left. For one task, after the body."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class HttpAnswer:
    """What goes back: `whole`, or `start_events`, `send` and `finish`.

    Args:
        send: ASGI's.
        fields: Header fields that every answer of this exchange carries.

    Attributes:
        fields: Those.
        started: The head has been sent, or is on its way.
        finished: Nothing more is sent.
    """

    def __init__(self, send: SendCallable, fields: Fields = ()) -> None:
        self._send = send
        self.fields = list(fields)
        self.started = False
        self.finished = False

    async def whole(self, status: int, body: bytes = b"", fields: Fields = ()) -> None:
        """Answer in one piece. A body is JSON unless the fields say otherwise."""
        self.started = self.finished = True
        given = [*self.fields, *fields]
        if status != 204:  # RFC 9110, section 8.6
            given.append(("content-length", str(len(body))))
        for name, _ in given:
            if name.lower() == "content-type":
                break
        else:
            if body:
                given.append(("content-type", JSON))
        await self._start(status, given)
        await self._send({"type": "http.response.body", "body": body})

    async def start_events(self, fields: Fields = ()) -> None:
        """Begin an event stream."""
        self.started = True
        # S, Receiving Messages: a proxy must not hold events back.
        stream = [("content-type", EVENTS), ("cache-control", "no-cache, no-transform"), ("x-accel-buffering", "no")]
        await self._start(200, [*self.fields, *fields, *stream])

    async def _start(self, status: int, fields: Fields) -> None:
        encoded: list[tuple[bytes, bytes]] = []
        for name, value in fields:
            encoded.append((name.lower().encode("ascii"), value.encode("latin-1")))
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def send(self, data: bytes) -> None:
        """Send a piece of the stream; after its end nothing is sent any more."""
        if not self.finished:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self) -> None:
        """End the stream; again is a no-op."""
        if self.started and not self.finished:
            self.finished = True
            await self._send({"type": "http.response.body", "body": b""})
