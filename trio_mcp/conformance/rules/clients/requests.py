"""Requests: their tokens, cursors and cancellations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trio_mcp.conformance.rules.clients.shared import legacy
from trio_mcp.conformance.rules.history import LISTS, History, RecordedRequest
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.jsonrpc.messages import is_request_id
from trio_mcp.types import meta


@stated_rule(who="client", sentence="A progress token is a string or an integer, and not that of another open request.")
def progress_token_unique(history: History) -> Iterator[Verdict]:
    """Judge each token; a request is open until its response, or its cancellation, has come."""
    for connection in history:
        open_until: dict[tuple[type, Any], int] = {}
        for asked in connection.requests:
            if meta.PROGRESS_TOKEN not in asked.meta:
                continue
            token, place = asked.meta[meta.PROGRESS_TOKEN], connection.position(asked.event)
            if not is_request_id(token):
                yield broken(asked.event, f"the token {token!r} is neither a string nor an integer")
                continue
            key = (type(token), token)
            yield judged(
                open_until.get(key, -1) < place, asked.event, f"{token!r} is the token of another open request"
            )
            ends = [connection.position(event) for event in (*asked.answers[:1], asked.cancelled) if event is not None]
            # A request without an end may still be at work when the transcript stops, and so keeps its token.
            open_until[key] = min(ends, default=len(connection.events))


@stated_rule(who="client", sentence="A client cancels only requests that it has sent.")
def client_cancels_its_own(history: History) -> Iterator[Verdict]:
    """Judge each cancellation, except of requests that the server has not seen over HTTP: they may still be under way.

    Whether the request was still open is a matter of what has crossed it.
    """
    for connection in history:
        for event in connection.notifications("client", "notifications/cancelled"):
            named = (event.message.get("params") or {}).get("requestId")
            sent = [asked for asked in connection.requests if (type(asked.id), asked.id) == (type(named), named)]
            place = connection.position(event)
            if any(connection.position(asked.event) < place for asked in sent):
                yield Verdict(event)
            elif connection.transport != "http":
                yield broken(event, f"no request {named!r} was sent before")


@stated_rule()
def initialize_not_cancelled(history: History) -> Iterator[Verdict]:
    """Judge each cancellation by what it cancels."""
    for connection in legacy(history):
        opening = {(type(asked.id), asked.id) for asked in connection.requests if asked.method == "initialize"}
        for event in connection.notifications("client", "notifications/cancelled"):
            named = (event.message.get("params") or {}).get("requestId")
            yield judged((type(named), named) not in opening, event, "it cancels initialize")


@stated_rule(sentence="A client sends a cursor as it came, for the list that it came with.")
def cursor_echoed(history: History) -> Iterator[Verdict]:
    """Judge each cursor against those that the server gave before, on any connection."""
    # On any connection, because a cursor of another session is for `cursor_not_kept`, and each fault is told once.
    for asked, cursor, _, given in _cursors(history):
        yield judged(given, asked.event, f"the cursor {cursor!r} was never given")


@stated_rule()
def cursor_not_kept(history: History) -> Iterator[Verdict]:
    """Judge each cursor that the server gave on some connection."""
    for asked, cursor, here, given in _cursors(history):
        if given:
            yield judged(here, asked.event, f"the cursor {cursor!r} was given in another session")


def _cursors(history: History) -> Iterator[tuple[RecordedRequest, Any, bool, bool]]:
    """Yield each cursor that was sent: the request, the cursor, whether it was given on this connection, and on any."""
    # Kept by list: what `tools/list` gave means nothing to `prompts/list`, even if the texts are equal.
    everywhere: dict[str, list[Any]] = {method: [] for method in LISTS}
    for connection in history:
        here: dict[str, list[Any]] = {method: [] for method in LISTS}
        for asked in connection.requests:
            if asked.method not in here:
                continue
            if "cursor" in asked.params:
                cursor = asked.params["cursor"]
                yield asked, cursor, cursor in here[asked.method], cursor in everywhere[asked.method]
            if asked.result is not None and "nextCursor" in asked.result:
                here[asked.method].append(asked.result["nextCursor"])
                everywhere[asked.method].append(asked.result["nextCursor"])
