"""Writes and reads, without the parser, messages that consist of a single text frame, as nearly all messages do."""

from __future__ import annotations

import codecs
import os
from typing import Final

from trio_mcp.jsonrpc.codec import Pieces

__all__ = ["SplitFrame", "read_text_frame", "split_frame", "text_frame", "text_frame_parts"]

TEXT = 0x81  # the first byte of the only frame of a text message (RFC 6455, section 5.2)

BLOCK: Final = 64 * 1024
"""How many bytes are masked at once.

An arbitrary choice, with which the intermediate numbers stay in the processor's cache.
"""


def text_frame(message: bytes, masked: bool) -> bytes:
    """Return a message as one text frame."""
    return b"".join(text_frame_parts(message, masked))


def text_frame_parts(message: bytes, masked: bool) -> tuple[bytes, bytes]:
    """Return the head of a message's text frame, and the payload."""
    size, bit = len(message), 0x80 if masked else 0
    # The length must be written in the fewest bytes possible (RFC 6455, section 5.2).
    if size < 126:
        head = bytes((TEXT, bit | size))
    elif size < 0x10000:
        head = bytes((TEXT, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((TEXT, bit | 127)) + size.to_bytes(8, "big")
    if not masked:
        return head, message
    key = os.urandom(4)  # the key must be unpredictable (RFC 6455, section 5.3)
    return head + key, _Mask(key).over_all(message)


def read_text_frame(data: bytes, place: int, masked: bool, limit: int) -> tuple[bytes, int] | None:
    """Return the message of the text frame at ``place``, and the place after the frame.

    Return None if the parser must see the frame, because it is of another kind, incomplete, longer than the limit, or
    invalid.
    """
    found = _read_head(data, place, masked, limit)
    if found is None:
        return None
    start, end = found
    if end > len(data):
        return None
    message = _Mask(data[start - 4 : start]).over_all(data[start:end]) if masked else data[start:end]
    try:
        # The text is decoded only to check that it is UTF-8 (RFC 6455, section 8.1): JSON is read from the bytes.
        message.decode()
    except UnicodeDecodeError:
        return None
    return message, end


def _read_head(data: bytes, place: int, masked: bool, limit: int) -> tuple[int, int] | None:
    """Return where the payload of the text frame at ``place`` begins and ends; None as in `read_text_frame`."""
    start = place + 2
    # A client must mask its frames, and a server must not (RFC 6455, section 5.1); a reserved bit makes the first byte
    # differ from `TEXT`. A wrong frame goes to the parser, which knows the code to close with.
    if len(data) < start or data[place] != TEXT or (data[place + 1] >= 0x80) is not masked:
        return None
    size, least = data[place + 1] & 0x7F, 0
    if size >= 126:
        least, width = (126, 2) if size == 126 else (0x10000, 8)
        size, start = int.from_bytes(data[start : start + width], "big"), start + width
    if masked:
        start += 4
    # The parser will refuse a length that is not in its shortest form, and `Frames` a length over the limit.
    return (start, start + size) if len(data) >= start and least <= size <= limit else None


def split_frame(data: bytes, masked: bool, limit: int) -> SplitFrame | None:
    """Return the incomplete text frame at the beginning of the data; None if the parser must see the data."""
    found = _read_head(data, 0, masked, limit)
    if found is None:
        return None
    start, end = found
    return SplitFrame(data[:start], end - start, masked) if end > len(data) else None


class SplitFrame:
    """A text frame that arrives in pieces.

    Args:
        head: The frame's head.
        size: How many bytes the payload has.
        masked: Whether the payload is masked.

    Attributes:
        head: The frame's head.
    """

    __slots__ = ("_decoder", "_left", "_mask", "_pieces", "head")

    def __init__(self, head: bytes, size: int, masked: bool) -> None:
        self.head = head
        self._left = size
        self._mask = _Mask(head[-4:]) if masked else None
        self._pieces = Pieces()
        # The decoder only checks that the text is UTF-8. It checks each piece when the piece arrives, as the parser
        # does.
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def take(self, data: bytes) -> int:
        """Take the bytes of the payload that have arrived, and return how many there were.

        Raises:
            UnicodeDecodeError: If the bytes are not UTF-8; then none are taken.
        """
        piece = data[: self._left]
        text = piece if self._mask is None else self._mask.over(piece)
        self._decoder.decode(text, final=len(piece) == self._left)
        self._left -= len(piece)
        self._pieces.add(text)
        return len(piece)

    def message(self) -> bytes | None:
        """Return the message; None if it is not complete."""
        return None if self._left else self._pieces.joined()

    def as_it_came(self) -> bytes:
        """Return the head and all bytes that were taken, as they arrived, for the parser."""
        data = self._pieces.joined()
        return self.head + (data if self._mask is None else _Mask(self.head[-4:]).over_all(data))


class _Mask:
    """A mask that is applied to bytes, or removed from them (RFC 6455, section 5.3).

    Args:
        key: The masking key.
    """

    __slots__ = ("_block", "_key")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._block: tuple[bytes, int] = b"", 0

    def over(self, data: bytes) -> bytes:
        """Apply the mask to the next bytes; blocks of `BLOCK` bytes are masked fastest."""
        key, size = self._key, len(data)
        if size == BLOCK:
            # Nearly all blocks of a long message are masked with the same number, so the number is kept.
            if self._block[0] != key:
                self._block = key, int.from_bytes(key * (BLOCK // 4), "little")
            number = self._block[1]
        else:
            number = int.from_bytes((key * (size // 4 + 1))[:size], "little")
            self._key = key[size % 4 :] + key[: size % 4]
        # XOR of two large numbers is many times faster than XOR of each byte.
        return (int.from_bytes(data, "little") ^ number).to_bytes(size, "little")

    def over_all(self, data: bytes) -> bytes:
        """Apply the mask to a whole message."""
        if len(data) <= BLOCK:
            return self.over(data)
        pieces = Pieces()
        for start in range(0, len(data), BLOCK):
            pieces.add(self.over(data[start : start + BLOCK]))
        return pieces.joined()
