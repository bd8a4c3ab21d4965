"""The access log: one line for each HTTP exchange and each WebSocket, when it ends.

``trio_mcp.access INFO: 127.0.0.1 POST /mcp 200 3.1 ms tools/call 'add'``. The line contains nothing that may be a
secret: no query, no header field, and no parameters except the name of a tool or prompt.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

import attrs
import trio

from trio_mcp.http.server.asgi import ReceiveCallable, Scope, SendCallable
from trio_mcp.jsonrpc.messages import Batch, Incoming, Notification, Request

__all__ = ["ACCESS", "INFO", "is_noted", "logged", "note_message", "note_status"]

ACCESS: Final = logging.getLogger("trio_mcp.access")

INFO: Final = logging.INFO

ENTRY: Final = "trio_mcp.access"
"""The key of the `AccessEntry` in the scope of an exchange that is logged."""

LONGEST: Final = 200
"""How many characters are logged of each text from the client. An arbitrary choice."""


@attrs.define(eq=False)
class AccessEntry:
    """The facts of one exchange that the access log shows.

    Attributes:
        status: The status of the response; None before there is one.
        said: What the client asked for; empty if that is unknown.
    """

    status: int | None = None
    said: str = ""


async def logged(
    app: Callable[[Scope, ReceiveCallable, SendCallable], Awaitable[None]],
    scope: Scope,
    receive: ReceiveCallable,
    send: SendCallable,
) -> None:
    """Serve an exchange, and log it when it has ended, however it ends."""
    entry = AccessEntry()

    async def noting(event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            entry.status = event["status"]
        elif kind == "websocket.accept":
            entry.status = 101
        elif kind == "websocket.close" and entry.status is None:  # the ASGI server then responds with 403
            entry.status = 403
        await send(event)

    started = trio.current_time()
    try:
        await app({**scope, ENTRY: entry}, receive, noting)
    finally:
        client = scope.get("client")
        # The client has chosen these texts, so they are escaped: it must not forge lines or control a terminal.
        ACCESS.info(
            "%s %s %s %s %.1f ms%s",
            _escaped(str(client[0]), ":") if client else "-",
            _escaped(scope.get("method", "GET")),
            _escaped(scope["path"]),
            entry.status or "-",
            (trio.current_time() - started) * 1000,
            entry.said,
        )


def is_noted(scope: Scope) -> bool:
    """Return whether an exchange already has its entry for the access log."""
    return ENTRY in scope


def note_status(scope: Scope, status: int) -> None:
    """Note the status of a response that is sent without ASGI's events."""
    entry: AccessEntry | None = scope.get(ENTRY)
    if entry is not None:
        entry.status = status


def note_message(scope: Scope, message: Incoming) -> None:
    """Note what a client has sent: the method, and the name of a tool or prompt."""
    entry: AccessEntry | None = scope.get(ENTRY)
    if entry is not None:
        entry.said = f" {_described(message)}"


def _described(message: Incoming) -> str:
    if isinstance(message, Batch):
        return f"batch of {len(message.items)}"
    if not isinstance(message, Request | Notification):
        return type(message).__name__.lower()
    method = _escaped(message.method)
    # A URI is not logged, because it may contain secrets.
    name = (message.params or {}).get("name")
    return f"{method} {name[:LONGEST]!a}" if isinstance(name, str) else method


def _escaped(text: str, safe: str = "/") -> str:
    """Return a text percent-encoded as ASCII without spaces, so that it is a single word of the line."""
    # JSON may contain half of a surrogate pair as an escape, which can't be encoded as UTF-8.
    return quote(text[:LONGEST], safe, errors="backslashreplace")
