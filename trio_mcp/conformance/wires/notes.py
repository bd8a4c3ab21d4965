"""The notes that a wire takes of its connection: both sides' messages, anything that could not be sent, and the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from trio_mcp.conformance.members import parsed
from trio_mcp.conformance.transcript.events import Event, Sender
from trio_mcp.conformance.transcript.tape import Tape

__all__ = ["LONGEST", "MOST", "WRITE_TIMEOUT", "LineSplitter", "Notes", "TooMuch", "to_text"]

LONGEST = 16 * 1024 * 1024
"""The longest message accepted from the target, in bytes (arbitrary): four times this library's default limit."""

MOST = 64 * 1024 * 1024
"""The maximum number of bytes that a target may send until the conformance kit sends something again (arbitrary). The
limit keeps the tape small."""

WRITE_TIMEOUT = 5.0
"""Seconds that a target may take to read one piece of data (arbitrary)."""


class TooMuch(Exception):
    """The target has sent more data than the conformance kit keeps."""


def to_text(message: Any) -> bytes:
    """Return a JSON value as encoded text, without line breaks."""
    # The text is raw UTF-8, as the transports require (basic/transports): if all characters outside ASCII were escaped,
    # no target would ever be tested with UTF-8.
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 can't encode, must be escaped
        return json.dumps(message, separators=(",", ":")).encode()


class _Object(dict[str, Any]):
    """A JSON object, and the names that occur in it more than once; the last value counts, as in Python's parser."""

    repeated: tuple[str, ...] = ()

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> _Object:
        found = cls(pairs)
        if len(found) < len(pairs):
            found.repeated = tuple(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        return found


def _keys_repeated(text: bytes) -> tuple[str, ...]:
    """Return the keys that occur more than once in the ``inputRequests`` of a message, which must be JSON."""
    found: set[str] = set()

    def note(pairs: list[tuple[str, Any]]) -> _Object:
        for name, value in pairs:
            if name == "inputRequests" and isinstance(value, _Object):
                found.update(value.repeated)
        return _Object.of(pairs)

    json.loads(text, object_pairs_hook=note)
    return tuple(sorted(found))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


class Notes:
    """Records on a tape what happens on one connection.

    Attributes:
        is_open: Whether the connection is open, that is, its end has not been noted yet.
    """

    def __init__(
        self, tape: Tape, number: int, transport: str, *, hide: Callable[[bytes], bytes] | None = None, **facts: Any
    ) -> None:
        self.is_open = True
        self._hide = hide
        self._tape = tape
        self._number = number
        self._unasked = 0
        tape.note("open", "client", connection=number, transport=transport, **facts)

    def text(self, sender: Sender, text: bytes, exchange: int | None = None, **facts: Any) -> Event:
        """Record text sent by either side, as a message if it is JSON."""
        # The target's bytes are not counted here, because a text no longer has its framing: `count` has counted them as
        # they arrived.
        if sender == "client":
            self._tape.traffic += len(text)
        elif self._hide is not None:
            text = self._hide(text)
        try:
            # The text is decoded first, because from bytes `loads` would accept UTF-16 as well. `_refuse` rejects
            # Python's NaN and Infinity, which are not JSON.
            message = json.loads(text.decode(), parse_constant=_refuse)
        # Python's parser raises `RecursionError` for a value that is nested too deeply. Such a value is kept as text,
        # so no rule treats it as a message.
        except (ValueError, RecursionError):
            return self._tape.note(
                "text", sender, connection=self._number, exchange=exchange, text=bytes(text), **facts
            )
        # Only the text shows whether a question's key is given twice, which is looked for in few messages: this way of
        # parsing is slow.
        if sender == "server" and b'"inputRequests"' in text and (repeated := _keys_repeated(text)):
            facts["repeated"] = list(repeated)
        return self._tape.note("message", sender, connection=self._number, exchange=exchange, message=message, **facts)

    def event(self, kind: Any, sender: Sender, exchange: int, **facts: Any) -> Event:
        """Record an event of an HTTP exchange that is not a message: its request, its response or its end."""
        return self._tape.note(kind, sender, connection=self._number, exchange=exchange, **facts)

    def document(self, body: bytes, exchange: int) -> None:
        """Record the body of a response that is not about MCP, such as metadata; nothing if it is not JSON."""
        value = parsed(body if self._hide is None else self._hide(body))
        if value is not None:
            self._tape.note("mark", "kit", connection=self._number, exchange=exchange, what="document", document=value)

    def mark(self, what: str, **facts: Any) -> None:
        """Record a mark, a remark of the kit's own; see `trio_mcp.conformance.transcript.events.MARKS`."""
        self._tape.note("mark", "kit", connection=self._number, what=what, **facts)

    def close(self, sender: Sender, reason: str, **facts: Any) -> None:
        """Record the end of the connection, unless it has already been recorded."""
        # The reader and the task that closes the connection often notice the same end, in either order. Only the one
        # that notices it first knows the cause, so a second report is ignored.
        if self.is_open:
            self.is_open = False
            self._tape.note("close", sender, connection=self._number, reason=reason, **facts)

    def flood(self, exc: TooMuch) -> None:
        """Record a flood: the target has sent too much, and the connection is closed because of that."""
        self.mark("flood", reason=str(exc))
        self.close("kit", str(exc))

    def asked(self) -> None:
        """Record that something was sent, so that the target may send `MOST` bytes again."""
        self._unasked = 0

    def count(self, size: int) -> None:
        """Count bytes that the target has sent.

        Raises:
            TooMuch: If the target has sent more than `MOST` bytes since anything was last sent to it, or the tape is
                full.
        """
        if self._tape.is_full:
            raise TooMuch(f"more than {self._tape.most} messages came at once")
        self._tape.traffic += size
        # Only the bytes since the last send count: in a long check, a healthy target rightly sends much more in total.
        self._unasked += size
        if self._unasked > MOST:
            raise TooMuch(f"the target has sent more than {MOST} bytes since anything was last sent to it")


class LineSplitter:
    """Splits bytes into lines, in linear time."""

    def __init__(self) -> None:
        self.rest = bytearray()
        self._looked_at = 0

    def feed(self, data: bytes | bytearray) -> Iterator[bytes]:
        """Add bytes, and yield the lines that are now complete, without their newlines.

        Raises:
            TooMuch: If a line has more than `LONGEST` bytes.
        """
        self.rest += data
        start = 0
        # The search continues where the last search ended: otherwise a long line in many chunks would be searched again
        # for each chunk.
        while (end := self.rest.find(b"\n", max(start, self._looked_at))) >= 0:
            yield bytes(self.rest[start:end])
            start = end + 1
        del self.rest[:start]
        self._looked_at = len(self.rest)
        # Only the last, incomplete line can grow without limit: a complete line has passed this check before its last
        # chunk arrived.
        if len(self.rest) > LONGEST:
            raise TooMuch(f"a line has more than {LONGEST} bytes")
