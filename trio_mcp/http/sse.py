"""Decodes a byte stream into server-sent events, and encodes such events.

https://html.spec.whatwg.org/multipage/server-sent-events.html. Only CR, LF and CRLF end a line: JSON may contain other
characters at which `str.splitlines` would split, such as U+2028.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from trio_mcp._checks import check_count
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE, HEAD, TAIL, Pieces, oversize
from trio_mcp.jsonrpc.messages import Malformed

__all__ = [
    "COMMENT",
    "EventDecoder",
    "ServerSentEvent",
    "encode_comment",
    "encode_event",
    "encode_priming_event",
    "encode_retry",
]

_BOM = b"\xef\xbb\xbf"
_PREFIX = len(_BOM) + len(b"data: ")
"""The maximum number of bytes in a line in addition to its value."""
_RETRY_DIGITS = 9
"""The maximum number of digits in a ``retry`` field; a longer value is capped at 10**9 milliseconds, over eleven days.

The length is checked before `int` is called, which refuses thousands of digits."""


@attrs.frozen
class ServerSentEvent:
    """One server-sent event.

    Attributes:
        data: The data as received, empty in a priming event. `codec.decode` checks later whether it is UTF-8.
        event: The type of the event.
        id: The last event id of the stream, up to and including this event; empty if there was none.
    """

    data: bytes
    event: str = "message"
    id: str = ""


class EventDecoder:
    """A decoder that turns a byte stream into events, however it is cut into chunks, in linear time and bounded memory.

    An event over the limit is skipped and reported as one `Malformed` that names the limit; the next one is read as
    usual. As the standard requires, an event that the end of the stream cuts off is discarded.

    Args:
        max_message_size: How many bytes of data one event may have.

    Attributes:
        last_event_id: The value of ``Last-Event-ID`` with which to resume the stream; empty if the stream had no id.
        retry: The time to wait before reconnecting, in seconds, if the server has set one.
    """

    def __init__(self, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE) -> None:
        check_count("max_message_size", max_message_size)
        self.max_message_size = max_message_size
        self.last_event_id = ""
        self.retry: float | None = None
        self._first = True  # whether this is the first line, which alone may begin with a byte order mark
        self._after_cr = False  # whether the last chunk ended with CR; an LF that follows belongs to that CR
        # There are two buffers: for the line being read, which may be cut, and for the event's data, which may be many
        # lines.
        self._line = _Bounded(max_message_size + _PREFIX)
        self._data = _Bounded(max_message_size)
        self._has_data = False  # whether the event has a data field, which may be empty
        self._broken = False  # whether a field other than data was over the limit
        self._event = ""
        # The id of the event being read. It becomes `last_event_id` when the event is complete: if the stream breaks
        # before that, the client must ask for this event again.
        self._id = ""

    def resumed(self) -> EventDecoder:
        """Return a decoder for the connection that resumes this stream after the last complete event."""
        # The beginning of an event that was cut off is dropped, because the server sends that event again.
        decoder = EventDecoder(self.max_message_size)
        decoder.last_event_id = decoder._id = self.last_event_id
        decoder.retry = self.retry
        return decoder

    def feed(self, chunk: bytes | bytearray) -> Iterator[ServerSentEvent | Malformed]:
        """Take bytes that were read from the stream, and yield every event that is now complete.

        The iterator must be consumed before the next call.
        """
        if not chunk:
            return
        chunk = bytes(chunk)
        if self._after_cr and chunk.startswith(b"\n"):  # the second half of a CRLF
            chunk = chunk[1:]
        self._after_cr = False
        if b"\n" not in chunk and b"\r" not in chunk:  # a part of a long line; this search is very fast
            self._line.add(chunk)
            return
        # One call in C cuts the whole chunk, which keeps long streams cheap. `bytes.splitlines` splits at CR, LF and
        # CRLF only, unlike `str.splitlines`.
        lines = chunk.splitlines()
        ended = chunk.endswith((b"\n", b"\r"))
        rest = b"" if ended or not lines else lines.pop()
        for line in lines:
            if self._line.size or len(line) > self._line.limit:
                self._line.add(line)
                event = self._take_line(self._line)
                self._line = _Bounded(self._line.limit)
            else:
                event = self._take(line)  # by far the most common case: the whole line is in one chunk
            if event is not None:
                yield event
        self._line.add(rest)
        self._after_cr = chunk.endswith(b"\r")

    def _take_line(self, line: _Bounded) -> ServerSentEvent | Malformed | None:
        if not line.over:
            return self._take(line.content())
        # Only the beginning and the end of the line have been kept. Those of `data` are passed on to the event, whose
        # `Malformed` may find the request's id in them; any other field of this length makes the event unusable.
        head = line.head
        if self._first:
            self._first, head = False, head.removeprefix(_BOM)
        name, colon, _ = head.partition(b":")
        if name == b"data" and colon:
            prefix = len(b"data: ") if head.startswith(b"data: ") else len(b"data:")
            self._separate()
            self._data.add_oversize(head[prefix:], line.tail, line.size - prefix)
        elif name or not colon:  # a comment, which begins with a colon, is ignored, whatever its length
            self._broken = True
        return None

    def _take(self, line: bytes) -> ServerSentEvent | Malformed | None:
        if self._first:
            self._first, line = False, line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, colon, value = line, line.find(b":"), b""
        if colon >= 0:
            # `partition` is not used, because it would copy a long value twice.
            name, value = line[:colon], line[colon + 1 + line.startswith(b" ", colon + 1) :]
        if name == b"data":
            self._separate()
            self._data.add(value)
        elif name == b"event":
            self._event = value.decode(errors="replace")
        elif name == b"id":
            if b"\0" not in value:  # the standard ignores such an id: it could not be sent back in a header
                self._id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit():
            digits = value.lstrip(b"0") or b"0"  # leading zeros don't count towards the cap
            self.retry = (int(digits) if len(digits) <= _RETRY_DIGITS else 10**_RETRY_DIGITS) / 1000
        return None

    def _separate(self) -> None:
        # According to the standard, several data fields of one event are joined by LF.
        if self._has_data:
            self._data.add(b"\n")
        self._has_data = True

    def _dispatch(self) -> ServerSentEvent | Malformed | None:
        # An event without a data field is not dispatched, but its id is kept.
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


@attrs.define(eq=False)
class _Bounded:
    """Keeps bytes up to a limit; beyond the limit, keeps only the two ends, which may still show a request's id."""

    limit: int
    size: int = 0
    head: bytes = b""
    tail: bytes = b""
    _pieces: Pieces = attrs.Factory(Pieces)

    @property
    def over(self) -> bool:
        return self.size > self.limit

    def content(self) -> bytes:
        return self._pieces.joined()

    def add(self, piece: bytes) -> None:
        if not piece:
            return
        if self.size + len(piece) > self.limit:
            self.add_oversize(piece[:HEAD], piece[-TAIL:], len(piece))
            return
        self._pieces.add(piece)
        self.size += len(piece)

    def add_oversize(self, head: bytes, tail: bytes, size: int) -> None:
        """Record a piece that exceeds the limit, or of which only the head and the tail are known."""
        # From here on, only the two ends are kept, so that memory stays bounded however long the data is.
        if not self.over:
            content = self.content()
            self.head, self.tail = content[:HEAD], content[-TAIL:]
            self._pieces = Pieces()
        self.size += size
        self.head += head[: HEAD - len(self.head)]
        self.tail = (self.tail + tail)[-TAIL:]


# --- encoding ---------------------------------------------------------------------------------------------------


def encode_event(data: bytes, *, event: str | None = None, id: str | None = None) -> bytes:
    """Encode one event.

    Args:
        data: Its data, as UTF-8; the receiver gets line ends of any kind as LF.
        event: Its type; None for ``message``.
        id: Its id, for ``Last-Event-ID``.

    Raises:
        ValueError: If ``event`` or ``id`` is more than one line, or the id contains NUL.
    """
    head = b""
    if event is not None:
        head += b"event: " + _single_line("event", event) + b"\n"
    if id is not None:
        if "\0" in id:
            raise ValueError(f"an event id must not contain NUL, got {id!r}")
        head += b"id: " + _single_line("id", id) + b"\n"
    # Our own JSON has no line ends, but other data may. CRLF is replaced first, because it is one line end, not two.
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return b"".join((head, b"data: ", data, b"\n\n"))


def encode_priming_event(id: str, retry: float | None = None) -> bytes:
    """Encode an event without content, which gives a client an id to reconnect with (`basic/transports`, 2025-11-25).

    Args:
        id: The event id.
        retry: The time to wait before reconnecting, in seconds.
    """
    return (b"" if retry is None else _retry_line(retry)) + encode_event(b"", id=id)


def encode_retry(seconds: float) -> bytes:
    """Encode the time after which a client should reconnect; a server sends it before it closes the connection."""
    return _retry_line(seconds) + b"\n"


def encode_comment(text: str = "") -> bytes:
    """Encode a comment, which has no meaning but keeps the connection alive.

    Raises:
        ValueError: If the text is more than one line.
    """
    return b":" + (b" " + _single_line("comment", text) if text else b"") + b"\n\n"


COMMENT: Final = encode_comment()
"""An empty comment."""


def _retry_line(seconds: float) -> bytes:
    # Below this limit, `EventDecoder` reads the retry time exactly.
    if not 0 <= seconds < 10**6:
        raise ValueError(f"retry must be between 0 and 1000000 seconds, got {seconds!r}")
    return b"retry: %d\n" % round(seconds * 1000)


def _single_line(what: str, text: str) -> bytes:
    if "\n" in text or "\r" in text:
        raise ValueError(f"{what} must be a single line, got {text[:100]!r}")
    return text.encode()
