"""Defines the framing of HTTP/1.1 messages, for clients and servers: fields, chunks, and limits on both.

This module does no I/O.
"""

from __future__ import annotations

import re
from typing import Final, Literal

__all__ = [
    "FIELD",
    "MAX_FRAMING",
    "MAX_LINE",
    "MAX_SEEN_FIELDS",
    "MAX_SEEN_SIZE",
    "TOKEN",
    "Chunks",
    "Fields",
    "FramingError",
]

Fields = list[tuple[bytes, bytes]]
"""Header fields: names in lower case, and values."""

MAX_FRAMING: Final = 256 * 1024
"""By how many bytes the framing of a body may exceed a quarter of its content.

An arbitrary choice; there is a limit because each chunk or frame costs time.
"""

MAX_LINE: Final = 4096
"""The maximum length, in bytes, of a line with a chunk's size and extensions, or with a trailer (arbitrary)."""

MAX_SEEN_SIZE: Final = 2048
"""The maximum size, in bytes, of a head that a parser remembers, in case that head comes again. An arbitrary choice."""

MAX_SEEN_FIELDS: Final = 40
"""The maximum number of fields in a head that a parser remembers.

An arbitrary choice; there is a limit because a short field takes many times its size in memory.
"""

TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # RFC 9110, section 5.6.2
# The pattern allows no white space before the colon and no control character but the tab. So it matches neither a
# folded line nor a line that ends without CR LF.
FIELD: Final = TOKEN + rb":[\t\x20-\x7e\x80-\xff]*"  # RFC 9112, section 5
_TRAILER = re.compile(FIELD)  # RFC 9112, section 7.1.2
# RFC 9112, section 7.1. The size is bounded, so that no integer is ever huge.
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*)?")
_PADDED_CHUNK = re.compile(_CHUNK.pattern + rb"[\t ]*")


class FramingError(Exception):
    """An HTTP message is refused before any application sees it.

    Args:
        status: The status with which a server refuses a request.
        text: What is wrong.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Chunks:
    """A chunked body while it arrives (RFC 9112, section 7.1). Trailers are checked and dropped.

    Args:
        of_response: Whether the body belongs to a response. If so, spaces after the size of a chunk are accepted, since
            some servers send them, and the limit on framing applies to each chunk by itself: a stream of events may
            last for weeks with a chunk for each event.

    Attributes:
        complete: Whether the body has ended.
    """

    __slots__ = ("_content", "_framing", "_left", "_line", "_of_response", "complete")

    def __init__(self, *, of_response: bool = False) -> None:
        self._of_response = of_response
        self._left = 0  # bytes of the chunk that have not arrived
        self._line: Literal["size", "end of data", "trailer"] = "size"  # the kind of the next line
        self._content = self._framing = 0  # how many bytes have been taken so far
        self.complete = False

    def take(self, buffer: bytearray) -> bytes:
        """Return the content in a buffer, and remove the content and its framing from the buffer.

        Raises:
            FramingError: If the framing is refused.
        """
        content = bytearray()
        while buffer and not self.complete:
            if self._left:
                size = min(self._left, len(buffer))
                with memoryview(buffer) as view:
                    content += view[:size]
                del buffer[:size]
                self._left -= size
                self._content += size
                continue
            line = self._next_line(buffer)
            if line is None:
                break
            self._framing += len(line) + 2
            # RFC 9112, section 7.1.1: limit chunk extensions. This bounds the trailers as well.
            if self._framing - self._content // 4 > MAX_FRAMING:
                raise FramingError(400, "the chunks of the body have too much framing for their content")
            self._read(line)
        return bytes(content)

    def _next_line(self, buffer: bytearray) -> bytes | None:
        most = 0 if self._line == "end of data" else MAX_LINE
        end = buffer.find(b"\r\n", 0, most + 2)
        line = bytes(buffer[: end if end >= 0 else most + 2])
        # A line is refused only if nothing that may still arrive could make it valid; a final CR may belong to CR LF.
        if b"\n" in line or b"\r" in line[:-1] or (end < 0 and len(line) > most + (line[-1:] == b"\r")):
            raise FramingError(400, "a line in the body ends without CR LF, or is too long")
        if end < 0:
            return None
        del buffer[: end + 2]
        return line

    def _read(self, line: bytes) -> None:
        if self._line == "end of data":
            self._line = "size"
        elif self._line == "trailer":
            if line and _TRAILER.fullmatch(line) is None:
                raise FramingError(400, "a trailer is malformed")
            self.complete = not line
        else:
            match = (_PADDED_CHUNK if self._of_response else _CHUNK).fullmatch(line)
            if match is None:
                raise FramingError(400, "the size of a chunk is malformed")
            self._left = int(match[1], 16)
            self._line = "end of data" if self._left else "trailer"
            if self._of_response:
                self._content = self._framing = 0
