"""Rules for servers over stdio, other streams of lines, and WebSocket: what they write, and how a process ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from trio_mcp.conformance.rules.history import Connection, History, is_message, media_type
from trio_mcp.conformance.rules.model import Verdict, broken, held, rule
from trio_mcp.conformance.rules.occasions import UNDECIDED, Occasions, Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event

LINES: Final = ("stdio", "tcp", "tls", "unix", "memory")
"""The transports that frame messages as stdio does."""

PROMPTLY: Final = 2.0
"""Seconds that a process has to exit after its input is closed; the official SDKs wait this long."""


def _written(*transports: str) -> Occasions[Connection]:
    """Return a function that yields each message or other text from a server, on these transports or on all."""

    def occasions(history: History) -> Iterator[tuple[Event, Connection]]:
        for connection in history:
            for event in connection.events if not transports or connection.transport in transports else ():
                if event.sender == "server" and event.kind in ("message", "text"):
                    yield event, connection

    return occasions


@stated_rule(moves=["call-tool", "list-all", "ping"], transports=LINES)
@each(_written(*LINES))
def stdout_clean(event: Event, connection: Connection) -> Opinion:
    """Check that each line that a server writes is a message."""
    message = event.message
    # Only revision 2025-03-26 has batches.
    batch = message if isinstance(message, list) and connection.revision == "2025-03-26" else [message]
    if event.kind == "message" and batch and all(map(is_message, batch)):
        return None
    text = event.text if event.kind == "text" else repr(message).encode()
    return f"the server wrote {(text or b'')[:80]!r}, which is not a message"


@stated_rule(moves=["call-tool", "list-all", "ping"], transports=LINES)
def one_message_a_line(history: History) -> Iterator[Verdict]:
    """Check that no message is spread over several lines."""
    run: list[Event] = []
    before: Connection | None = None
    for event, connection in _written(*LINES)(history):
        if connection is not before or event.kind == "message":
            run = []
        before = connection
        if event.kind == "message":
            yield held(event)
            continue
        run.append(event)
        # `stdout_clean` judges a single line that isn't JSON; several such lines together may be an indented message,
        # or one that was torn in the middle of a string.
        joined = [joint.join(each.text or b"" for each in run) for joint in (b"\n", b"")]
        if 1 < len(run) < LONGEST_RUN and any(map(_is_json, joined)):
            yield broken(event, f"the last {len(run)} lines together are one message, which must be on a single line")
            run = []
    for connection in history:
        for event in connection.events if connection.transport in LINES else ():
            if event.kind == "mark" and event.facts.get("what") == "unended":
                yield broken(event, "the message has no newline at its end, so no client can tell that it is complete")


LONGEST_RUN: Final = 200
"""The number of lines from which on a run of lines is no longer tried as one message (an arbitrary choice: few messages
have that many lines)."""


def _is_json(text: bytes) -> bool:
    # The text grows with each line, and parsing it each time would take quadratic time, so it is parsed only if it ends
    # like JSON.
    if not text.rstrip().endswith((b"}", b"]")):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


@stated_rule(moves=["call-tool", "list-all"])
@each(_written())
def utf_8(event: Event, connection: Connection) -> Opinion:
    """Check that messages, and other texts where a message should be, are UTF-8."""
    if event.kind == "message":
        return None
    # An error page from a proxy may be in any encoding, but a body that is declared as JSON or as an event stream must
    # be UTF-8.
    if connection.transport in (*LINES, "websocket") or _is_declared(connection, event):
        try:
            (event.text or b"").decode()
        except UnicodeDecodeError as exc:
            return f"the server sent text that is not UTF-8: {exc.reason} at byte {exc.start}"
    return UNDECIDED


def _is_declared(connection: Connection, event: Event) -> bool:
    """Return whether the media type of an HTTP response says that it contains messages."""
    exchange = connection.exchanges.get(event.exchange or 0)
    response = None if exchange is None else exchange.response
    return response is not None and media_type(response) in ("application/json", "text/event-stream")


def _ended(history: History) -> Iterator[tuple[Event, Connection]]:
    """Yield the end of each process that ran as a server, with its connection."""
    for connection in history:
        if connection.transport == "stdio" and connection.close is not None:
            yield connection.close, connection


@stated_rule(moves=["close-input"], transports=["stdio"])
@each(_ended)
def stdin_close_exits(close: Event, connection: Connection) -> Opinion:
    """Check that a process exits soon after its input is closed, without being sent a signal."""
    half = next((e for e in connection.events if e.kind == "mark" and e.facts.get("what") == "half closed"), None)
    # The kit closes the input first, then waits, then sends signals; `seconds` counts from the moment when it closed
    # the input.
    if close.sender == "client" and "seconds" in close.facts:
        seconds = float(close.facts["seconds"])
    elif close.sender == "server" and half is not None:
        seconds = close.time - half.time
    else:
        return UNDECIDED
    # A negative status is the number of the signal that ended the process.
    signalled = isinstance(close.facts.get("status"), int) and close.facts["status"] < 0
    # On a busy machine, a process that starts slowly also ends slowly, so the limit is at least twice the time that the
    # process took to start.
    began = next((event.time for event in connection.messages("server")), 0.0) - connection.events[0].time
    kept = seconds <= max(PROMPTLY, 2 * began) and not signalled
    return None if kept else f"the process ran for another {seconds:.1f} seconds after its input was closed"


@rule(
    "MUST",
    "server",
    "basic/transports#custom-transports",
    "Send only valid messages over a WebSocket.",
    transports=["websocket"],
    moves=["call-tool", "list-all", "ping"],
)
@each(_written("websocket"))
def websocket_messages(event: Event, _: Connection) -> Opinion:
    """Check that each WebSocket message is a JSON-RPC message; other rules judge batches."""
    kept = isinstance(event.message, list) or is_message(event.message)
    return None if kept else "the WebSocket message is not a JSON-RPC message"
