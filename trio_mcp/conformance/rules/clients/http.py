"""Rules for clients over Streamable HTTP: headers, sessions and streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.members import object_of
from trio_mcp.conformance.rules.clients.shared import (
    SPEAKABLE,
    called_over_http,
    http_requests,
    legacy,
    modern,
    over_http,
    parameters_of,
    tools_at,
)
from trio_mcp.conformance.rules.history import Connection, Exchange, History, is_request
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.http.headers import decode_value
from trio_mcp.http.param_headers import parameter_values
from trio_mcp.types import meta
from trio_mcp.types.methods import method_spec
from trio_mcp.types.versions import REVISIONS


def _opens(exchange: Exchange) -> bool:
    """Return whether an HTTP request begins a session, with ``initialize``."""
    return any(is_request(sent.message) and sent.message["method"] == "initialize" for sent in exchange.sent)


def _after_handshake(history: History) -> Iterator[tuple[Event, Connection, Exchange]]:
    """Yield the HTTP requests after the result of the handshake, or all of them if there was no handshake."""
    for event, connection, exchange in http_requests(iter)(history):
        hello = connection.hello
        if hello is None or connection.position(event) > connection.position(hello.answers[0]):
            yield event, connection, exchange


@stated_rule()
@each(http_requests(iter))
def one_post_per_message(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Require one message per POST, in the revisions that have no batches."""
    # 2025-03-26 has batches, and the HTTP transport of 2024-11-05 is a different one, so neither is judged.
    if exchange.method != "POST" or connection.revision in ("2024-11-05", "2025-03-26"):
        return UNDECIDED
    return None if isinstance(exchange.message, dict) else "the body of the POST is not a single message"


@stated_rule(sentence="Accept names JSON and event streams in each POST, and event streams in each GET.")
@each(http_requests(iter))
def accept_header_sent(event: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that each POST and GET lists the required media types in its Accept header."""
    if exchange.method not in _ACCEPTED:
        return UNDECIDED
    header = event.headers.get("accept", "")
    named = {media.partition(";")[0].strip().lower() for media in header.split(",")}
    # In HTTP `*/*` would mean the same, but the specification requires both types to be listed, and some servers check
    # for that.
    return None if _ACCEPTED[exchange.method] <= named else f"Accept is {event.headers.get('accept')!r}"


_ACCEPTED: Final = {"POST": {"application/json", "text/event-stream"}, "GET": {"text/event-stream"}}


@stated_rule(
    revisions=[revision for revision in REVISIONS if revision >= "2025-06-18"],
    older="basic/transports#protocol-version-header",
    sentence="Each HTTP request names the version in MCP-Protocol-Version; in the legacy era, each after the "
    "handshake.",
)
@each(_after_handshake)
def version_header_sent(event: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Require MCP-Protocol-Version in each HTTP request; in the legacy era, only after the response to initialize."""
    # The kit's server may respond with a version that doesn't exist, and such a version requires no headers.
    known = connection.revision >= "2025-06-18" and connection.revision in SPEAKABLE
    # A client that begins a new session sends `initialize` again, and has no version to name yet.
    if not known or _opens(exchange):
        return UNDECIDED
    return None if event.headers.get("mcp-protocol-version") else "the request has no MCP-Protocol-Version header"


@stated_rule()
@each(_after_handshake)
def version_header_negotiated(event: Event, connection: Connection, _exchange: Exchange) -> Opinion:
    """Check that MCP-Protocol-Version, where present, names the negotiated revision after the handshake."""
    header = event.headers.get("mcp-protocol-version")
    if header is None or connection.modern or connection.hello is None:
        return UNDECIDED
    return None if header == connection.revision else f"it names {header!r}"


@stated_rule()
def session_id_sent(history: History) -> Iterator[Verdict]:
    """Check that each request after the handshake has the session id that the server assigned, if it assigned one."""
    for connection in over_http(legacy(history)):
        if connection.session is None or connection.hello is None:
            continue
        begins = connection.position(connection.hello.answers[0])
        for exchange in connection.exchanges.values():
            if exchange.status == 404:
                break  # the session has ended; the next one begins without an id
            if connection.position(exchange.request) > begins and not _opens(exchange):
                sent = exchange.request.headers.get("mcp-session-id")
                kept = sent == connection.session.headers["mcp-session-id"]
                yield judged(
                    kept, exchange.request, f"the request has the session id {sent!r}, not the one that the server sent"
                )


@stated_rule()
def session_restarted_after_404(history: History) -> Iterator[Verdict]:
    """Check that the first POST after a 404 begins a new session; POSTs that were already on their way are ignored."""
    # The new session is a connection of its own in the transcript, so all exchanges are put in one order.
    everything = [exchange for connection in over_http(iter(history)) for exchange in connection.exchanges.values()]
    ended = None
    for exchange in sorted(everything, key=lambda each: each.request.exchange or 0):
        session = exchange.request.headers.get("mcp-session-id")
        # GET and DELETE are ignored: a client may still be closing the old session.
        if ended is not None and exchange.method == "POST" and session != ended[0]:
            kept = _opens(exchange) and session is None
            yield judged(kept, exchange.request, "a new session does not begin with initialize")
            ended = None
        elif ended is not None and exchange.method == "POST" and exchange.request.time > ended[1] + SETTLED:
            yield broken(exchange.request, "the client continued a session that had ended")
            ended = None
        if exchange.status == 404 and session is not None and exchange.end is not None and ended is None:
            ended = (session, exchange.end.time)


SETTLED: Final = 1.0
"""Seconds after a 404 for which requests that were on their way may still name the session: an arbitrary choice."""


@stated_rule(
    level="MUST",
    sentence="Last-Event-ID names the last event that came on a stream of the same session.",
)
@each(http_requests(legacy))
def last_event_id_real(event: Event, connection: Connection, _exchange: Exchange) -> Opinion:
    """Check that each Last-Event-ID header names an event that the server sent."""
    named = event.headers.get("last-event-id")
    if named is None:
        return UNDECIDED
    # Any event that the server sent will do. Only the client knows which one reached it last: some may have been on
    # their way when the stream broke.
    given = {str(sent.facts["event_id"]) for sent in connection.events if "event_id" in sent.facts}
    return None if named in given else f"no event has the id {named!r}"


@stated_rule(
    section="basic/transports/streamable-http#request-metadata",
    sentence="MCP-Protocol-Version, Mcp-Method and Mcp-Name say what the body says.",
)
@each(http_requests(modern))
def request_headers_sent(event: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Check that the metadata headers of each POST with a request agree with its body."""
    body = exchange.sent[0].message if exchange.sent else None
    # Notifications are left out, because the specification defines no headers for them (Sending Messages). So is
    # `initialize`, which a client of both eras sends to find out whether the server is of the legacy era.
    if exchange.method != "POST" or not is_request(body) or body["method"] == "initialize":
        return UNDECIDED
    params = object_of(body.get("params"))
    version = object_of(params.get("_meta")).get(meta.PROTOCOL_VERSION)
    wanted = {"mcp-protocol-version": version, "mcp-method": body["method"]}
    spec = method_spec(connection.revision, body["method"])
    if spec is not None and spec.name_header is not None:
        wanted["mcp-name"] = params.get(spec.name_header)
    found = {name: event.headers.get(name) for name in wanted}
    if found.get("mcp-name") is not None:
        # Of these three headers, only Mcp-Name may have an encoded value (Value Encoding).
        found["mcp-name"] = _decoded(str(found["mcp-name"]))
    wrong = [name for name in wanted if found[name] != wanted[name]]
    return f"{', '.join(wrong)} differ from the body" if wrong else None


@stated_rule(sentence="A client sends each annotated argument as a header of its own, and none that is not there.")
@each(called_over_http)
def parameter_headers_sent(event: Event, connection: Connection, params: dict[str, Any]) -> Opinion:
    """Check that each call of a listed tool has a header for each argument that its schema annotates, and no others."""
    # A client can only go by the definition that it had when it called. Tools with a wrong annotation are left to
    # `bad_header_annotation_refused`.
    parameters = parameters_of(tools_at(connection, event).get(str(params.get("name")), {}))
    if not parameters:
        return UNDECIDED
    try:
        values = parameter_values(params.get("arguments"), parameters)
    except ValueError:  # an argument that no header can carry; `header_integer_safe` judges integers
        return UNDECIDED
    # The decoded values are compared, because a value that need not be encoded may still be encoded.
    wanted = {name.lower(): _decoded(value) for name, value in values.items()}
    found = {name: _decoded(value) for name, value in event.headers.items() if name.startswith("mcp-param-")}
    return None if found == wanted else f"the headers are {found}, not {wanted}"


def _decoded(value: str) -> str | None:
    try:
        return decode_value(value)
    except ValueError:
        return None
