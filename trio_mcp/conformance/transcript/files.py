"""Transcript files: lines of JSON, the first of which says what the file is.

Every other line is an event, with its time, its sender, its kind and its facts. Data that is not JSON is kept as text,
or as Base64 if it is not UTF-8. Secrets are masked before a line is written.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, get_args

import attrs

from trio_mcp.conformance.transcript.events import Event, Kind, Sender
from trio_mcp.conformance.transcript.masking import Masker
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.errors import TrioMcpError

__all__ = [
    "FileTape",
    "Transcript",
    "TranscriptError",
    "TranscriptWriter",
    "as_line",
    "kind_of_file",
    "read_transcript",
    "write_transcript",
]

FORMAT: Final = "trio-mcp"
"""The key in a file's first line under which the file says what it is."""

VERSION: Final = 1
MAX_FILE = 256 * 1024 * 1024
"""The largest file that can be read, in bytes (an arbitrary choice: enough for hours of a busy session, and small
enough to fit into memory as events)."""
MAX_EVENTS = 1_000_000
"""The maximum number of events in a transcript (an arbitrary choice, for the same reasons as ``MAX_FILE``)."""

_KINDS: Final = frozenset(get_args(Kind))
_SENDERS: Final = frozenset(get_args(Sender))


class TranscriptError(TrioMcpError):
    """A file can't be read, is not a transcript, or is malformed: the message says what is wrong, and where."""


@attrs.frozen
class Transcript:
    """The content of a transcript file.

    Attributes:
        events: The events.
        about: The facts in its first line, such as ``target`` and ``transport``.
    """

    events: tuple[Event, ...]
    about: Mapping[str, Any] = attrs.Factory(dict)


class TranscriptWriter:
    """Writes events to a file as they happen: however the program ends, the file keeps what was written.

    Args:
        file: An open binary file, which the caller has to close.
        about: Further facts for the first line.
    """

    def __init__(self, file: BinaryIO, **about: Any) -> None:
        self._file = file
        self._masker = Masker()
        self._line({FORMAT: "transcript", "version": VERSION, **self._masker.value(about)})

    def write(self, event: Event) -> None:
        """Write an event."""
        self._line(as_line(self._masker.event(event)))

    def _line(self, value: Mapping[str, Any]) -> None:
        # The line is ASCII only, because a peer may send a lone surrogate, which UTF-8 can't encode.
        self._file.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")
        # Each line is flushed to the system: a killed program keeps what it has written, and a reader can follow the
        # file.
        self._file.flush()


class FileTape(Tape):
    """A tape that writes its events to a file as they happen, and keeps none in memory.

    Args:
        writer: Writes the events.

    Attributes:
        count: How many events have been recorded.
    """

    def __init__(self, writer: TranscriptWriter) -> None:
        super().__init__()
        self.count = 0
        self._writer = writer

    def note(self, kind: Kind, sender: Sender, **settings: Any) -> Event:
        """Record and write an event, and wake the tasks that wait for one."""
        event = super().note(kind, sender, **settings)
        # A recorder may run for days, and no task needs earlier events: what is in the file need not stay in memory.
        self.events.clear()
        self._writer.write(event)
        self.count += 1
        return event


def write_transcript(path: str | Path, events: Iterable[Event], **about: Any) -> None:
    """Write a transcript to a file.

    Args:
        path: The file, which is replaced.
        events: The events.
        about: Further facts for the first line.
    """
    with open(path, "wb") as file:
        writer = TranscriptWriter(file, **about)
        for event in events:
            writer.write(event)


def read_object(path: str | Path) -> Mapping[str, Any]:
    """Return the JSON object that is the whole content of a file of the kit, or its first line.

    Raises:
        TranscriptError: If the file can't be read, or is not a file of the kit.
    """
    return _first(path, _content(path))


def kind_of_file(path: str | Path) -> str:
    """Return what a file of the kit says it is: ``transcript``, or ``plan`` for the steps that lead to a failure.

    Raises:
        TranscriptError: If the file can't be read, or is neither of these.
    """
    kind = read_object(path).get(FORMAT)
    if kind not in ("transcript", "plan"):
        raise TranscriptError(f"{path}: this is neither a transcript nor a plan, but {kind!r}")
    return str(kind)


def read_transcript(path: str | Path) -> Transcript:
    """Read a transcript from a file.

    Raises:
        TranscriptError: If the file can't be read, is not a transcript, or has a malformed line.
    """
    data = _content(path)
    about = dict(_first(path, data))
    if about.pop(FORMAT) != "transcript":
        raise TranscriptError(f"{path}: this is not a transcript")
    if about.pop("version", None) != VERSION:
        raise TranscriptError(f"{path}: written by a different version of trio-mcp; this one reads version {VERSION}")
    events: list[Event] = []
    # Bytes are split only at line ends; a `str` would also be split at U+2028 and similar characters, which JSON may
    # contain raw.
    for number, line in enumerate(data.splitlines(), 1):
        if number == 1 or not line.strip():
            continue
        # The limit on bytes alone is not enough: the shortest lines have some fifty bytes, and an event in memory takes
        # many times as much.
        if len(events) == MAX_EVENTS:
            raise TranscriptError(f"{path}: more than {MAX_EVENTS} events")
        try:
            events.append(_as_event(_object(line)))
        except ValueError as exc:
            raise TranscriptError(f"{path}, line {number}: {exc}") from None
    return Transcript(tuple(events), about)


def _content(path: str | Path) -> bytes:
    try:
        with open(path, "rb") as file:
            # Reading one byte more than the limit shows whether the file is too large. Asking the system for the size
            # would not be enough: a pipe has no size.
            data = file.read(MAX_FILE + 1)
    except OSError as exc:
        raise TranscriptError(f"can't read {path}: {exc.strerror}") from None
    if len(data) > MAX_FILE:
        raise TranscriptError(f"{path}: the file is too large; the limit is {MAX_FILE} bytes")
    return data


def _first(path: str | Path, data: bytes) -> Mapping[str, Any]:
    line = data.partition(b"\n")[0]
    try:
        # A plan is one object that spans many lines, so the first line alone is not JSON.
        found = _object(data if line.strip() == b"{" else line)
    except ValueError:
        found = {}
    if FORMAT not in found:
        raise TranscriptError(f"{path}: this is neither a transcript nor a plan of trio-mcp")
    return found


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    # A file may come from anywhere, so one that is nested too deeply is reported like any other malformed file.
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as exc:
        raise ValueError(f"malformed JSON: {exc}") from None
    if not isinstance(found, dict):
        raise ValueError("must be a JSON object")
    return found


def as_line(event: Event) -> dict[str, Any]:
    """Return an event as the JSON object of a line in a file; its secrets must have been masked."""
    # The time is rounded to microseconds: more digits on every line would only be clock noise.
    line: dict[str, Any] = {"time": round(event.time, 6), "sender": event.sender, "kind": event.kind}
    if event.connection:
        line["connection"] = event.connection
    if event.exchange is not None:
        line["exchange"] = event.exchange
    # Whether the line has a `message` depends on the kind, not on the value: null is a malformed message, but it is a
    # message, and has to be read back as a message.
    if event.kind == "message":
        line["message"] = event.message
    if event.text is not None:
        try:
            line["text"] = event.text.decode()
        except UnicodeDecodeError:
            line["base64"] = base64.b64encode(event.text).decode()
    if event.facts:
        line["facts"] = dict(event.facts)
    return line


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    # A `bool` is an `int` in Python, but true is not a number in JSON.
    return type(value) is int and value >= 0


def _are_headers(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, list) and len(each) == 2 and all(map(_is_text, each)) for each in value
    )


_Types: TypeAlias = dict[str, tuple[str, Callable[[Any], bool]]]
# The type of each member of a line; all but the first three may be missing.
_MEMBERS: Final[_Types] = {
    "time": ("a number of seconds", lambda value: type(value) in (int, float) and math.isfinite(value)),
    "sender": (f"one of {', '.join(sorted(_SENDERS))}", lambda value: isinstance(value, str) and value in _SENDERS),
    "kind": (f"one of {', '.join(sorted(_KINDS))}", lambda value: isinstance(value, str) and value in _KINDS),
    "connection": ("an integer from 0 up", _is_count),
    "exchange": ("an integer from 0 up", _is_count),
    "message": ("a JSON value", lambda value: True),
    "text": ("a string", _is_text),
    "base64": ("a string", _is_text),
    "facts": ("an object", lambda value: isinstance(value, dict)),
}
_HEADERS: Final = ("a list of pairs of strings", _are_headers)
# The types of the facts that rules rely on, by the kind of event.
_FACTS: Final[dict[str, _Types]] = {
    "request": {"headers": _HEADERS, "method": ("a string", _is_text)},
    "response": {"headers": _HEADERS, "status": ("a number", lambda value: type(value) is int)},
    "mark": {"what": ("a string", _is_text)},
}


def _as_event(line: dict[str, Any]) -> Event:
    for name in ("time", "sender", "kind"):
        if name not in line:
            raise ValueError(f"{name!r} is missing")
    for name, value in line.items():
        if name not in _MEMBERS:
            raise ValueError(f"unknown member {name!r}; the members are {', '.join(_MEMBERS)}")
        wanted, fits = _MEMBERS[name]
        if not fits(value):
            raise ValueError(f"{name!r} must be {wanted}")
    facts = line.get("facts", {})
    for name, (wanted, fits) in _FACTS.get(line["kind"], {}).items():
        # A missing fact is checked as if it were an empty list, which is valid only for headers. So only headers may be
        # missing.
        if not fits(facts.get(name, [])):
            raise ValueError(f"the fact {name!r} must be {wanted}")
    return Event(
        line["kind"],
        line["sender"],
        line.get("connection", 0),
        line.get("exchange"),
        float(line["time"]),
        line.get("message"),
        _text(line),
        facts,
    )


def _text(line: dict[str, Any]) -> bytes | None:
    if "base64" in line:
        try:
            # Without `validate`, characters that are not Base64 would be skipped, and the result would differ from what
            # was written.
            return base64.b64decode(line["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("'base64' must be Base64") from None
    return line["text"].encode("utf-8", "surrogatepass") if "text" in line else None
