"""Text frames that are whole, as nearly all are, without the parser: framed, and told from all that it must judge."""

from __future__ import annotations

import os

__all__ = ["read_text_frame", "text_frame"]

TEXT = 0x81  # the last, and only, frame of a text message (RFC 6455, section 5.2)


def text_frame(message: bytes, masked: bool) -> bytes:
    """Return a message as one text frame."""
    size, bit = len(message), 0x80 if masked else 0
    # The length must have the fewest bytes possible (RFC 6455, section 5.2).
    if size < 126:
        head = bytes((TEXT, bit | size))
    elif size < 0x10000:
        head = bytes((TEXT, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((TEXT, bit | 127)) + size.to_bytes(8, "big")
    if not masked:
        return head + message
    key = os.urandom(4)  # not to be foreseen (RFC 6455, section 5.3)
    return head + key + _masked(message, key)


def read_text_frame(data: bytes, place: int, masked: bool, limit: int) -> tuple[bytes, int] | None:
    """Return the message of the text frame at a place, and the place after it.

    None if the parser must see the frame: it is of another kind, not all there, longer than the limit, or not exactly
    as it should be.
    """
    start = place + 2
    # A client masks, and a server must not (RFC 6455, section 5.1); a reserved bit makes the first byte differ from
    # `TEXT`. What is wrong goes to the parser, which knows the code to close with.
    if len(data) < start or data[place] != TEXT or (data[place + 1] >= 0x80) is not masked:
        return None
    size, least = data[place + 1] & 0x7F, 0
    if size >= 126:
        least, width = (126, 2) if size == 126 else (0x10000, 8)
        # If the length itself is cut off, `start` lies behind the data, and the check of `end` fails for any number.
        size, start = int.from_bytes(data[start : start + width], "big"), start + width
    payload = start + 4 if masked else start
    end = payload + size
    # A length that is not in its shortest form is for the parser to refuse, one over the limit for `Frames`.
    if end > len(data) or not least <= size <= limit:
        return None
    message = _masked(data[payload:end], data[start:payload]) if masked else data[payload:end]
    try:
        # Only to check it, as text must be UTF-8 (RFC 6455, section 8.1): JSON is decoded from the bytes.
        message.decode()
    except UnicodeDecodeError:
        return None
    return message, end


def _masked(data: bytes, key: bytes) -> bytes:
    """Apply a mask, or take it off."""
    # As two numbers: many times faster than byte by byte.
    size = len(data)
    keys = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(keys, "little")).to_bytes(size, "little")
