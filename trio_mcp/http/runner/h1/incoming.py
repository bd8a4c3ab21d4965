"""Reads request heads and bodies from the incoming data of a connection. This module does no I/O.

Two servers in a row that disagree about where a request ends can be made to see different requests (request smuggling).
Therefore everything that could be read in two ways is refused here, whether or not the parser would accept it (RFC
9112, sections 2.2, 3, 5, 6.3 and 7.1).
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from trio_mcp.http.framing import FIELD, MAX_SEEN_FIELDS, MAX_SEEN_SIZE, TOKEN, Chunks, Fields, FramingError
from trio_mcp.http.runner.h1.parsers import ParseFields
from trio_mcp.http.runner.heads import check_head

__all__ = ["RequestHead", "RequestHeads", "RequestReader"]

MAX_SEEN: Final = 256
"""How many heads are remembered, each with at most `MAX_SEEN_SIZE` bytes and `MAX_SEEN_FIELDS` fields.

An arbitrary choice.
"""

_HEAD = re.compile(rb"(" + TOKEN + rb") ([\x21-\x7e]+) HTTP/([0-9]\.[0-9])\r\n(?:" + FIELD + rb"\r\n)*\r\n")
_BARE_LF = re.compile(rb"(?<!\r)\n")
FRAMING: Final = frozenset((b"content-length", b"transfer-encoding"))

# The pattern matches fields that frame the body (RFC 9110, section 8.6; RFC 9112, section 6.1), and others that are
# secret or differ between the requests of one client (2025-11-25 `basic/transports`, Session Management; 2026-07-28
# `basic/transports/streamable-http`, Request Metadata), provided that they are valid and both parsers leave them as
# they are.
_VARYING = re.compile(
    rb"\r\n(?:(content-length):[ \t]*([0-9]{1,19})|(transfer-encoding):[ \t]*(chunked)|"
    rb"(authorization|baggage|mcp-method|mcp-name|mcp-param-[0-9a-z-]+|mcp-session-id|traceparent|tracestate|x-request-id):"
    rb"[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?))[ \t]*(?=\r\n)",
    re.IGNORECASE,
)


@attrs.frozen
class RequestHead:
    """The head of a request, without the fields that frame the body or differ from one request to the next.

    Attributes:
        method: The method.
        target: The request target; if it is an absolute URL, only the path with the query.
        version: The HTTP version, such as ``"1.1"``.
        fields: The fields, with names in lower case.
        expects: Whether the client waits for ``100 Continue`` before it sends the body.
        lasting: Whether the client leaves the connection open after the request.
    """

    method: str
    target: bytes
    version: str
    fields: Fields
    expects: bool
    lasting: bool


@attrs.define(eq=False)
class RequestHeads:
    """A parser of request heads that remembers earlier ones: a client repeats most of its head in every request.

    Args:
        parse: The function that parses the fields.
        limit: The maximum size of a head, in bytes.
    """

    _parse: ParseFields
    limit: int
    _seen: dict[bytes, RequestHead] = attrs.Factory(dict)

    def parse(self, raw: bytes) -> tuple[RequestHead, Fields, int | None]:
        """Parse a head that ends with an empty line.

        Returns:
            The head, all its fields, and the length of the body, which is None if the body is chunked.

        Raises:
            FramingError: If the head is refused.
        """
        varying: Fields = []
        length: int | None = 0
        framed = False
        for groups in _VARYING.findall(raw):
            name, value = filter(None, groups)
            varying.append((name.lower(), value))
            if varying[-1][0] not in FRAMING:
                continue
            # Two fields that frame the body are refused even if they agree: a proxy in front may have used only one of
            # them, or neither.
            if framed:
                raise FramingError(400, "the end of the request is ambiguous")
            framed = True
            length = None if value.lower() == b"chunked" else int(value)
        # Leaving these lines out is sound: each is valid by itself, and nothing else in the head depends on its place,
        # because a remembered head has no folded lines, and each of its lines ends with CR LF.
        key = _VARYING.sub(b"", raw) if varying else raw
        head = self._seen.get(key)
        if head is None:
            head = self._read(key)
            if len(key) <= MAX_SEEN_SIZE and len(head.fields) <= MAX_SEEN_FIELDS:
                if len(self._seen) >= MAX_SEEN:  # the cache is bounded: a client can make up any number of heads
                    self._seen.clear()
                self._seen[key] = head
        if length is None and head.version == "1.0":  # HTTP/1.0 has no chunks: see `check_head`
            raise FramingError(400, "the end of the request is ambiguous")
        # The list is always a new one, because an application may change it.
        return head, [*head.fields, *varying], length

    def _read(self, raw: bytes) -> RequestHead:
        # This check precedes the parser, because parsers differ in what they accept. There is one search for the whole
        # head: a search for each line would cost more than the parsers.
        match = _HEAD.fullmatch(raw)
        if match is None:
            raise FramingError(400, "the head is malformed")
        method, target, version = match.groups()
        if not version.startswith(b"1."):
            raise FramingError(505, "only HTTP/1.0 and HTTP/1.1 are supported")
        fields = self._parse(raw)
        hosts = sum(name == b"host" for name, _ in fields)
        if hosts > 1 or (not hosts and version != b"1.0"):
            raise FramingError(400, "a request must have exactly one Host")
        named: dict[bytes, bytes] = {}
        for name, value in fields:
            # A list may be spread over several lines (RFC 9110, section 5.3), so `close` may be in a second Connection
            # field.
            named[name] = named[name] + b"," + value if name in named else value
        # Valid fields of these names have been taken out, so the parser has no say in where a body ends.
        if b"content-length" in named:
            raise FramingError(400, "the Content-Length is malformed")
        if b"transfer-encoding" in named:
            raise FramingError(400, "the only transfer coding supported is chunked")
        target, fields = check_head(version, target, fields, self.limit)
        options = {option.strip() for option in named.get(b"connection", b"").lower().split(b",")}
        return RequestHead(
            method=method.decode("ascii"),
            target=target,
            version=version.decode("ascii"),
            fields=fields,
            # RFC 9110, section 10.1.1: the expectation of an HTTP/1.0 client must be ignored.
            expects=version != b"1.0" and named.get(b"expect", b"").lower() == b"100-continue",
            # RFC 9112, section 9.3, does not require a server to honor the keep-alive of HTTP/1.0.
            lasting=version != b"1.0" and b"close" not in options,
        )


@attrs.define(eq=False)
class RequestReader:
    """A reader of requests from the bytes that arrive on one connection.

    Args:
        heads: The parser of heads.

    Attributes:
        raw: The head of the request as it arrived.
        complete: Whether the body of the request has been read to its end.
    """

    _heads: RequestHeads
    _buffer: bytearray = attrs.Factory(bytearray)
    _searched: int = 0  # how many bytes of the buffer were searched for the end of a head
    _left: int = 0  # bytes of the body that have not arrived
    _chunks: Chunks | None = None
    raw: bytes = b""
    complete: bool = True

    @property
    def ahead(self) -> int:
        """How many bytes have arrived but have not been returned yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Add bytes that have arrived."""
        self._buffer += data

    def head(self) -> tuple[RequestHead, Fields] | None:
        """Return the head of the next request with all its fields; None if not all of it has arrived.

        Raises:
            FramingError: If the head is refused.
        """
        buffer = self._buffer
        while buffer.startswith(b"\r\n"):  # some old clients send CR LF after a body (RFC 9112, section 2.2)
            del buffer[:2]
        # The search goes back three bytes, because the four that end a head may arrive in two parts. It goes no
        # further: otherwise, a head that arrives byte by byte would take quadratic time.
        end = buffer.find(b"\r\n\r\n", max(0, self._searched - 3)) + 4
        if not 4 <= end <= self._heads.limit:
            self._judge_part()
            self._searched = len(buffer)
            return None
        # The head is kept as it arrived, for an application that takes the connection over.
        self.raw = bytes(buffer[:end])
        del buffer[:end]
        self._searched = 0
        head, fields, length = self._heads.parse(self.raw)
        self._left = length or 0
        self._chunks = Chunks() if length is None else None
        self.complete = length == 0
        return head, fields

    def _judge_part(self) -> None:
        """Refuse bytes that can't become a valid head, rather than wait for more.

        The verdict must not depend on how the bytes were split, so it is the verdict on the shortest beginning
        that can be refused.
        """
        buffer, limit = self._buffer, self._heads.limit
        # A lone CR may become an empty line, which is skipped. A TLS handshake begins with 0x16: if it were not refused
        # here, its client would wait until the timeout.
        if buffer and buffer[0] <= 0x20 and buffer != b"\r":
            raise FramingError(400, "the request is not HTTP")
        if _BARE_LF.search(buffer, self._searched, limit + 1):
            raise FramingError(400, "a line of the head ends without CR LF")
        if len(buffer) > limit:
            # RFC 9112, section 3, requires 414 if the request target itself is too long.
            if buffer.find(b"\n", 0, limit) >= 0:
                raise FramingError(431, "the fields are too long")
            raise FramingError(414, "the target is too long")

    def body(self) -> bytes:
        """Return the part of the body that has arrived since the last call, and set `complete` at its end.

        Raises:
            FramingError: If the framing of the body is refused.
        """
        buffer = self._buffer
        if self._chunks is not None:
            data = self._chunks.take(buffer)
            self.complete = self._chunks.complete
            return data
        # Nearly always the whole buffer belongs to the body, so it is copied only once.
        data = bytes(buffer if len(buffer) <= self._left else buffer[: self._left])
        del buffer[: len(data)]
        self._left -= len(data)
        self.complete = not self._left
        return data

    def rest(self) -> bytes:
        """Return the head as it arrived and everything that has arrived after it, and clear the buffer."""
        taken = self.raw + bytes(self._buffer)
        self._buffer.clear()
        return taken
