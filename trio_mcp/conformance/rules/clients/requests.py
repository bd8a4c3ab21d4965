"""Rules for a client's requests: their progress tokens, cursors and cancellations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trio_mcp.conformance.rules.common import is_same_id
from trio_mcp.conformance.rules.history import LISTS, Connection, History, id_key, params_of
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each, notified
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.jsonrpc.messages import is_request_id
from trio_mcp.types import meta


@stated_rule(who="client", sentence="A progress token is a string or an integer, and not that of another open request.")
def progress_token_unique(history: History) -> Iterator[Verdict]:
    """Check that no two open requests share a progress token; a request is open until its response or cancellation."""
    for connection in history:
        open_until: dict[Any, int] = {}
        for asked in connection.requests:
            if meta.PROGRESS_TOKEN not in asked.meta:
                continue
            token, place = asked.meta[meta.PROGRESS_TOKEN], connection.position(asked.event)
            if not is_request_id(token):
                yield broken(asked.event, f"the progress token {token!r} is neither a string nor an integer")
                continue
            free = open_until.get(id_key(token), -1) < place
            yield judged(free, asked.event, f"{token!r} is the token of another open request")
            ends = [connection.position(event) for event in (*asked.answers[:1], asked.cancelled) if event is not None]
            # A request that has not ended may still be in progress when the transcript stops, and so keeps its token.
            open_until[id_key(token)] = min(ends, default=len(connection.events))


@stated_rule(who="client")
@each(notified("client", "notifications/cancelled"))
def client_cancels_its_own(event: Event, connection: Connection) -> Opinion:
    """Check that each cancellation names a request that was sent before.

    Over HTTP this may stay undecided, since the request may still be on its way. Whether the request was still open is
    not judged, since its response may have crossed the cancellation.
    """
    named, place = params_of(event).get("requestId"), connection.position(event)
    # The messages of a batch share one place and have no order, so a request in the same batch counts as sent before.
    sent = (asked.id for asked in connection.requests if connection.position(asked.event) <= place)
    if any(is_same_id(asked_id, named) for asked_id in sent):
        return None
    return UNDECIDED if connection.transport == "http" else f"no request with the id {named!r} had been sent"


@stated_rule()
@each(notified("client", "notifications/cancelled"))
def initialize_not_cancelled(event: Event, connection: Connection) -> Opinion:
    """Check that no cancellation in the legacy era names the initialize request."""
    if connection.modern or connection.hello is None:
        return UNDECIDED
    named = params_of(event).get("requestId")
    opening = [asked.id for asked in connection.requests if asked.method == "initialize"]
    return "the client cancelled initialize" if any(is_same_id(asked_id, named) for asked_id in opening) else None


def _cursors(history: History) -> Iterator[tuple[Event, Any, bool, bool]]:
    """Yield each request with a cursor, and whether the server gave it before on this connection, and on any."""
    # Cursors are kept by list: one from `tools/list` means nothing to `prompts/list`, even if the texts are equal.
    everywhere: set[tuple[str, str]] = set()
    for connection in history:
        here: set[tuple[str, str]] = set()
        for asked in connection.requests:
            if asked.method in LISTS and "cursor" in asked.params:
                sent = asked.method, repr(asked.params["cursor"])
                yield asked.event, asked.params["cursor"], sent in here, sent in everywhere
            if asked.method in LISTS and asked.result is not None and "nextCursor" in asked.result:
                here.add((asked.method, repr(asked.result["nextCursor"])))
                everywhere |= here


@stated_rule(sentence="A client sends a cursor as it came, for the list that it came with.")
@each(_cursors)
def cursor_echoed(_: Event, cursor: Any, _here: bool, given: bool) -> Opinion:
    """Check that the server gave each cursor before, for the same list, on any connection."""
    # All connections count, because a cursor of another session is left to `cursor_not_kept`, and each fault is
    # reported only once.
    return None if given else f"the server never sent the cursor {cursor!r}"


@stated_rule()
@each(_cursors)
def cursor_not_kept(_: Event, cursor: Any, here: bool, given: bool) -> Opinion:
    """Check that a cursor that the server has given is used only on the connection on which it was given."""
    if not given:
        return UNDECIDED
    return None if here else f"the server sent the cursor {cursor!r} in a different session"
