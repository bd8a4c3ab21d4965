"""Splits event streams into events as they were sent, with details that `trio_mcp.http.sse` leaves out as unneeded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trio_mcp.conformance.wires.notes import LONGEST, TooMuch

__all__ = ["EventSplitter"]


class EventSplitter:
    """Splits an event stream into events; chunks of the stream may begin and end anywhere."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._first = True
        self._data: list[bytes] = []
        self._facts: dict[str, Any] = {}
        self._size = 0

    def feed(self, chunk: bytes | bytearray) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Yield each complete event: its data, and any ``event_id``, ``event`` and ``retry`` (in seconds) that it has.

        An event without data is yielded, too, if it has any of these fields.

        Raises:
            TooMuch: If an event has more than `LONGEST` bytes.
        """
        self._rest += chunk
        self._size += len(chunk)
        # The limit is for the whole event, not for each line: endless short `data` lines would fill the memory as well.
        if self._size > LONGEST:
            raise TooMuch(f"an event has more than {LONGEST} bytes")
        # Without this check, a long line that comes in many chunks would be copied whole for each chunk, in quadratic
        # time.
        if b"\n" not in chunk and b"\r" not in chunk:
            return
        # A CR at the end waits for its LF, which may be in the next chunk: CRLF ends one line, not two.
        held = b"\r" if self._rest.endswith(b"\r") else b""
        *lines, rest = bytes(self._rest.removesuffix(held)).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = bytearray(rest + held)
        for line in lines:
            # A stream may begin with a byte order mark, which belongs to no field (HTML, Parsing an event stream);
            # anywhere else it is content.
            if self._first:
                self._first, line = False, line.removeprefix(b"\xef\xbb\xbf")
            if line:
                self._take(line)
                continue
            # A browser does not dispatch an event without data, but does apply its id and its `retry` (HTML,
            # Interpreting an event stream). A priming event has only an id and a `retry`; without these, its stream
            # could not be resumed.
            if self._data or self._facts:
                yield b"\n".join(self._data), self._facts
            self._data, self._facts, self._size = [], {}, len(self._rest)

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        # Only one space is part of the syntax (HTML, Interpreting an event stream): an id may begin with a second
        # space, and must be sent back with that space.
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        # The HTML standard says to ignore an id with NUL, which could not be sent back in a `Last-Event-ID` header.
        elif name == b"id" and b"\0" not in value:
            self._facts["event_id"] = value.decode(errors="replace")
        elif name == b"event":
            self._facts["event"] = value.decode(errors="replace")
        # Nine digits of milliseconds are eleven days. Longer numbers are ignored, because `int` refuses numbers with
        # thousands of digits.
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self._facts["retry"] = int(value) / 1000
