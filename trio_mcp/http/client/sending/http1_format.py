"""Encodes requests, and parses the heads and bodies of responses, in HTTP/1.1 as a client uses it.

This module does no I/O.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final, TypeAlias

import attrs
import h11

from trio_mcp.http.framing import FIELD, MAX_SEEN_FIELDS, MAX_SEEN_SIZE, Chunks, FramingError
from trio_mcp.http.headers import Headers

__all__ = ["Destination", "FieldsByName", "ResponseHead", "ResponseHeads", "ResponseReader", "head_of", "place_of"]

FieldsByName: TypeAlias = Mapping[str, tuple[str, str]]
"""The names and values of header fields, keyed by the name in lower case."""

# --- requests -----------------------------------------------------------------------------------------------------

# The pattern matches URLs that need no rewriting: they have no user, no fragment, no dot segments, and only characters
# that are sent as they are. All other URLs are left to httpx, which implements RFC 3986, section 6.2, and IDNA.
_SAFE: Final = r"(?:[A-Za-z0-9\-._~!$&()*+,;=:@]|%[0-9A-Fa-f]{2})"
_PLAIN = re.compile(
    rf"(https?)://((?:[a-z0-9-]+\.)*[a-z0-9-]+|\[[0-9a-f:.]+\])(?::([1-9][0-9]{{0,4}}))?"
    rf"((?:/(?!\.){_SAFE}*)*)(\?(?:{_SAFE}|[/?])*)?"
)
_PORTS: Final = {"http": 80, "https": 443}
_FIELDS = re.compile(rb"(?:" + FIELD + rb"\r\n)*")
# Fields with these names are left out of a request, because the sender itself says where the body ends.
_FRAMING: Final = frozenset({"content-length", "transfer-encoding"})


@attrs.frozen
class Destination:
    """The destination of a request.

    Attributes:
        tls: Whether the host is reached over TLS.
        host: The host to connect to; an IPv6 address without brackets.
        port: The port.
        netloc: The value of ``Host``.
        target: The request target.
    """

    tls: bool
    host: str
    port: int
    netloc: str
    target: str


@functools.lru_cache(64)
def place_of(url: str) -> Destination:
    """Return the destination that a URL names.

    Raises:
        ValueError: If the URL is not one of ``http`` or ``https``.
    """
    match = _PLAIN.fullmatch(url)
    if match is not None:
        scheme, host, digits, path, query = match.groups()
        port = int(digits or _PORTS[scheme])
        netloc = host if port == _PORTS[scheme] else f"{host}:{port}"
        return Destination(scheme == "https", host.strip("[]"), port, netloc, (path or "/") + (query or ""))
    import httpx  # noqa: ASYNC127 - most URLs don't need it; it is always installed

    try:
        found = httpx.URL(url)
    except httpx.InvalidURL as exc:
        raise ValueError(str(exc)) from None
    if found.scheme not in _PORTS:
        raise ValueError(f"the scheme {found.scheme!r} is neither http nor https")
    return Destination(
        found.scheme == "https",
        found.raw_host.decode("ascii"),
        _PORTS[found.scheme] if found.port is None else found.port,
        found.netloc.decode("ascii"),
        found.raw_path.decode("ascii"),
    )


def head_of(method: str, place: Destination, fields: FieldsByName, size: int) -> bytes:
    """Return the head of a request with a body of ``size`` bytes.

    Raises:
        ValueError: If a header field can't be sent.
    """
    if not _FRAMING.isdisjoint(fields):
        fields = {name: field for name, field in fields.items() if name not in _FRAMING}
    text, count = "".join(map("%s: %s\r\n".__mod__, fields.values())), len(fields)
    if "host" not in fields:
        text, count = f"Host: {place.netloc}\r\n{text}", count + 1
    if size or method == "POST":  # a POST states even the length 0 (RFC 9110, section 8.6)
        text, count = f"{text}Content-Length: {size}\r\n", count + 1
    data = text.encode("latin-1")
    # One search checks all fields before they are sent. A line break in a value would begin another field.
    if _FIELDS.fullmatch(data) is None or data.count(b"\n") != count:
        raise ValueError("a header field has characters that can't be sent")
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode("ascii"), place.target.encode("ascii"), data)


# --- responses ----------------------------------------------------------------------------------------------------

MAX_HEAD: Final = 100 * 1024
"""The maximum size of a response head, in bytes. An arbitrary choice, as in httpcore."""
MAX_FIELDS: Final = 1000
"""The maximum number of lines in a response head. An arbitrary choice."""
MAX_INTERIM: Final = 100
"""The maximum number of responses with a status of 1xx before the final response. An arbitrary choice."""
MAX_REASON: Final = 200
"""The maximum number of characters that are kept of the reason for refusing a head. An arbitrary choice."""

MAX_SEEN: Final = 64
"""How many heads a link remembers, each with at most `MAX_SEEN_SIZE` bytes and `MAX_SEEN_FIELDS` lines.

An arbitrary choice.
"""

_END = re.compile(rb"\n\r?\n")
# The pattern matches lines that may differ from one response to the next, provided that they are valid by themselves
# and not folded.
_VARYING = re.compile(
    rb"\r\n(?:(content-length):[ \t]*([0-9]{1,19})|"
    rb"(age|cf-ray|date|etag|last-modified|mcp-session-id|server-timing|traceparent|x-[0-9a-z-]+):"
    rb"[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?))[ \t]*(?=\r\n[^ \t])",
    re.IGNORECASE,
)
# h11 reads a response only if it knows the request. Any request will do, because only HEAD and CONNECT change how a
# response is read.
_ASKED: Final = h11.Request(method="GET", target="/", headers=[("Host", "x")])


@attrs.frozen
class ResponseHead:
    """The head of a response.

    Attributes:
        status: The status.
        headers: The header fields. They are shared with other responses, so they must not be changed.
        names: The lower-case names of the parsed fields, without the varying fields that were added to a remembered
            head.
        length: The length of the body in bytes, if ``Content-Length`` states it.
        chunked: Whether the body comes in chunks.
        lasting: Whether the server leaves the connection open after the response.
    """

    status: int
    headers: Headers
    names: frozenset[bytes]
    length: int | None
    chunked: bool
    lasting: bool


@attrs.define(eq=False)
class ResponseHeads:
    """A parser of response heads that remembers earlier ones: a server repeats most of its head in every response."""

    _seen: dict[bytes, ResponseHead] = attrs.Factory(dict)

    def parse(self, raw: bytes) -> ResponseHead:
        """Parse a head that ends with an empty line.

        Raises:
            FramingError: If the head is refused.
        """
        if len(raw) > MAX_SEEN_SIZE or raw.count(b"\n") > MAX_SEEN_FIELDS:
            return _read(raw)
        varying: dict[bytes, bytes] = {}
        for name, size, other, value in _VARYING.findall(raw):
            varying[(name or other).lower()] = size or value
        # Leaving these lines out is sound, because each is valid by itself and no other line depends on it.
        key, left_out = _VARYING.subn(b"", raw)
        head = self._seen.get(key)
        if head is None:
            head = _read(key)
            if len(self._seen) >= MAX_SEEN:  # the cache is bounded: a server can make up any number of heads
                self._seen.clear()
            self._seen[key] = head
        # If a field was sent twice, h11 gets the whole head, because h11 decides what a repeated field means.
        if left_out > len(varying) or not head.names.isdisjoint(varying):
            return _read(raw)
        if not varying:
            return head
        length = varying.get(b"content-length")
        return ResponseHead(
            head.status,
            head.headers.adding(varying.items()),
            head.names,
            head.length if length is None else int(length),
            head.chunked,
            head.lasting,
        )


def _read(raw: bytes) -> ResponseHead:
    if raw.count(b"\n") > MAX_FIELDS:
        raise FramingError(400, "the head of the response has too many fields")
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
    connection.send(_ASKED)
    connection.receive_data(raw)
    try:
        found = connection.next_event()
    except h11.RemoteProtocolError as exc:
        raise FramingError(400, str(exc)[:MAX_REASON]) from None  # h11 quotes the refused line in its message
    if not isinstance(found, (h11.Response, h11.InformationalResponse)):
        raise FramingError(400, "the head of the response is malformed")
    headers = Headers(found.headers)
    length = headers.get("content-length")
    options = (headers.get("connection") or "").lower().split(",")
    return ResponseHead(
        found.status_code,
        headers,
        frozenset(name for name, _ in found.headers),
        None if length is None else int(length),
        # If there is a transfer coding, it is chunked, because h11 refuses every other coding.
        headers.get("transfer-encoding") is not None,
        # RFC 9112, section 9.3, does not require a client to honor the keep-alive of HTTP/1.0.
        found.http_version >= b"1.1" and "close" not in {option.strip() for option in options},
    )


@attrs.define(eq=False)
class ResponseReader:
    """A reader of one response, and of the informational responses before it, from bytes as they arrive.

    Args:
        heads: The parser of heads.

    Attributes:
        begun: Whether any part of the response has arrived.
        complete: Whether the whole response has arrived.
    """

    _heads: ResponseHeads
    _buffer: bytearray = attrs.Factory(bytearray)
    _searched: int = 0  # how many bytes of the buffer were searched for the end of a head
    _interim: int = 0
    _left: int | None = 0  # bytes of the body that have not arrived; None if the body lasts until the connection ends
    _chunks: Chunks | None = None
    _lasting: bool = True
    begun: bool = False
    complete: bool = False

    @property
    def reusable(self) -> bool:
        """Whether the connection can be used again: the response has ended, and nothing has arrived after it."""
        return self.complete and self._lasting and not self._buffer

    def head(self, data: bytes) -> ResponseHead | None:
        """Add bytes that have arrived, and return the head of the response, or None if the head is not complete yet.

        Raises:
            FramingError: If the head is refused.
        """
        buffer = self._buffer
        buffer += data
        self.begun = self.begun or bool(buffer)
        while True:
            # The search goes back three bytes, because the end of a head may arrive in two parts. It goes no further:
            # otherwise, a head that arrives byte by byte would take quadratic time.
            end = _END.search(buffer, max(0, self._searched - 3))
            if end is None or end.end() > MAX_HEAD:
                if buffer and buffer[0] < 0x21:  # for example, this is the beginning of a TLS record
                    raise FramingError(400, "this is not HTTP")
                if len(buffer) > MAX_HEAD:
                    raise FramingError(400, "the head of the response is too long")
                self._searched = len(buffer)
                return None
            raw = bytes(buffer[: end.end()])
            del buffer[: end.end()]
            self._searched = 0
            head = self._heads.parse(raw)
            if head.status >= 200 or head.status == 101:
                break
            # RFC 9110, section 15.2: a client must be able to parse informational responses, even unexpected ones.
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise FramingError(400, f"more than {MAX_INTERIM} informational responses came before the final one")
        # RFC 9112, section 6.3, says where the body ends. After a 101 the connection can't be used again: the server
        # has changed to another protocol, although the request did not ask for that.
        self._lasting = head.lasting and head.status != 101
        if head.status in (101, 204, 304):
            self._left = 0
        elif head.chunked:
            self._chunks = Chunks(of_response=True)
        else:
            self._left = head.length
            self._lasting = self._lasting and head.length is not None
        self.complete = self._chunks is None and self._left == 0
        return head

    def body(self, data: bytes) -> bytes:
        """Add bytes that have arrived, return the content in them, and set `complete` at the end of the body.

        Raises:
            FramingError: If the framing of the body is refused.
        """
        buffer, left = self._buffer, self._left
        if self._chunks is not None:
            buffer += data
            content = self._chunks.take(buffer)
            self.complete = self._chunks.complete
            return content
        if buffer or (left is not None and len(data) > left):
            buffer += data
            data = bytes(buffer[:left])
            del buffer[:left]
        if left is not None:
            self._left = left - len(data)
            self.complete = left == len(data)
        return data

    def end(self) -> None:
        """Record the end of the connection.

        Raises:
            FramingError: If the response is not complete.
        """
        if not self.begun:
            raise FramingError(400, "Server disconnected without sending a response.")
        if self._chunks is None and self._left is None and not self.complete:
            self.complete = True
        if not self.complete:
            raise FramingError(400, "the server closed the connection before the end of the response")
