"""Rules for clients in the modern era: what each request declares, and how it is sent again with input."""

from __future__ import annotations

from collections.abc import Iterator

from trio_mcp.conformance.members import object_of
from trio_mcp.conformance.rules.clients.shared import modern, retries, sent
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest, is_response
from trio_mcp.conformance.rules.model import Verdict, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import meta


def _requests(history: History) -> Iterator[tuple[Event, RecordedRequest]]:
    """Yield the client's requests in the modern era."""
    for connection in modern(history):
        # A client of both eras may open with `initialize`, in case the server is an older one; that request has none of
        # the modern fields in its `_meta`.
        yield from ((asked.event, asked) for asked in connection.requests if asked.method != "initialize")


def _retries(history: History) -> Iterator[tuple[Event, RecordedRequest, RecordedRequest]]:
    """Yield the retries in the modern era, each with the original request."""
    for connection in modern(history):
        yield from ((retry.event, before, retry) for before, retry in retries(connection))


@stated_rule(sentence="Each request names the version and the client's capabilities in its _meta.")
@each(_requests)
def request_meta_complete(_: Event, asked: RecordedRequest) -> Opinion:
    """Require the protocol version and the client's capabilities in the `_meta` of each request of the modern era."""
    version, declared = asked.meta.get(meta.PROTOCOL_VERSION), asked.meta.get(meta.CLIENT_CAPABILITIES)
    kept = isinstance(version, str) and isinstance(declared, dict)
    return None if kept else "the _meta of the request lacks the version or the capabilities"


@stated_rule()
@each(_requests)
def client_info_sent(_: Event, asked: RecordedRequest) -> Opinion:
    """Require ``clientInfo`` in the `_meta` of each request of the modern era."""
    return None if isinstance(asked.meta.get(meta.CLIENT_INFO), dict) else "the _meta of the request lacks clientInfo"


@stated_rule(sentence="A client sends no responses.")
@each(sent)
def no_client_responses(event: Event, connection: Connection) -> Opinion:
    """Check that a client in the modern era sends no response."""
    if not connection.modern:
        return UNDECIDED
    return "the message is a response" if is_response(event.message) else None


@stated_rule(sentence="A retry brings back the state that the server gave, exactly, and none if it gave none.")
def request_state_echoed(history: History) -> Iterator[Verdict]:
    """Check that a state in a request was given by the server, and that a retry has the state if one was given."""
    for connection in modern(history):
        # Several requests may be waiting for their retries at once, so any state that was given will do.
        given = [a.result["requestState"] for a in connection.requests if a.result and "requestState" in a.result]
        for asked in connection.requests:
            if "requestState" in asked.params:
                state = asked.params["requestState"]
                yield judged(state in given, asked.event, f"the server never sent the state {state!r}")
        for before, retry in retries(connection):
            if "requestState" in (before.result or {}):
                kept = "requestState" in retry.params
                yield judged(kept, retry.event, "the retry lacks the state that the server sent")


@stated_rule()
@each(_retries)
def retry_has_new_id(_: Event, before: RecordedRequest, retry: RecordedRequest) -> Opinion:
    """Check that each retry has an id other than that of the request it repeats."""
    # Usually an id may be used again after its response, but MRTR requires a new one for a retry.
    return f"the retry has the same id as the first request: {retry.id!r}" if retry.id == before.id else None


@stated_rule()
@each(_retries)
def input_answered(_: Event, before: RecordedRequest, retry: RecordedRequest) -> Opinion:
    """Check that each retry answers all the questions with which the server responded."""
    wanted = object_of((before.result or {}).get("inputRequests"))
    # Answers to questions that weren't asked are not an error: a server should ignore them (Error Handling).
    missing = sorted(wanted.keys() - object_of(retry.params.get("inputResponses")).keys())
    if not wanted:
        return UNDECIDED
    return f"the retry has no answer to {missing}" if missing else None
