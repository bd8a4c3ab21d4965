"""NDJSON: one JSON text per line, as stdio and every plain byte stream carry it (`basic/transports/stdio`)."""

from __future__ import annotations

from collections.abc import Iterator

from trio_mcp.protocol.codec import decode, malformed_from_bytes
from trio_mcp.protocol.messages import Incoming, Malformed
from trio_mcp.types.error_codes import INVALID_REQUEST

__all__ = ["DEFAULT_MAX_MESSAGE_SIZE", "LineDecoder"]

DEFAULT_MAX_MESSAGE_SIZE = 64 * 1024 * 1024
"""Bytes. Large enough for a base64 photograph or a book, small enough that a broken peer can't exhaust the memory."""

_HEAD = 4096
_TAIL = 256


class LineDecoder:
    """Cuts a byte stream into lines and decodes them, in linear time and within a size limit.

    A line over the limit is skipped up to its newline and reported as one `Malformed`; the next line is read as usual.

    Args:
        max_message_size: The longest line taken, in bytes, without its newline.
    """

    def __init__(self, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE) -> None:
        if max_message_size < 1:
            raise ValueError(f"max_message_size must be at least 1 byte, got {max_message_size}")
        self.max_message_size = max_message_size
        self._pieces: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, data: bytes | bytearray) -> Iterator[Incoming]:
        """Take what was read from the stream and give every message that is complete now.

        Consume the iterator before feeding again.
        """
        lines = bytes(data).split(b"\n")
        for line in lines[:-1]:
            self._append(line)
            if (message := self._finish()) is not None:
                yield message
        self._append(lines[-1])

    def finish(self) -> Incoming | None:
        """The stream has ended: what an unfinished last line amounts to, or None."""
        return self._finish()

    def _append(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size <= self.max_message_size:
            self._pieces.append(piece)
            return
        if self._pieces:
            begun = b"".join(self._pieces)
            self._head, self._tail = begun[:_HEAD], begun[-_TAIL:]
            self._pieces.clear()
        if len(self._head) < _HEAD:
            self._head += piece[: _HEAD - len(self._head)]
        self._tail = (self._tail + piece[-_TAIL:])[-_TAIL:]

    def _finish(self) -> Incoming | None:
        if self._size > self.max_message_size:
            message: Incoming = self._too_large()
        else:
            line = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            if not line or line.isspace():
                self._pieces.clear()
                self._size = 0
                return None
            message = decode(line)
        self._pieces.clear()
        self._size = 0
        self._head = self._tail = b""
        return message

    def _too_large(self) -> Malformed:
        reason = f"a message of {self._size} bytes is longer than max_message_size={self.max_message_size}"
        return malformed_from_bytes(self._head, self._tail, INVALID_REQUEST, reason, limit=self.max_message_size)
