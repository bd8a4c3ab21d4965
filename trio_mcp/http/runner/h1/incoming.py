"""What arrives on a connection: the heads of requests, and their bodies. It does no I/O.

Two servers in a row that disagree about where a request ends can be made to see different requests (request smuggling).
So everything that could be read in two ways is refused here, whatever the parser thinks of it: RFC 9112, sections 2.2,
3, 5, 6.3 and 7.1.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from trio_mcp.http.runner.h1.parsers import ParseFields
from trio_mcp.http.runner.heads import MAX_FRAMING, Fields, Malformed, check_head

__all__ = ["Head", "Heads", "Incoming"]

MAX_SEEN: Final = 256
"""Heads that are remembered (chosen), each of at most `MAX_SEEN_SIZE`."""

MAX_SEEN_SIZE: Final = 2048
"""Bytes of the longest head that is remembered (chosen)."""

MAX_LINE: Final = 4096
"""Bytes of a chunk's size with its extensions (chosen)."""

# RFC 9112, sections 3 and 2.3.
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([\x21-\x7e]+) HTTP/([0-9]\.[0-9])")
# The fields that differ from one request to the next of the same client. RFC 9110, section 8.6; 2025-11-25
# `basic/transports`, Session Management.
_VARYING = re.compile(
    rb"\r\n(?:(content-length):[ \t]*([0-9]{1,19})|(mcp-session-id):[ \t]*([\x21-\x7e]+))[ \t]*(?=\r\n)", re.IGNORECASE
)
# RFC 9112, section 7.1. The size is bounded, so that no integer is ever huge.
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00-\x08\x0a-\x1f\x7f]*")


@attrs.frozen
class Head:
    """The head of a request, without the fields that differ from one request to the next.

    Attributes:
        method: The method.
        target: The request target; of an absolute one, the path with the query.
        version: The HTTP version, such as ``"1.1"``.
        fields: The other fields, with names in lower case.
        chunked: Whether the body is chunked.
        expects: Whether the client waits for ``100 Continue`` before it sends the body.
        lasting: Whether the client leaves the connection open.
    """

    method: str
    target: bytes
    version: str
    fields: Fields
    chunked: bool
    expects: bool
    lasting: bool


class Heads:
    """A parser of heads that remembers those seen before: a client repeats most of its head in every request.

    Args:
        parse: What parses the fields.
        limit: How many bytes a head may have.
    """

    def __init__(self, parse: ParseFields, limit: int) -> None:
        self.limit = limit
        self._parse = parse
        self._seen: dict[bytes, Head] = {}

    def parse(self, raw: bytes) -> tuple[Head, Fields, int]:
        """Parse a head that ends with an empty line.

        Returns:
            The head, all its fields, and the length of the body, 0 if it is chunked.

        Raises:
            Malformed: If it is refused.
        """
        varying: dict[bytes, bytes] = {}
        for length_name, length, session_name, session in _VARYING.findall(raw):
            name = (length_name or session_name).lower()
            if name in varying:
                raise Malformed(400, f"the field {name.decode()} was sent twice")
            varying[name] = length or session
        # Sound, as each line left out is valid by itself, and nothing else in the head depends on where it stood: what
        # is remembered has no folded lines.
        key = _VARYING.sub(b"", raw) if varying else raw
        head = self._seen.get(key)
        if head is None:
            head = self._read(key)
            if len(key) <= MAX_SEEN_SIZE:
                if len(self._seen) >= MAX_SEEN:  # a client can make up any number of heads
                    self._seen.clear()
                self._seen[key] = head
        if not varying:
            return head, head.fields, 0
        length = varying.get(b"content-length", b"0")
        if head.chunked and b"content-length" in varying:
            raise Malformed(400, "the end of the request is ambiguous")
        return head, [*head.fields, *varying.items()], int(length)

    def _read(self, raw: bytes) -> Head:
        lines = raw[:-4].split(b"\r\n")
        for line in lines:
            if b"\n" in line or b"\r" in line:
                raise Malformed(400, "a line of the head ends without CR LF")
        for line in lines[1:]:
            if line[:1] in (b" ", b"\t"):
                raise Malformed(400, "a field of the head is folded")
        match = _REQUEST_LINE.fullmatch(lines[0])
        if match is None:
            raise Malformed(400, "the request line is malformed")
        method, target, version = match.groups()
        if not version.startswith(b"1."):
            raise Malformed(505, "only HTTP/1.0 and HTTP/1.1 are supported")
        fields = self._parse(raw)
        target, fields = check_head(version, target, fields, self.limit)
        named: dict[bytes, bytes] = {}
        hosts = 0
        for name, value in fields:
            hosts += name == b"host"
            named[name] = named[name] + b"," + value if name in named else value
        if hosts != 1 and (hosts or version != b"1.0"):
            raise Malformed(400, "there must be one Host")
        if b"content-length" in named:  # the valid ones have been taken out
            raise Malformed(400, "the Content-Length is malformed")
        coding = named.get(b"transfer-encoding")
        if coding is not None and coding.lower() != b"chunked":
            raise Malformed(400, "the only transfer coding is chunked")
        options = {option.strip() for option in named.get(b"connection", b"").lower().split(b",")}
        return Head(
            method=method.decode("ascii"),
            target=target,
            version=version.decode("ascii"),
            fields=fields,
            chunked=coding is not None,
            expects=version != b"1.0" and named.get(b"expect", b"").lower() == b"100-continue",
            lasting=version != b"1.0" and b"close" not in options,
        )


class Incoming:
    """The bytes that arrive on one connection.

    Args:
        heads: What parses heads.

    Attributes:
        raw: The head of the request as it came.
        complete: Whether the body of the request has been read to its end.
    """

    __slots__ = ("_buffer", "_chunks", "_heads", "_left", "_searched", "complete", "raw")

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._buffer = bytearray()
        self._searched = 0  # bytes of the buffer in which no head ends
        self._left = 0  # bytes of the body that have not arrived
        self._chunks: Chunks | None = None
        self.raw = b""
        self.complete = True

    def feed(self, data: bytes) -> None:
        """Add bytes that have arrived."""
        self._buffer += data

    def head(self) -> tuple[Head, Fields] | None:
        """Return the head of the next request with all its fields; None if it has not arrived.

        Raises:
            Malformed: If it is refused.
        """
        buffer = self._buffer
        while buffer.startswith(b"\r\n"):  # RFC 9112, section 2.2: after the body of an old client's request
            del buffer[:2]
        end = buffer.find(b"\r\n\r\n", max(0, self._searched - 3))
        if end < 0:
            self._judge_part()
            self._searched = len(buffer)
            return None
        if end + 4 > self._heads.limit:
            self._refuse_size()
        self.raw = bytes(buffer[: end + 4])
        del buffer[: end + 4]
        self._searched = 0
        head, fields, self._left = self._heads.parse(self.raw)
        self._chunks = Chunks(self._heads.limit) if head.chunked else None
        self.complete = not head.chunked and not self._left
        return head, fields

    def _judge_part(self) -> None:
        """Refuse what can't become a head, rather than wait for the rest of it."""
        buffer = self._buffer
        if buffer and buffer[0] <= 0x20 and buffer != b"\r":
            raise Malformed(400, "this is not HTTP")
        start = max(0, self._searched - 1)
        if re.search(rb"(?<!\r)\n", buffer[start:]) and not (start and buffer[start] == 0x0A):
            raise Malformed(400, "a line of the head ends without CR LF")
        if len(buffer) > self._heads.limit:
            self._refuse_size()

    def _refuse_size(self) -> None:
        # RFC 9112, section 3: 414 if the request line itself is too long.
        if b"\n" in self._buffer[: self._heads.limit]:
            raise Malformed(431, "the fields are too long")
        raise Malformed(414, "the target is too long")

    def body(self) -> bytes:
        """Return what has arrived of the body and was not returned yet, and set `complete` at its end.

        Raises:
            Malformed: If its framing is refused.
        """
        buffer = self._buffer
        if self._chunks is not None:
            data = self._chunks.take(buffer)
            self.complete = self._chunks.complete
            return data
        data = bytes(buffer[: self._left]) if len(buffer) > self._left else bytes(buffer)
        del buffer[: len(data)]
        self._left -= len(data)
        self.complete = not self._left
        return data

    def rest(self) -> bytes:
        """Return the head as it came and all that has arrived after it, and forget both."""
        taken = self.raw + bytes(self._buffer)
        self._buffer.clear()
        return taken


class Chunks:
    """A chunked body while it arrives (RFC 9112, section 7.1). Trailers are checked and dropped.

    Args:
        limit: How many bytes the trailers may have.

    Attributes:
        complete: Whether it has ended.
    """

    __slots__ = ("_framing", "_left", "_limit", "_next", "complete")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = 0  # bytes of the chunk that have not arrived
        self._framing = 0  # bytes that were not content, less a quarter of the content
        self._next = "size"  # what comes next
        self.complete = False

    def take(self, buffer: bytearray) -> bytes:
        """Return the content in a buffer, and remove it with its framing.

        Raises:
            Malformed: If the framing is refused.
        """
        content = bytearray()
        while not self.complete:
            if self._next == "data":
                piece = buffer[: self._left]
                if not piece:
                    break
                content += piece
                del buffer[: len(piece)]
                self._left -= len(piece)
                self._framing -= len(piece) // 4
                if not self._left:
                    self._next = "end of data"
                continue
            line = self._line(buffer)
            if line is None:
                break
            self._framing += len(line) + 2
            if self._framing > MAX_FRAMING:  # RFC 9112, section 7.1.1: limit chunk extensions
                raise Malformed(400, "the chunks of the body are more framing than content")
            self._read(line)
        return bytes(content)

    def _line(self, buffer: bytearray) -> bytes | None:
        most = 0 if self._next == "end of data" else MAX_LINE
        end = buffer.find(b"\r\n", 0, most + 2)
        line = bytes(buffer[: end if end >= 0 else most + 2])
        # Whatever may still follow: a part of CR LF is all that a bad line has in common with a good one.
        if b"\n" in line or b"\r" in line[:-1] or (end < 0 and len(line) > most + (line[-1:] == b"\r")):
            raise Malformed(400, "a line in the body ends without CR LF, or is too long")
        if end < 0:
            return None
        del buffer[: end + 2]
        return line

    def _read(self, line: bytes) -> None:
        if self._next == "end of data":
            self._next = "size"
        elif self._next == "trailer":
            self._limit -= len(line)
            if not line:
                self.complete = True
            elif self._limit < 0 or _TRAILER.fullmatch(line) is None:
                raise Malformed(400, "a trailer is malformed, or the trailers are too long")
        else:
            match = _CHUNK.fullmatch(line)
            if match is None:
                raise Malformed(400, "the size of a chunk is malformed")
            self._left = int(match[1], 16)
            self._next = "data" if self._left else "trailer"
