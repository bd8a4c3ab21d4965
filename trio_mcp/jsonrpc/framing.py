"""NDJSON: one JSON text per line, as stdio and every plain byte stream carry it (`basic/transports/stdio`)."""

from __future__ import annotations

from collections.abc import Iterator

from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.messages import Incoming
from trio_mcp.jsonrpc.recovery import HEAD, TAIL, oversize

__all__ = ["DEFAULT_MAX_MESSAGE_SIZE", "LineDecoder"]

DEFAULT_MAX_MESSAGE_SIZE = 64 * 1024 * 1024
"""Bytes. Large enough for a base64 photograph or a book, small enough that a broken peer can't exhaust the memory."""


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
        # One buffer and not a list of what was read: byte by byte, a peer could make a list cost many times the limit.
        self._line = bytearray()
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, data: bytes | bytearray) -> Iterator[Incoming]:
        """Take what was read from the stream and give every message that is complete now.

        Consume the iterator before feeding again.
        """
        lines = bytes(data).split(b"\n")
        for line in lines[:-1]:
            if not self._size and len(line) <= self.max_message_size:
                message = _decode(line)  # by far the most frequent: the whole line at once
            else:
                self._append(line)
                message = self._finish()
            if message is not None:
                yield message
        self._append(lines[-1])

    def finish(self) -> Incoming | None:
        """The stream has ended: what an unfinished last line amounts to, or None."""
        return self._finish(cut_off=True)

    def _append(self, piece: bytes) -> None:
        if not piece:
            return
        fits = self._size + len(piece) <= self.max_message_size
        self._size += len(piece)
        if fits:
            self._line += piece
            return
        if self._line:
            self._head, self._tail = bytes(self._line[:HEAD]), bytes(self._line[-TAIL:])
            self._line = bytearray()
        if len(self._head) < HEAD:
            self._head += piece[: HEAD - len(self._head)]
        self._tail = (self._tail + piece[-TAIL:])[-TAIL:]

    def _finish(self, *, cut_off: bool = False) -> Incoming | None:
        if self._size > self.max_message_size:
            tail = b"" if cut_off else self._tail
            message: Incoming | None = oversize(self._head, tail, self._size, self.max_message_size)
        else:
            message = _decode(self._line)
        self._line = bytearray()
        self._size = 0
        self._head = self._tail = b""
        return message


def _decode(line: bytes | bytearray) -> Incoming | None:
    return decode(line) if line and not line.isspace() else None
