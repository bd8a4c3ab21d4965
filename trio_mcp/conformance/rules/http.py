"""Rules for servers over Streamable HTTP: responses, streams, resumption, and sessions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from trio_mcp._addresses import is_loopback
from trio_mcp.conformance.members import member_of
from trio_mcp.conformance.rules.common import lost
from trio_mcp.conformance.rules.history import (
    Connection,
    Exchange,
    History,
    RecordedRequest,
    is_message,
    is_notification,
    is_request,
    is_response,
    media_type,
)
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged, rule
from trio_mcp.conformance.rules.occasions import UNDECIDED, Occasions, Opinion, each, exchanged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import meta
from trio_mcp.types.versions import REVISIONS

__all__ = ["ELSEWHERE", "is_clean", "is_no_version", "is_whole", "posted", "received"]

# 2024-11-05 is left out, because its transport, HTTP+SSE, has other rules.
STREAMABLE: Final = REVISIONS[1:]


# 403 is left out, because it is the right response for `origin_checked`. Rules for which a refused Origin or Host would
# be an excuse add 403 themselves.
ELSEWHERE: Final = frozenset({401, 407, 408, 429, 502, 503, 504})
"""HTTP statuses that decide none of these rules: they concern authorization, or an overloaded server or proxy."""


def is_clean(exchange: Exchange) -> bool:
    """Return whether a request has no header that would by itself be a reason to refuse it."""
    headers, whose = exchange.request.headers, exchange.request.facts.get("whose", "a")
    # The token of the first user opened the session; any other may be refused there, with any status. Its own may lack
    # a scope for the request.
    if whose != "a" or (exchange.status == 403 and "whose" in exchange.request.facts):
        return False
    # Without Accept any type will do (RFC 9110, section 12.5.1), so a missing header is read as `*/*`.
    accept = {part.partition(";")[0].strip().lower() for part in headers.get("accept", "*/*").split(",")}
    typed = exchange.method != "POST" or media_type(exchange.request) == "application/json"
    # Which origins a server allows can't be seen, so any Origin at all may be the reason for a refusal.
    return typed and "origin" not in headers and ("*/*" in accept or _WANTED.get(exchange.method, set()) <= accept)


# Official SDKs respond with 406 to a POST whose Accept header doesn't list both types. They may do so, because the
# specification requires clients to list both (Sending Messages).
_WANTED: Final = {"GET": {"text/event-stream"}, "POST": {"application/json", "text/event-stream"}}


def is_no_version(version: str) -> bool:
    """Return whether no revision, past or in the near future, can have this name."""
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", version):
        # A date from 2024 to 2099 may be a revision, and a server may support a future one before the kit does.
        return not "2024" <= version < "2100"
    # Drafts had names such as DRAFT-2025-v2, and a server may have names of its own, so only plain words are certain to
    # name no version.
    return version.isalpha() and "draft" not in version.lower()


def received(exchange: Exchange) -> Iterator[Event]:
    """Yield the JSON objects in the response of an exchange."""
    return (event for event in exchange.received if isinstance(event.message, dict))


def posted(history: History) -> Iterator[tuple[Event, Connection, Exchange]]:
    """Yield, as occasions for a rule, the POSTs that carry one request."""
    for response, connection, exchange in exchanged("POST")(history):
        if is_request(exchange.message):
            yield response, connection, exchange


def is_whole(exchange: Exchange) -> bool:
    """Return whether the response is complete: it has ended, and neither side has cut it off."""
    return exchange.end is not None and not exchange.end.facts.get("cut")


def _is_given_up(asked: RecordedRequest) -> bool:
    """Return whether the client gave up waiting for a response; the kit cancels overdue requests."""
    # A response that still came shows that the cancellation was too late, and is judged like any other.
    return not asked.answers and (asked.cancelled is not None or asked.overdue is not None)


def _asked(connection: Connection, exchange: Exchange) -> RecordedRequest:
    """Return the request that was sent in this POST."""
    return next(asked for asked in connection.requests if asked.event is exchange.sent[0])


def _lives(connection: Connection, event: Event) -> bool:
    """Return whether an event came while the connection and its session were still alive."""
    close = connection.close
    closed = close is not None and connection.position(event) > connection.position(close)
    # The server may end its streams when the session expires (Sending Messages to the Server), so a stream that ends
    # after that shows nothing.
    return not closed and not connection.is_after_session(event)


# --- requests and their responses -------------------------------------------------------------------------------------


@stated_rule(
    revisions=STREAMABLE,
    older="basic/transports#streamable-http",
    moves=["call-tool", "list-all", "ping"],
    transports=["http"],
)
@each(posted)
def endpoint_methods(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that the server does not refuse POST itself, with 405 or 501, for a request with valid headers."""
    if not is_clean(exchange):
        return UNDECIDED
    # Any other status may be about this particular request. Only these two say that the method is not supported (RFC
    # 9110, sections 15.5.6 and 15.6.2).
    return f"a POST got status {exchange.status}" if exchange.status in (405, 501) else None


@stated_rule(moves=["foreign-origin"], transports=["http"])
@each(exchanged())
def origin_checked(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a local server refuses the Origin of another host; other servers may trust any origin."""
    headers = exchange.request.headers
    host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    origin = urlsplit(headers.get("origin", "")).hostname or ""
    # `null`, or a value that is not a URL, has no host. The specification leaves it to the server whether such an
    # Origin is "invalid".
    if not origin or not _is_local(host) or _is_local(origin) or exchange.status in ELSEWHERE:
        return UNDECIDED
    # The specification names the status only since 2025-11-25.
    enough = exchange.status == 403 or (connection.revision < "2025-11-25" and (exchange.status or 0) >= 400)
    # server-everything, and FastMCP unless told otherwise, accept any Origin. That is how DNS rebinding reaches local
    # servers, so it counts as a fault.
    return None if enough else f"a request from the origin {origin} got status {exchange.status}"


def _is_local(host: str) -> bool:
    return host == "localhost" or is_loopback(host)


def _posted_notices(history: History) -> Iterator[tuple[Event, Exchange]]:
    for response, connection, exchange in exchanged("POST")(history):
        message = exchange.message
        # In the modern era clients send no responses (Sending Messages), so the specification doesn't say how to
        # respond to one.
        if is_notification(message) or (is_response(message) and not connection.modern):
            yield response, exchange


@stated_rule(moves=["unknown-notification", "stray-response"], transports=["http"])
@each(_posted_notices)
def notification_accepted_202(_: Event, exchange: Exchange) -> Opinion:
    """Require status 202 without a body in response to each POSTed notification or response that was not refused."""
    status = exchange.status or 0
    # Until the HTTP response has ended, a body may still come; and one that was cut off may have lost its body.
    if not 200 <= status < 300 or not is_whole(exchange):
        return UNDECIDED
    if exchange.received:
        return broken(exchange.received[0], f"a notification got status {status} with a body")
    return None if status == 202 else f"a notification got status {status}, not 202"


@stated_rule(moves=["unknown-notification", "stray-response", "tell-in-unknown-version"], transports=["http"])
@each(_posted_notices)
def notification_refused_with_error(response: Event, exchange: Exchange) -> Opinion:
    """Require an HTTP error status in response to each POSTed notification or response that got an error."""
    status = exchange.status or 0
    # A client may read only the status, because a body is optional; it would take a 200 with an error in the body as
    # acceptance.
    error = next((event for event in received(exchange) if "error" in event.message), None)
    if status < 400 and error is None:
        return UNDECIDED
    return judged(status >= 400, error or response, f"an error came with status {status}")


@stated_rule(moves=["call-tool", "list-all", "ping"], transports=["http"])
@each(posted)
def answer_content_type(response: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Require one JSON object or an event stream in response to each request, unless it was refused or given up."""
    # The specification's statement is about successful responses. The body of a refusal, such as a proxy's page, may be
    # anything. A cancelled request needs no response, so its POST may end without a body, and then without a type.
    if not 200 <= (exchange.status or 0) < 300 or _is_given_up(_asked(connection, exchange)):
        return UNDECIDED
    if exchange.is_stream:
        return None
    if media_type(response) != "application/json":
        return f"a request got status {exchange.status} with Content-Type {response.headers.get('content-type')!r}"
    # The body may have been one object before it was cut off.
    if not is_whole(exchange):
        return UNDECIDED
    one = len(exchange.received) == 1 and isinstance(exchange.received[0].message, dict)
    return judged(one, (exchange.received or [response])[0], "the body is not one JSON object")


@rule(
    "MUST",
    "server",
    "basic#messages",
    "Each event of a stream that has data is one message.",
    older="basic#messages",
    revisions=STREAMABLE,
    moves=["call-tool", "list-all"],
    transports=["http"],
)
def one_message_an_event(history: History) -> Iterator[Verdict]:
    """Check that each event of the default type carries one message, unless it has no data and gives only an id."""
    for _, _, exchange in exchanged("POST", "GET")(history):
        for event in exchange.received if exchange.is_stream else ():
            # Clients ignore events of other types, as SSE requires, so a server may use those as it likes.
            if event.facts.get("event", "message") == "message" and event.text != b"":
                # A list is a batch, which other rules judge by revision. server-everything breaks this rule: it replays
                # the priming events of its streams as `{}`, which no client can read.
                kept = isinstance(event.message, list) or is_message(event.message)
                yield judged(kept, event, "the data of an event is not a message")


# --- the streams of requests ------------------------------------------------------------------------------------------


def _streams(history: History) -> Iterator[tuple[Event, Connection, Exchange]]:
    """Yield, as occasions for a rule, the streams with which the server responded to POSTs of requests."""
    for response, connection, exchange in posted(history):
        if exchange.is_stream:
            yield response, connection, exchange


def _is_answer_to(event: Event, message: Any) -> bool:
    found = event.message
    # In Python, 1, 1.0 and True are equal, but as ids they differ.
    return is_response(found) and found.get("id") == message["id"] and type(found["id"]) is type(message["id"])


def _answer(message: Any, *exchanges: Exchange) -> Event | None:
    """Return the first response to a request in the bodies of these HTTP responses, if there is one."""
    return next((event for each in exchanges for event in each.received if _is_answer_to(event, message)), None)


def _has_ids(exchange: Exchange) -> bool:
    return any(event.facts.get("event_id") for event in exchange.received)


def _server_end(exchange: Exchange) -> Event | None:
    """Return the end of a response if the server ended it properly, and None otherwise."""
    end = exchange.end
    return end if end is not None and end.facts.get("by") == "server" and not end.facts.get("cut") else None


@stated_rule(moves=["call-tool", "break-and-resume"], transports=["http"])
@each(_streams)
def stream_primed(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Require an id and no data in the first event of a stream with event ids; other streams can't be resumed."""
    # Priming events are new in 2025-11-25, and whether a server sends them depends on the version that the request's
    # header names.
    if exchange.request.headers.get("mcp-protocol-version") != connection.revision or not _has_ids(exchange):
        return UNDECIDED
    # Only the first event counts: a client that is cut off before an id has come has nothing to resume from, even if
    # later events have ids.
    first = exchange.received[0]
    primed = bool(first.facts.get("event_id")) and first.text == b""
    return judged(primed, first, "the stream has event ids, but its first event has data, or no id")


@stated_rule(moves=["call-tool", "calls-at-once"], transports=["http"])
@each(_streams)
def retry_before_close(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Require ``retry`` on each stream that the server closed early, and that delivered its response when resumed."""
    end = _server_end(exchange)
    if end is None or _answer(exchange.message, exchange) is not None:
        return UNDECIDED
    # A stream without the response that was never resumed may have ended for good, which `stream_has_response` judges.
    later = [other for other in connection.exchanges.values() if _root(connection, other) is exchange]
    if _answer(exchange.message, *later) is None:
        return UNDECIDED
    # The specification asks for `retry` before the close, not in the last event, so any event of the stream will do.
    said = any("retry" in event.facts for event in exchange.received)
    return judged(said, end, "the stream was closed before the response, without `retry`")


def _root(connection: Connection, exchange: Exchange) -> Exchange | None:
    """Return the exchange that began the stream that this one continues, or None if it is not known."""
    seen = 0
    while exchange.resumes is not None or "last-event-id" in exchange.request.headers:
        found = connection.exchanges.get(exchange.resumes) if exchange.resumes is not None else None
        # A recording may begin in the middle of a stream, or name exchanges in a circle, so the search is bounded: no
        # plan resumes a stream a thousand times.
        if found is None or seen > 1000:
            return None
        exchange, seen = found, seen + 1
    return exchange


@stated_rule(moves=["call-tool", "list-all"], transports=["http"])
@each(_streams)
def stream_has_response(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a stream does not end without the response, unless it can be resumed or the request was given up."""
    if (answer := _answer(exchange.message, exchange)) is not None:
        return held(answer)
    # With event ids, the response may come on another connection: the specification tells clients to poll for it.
    if exchange.end is None or not is_whole(exchange) or _has_ids(exchange):
        return UNDECIDED
    # A cancelled request gets no response, and a server may end streams with the session (Sending Messages to the
    # Server). If two requests share an id, which is forbidden, one of them may get no response.
    twice = connection.uses(exchange.message["id"]) > 1
    if twice or _is_given_up(_asked(connection, exchange)) or not _lives(connection, exchange.end):
        return UNDECIDED
    return broken(exchange.end, "the stream ended without the response")


def _on_streams(*, modern: bool) -> Occasions[dict[str, Any]]:
    """Return, as occasions for a rule, the messages on the streams of requests, each with the request."""

    def occasions(history: History) -> Iterator[tuple[Event, dict[str, Any]]]:
        for _, connection, exchange in _streams(history):
            if connection.modern is modern:
                yield from ((event, exchange.message) for event in received(exchange))

    return occasions


def _relation(event: Event, message: dict[str, Any]) -> Opinion:
    """Check that a response or a progress notification on the stream of a request belongs to that request."""
    found = event.message
    # An error about a message that could not be read has no id, or the id null.
    if is_response(found) and found.get("id") is not None:
        related = _is_answer_to(event, message)
        return None if related else f"the stream carried the response to a different request, {found['id']!r}"
    if found.get("method") != "notifications/progress":
        return UNDECIDED
    token = member_of(found, "params", "progressToken")
    own = member_of(message, "params", "_meta", meta.PROGRESS_TOKEN)
    return None if token == own else f"the stream carried progress of a different request, with the token {token!r}"


@stated_rule(moves=["call-tool", "calls-at-once"], transports=["http"])
@each(_on_streams(modern=False))
def stream_messages_should_relate(event: Event, message: dict[str, Any]) -> Opinion:
    """Check that responses, progress and announced changes on the stream of a request belong to that request."""
    # A tool may change a list, and the change then belongs to its call. A ping changes nothing, so a change that is
    # announced on its stream belongs to something else.
    if event.message.get("method") in CHANGES and message["method"] in QUIET:
        return f"{event.message['method']} came on the stream of {message['method']}"
    # Questions and log messages don't say which request they belong to; only an id or a token does.
    return _relation(event, message)


CHANGES: Final = frozenset(
    f"notifications/{name}"
    for name in ("resources/updated", "resources/list_changed", "tools/list_changed", "prompts/list_changed")
)

QUIET: Final = frozenset({"ping", "tools/list", "prompts/list", "resources/list", "resources/templates/list"})
"""Requests that change nothing on the server."""


@stated_rule(moves=["call-tool", "calls-at-once", "listen"], transports=["http"])
@each(_on_streams(modern=True))
def stream_messages_relate(event: Event, message: dict[str, Any]) -> Opinion:
    """Check that each response, and each notification that says what it belongs to, comes on the right stream."""
    method = event.message.get("method")
    listens = message["method"] == "subscriptions/listen"
    # Receiving Messages says that log messages flow only on the stream of the request that they relate to.
    if method == "notifications/message" and listens:
        return "a log message came on the stream of a subscription"
    # In this era, subscriptions have streams of their own, so a change must not be announced even on the stream of the
    # call that made it.
    if (method == "notifications/subscriptions/acknowledged" or method in CHANGES) and not listens:
        return f"{method} came on the stream of {message['method']}, not of a subscription"
    return _relation(event, message)


@stated_rule(moves=["call-tool", "list-all"], transports=["http"])
@each(_streams)
def stream_ends_after_response(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that the server ends a stream once it has sent the response."""
    end = exchange.end
    if end is None or _answer(exchange.message, exchange) is None:
        return UNDECIDED
    # The kit hangs up half a second after the response; a recorded client that hangs up at once shows nothing.
    if end.facts.get("how") == "lingering":
        return broken(end, "the stream was still open half a second after the response")
    return held(end) if end.facts.get("by") == "server" else UNDECIDED


@stated_rule(moves=["call-tool", "listen"], transports=["http"])
@each(_streams)
def stream_unbuffered_header(response: Event, _connection: Connection, _exchange: Exchange) -> Opinion:
    """Require the header ``X-Accel-Buffering: no`` on each stream."""
    # nginx, for which the header is meant, reads its value without regard to case, and so does this rule.
    value = response.headers.get("x-accel-buffering")
    return None if (value or "").strip().lower() == "no" else f"X-Accel-Buffering is {value!r}"


@stated_rule(moves=["break-and-resume"], transports=["http"])
@each(_streams)
def disconnect_is_not_cancel(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a request still gets its response when the client breaks off the stream and resumes it."""
    if connection.modern or exchange.end is None or exchange.end.facts.get("by") != "client":
        return UNDECIDED
    asked = _asked(connection, exchange)
    streams = [each for each in connection.exchanges.values() if each is not exchange and each.is_stream]
    later = [each for each in streams if _root(connection, each) is exchange]
    # A cancelled request may stay without a response; and without a resumption nothing shows whether the request went
    # on.
    if asked.cancelled is not None or not later:
        return UNDECIDED
    if (answer := _answer(exchange.message, *later)) is not None:
        return held(answer)
    end = lost(asked)
    if end is None:
        end = _server_end(later[-1])
        # A stream with ids can be resumed once more, and the response may come only then.
        if end is None or _has_ids(later[-1]) or not _lives(connection, end):
            return UNDECIDED
    return broken(end, "the request whose stream was broken off never got its response")


# --- the streams of sessions ------------------------------------------------------------------------------------------


def _faultless(*methods: str) -> Occasions[Connection, Exchange]:
    """Return, as occasions, the legacy-era exchanges that only the session or version header gives a reason to refuse.

    Exchanges with status 403, or a status in `ELSEWHERE`, are left out.
    """

    def occasions(history: History) -> Iterator[tuple[Event, Connection, Exchange]]:
        for response, connection, exchange in exchanged(*methods)(history):
            if not connection.modern and is_clean(exchange) and exchange.status not in ELSEWHERE | {403}:
                yield response, connection, exchange

    return occasions


@stated_rule(moves=["another-connection", "second-stream", "break-and-resume"], transports=["http"])
@each(_faultless("GET"))
def get_stream_or_405(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Require an event stream or status 405 for each GET that the server has no other reason to refuse."""
    # An event id that the server no longer has may be refused with any status: the specification names none.
    if connection.hello is None or "last-event-id" in exchange.request.headers:
        return UNDECIDED
    if not _in_session(connection, exchange) or not _in_revision(connection, exchange):
        return UNDECIDED
    # The Python SDK, version 1 of the TypeScript SDK and FastMCP respond to the second GET of a session with 409. That
    # is a fault: the specification allows only two responses, and lets a client keep several streams (Multiple
    # Connections).
    kept = exchange.status == 405 or (exchange.status == 200 and exchange.is_stream)
    return None if kept else f"a GET got status {exchange.status}, and no event stream"


def _own_streams(history: History) -> Iterator[tuple[Event, Connection]]:
    """Yield the messages on the streams that a client opened for its session, leaving out resumed streams."""
    for _, connection, exchange in exchanged("GET")(history):
        if not connection.modern and exchange.is_stream and "last-event-id" not in exchange.request.headers:
            yield from ((event, connection) for event in received(exchange))


@stated_rule(moves=["call-tool", "second-stream"], transports=["http"])
@each(_own_streams)
def get_stream_no_response(event: Event, _: Connection) -> Opinion:
    """Check that no response comes on the stream of a session."""
    return "a response came on the stream of the session" if is_response(event.message) else None


@stated_rule(moves=["call-tool", "calls-at-once", "second-stream"], transports=["http"])
@each(_own_streams)
def get_stream_unrelated(event: Event, connection: Connection) -> Opinion:
    """Check that no notification on the stream of a session is progress of a request that has a stream of its own."""
    # A request from the server doesn't say which call it serves; only progress does, by its token.
    if not is_notification(event.message):
        return UNDECIDED
    asked = next((each for each in connection.requests if any(event is one for one in each.progress)), None)
    if asked is None:
        return None
    # If the client has broken off the request's own stream, the session's stream may be the only one left for progress.
    own = connection.exchanges.get(asked.event.exchange or 0)
    broken_off = own is not None and own.end is not None and own.end.facts.get("by") != "server"
    return UNDECIDED if broken_off else "progress of a request came on the stream of the session"


def _with_sessions(history: History) -> Iterator[Connection]:
    return (connection for connection in history if connection.transport == "http" and not connection.modern)


@stated_rule(moves=["second-stream", "calls-at-once"], transports=["http"])
def message_on_one_stream(history: History) -> Iterator[Verdict]:
    """Check that no request, response or progress notification is sent on two streams."""
    for connection in _with_sessions(history):
        first: dict[Any, Exchange] = {}
        for exchange in connection.exchanges.values():
            # A resumption continues the same stream, so a message that is replayed there was not sent on a second one.
            # Where the beginning of a stream isn't known, its messages aren't judged.
            if not exchange.is_stream or (root := _root(connection, exchange)) is None:
                continue
            for event in received(exchange):
                if (key := _identity(connection, event.message)) is not None:
                    kept = first.setdefault(key, root) is root
                    yield judged(kept, event, "the message had already come on a different stream")


def _identity(connection: Connection, message: dict[str, Any]) -> Any:
    if is_request(message):
        return "request", type(message["id"]), message["id"]
    # An id or token that the client has used twice may rightly come on two streams.
    if is_response(message) and isinstance(message.get("id"), (int, str)) and connection.uses(message["id"]) == 1:
        return "response", type(message["id"]), message["id"]
    # Log messages and changes may rightly be repeated word for word, so only messages that identify themselves count.
    token = member_of(message, "params", "progressToken")
    if message.get("method") != "notifications/progress" or len(connection.givers(token)) != 1:
        return None
    return "progress", repr(token), repr(member_of(message, "params", "progress"))


@stated_rule(moves=["call-tool", "calls-at-once", "break-and-resume"], transports=["http"])
def event_ids_unique(history: History) -> Iterator[Verdict]:
    """Check that no two messages share an event id, except that a resumed stream may replay its own events."""
    for connection in _with_sessions(history):
        used: dict[str, tuple[Exchange, int]] = {}
        # Ids are opaque, so their only order is that in which they first came.
        places: dict[str, int] = {}
        for exchange in connection.exchanges.values():
            root = _root(connection, exchange)
            # Where the beginning of a stream isn't known, an id that came before may be a replay.
            if root is None:
                continue
            after = places.get(exchange.request.headers.get("last-event-id", ""), -1)
            here: set[str] = set()
            for event in exchange.received:
                if not (event_id := event.facts.get("event_id")):
                    continue
                # An event that only primes the stream carries no message: it just marks a place, and so does not use up
                # its id.
                if event.kind == "message":
                    before, place = used.get(event_id, (None, 0))
                    again = before is root and exchange is not root and place > after and event_id not in here
                    yield judged(before is None or again, event, f"the event id {event_id!r} was used before")
                    used.setdefault(event_id, (root, len(places)))
                    here.add(event_id)
                places.setdefault(event_id, len(places))


@stated_rule(moves=["break-and-resume", "resume-foreign"], transports=["http"])
def replay_own_stream(history: History) -> Iterator[Verdict]:
    """Check that a resumed stream replays only its own events, and no response to another request."""
    origins: dict[tuple[str, str], tuple[Connection, Exchange]] = {}
    for _, connection, exchange in exchanged()(history):
        root = _root(connection, exchange)
        for event in exchange.received if root is not None else ():
            # An id alone doesn't identify an event: two sessions may number their events alike, so the message must be
            # equal, too.
            if event.facts.get("event_id") and event.message is not None:
                origins.setdefault((event.facts["event_id"], repr(event.message)), (connection, root or exchange))
    for _, connection, exchange in exchanged("GET")(history):
        if connection.modern or not exchange.is_stream or not exchange.request.headers.get("last-event-id"):
            continue
        root = _root(connection, exchange)
        for event in received(exchange):
            place = origins.get((str(event.facts.get("event_id")), repr(event.message)))
            if place is not None and place[0] is not connection:
                yield broken(event, "an event of another session was replayed")
            # The request that began the stream tells more than event ids do: a response may be foreign although its own
            # stream was never seen.
            elif root is not None and is_request(root.message) and is_response(event.message):
                yield judged(_is_answer_to(event, root.message), event, "the response to another request was replayed")
            elif root is not None:
                # server-everything breaks this rule: on a resumed stream it sends the events of all streams of the
                # session.
                foreign = place is not None and place[1] is not root
                yield judged(not foreign, event, "an event of another stream was replayed")


# --- sessions ---------------------------------------------------------------------------------------------------------


def _in_session(connection: Connection, exchange: Exchange) -> bool:
    """Return whether a request names its session, if there is one, before the session has ended."""
    # A request outside its session gets 400 or 404, even if everything else about it is right.
    named = exchange.request.headers.get("mcp-session-id") == connection.session_id
    return named and not connection.is_after_session(exchange.request)


def _in_revision(connection: Connection, exchange: Exchange) -> bool:
    # The header may be missing: the server then goes by the handshake, or assumes 2025-03-26 (Protocol Version Header).
    return exchange.request.headers.get("mcp-protocol-version", connection.revision) == connection.revision


def _sessions(history: History) -> Iterator[tuple[Event, str]]:
    """Yield, as occasions for a rule, the responses that began sessions, each with the session's id."""
    begun = (connection.session for connection in history)
    return ((response, response.headers["mcp-session-id"]) for response in begun if response is not None)


@stated_rule(moves=["another-connection"], transports=["http"])
@each(_sessions)
def session_id_visible_ascii(_: Event, session: str) -> Opinion:
    """Check that each session id consists of visible ASCII characters only."""
    kept = bool(session) and all("\x21" <= character <= "\x7e" for character in session)
    return None if kept else f"the session id must consist of visible ASCII characters, not {session!r}"


SHORTEST_ID: Final = 8
"""The minimum length, in characters, of a session id that can't be guessed.

An arbitrary choice: a shorter id has under 46 bits.
"""


@stated_rule(moves=["another-connection"], transports=["http"])
def session_id_unpredictable(history: History) -> Iterator[Verdict]:
    """Check that session ids are long enough, never repeat, and don't count up."""
    earlier: list[str] = []
    for given, session in _sessions(history):
        if session in earlier:
            yield broken(given, "two sessions have the same id")
        # Digits can be random, too, so only ids that are close to each other show a counter. A difference of up to a
        # thousand leaves room for the sessions of other clients.
        elif earlier and session.isdigit() and earlier[-1].isdigit() and abs(int(session) - int(earlier[-1])) < 1000:
            yield broken(given, f"the session ids count up: {earlier[-1]}, {session}")
        else:
            yield judged(len(session) >= SHORTEST_ID, given, f"the id {session!r} is short enough to be guessed")
        earlier.append(session)


@stated_rule(moves=["without-session"], transports=["http"])
@each(_faultless("POST"))
def session_id_required(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Require status 400 if a request without the session id is refused; a server need not refuse it."""
    if connection.session is None or "mcp-session-id" in exchange.request.headers or not is_request(exchange.message):
        return UNDECIDED
    refused = 400 <= (exchange.status or 0) < 500
    if not refused or exchange.message["method"] == "initialize" or not _in_revision(connection, exchange):
        return UNDECIDED
    return None if exchange.status == 400 else f"a request without the session id got status {exchange.status}, not 400"


@stated_rule(moves=["end-session"], transports=["http"])
@each(_faultless("POST", "GET"))
def session_ended_404(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Require status 404 for each request with the id of a session that was ended with DELETE."""
    # A session may also expire unseen, so its end is certain only if the client asked for it and the server agreed.
    ended = connection.session_end
    if ended is None or connection.position(exchange.request) < connection.position(ended):
        return UNDECIDED
    same = exchange.request.headers.get("mcp-session-id") == connection.session_id
    if not same or not _in_revision(connection, exchange) or not _is_usual(exchange):
        return UNDECIDED
    # server-everything responds with 400. That is a fault: a client begins again only after a 404, so any other status
    # just looks like a failure.
    return (
        None
        if exchange.status == 404
        else f"a request in a session that had ended got status {exchange.status}, not 404"
    )


def _is_usual(exchange: Exchange) -> bool:
    # A body that is malformed may be refused with 400 before anything else is checked.
    return exchange.method == "GET" or is_request(exchange.message) or is_notification(exchange.message)


@stated_rule(moves=["unknown-version-header"], transports=["http"])
@each(_faultless("POST", "GET"))
def version_header_refused(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Require status 400 for a version header that names no revision, if the request is otherwise acceptable."""
    version = exchange.request.headers.get("mcp-protocol-version")
    if version is None or not is_no_version(version):
        return UNDECIDED
    # A server may look for the session first, and respond with 404 if it finds none.
    if not _in_session(connection, exchange) or not _is_usual(exchange):
        return UNDECIDED
    # In the handshake, the body settles the revision, so the header has no say.
    if member_of(exchange.message, "method") == "initialize":
        return UNDECIDED
    # A server that offers no stream for GET may say so before it checks the version.
    if exchange.method == "GET" and exchange.status == 405:
        return UNDECIDED
    return (
        None
        if exchange.status == 400
        else f"a request with the version {version!r} got status {exchange.status}, not 400"
    )
