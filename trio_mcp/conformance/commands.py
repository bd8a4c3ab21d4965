"""Makes the line for a shell that shows a failure without the kit: ``printf … | COMMAND``, or ``curl …``."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from trio_mcp.conformance.outcomes import Failure
from trio_mcp.conformance.rules.history import is_notification, is_request
from trio_mcp.conformance.steps import Ask
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.masking import Masker

__all__ = ["command_for"]

LONGEST: Final = 20_000
"""The number of characters above which a line is left out (arbitrary): it is meant to be pasted."""

PATIENCE: Final = 1
"""Seconds to wait for responses, beyond those that the exchange took, before the input is closed (arbitrary)."""

_HANDSHAKE: Final = frozenset({"initialize", "notifications/initialized"})
_SESSION: Final = "mcp-session-id"
# curl sends these by itself.
_OWN: Final = frozenset({"host", "content-length", "connection", "user-agent", "accept-encoding", "transfer-encoding"})
_SOCKETS: Final = {"tcp": r"tcp://(?P<host>.+):(?P<port>\d+)", "unix": "unix:(?://)?(?P<path>/.+)"}


def command_for(failure: Failure, target: str) -> str:
    """Return a line for a shell that shows a failure of a server; empty if a shell can't show it.

    Args:
        failure: The failure.
        target: The command that starts the server, as words for a shell, or its URL; without secrets.
    """
    # An exchange that was not seen again was not shrunk either, and a line of it would hold much that is not to blame.
    if failure.steps is None or not failure.transcript or not failure.seen:
        return ""
    # A value that the server has just returned may be another one next time, and a line can't take it from there.
    if any(isinstance(step, Ask) and step.taken for step in failure.steps):
        return ""
    masker = Masker()
    events = [masker.event(event) for event in failure.transcript]
    number = events[failure.at].connection
    opened = (event for event in events if event.kind == "open" and event.connection == number)
    transport = next((str(event.facts.get("transport")) for event in opened), "")
    said = list(_said([event for event in events if event.connection == number]))
    if transport in ("http", "sse"):
        line = "; ".join(_curls(said, target)) if transport == "http" else ""
    else:
        receiver = target if transport == "stdio" else _netcat(transport, target)
        line = _printf(said, events, receiver) if receiver else ""
    return line if len(line) <= LONGEST else ""


def _said(events: Sequence[Event]) -> Iterator[Event]:
    """Yield what the client sent: the handshake, and the example without what the kit repeats."""
    begun = not any(_is_mark(event, "begin") for event in events)
    again = False
    hello = [event for event in events if event.sender == "client" and _is_handshake(event)]
    # Over HTTP, the request that carries a message comes before it.
    exchanges = {event.exchange for event in hello if event.exchange is not None}
    for event in events:
        begun = begun or _is_mark(event, "begin")
        again = _is_mark(event, "again") or (again and not _is_mark(event, "overdue", "repeated"))
        is_shown = begun or event.exchange in exchanges or event in hello
        if event.sender == "client" and event.kind in ("message", "text", "request") and is_shown and not again:
            yield event


def _is_handshake(event: Event) -> bool:
    message = event.message
    return (is_request(message) or is_notification(message)) and message["method"] in _HANDSHAKE


def _is_mark(event: Event, *what: str) -> bool:
    return event.kind == "mark" and event.facts.get("what") in what


# --- lines ------------------------------------------------------------------------------------------------------------


def _printf(said: Iterable[Event], events: Sequence[Event], receiver: str) -> str:
    lines = [_text(event) for event in said if event.kind != "request"]
    # `%b` reads escapes, which a text needs that is not plain ASCII on one line.
    plain = all(map(_is_plain, lines))
    form = "%s" if plain else "%b"
    words = [line.decode() if plain else "".join(map(_escape, line)) for line in lines]
    seconds = math.ceil(PATIENCE + max(0.0, events[-1].time - events[0].time))
    # Without the wait, many servers end with their input, before they have answered.
    return f"(printf '{form}\\n' {' '.join(map(shlex.quote, words))}; sleep {seconds}) | {receiver}"


def _text(event: Event) -> bytes:
    return (event.text or b"") if event.kind == "text" else json.dumps(event.message, separators=(",", ":")).encode()


def _is_plain(text: bytes) -> bool:
    return text.isascii() and text.decode().isprintable()


def _escape(byte: int) -> str:
    if byte == ord("\\"):
        return "\\\\"
    return chr(byte) if 32 <= byte < 127 else f"\\0{byte:03o}"


def _netcat(transport: str, target: str) -> str:
    found = re.fullmatch(_SOCKETS[transport], target) if transport in _SOCKETS else None
    if found is None:
        return ""
    return f"nc {shlex.quote(found['host'])} {found['port']}" if transport == "tcp" else f"nc -U {found['path']}"


# --- HTTP -------------------------------------------------------------------------------------------------------------


def _curls(said: Sequence[Event], target: str) -> Iterator[str]:
    """Yield a command for each exchange; one that opens a session keeps its id for the others."""
    bodies = {event.exchange: _text(event) for event in said if event.kind != "request"}
    names_session = any(_SESSION in event.headers for event in said if event.kind == "request")
    for event in said:
        body = bodies.get(event.exchange)
        # The body of a POST that is not shown is a request that the kit repeats.
        if event.kind != "request" or (body is None and event.facts.get("method") == "POST"):
            continue
        curl = _curl(event, body, target)
        if names_session and body is not None and b'"method":"initialize"' in body:
            kept = (
                f"{curl.replace(' -i ', ' -o /dev/null -D - ', 1)} | grep -i ^{_SESSION}: | cut -d' ' -f2 | tr -d '\\r'"
            )
            curl = f"S=$({kept})"
        yield curl


def _curl(event: Event, body: bytes | None, target: str) -> str:
    scheme = "https" if target.startswith("https:") else "http"
    method = str(event.facts.get("method"))
    url = f"{scheme}://{event.headers.get('host', '')}{event.facts.get('path', '')}"
    words = ["curl", "-sS", "-i", "--max-time", "10", *(() if method == "POST" else ("-X", method)), shlex.quote(url)]
    for name, value in event.facts.get("headers", ()):
        if name.lower() == _SESSION and str(value).startswith("session-"):
            words += ["-H", f'"{name}: $S"']
        elif name.lower() not in _OWN:
            words += ["-H", shlex.quote(f"{name}: {value}")]
    if body is not None:
        # A text that is not UTF-8 can't be an argument.
        words += ["--data-binary", shlex.quote(body.decode("utf-8", "replace"))]
    return " ".join(words)
