"""Rules for the opening of a session: which request comes first, and which server features are used afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trio_mcp.conformance.rules.clients.shared import SPEAKABLE, after, greeted
from trio_mcp.conformance.rules.common import declares, is_ordered
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest, is_request, is_response
from trio_mcp.conformance.rules.http import is_no_version
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import meta
from trio_mcp.types.methods import method_spec


def _openings(history: History) -> Iterator[tuple[Event, RecordedRequest]]:
    """Yield the first request of each connection in the legacy era, apart from probes for the modern era."""
    for connection in history:
        # A client of both eras tries the modern one first, with `server/discover` or any request (Backward
        # Compatibility).
        asked = (each for each in connection.requests if meta.PROTOCOL_VERSION not in each.meta)
        first = next((each for each in asked if each.method != "server/discover"), None)
        if first is not None and not connection.modern:
            yield first.event, first


@stated_rule(
    sentence="The first request of a session is initialize, with version, capabilities and name of the client."
)
@each(_openings)
def initialize_first(_: Event, asked: RecordedRequest) -> Opinion:
    """Require a complete initialize as the first request; a probe for the modern era may come before it."""
    if asked.method != "initialize":
        return f"the first request is {asked.method}, not initialize"
    wanted = {"protocolVersion": str, "capabilities": dict, "clientInfo": dict}
    missing = [name for name, kind in wanted.items() if not isinstance(asked.params.get(name), kind)]
    return f"initialize lacks {', '.join(missing)}" if missing else None


@stated_rule()
def initialize_version_supported(history: History) -> Iterator[Verdict]:
    """Check that each initialize names a version that exists; which ones the client really supports can't be seen."""
    for _, asked in history.requests("initialize"):
        version = asked.params.get("protocolVersion")
        # A version that this kit does not know is not judged if it may be a later revision.
        if version in SPEAKABLE or not isinstance(version, str) or is_no_version(version):
            yield judged(version in SPEAKABLE, asked.event, f"the protocol version {version!r} does not exist")


@stated_rule()
def nothing_before_initialize_result(history: History) -> Iterator[Verdict]:
    """Check that the client sent no request but pings between initialize and its result."""
    for answer, connection, hello in greeted(history):
        for asked in connection.requests:
            # These requests were sent too early: whatever crosses on the way, they can't have waited for a response
            # that came later.
            if connection.position(hello.event) < connection.position(asked.event) < connection.position(answer):
                problem = f"{asked.method} was sent before initialize was answered"
                yield judged(asked.method == "ping", asked.event, problem)
        yield Verdict(hello.event)


@stated_rule()
@each(greeted)
def initialized_sent(answer: Event, connection: Connection, _hello: RecordedRequest) -> Opinion:
    """Require notifications/initialized as the first message after initialize succeeds with a version that exists."""
    first = next((event for event in after(connection, answer) if not _is_allowed_early(event.message)), None)
    # If the version doesn't exist, the client should disconnect instead, which `version_mismatch_disconnects` judges.
    if first is None or connection.revision not in SPEAKABLE:
        return UNDECIDED
    kept = isinstance(first.message, dict) and first.message.get("method") == "notifications/initialized"
    # Over HTTP another message may overtake the notification, but the notification must come before the response to
    # that message.
    if not kept and not is_ordered(connection):
        told = next(connection.notifications("client", "notifications/initialized"), None)
        asked = next((each for each in connection.requests if each.event is first), None)
        ends = [connection.position(end) for end in asked.answers[:1]] if asked is not None else []
        kept = told is not None and connection.position(told) < min(ends, default=len(connection.events))
    return judged(kept, first, "the message was sent before notifications/initialized")


def _is_allowed_early(message: Any) -> bool:
    # Pings are allowed, and the client must respond as soon as the server sends a request.
    return is_response(message) or (is_request(message) and message["method"] == "ping")


@stated_rule()
@each(greeted)
def version_mismatch_disconnects(answer: Event, connection: Connection, _hello: RecordedRequest) -> Opinion:
    """Check that the client sends no more requests after the server responded with a version that does not exist."""
    if connection.revision in SPEAKABLE:
        return UNDECIDED
    # Only a request shows that the client carries on: a cancellation or a notification may be part of disconnecting.
    went_on = next((event for event in after(connection, answer) if is_request(event.message)), None)
    return (
        None
        if went_on is None
        else broken(went_on, f"the client continued in version {connection.revision!r}, which does not exist")
    )


@stated_rule(who="client", sentence="A client uses only what the server has declared.")
def client_capabilities_respected(history: History) -> Iterator[Verdict]:
    """Check that the client uses only capabilities that the server declared, once it has received the declaration."""
    for connection in history:
        known = next(
            (a for a in connection.requests if a.method in ("initialize", "server/discover") and a.result), None
        )
        if known is None or connection.revision not in SPEAKABLE:
            continue
        for asked in connection.requests:
            spec = method_spec(connection.revision, asked.method)
            needs = spec.server_capability if spec is not None else None
            # Requests that were sent before the declaration arrived are not judged: the client could not know it yet.
            if needs is not None and connection.position(asked.event) > connection.position(known.answers[0]):
                kept = declares(connection.server_capabilities, needs)
                yield judged(kept, asked.event, f"the server did not declare {needs}")
