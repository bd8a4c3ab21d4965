"""What arrives from a server on an HTTP/1.1 connection: heads and bodies of responses. It does no I/O."""

from __future__ import annotations

import re
from typing import Final

import attrs
import h11

from trio_mcp.http.framing import Chunks, FramingError
from trio_mcp.http.headers import Headers

__all__ = ["ResponseHead", "ResponseHeads", "ResponseReader"]

MAX_HEAD: Final = 100 * 1024
"""Bytes of a head. Chosen, as in httpcore."""
MAX_FIELDS: Final = 1000
"""Lines of a head (chosen)."""
MAX_INTERIM: Final = 100
"""Responses with a status of 1xx before the final one (chosen)."""
MAX_REASON: Final = 200
"""Characters kept of why a head is refused (chosen)."""

MAX_SEEN: Final = 64
"""Heads that are remembered for each link (chosen), each of at most `MAX_SEEN_SIZE` and `MAX_SEEN_FIELDS`."""
MAX_SEEN_SIZE: Final = 2048
"""Bytes of the longest head that is remembered (chosen)."""
MAX_SEEN_FIELDS: Final = 40
"""Lines of the longest head that is remembered (chosen): a short field takes many times its size in memory."""

_END = re.compile(rb"\n\r?\n")
# The lines that differ from one response to the next, as far as each is valid by itself and not folded.
_VARYING = re.compile(
    rb"\r\n(?:(content-length):[ \t]*([0-9]{1,19})|"
    rb"(age|cf-ray|date|etag|last-modified|mcp-session-id|server-timing|traceparent|x-[0-9a-z-]+):"
    rb"[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?))[ \t]*(?=\r\n[^ \t])",
    re.IGNORECASE,
)
# h11 wants to know what is responded to. Only HEAD and CONNECT would change how the response is read.
_ASKED: Final = h11.Request(method="GET", target="/", headers=[("Host", "x")])


@attrs.frozen
class ResponseHead:
    """The head of a response.

    Attributes:
        status: The status.
        headers: The header fields. They are shared with other responses, so they must not be changed.
        length: Bytes of the body, as far as a ``Content-Length`` says.
        chunked: Whether the body comes in chunks.
        lasting: Whether the server leaves the connection open.
    """

    status: int
    headers: Headers
    length: int | None
    chunked: bool
    lasting: bool


class ResponseHeads:
    """A parser of heads that remembers those seen before: a server repeats most of its head in every response."""

    def __init__(self) -> None:
        self._seen: dict[bytes, ResponseHead] = {}

    def parse(self, raw: bytes) -> ResponseHead:
        """Parse a head that ends with an empty line.

        Raises:
            FramingError: If it is refused.
        """
        if len(raw) > MAX_SEEN_SIZE or raw.count(b"\n") > MAX_SEEN_FIELDS:
            return _read(raw)
        varying = {name.lower() or other.lower(): size or value for name, size, other, value in _VARYING.findall(raw)}
        # Sound, as each line left out is valid by itself and no other line depends on it.
        key, left_out = _VARYING.subn(b"", raw)
        head = self._seen.get(key)
        if head is None:
            head = _read(key)
            if len(self._seen) >= MAX_SEEN:  # a server can make up any number of heads
                self._seen.clear()
            self._seen[key] = head
        # A field that came twice: h11 decides what to make of that.
        if left_out > len(varying) or any(map(head.headers.count, map(bytes.decode, varying))):
            return _read(raw)
        if not varying:
            return head
        length = varying.get(b"content-length")
        return ResponseHead(
            head.status,
            head.headers.adding(varying.items()),
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
        raise FramingError(400, str(exc)[:MAX_REASON]) from None  # h11 quotes the line that it refuses
    if not isinstance(found, (h11.Response, h11.InformationalResponse)):
        raise FramingError(400, "the head of the response is malformed")
    headers = Headers(found.headers)
    length = headers.get("content-length")
    options = (headers.get("connection") or "").lower().split(",")
    return ResponseHead(
        found.status_code,
        headers,
        None if length is None else int(length),
        # h11 lets no other coding pass.
        headers.get("transfer-encoding") is not None,
        # RFC 9112, section 9.3: whether to honor the keep-alive of HTTP/1.0 is the client's choice, too.
        found.http_version >= b"1.1" and "close" not in {option.strip() for option in options},
    )


class ResponseReader:
    """The bytes that arrive on one connection.

    Args:
        heads: What parses heads.

    Attributes:
        begun: Whether anything of the current response has arrived.
        complete: Whether the current response has arrived to its end.
    """

    __slots__ = ("_buffer", "_chunks", "_heads", "_interim", "_lasting", "_left", "_searched", "begun", "complete")

    def __init__(self, heads: ResponseHeads) -> None:
        self._heads = heads
        self._buffer = bytearray()
        self._searched = 0  # bytes of the buffer in which no head ends
        self._interim = 0
        self._left: int | None = 0  # bytes of the body that have not arrived; None if its end is the connection's
        self._chunks: Chunks | None = None
        self._lasting = True
        self.begun = False
        self.complete = True

    @property
    def reusable(self) -> bool:
        """Whether another response may follow: this one has ended, with nothing behind it."""
        return self.complete and self._lasting and not self._buffer

    def begin(self) -> None:
        """Expect the next response."""
        self._searched = self._interim = self._left = 0
        self._chunks = None
        self.begun = self.complete = False

    def head(self, data: bytes) -> ResponseHead | None:
        """Take what has arrived, and return the head of the response; None if not all of it has arrived.

        Raises:
            FramingError: If it is refused.
        """
        buffer = self._buffer
        buffer += data
        self.begun = self.begun or bool(buffer)
        while True:
            # Three bytes back, as the end of a head may come in two parts; and no further, or a head that comes byte by
            # byte would take quadratic time.
            end = _END.search(buffer, max(0, self._searched - 3))
            if end is None or end.end() > MAX_HEAD:
                if buffer and buffer[0] < 0x21:  # such as a TLS record
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
            # RFC 9110, section 15.2: a client must be able to parse them, even unasked.
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise FramingError(400, f"more than {MAX_INTERIM} informational responses came before the final one")
        # RFC 9112, section 6.3. The other protocol after a 101 was not asked for.
        self._lasting = head.lasting and head.status != 101
        self._chunks = None
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
        """Take what has arrived, return the content in it, and set `complete` at the end of the body.

        Raises:
            FramingError: If its framing is refused.
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
        """Take the end of the connection.

        Raises:
            FramingError: If the response is not complete.
        """
        if not self.begun:
            raise FramingError(400, "Server disconnected without sending a response.")
        if self._chunks is None and self._left is None and not self.complete:
            self.complete = True
        if not self.complete:
            raise FramingError(400, "the server closed the connection before the end of the response")
