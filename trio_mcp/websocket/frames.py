"""Reads the headers of arriving frames, to bound the cost of messages before wsproto parses the frames."""

from __future__ import annotations

from typing import Final, NamedTuple

from wsproto.frame_protocol import CloseReason

__all__ = ["BURST", "CloseCause", "Frames", "too_big"]

BURST: Final = 64
"""How many frames are parsed before other tasks get to run. An arbitrary choice."""

MAX_HEAD: Final = 64 * 1024
"""The maximum length of the response to the handshake, in bytes, including the body of a refusal. An arbitrary
choice."""

FREE_FRAGMENTS: Final = 1024
"""How many frames of one message may be of any size. An arbitrary choice."""

LEAST_FRAGMENT: Final = 256
"""How many bytes must arrive for each frame beyond `FREE_FRAGMENTS`, because each frame costs time and memory.

An arbitrary choice.
"""


class CloseCause(NamedTuple):
    """The reason that one side gives the other for giving up a WebSocket (RFC 6455, section 7.4).

    Attributes:
        code: The code of the close frame.
        reason: The text of the close frame.
    """

    code: int
    reason: str


def too_big(limit: int) -> CloseCause:
    """Return the cause for closing after a message that is longer than the limit."""
    return CloseCause(CloseReason.MESSAGE_TOO_BIG, f"a message that is longer than max_message_size={limit}")


class Frames:
    """The frames that arrive on one connection, after the head of the handshake.

    The parser counts a message's characters instead of its bytes, and only when all of the message has arrived; and it
    keeps a list of the fragments, even of empty ones. Therefore this class reads the headers of the frames first.

    Args:
        limit: How many bytes a message may have.

    Attributes:
        fault: Why the next frame must not be parsed; None if it may be.
        partial: Whether a message has begun and not ended.
        in_parser: How many messages have been admitted to the parser but not yet returned by it.
    """

    __slots__ = (
        "_closing",
        "_fragments",
        "_head",
        "_header",
        "_left",
        "_limit",
        "_open",
        "_size",
        "fault",
        "in_parser",
        "partial",
    )

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head: bytearray | None = bytearray()  # None once the handshake is over
        self._header = bytearray()
        self._left = 0  # bytes of the payload that have not arrived
        self._open = False  # whether a message has begun and its last frame has not
        self._size = self._fragments = 0  # the size and the number of fragments of the current message
        self._closing = False
        self.fault: CloseCause | None = None
        self.partial = False
        self.in_parser = 0

    @property
    def at_rest(self) -> bool:
        """Whether the parser is between messages, so that the next one can bypass it without overtaking another."""
        # `_open` need not be checked: a message that has begun is counted in `in_parser`. After a close frame all data
        # is discarded (RFC 6455, section 1.4), which only the parser does.
        return not (self.in_parser or self._closing or self._left or self._header or self._head is not None)

    @property
    def in_head(self) -> bool:
        """Whether the head of the handshake is still arriving."""
        return self._head is not None

    @property
    def refusal(self) -> bytes:
        """The bytes that the peer has sent instead of completing the handshake."""
        return bytes(self._head or b"")

    def admit(self, data: bytes | bytearray) -> int:
        """Return how many of the next bytes may be parsed now; they contain at most `BURST` frames."""
        if self._head is not None:
            return self._admit_head(self._head, data)
        place, left = 0, BURST
        # A fault stops the loop right after the frame's header: the parser gets what came before, but not the payload.
        while place < len(data) and self.fault is None:
            if self._left:
                step = min(self._left, len(data) - place)
                self._left -= step
                place += step
                continue
            if not left:
                break
            header = self._header
            # The first two bytes say how long the header is.
            missing = (2 if len(header) < 2 else _size_of(header)) - len(header)
            header += data[place : place + missing]
            place += min(missing, len(data) - place)
            if len(header) >= 2 and len(header) == _size_of(header):
                left -= 1
                self._judge(header)
                header.clear()
        self.partial = self._open or self._left > 0
        return place

    def _admit_head(self, head: bytearray, data: bytes | bytearray) -> int:
        """Return how many of the next bytes belong to the head of the handshake; for a refusal, all of them."""
        # The search begins three bytes back, because the blank line may be split between two chunks. Searching the
        # whole head again would take quadratic time.
        searched = max(0, len(head) - 3)
        head += data
        end = head.find(b"\r\n\r\n", searched) + 4
        # A refusal may have a body, and no frame ever follows a refusal, so all of its bytes count as the head.
        if end >= 4 and not (head.startswith(b"HTTP/") and head[8:12] != b" 101"):
            self._head = None
            return len(data) - (len(head) - end)
        # The size is checked only if the end of the head has not arrived, because frames in the same chunk as the end
        # don't count.
        if len(head) > MAX_HEAD:
            self.fault = CloseCause(CloseReason.PROTOCOL_ERROR, "a handshake response that is too long")
            return 0
        return len(data)

    def _judge(self, header: bytearray) -> None:
        opcode, short = header[0] & 0x0F, header[1] & 0x7F
        # The parser checks that the length is written in the fewest bytes (RFC 6455, section 5.2).
        length = short if short < 126 else int.from_bytes(header[2 : 4 if short == 126 else 10], "big")
        self._left = length
        # Control frames may come in the middle of a message (RFC 6455, section 5.4); the parser limits their size.
        if opcode & 0x08:
            self._closing = self._closing or opcode == 0x08
            return
        # A message that begins within another one is counted, too; the parser then refuses it (RFC 6455, section 5.4).
        if opcode:
            self.in_parser += 1
            self._size = self._fragments = 0
        self._size += length
        self._fragments += 1
        self._open = not header[0] & 0x80
        # A message that is too long is refused by its header alone, before any of the payload takes memory.
        if self._size > self._limit:
            self.fault = too_big(self._limit)
        elif self._fragments > FREE_FRAGMENTS + self._size // LEAST_FRAGMENT:
            self.fault = CloseCause(CloseReason.POLICY_VIOLATION, "a message in too many small fragments")


def _size_of(header: bytearray) -> int:
    """Return the size in bytes of a frame's header, which its first two bytes determine (RFC 6455, section 5.2)."""
    short = header[1] & 0x7F
    return 2 + (2 if short == 126 else 8 if short == 127 else 0) + (4 if header[1] & 0x80 else 0)
