"""One request and its response, as the application sees them through ASGI."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any, Final, Literal, Protocol
from urllib.parse import unquote

import trio
from hypercorn.config import Config

from trio_mcp._log import logger
from trio_mcp.http.runner.h1.incoming import Head, Incoming
from trio_mcp.http.runner.heads import Fields, Malformed
from trio_mcp.http.runner.wire import PIECE, Wire
from trio_mcp.http.server.asgi import EXTRAS, Extras

__all__ = ["Exchange", "head_of"]

ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii") for status in HTTPStatus}
# RFC 9110, sections 5.1 and 5.5: nothing here can end a field or begin another.
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"[^\x00\r\n]*")


class Host(Protocol):
    """The connection of an exchange."""

    config: Config
    wire: Wire
    incoming: Incoming

    @property
    def may_last(self) -> bool:
        """Whether another request may follow this one."""


def head_of(status: int, fields: Fields) -> bytes:
    """Return the head of a response, checked.

    Raises:
        ValueError: If a field could be taken for more than one.
    """
    lines = [_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    for name, value in fields:
        if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise ValueError(f"a response must not have the field {name!r} with the value {value[:100]!r}")
        lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"\r\n")
    return b"".join(lines)


class Exchange(Extras):
    """A request and its response.

    Args:
        host: The connection.
        head: The head of the request.
        fields: All its fields.

    Attributes:
        lasting: Whether the connection may outlive the exchange; known once the head of the response is written.
        finished: Whether the whole response has been written.
        fault: The status for a body whose framing was refused.
        taken: Whether the application has taken the connection over.
    """

    lingers = True

    def __init__(self, host: Host, head: Head, fields: Fields) -> None:
        self._host = host
        self._head = head
        self._fields = fields
        self._given = False  # the application has got the end of the body
        self._start: tuple[int, Fields] | None = None
        # How the end of the response is told; None before its head is written.
        self._framing: Literal["length", "chunks", "close", "none"] | None = None
        self._left = 0  # bytes of its Content-Length that were not sent
        self._waits = head.expects  # the client waits for 100 Continue
        self._over: trio.Event | None = None
        self.lasting = False
        self.finished = False
        self.fault: int | None = None
        self.taken = False

    @property
    def unanswered(self) -> bool:
        """Whether nothing of a response has been written."""
        return self._framing is None and not self.taken

    async def run(self, app: Any, scope: dict[str, Any]) -> None:
        """Let the application serve the request. What it raises ends only the exchange."""
        head = self._head
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
        """Return the next event, as ASGI asks."""
        host = self._host
        while not (self._given or self._happened or self.finished):
            event = self.receive_nowait()
            if event is not None:
                return event
            if self._waits:
                self._waits = False
                await host.wire.send(CONTINUE)
            data = await host.wire.receive()
            if data:
                host.incoming.feed(data)
            else:
                self.happened()
        if not self._happened and not self.finished:
            if self._over is None:
                self._over = trio.Event()
            await self._over.wait()
        return {"type": "http.disconnect"}

    def receive_nowait(self) -> MutableMapping[str, Any] | None:
        incoming = self._host.incoming
        if self._given:
            return None
        try:
            data = b"" if incoming.complete else incoming.body()
        except Malformed as exc:
            self.fault = exc.status
            self.happened()
            return {"type": "http.disconnect"}
        if not data and not incoming.complete:
            return None
        self._given = incoming.complete
        return {"type": "http.request", "body": data, "more_body": not incoming.complete}

    def happened(self) -> None:
        super().happened()
        self._end()

    def _end(self) -> None:
        if self._over is not None:
            self._over.set()

    def take_over(self) -> tuple[trio.abc.Stream, bytes]:
        if self._start is not None or self._given:
            raise RuntimeError("the connection can't be taken over any more: the request was read, or answered")
        self.taken = True
        return self._host.wire.stream, self._host.incoming.rest()

    # --- the response ---------------------------------------------------------------------------------------------

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the response, as ASGI asks."""
        kind = message["type"]
        if kind == "http.response.start" and self._start is None:
            self._start = message["status"], message.get("headers", ())
            return
        if kind != "http.response.body" or self._start is None or self.finished:
            raise RuntimeError(f"the application sent {kind!r} when it may not")
        if self.fault is not None:
            return  # answered already, by the runner
        body, more = message.get("body", b""), message.get("more_body", False)
        parts = [] if self._framing is not None else [self._begin(*self._start, body, more)]
        parts += self._framed(body, more)
        # Small parts are joined: a write and often a packet for each would cost more than the copy. A large body is
        # not copied, so a client that doesn't read it costs no second copy.
        if len(body) <= PIECE:
            parts = [b"".join(parts)]
        if not more:
            self.finished = True
        for part in parts:
            if part and not await self._host.wire.send(part):
                self.lasting = False
                self.happened()
                break
        if not more:
            self._end()

    def _begin(self, status: int, given: Fields, body: bytes, more: bool) -> bytes:
        """Decide on the framing, and return the head."""
        host, head = self._host, self._head
        fields = [*host.config.response_headers("h11")]
        length, asks_to_close = None, False
        for name, value in given:
            if name == b"content-length":
                length = int(value)
            elif name == b"connection":
                asks_to_close = value.lower() == b"close"
            elif name != b"transfer-encoding":  # the framing is the runner's own
                fields.append((name, value))
        if length is None and not more:
            length = len(body)
        if status in (204, 304):
            self._framing = "none"
        elif length is not None:
            fields.append((b"content-length", b"%d" % length))
            self._framing, self._left = "length", length
        elif head.version == "1.0":
            self._framing = "close"
        else:
            fields.append((b"transfer-encoding", b"chunked"))
            self._framing = "chunks"
        if head.method == "HEAD":
            self._framing = "none"
        self.lasting = (
            head.lasting and host.may_last and not asks_to_close and self._framing != "close" and self._is_read(more)
        )
        if not self.lasting:
            fields.append((b"connection", b"close"))
        else:
            # Tell the client how long the connection is kept, so that it closes first and never sends a request into a
            # connection that is being closed.
            fields.append((b"keep-alive", b"timeout=%d" % host.config.keep_alive_timeout))
        return head_of(status, fields)

    def _is_read(self, more: bool) -> bool:
        """Return whether the request was read to its end, dropping what is there once the application has ended."""
        incoming = self._host.incoming
        try:
            while not more and not self._waits and not incoming.complete and incoming.body():
                pass
        except Malformed:
            return False
        return incoming.complete

    def _framed(self, body: bytes, more: bool) -> list[bytes]:
        if self._framing == "chunks":
            parts = [b"%x\r\n" % len(body), body, b"\r\n"] if body else []
            return parts if more else [*parts, b"0\r\n\r\n"]
        if self._framing == "length":
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                self.lasting = False
                raise RuntimeError("the response is not as long as its Content-Length says")
        return [] if self._framing == "none" else [body]
