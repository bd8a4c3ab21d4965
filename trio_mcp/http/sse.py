"""Server-sent events: a byte stream to events and back (https://html.spec.whatwg.org/multipage/server-sent-events.html).

Only CR, LF and CRLF end a line: JSON may hold U+2028 and its kin, at which text line splitters cut.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE, HEAD, TAIL, oversize
from trio_mcp.jsonrpc.messages import Malformed

__all__ = ["EventDecoder", "ServerSentEvent", "encode_comment", "encode_event", "encode_priming_event", "encode_retry"]

_BOM = b"\xef\xbb\xbf"
_PREFIX = len(_BOM) + len(b"data: ")
"""What a line may hold besides its value."""
_RETRY_DIGITS = 9
"""More digits than that are more than eleven days; `int` itself refuses thousands of them."""


@attrs.frozen
class ServerSentEvent:
    """One event.

    Attributes:
        data: Its data as it came, not yet checked to be UTF-8: `codec.decode` does that. Empty in a priming event.
        event: Its type.
        id: The last event id that the stream has given, up to and including this event; empty if there was none.
    """

    data: bytes
    event: str = "message"
    id: str = ""


class EventDecoder:
    """Cuts a byte stream into events, in linear time and within a size limit, however it is cut into chunks.

    An event over the limit is skipped and reported as one `Malformed` with that limit; the next is read as usual. An
    event that the end of the stream cuts off is none, as the standard has it.

    Args:
        max_message_size: The longest data of one event that is taken, in bytes.

    Attributes:
        last_event_id: What to send as ``Last-Event-ID`` to resume the stream; empty where it gave none.
        retry: The time to wait before reconnecting, in seconds, if the server has set one.
    """

    def __init__(self, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE) -> None:
        if max_message_size < 1:
            raise ValueError(f"max_message_size must be at least 1 byte, got {max_message_size}")
        self.max_message_size = max_message_size
        self.last_event_id = ""
        self.retry: float | None = None
        self._first = True  # nothing but the first line can begin with a byte order mark
        self._after_cr = False
        self._line = _Bounded(max_message_size + _PREFIX)
        self._data = _Bounded(max_message_size)
        self._has_data = False
        self._broken = False  # a field other than data was over the limit
        self._event = ""
        self._id = ""

    def resumed(self) -> EventDecoder:
        """A decoder for the connection that goes on with this stream, after the last event that was complete."""
        decoder = EventDecoder(self.max_message_size)
        decoder.last_event_id = decoder._id = self.last_event_id
        decoder.retry = self.retry
        return decoder

    def feed(self, chunk: bytes | bytearray) -> Iterator[ServerSentEvent | Malformed]:
        """Take what was read from the stream and give every event that is complete now.

        Consume the iterator before feeding again.
        """
        if not chunk:
            return
        chunk = bytes(chunk)
        if self._after_cr and chunk.startswith(b"\n"):  # the second half of a CRLF
            chunk = chunk[1:]
        self._after_cr = False
        lines = chunk.splitlines()  # of bytes: at CR, LF and CRLF only
        ended = chunk.endswith((b"\n", b"\r"))
        rest = b"" if ended or not lines else lines.pop()
        for line in lines:
            if self._line.size or len(line) > self._line.limit:
                self._line.add(line)
                event = self._take_line(self._line)
                self._line = _Bounded(self._line.limit)
            else:
                event = self._take(line)  # by far the most frequent: the whole line at once
            if event is not None:
                yield event
        self._line.add(rest)
        self._after_cr = chunk.endswith(b"\r")

    def _take_line(self, line: _Bounded) -> ServerSentEvent | Malformed | None:
        if not line.over:
            return self._take(line.content())
        head = line.head
        if self._first:
            self._first, head = False, head.removeprefix(_BOM)
        name, colon, _ = head.partition(b":")
        if name == b"data" and colon:
            prefix = len(b"data: ") if head.startswith(b"data: ") else len(b"data:")
            self._separate()
            self._data.add_oversize(head[prefix:], line.tail, line.size - prefix)
        elif name or not colon:  # not a comment
            self._broken = True
        return None

    def _take(self, line: bytes) -> ServerSentEvent | Malformed | None:
        if self._first:
            self._first, line = False, line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._separate()
            self._data.add(value)
        elif name == b"event":
            self._event = value.decode(errors="replace")
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit():
            digits = value.lstrip(b"0") or b"0"
            self.retry = (int(digits) if len(digits) <= _RETRY_DIGITS else 10**_RETRY_DIGITS) / 1000
        return None

    def _separate(self) -> None:
        if self._has_data:
            self._data.add(b"\n")
        self._has_data = True

    def _dispatch(self) -> ServerSentEvent | Malformed | None:
        self.last_event_id = self._id
        event: ServerSentEvent | Malformed | None = None
        if self._broken or self._data.over:
            data = self._data
            head, tail = (data.head, data.tail) if data.over else (data.content()[:HEAD], data.content()[-TAIL:])
            event = oversize(head, tail, data.size, self.max_message_size)
        elif self._has_data:
            event = ServerSentEvent(self._data.content(), self._event or "message", self._id)
        if self._has_data:
            self._data = _Bounded(self.max_message_size)
        self._has_data = self._broken = False
        self._event = ""
        return event


class _Bounded:
    """Bytes that are kept up to a limit; beyond it only their beginning and end, for what can be learned from them."""

    __slots__ = ("_bytes", "head", "limit", "size", "tail")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.head = b""
        self.tail = b""
        self._bytes: bytes | bytearray = b""

    @property
    def over(self) -> bool:
        return self.size > self.limit

    def content(self) -> bytes:
        return bytes(self._bytes)

    def add(self, piece: bytes) -> None:
        if not piece:
            return
        if self.size + len(piece) > self.limit:
            self.add_oversize(piece[:HEAD], piece[-TAIL:], len(piece))
            return
        if not self.size:
            self._bytes = piece  # kept as it is, as there is mostly just the one
        else:
            if type(self._bytes) is bytes:
                self._bytes = bytearray(self._bytes)
            self._bytes += piece
        self.size += len(piece)

    def add_oversize(self, head: bytes, tail: bytes, size: int) -> None:
        """Take note of a piece that goes beyond the limit."""
        if not self.over:
            self.head, self.tail = bytes(self._bytes[:HEAD]), bytes(self._bytes[-TAIL:])
            self._bytes = b""
        self.size += size
        self.head += head[: HEAD - len(self.head)]
        self.tail = (self.tail + tail)[-TAIL:]


# --- encoding ---------------------------------------------------------------------------------------------------


def encode_event(data: bytes, *, event: str | None = None, id: str | None = None) -> bytes:
    """Write one event.

    Args:
        data: Its data, UTF-8; line ends of any kind arrive as LF.
        event: Its type; None for ``message``.
        id: Its id, for ``Last-Event-ID``.

    Raises:
        ValueError: ``event`` or ``id`` can't be written: they are single lines, and an id holds no NUL.
    """
    head = b""
    if event is not None:
        head += b"event: " + _single_line("event", event) + b"\n"
    if id is not None:
        if "\0" in id:
            raise ValueError(f"an event id must not contain NUL, got {id!r}")
        head += b"id: " + _single_line("id", id) + b"\n"
    if b"\n" in data or b"\r" in data:
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        data = b"\ndata: ".join(lines)
    return b"".join((head, b"data: ", data, b"\n\n"))


def encode_priming_event(id: str, retry: float | None = None) -> bytes:
    """Write an event without content, which gives a client the id to reconnect with (`basic/transports`, 2025-11-25).

    Args:
        id: The event id.
        retry: The time to wait before reconnecting, in seconds.
    """
    return (b"" if retry is None else _retry_line(retry)) + encode_event(b"", id=id)


def encode_retry(seconds: float) -> bytes:
    """Write the time a client is to wait before it reconnects, as a server does before it closes the connection."""
    return _retry_line(seconds) + b"\n"


def encode_comment(text: str = "") -> bytes:
    """Write a comment, which keeps the connection alive and means nothing.

    Raises:
        ValueError: It is more than one line.
    """
    return b":" + (b" " + _single_line("comment", text) if text else b"") + b"\n\n"


def _retry_line(seconds: float) -> bytes:
    if not 0 <= seconds < 10**6:
        raise ValueError(f"retry must be between 0 and 1000000 seconds, got {seconds!r}")
    return b"retry: %d\n" % round(seconds * 1000)


def _single_line(what: str, text: str) -> bytes:
    if "\n" in text or "\r" in text:
        raise ValueError(f"{what} must be a single line, got {text[:100]!r}")
    return text.encode()
