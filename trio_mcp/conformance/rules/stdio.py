"""Rules for servers over lines, above all stdio; over WebSocket, too: what is written, and how a process ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from trio_mcp.conformance.rules.history import Connection, History, is_notification, is_request, is_response
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged, rule
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event

LINES: Final = ("stdio", "tcp", "tls", "unix", "memory")
"""The transports that frame messages as over stdio."""

PROMPTLY: Final = 2.0
"""Seconds that a process has to exit. Chosen: what the official SDKs wait for."""


def _written(history: History) -> Iterator[tuple[Connection, Event]]:
    """Yield each line of a server."""
    for connection in history:
        if connection.transport in LINES:
            for event in connection.events:
                if event.sender == "server" and event.kind in ("message", "text"):
                    yield connection, event


def _is_message(connection: Connection, event: Event) -> bool:
    message = event.message
    # Batches are part of one revision only.
    if isinstance(message, list) and connection.revision == "2025-03-26":
        return bool(message) and all(map(_is_one, message))
    return event.kind == "message" and _is_one(message)


def _is_one(message: object) -> bool:
    return is_request(message) or is_notification(message) or is_response(message)


@stated_rule(moves=["call-tool", "list-all", "ping"], transports=LINES)
def stdout_clean(history: History) -> Iterator[Verdict]:
    """Judge each line."""
    for connection, event in _written(history):
        text = event.text if event.kind == "text" else repr(event.message).encode()
        yield judged(_is_message(connection, event), event, f"it wrote {(text or b'')[:80]!r}, which is not a message")


@stated_rule(
    sentence="There are no line breaks within a message.", moves=["call-tool", "list-all", "ping"], transports=LINES
)
def one_message_a_line(history: History) -> Iterator[Verdict]:
    """Judge each message, and each run of lines that is a message only when they are taken together."""
    run: list[Event] = []
    before: Connection | None = None
    for connection, event in _written(history):
        if connection is not before or event.kind == "message":
            run = []
        before = connection
        if event.kind == "message":
            yield held(event)
            continue
        run.append(event)
        # A line by itself that isn't JSON is for `stdout_clean`; only together do such lines show an indented message.
        if 1 < len(run) < LONGEST_RUN and _is_json(b"\n".join(each.text or b"" for each in run)):
            yield broken(event, f"the last {len(run)} lines are one message")
            run = []


LONGEST_RUN: Final = 200
"""Lines that are looked at together. Chosen: indented JSON of that size is a lot."""


def _is_json(text: bytes) -> bool:
    # The run grows with each line, and to parse it each time would cost the square of its length.
    if not text.rstrip().endswith((b"}", b"]")):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


@stated_rule(sentence="Messages are UTF-8.", moves=["call-tool", "list-all"])
def utf_8(history: History) -> Iterator[Verdict]:
    """Judge each message, and each text that is not JSON where a message should be."""
    for connection in history:
        for event in connection.events:
            if event.sender != "server" or event.kind not in ("message", "text"):
                continue
            if event.kind == "message":
                yield held(event)
            # A proxy's error page may be in any encoding; a body that says it is JSON, or events, may not.
            elif connection.transport in (*LINES, "websocket") or _is_declared(connection, event):
                try:
                    (event.text or b"").decode()
                except UnicodeDecodeError as exc:
                    yield broken(event, f"it sent a text that is not UTF-8: {exc.reason} at {exc.start}")


def _is_declared(connection: Connection, event: Event) -> bool:
    """Return whether the type of an HTTP response says that there are messages."""
    exchange = connection.exchanges.get(event.exchange or 0)
    if exchange is None or exchange.response is None:
        return False
    kind = exchange.response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind in ("application/json", "text/event-stream")


@stated_rule(moves=["close-input"], transports=["stdio"])
def stdin_close_exits(history: History) -> Iterator[Verdict]:
    """Judge each process whose input was closed first."""
    for connection in history:
        close = connection.close
        if connection.transport != "stdio" or close is None:
            continue
        half = next((e for e in connection.events if e.kind == "mark" and e.facts.get("what") == "half closed"), None)
        # The kit closes the input first, then waits, then sends signals; `seconds` counts from the first.
        if close.sender == "client" and "seconds" in close.facts:
            seconds = float(close.facts["seconds"])
        elif close.sender == "server" and half is not None:
            seconds = close.time - half.time
        else:
            continue
        # A negative status is the number of the signal that ended the process.
        signalled = isinstance(close.facts.get("status"), int) and close.facts["status"] < 0
        # On a machine that is so busy that the process took long to begin, it takes long to end.
        said = (e.time for e in connection.events if e.kind == "message" and e.sender == "server")
        began = next(said, 0.0) - connection.events[0].time
        yield judged(
            seconds <= max(PROMPTLY, 2 * began) and not signalled,
            close,
            f"the process went on for {seconds:.1f} seconds, until it was ended",
        )


@rule(
    "MUST",
    "server",
    "basic/transports#custom-transports",
    "What a server sends over a WebSocket are messages.",
    transports=["websocket"],
    moves=["call-tool", "list-all", "ping"],
)
def websocket_messages(history: History) -> Iterator[Verdict]:
    """Judge each message of the WebSocket; batches are judged by other rules."""
    for connection in history:
        if connection.transport == "websocket":
            for event in connection.events:
                if event.sender == "server" and event.kind in ("message", "text"):
                    found = event.message
                    kept = isinstance(found, list) or is_request(found) or is_notification(found) or is_response(found)
                    yield judged(kept, event, "it is not a message of JSON-RPC")
