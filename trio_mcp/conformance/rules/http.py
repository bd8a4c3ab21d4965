"""Rules for servers over Streamable HTTP: what a request is answered with, streams, resumption, and sessions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from trio_mcp._addresses import is_loopback
from trio_mcp.conformance.rules.common import lost
from trio_mcp.conformance.rules.history import (
    Connection,
    Exchange,
    History,
    RecordedRequest,
    is_notification,
    is_request,
    is_response,
)
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged, rule
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import meta
from trio_mcp.types.versions import LEGACY_REVISIONS, REVISIONS

__all__ = ["ELSEWHERE", "is_clean", "is_no_version", "over_http", "received"]

# HTTP+SSE, the transport of 2024-11-05, has other rules.
STREAMABLE: Final = REVISIONS[1:]
# Only these revisions have sessions, GET streams and resumption; 2026-07-28 dropped all three (Earlier Streamable HTTP
# Revisions).
SESSIONS: Final = LEGACY_REVISIONS[1:]
# The header came with 2025-06-18; a server of 2025-03-26 may ignore whatever it says.
VERSION_HEADER: Final = LEGACY_REVISIONS[2:]

http_rule: Final = partial(rule, transports=["http"])


# 403 is left out: to `origin_checked` it is the right answer. Where a refused Origin or Host would be an excuse, rules
# add it themselves.
ELSEWHERE: Final = frozenset({401, 407, 408, 429, 502, 503, 504})
"""Statuses that say nothing about these rules: authorization, and a server or a proxy with too much to do."""


def over_http(history: History, *methods: str) -> Iterator[tuple[Connection, Exchange]]:
    """Yield the exchanges over Streamable HTTP that have a response, or only those of some HTTP methods."""
    for connection in history:
        if connection.transport == "http":
            for exchange in connection.exchanges.values():
                # Without a response the connection was lost, which says nothing about how the server treats such a
                # request.
                if exchange.response is not None and (not methods or exchange.method in methods):
                    yield connection, exchange


def is_clean(exchange: Exchange) -> bool:
    """Return whether a request has no header that would be a reason of its own to refuse it."""
    headers = exchange.request.headers
    # Without Accept any type will do (RFC 9110, section 12.5.1), so a missing header is read as `*/*`.
    accept = {part.partition(";")[0].strip().lower() for part in headers.get("accept", "*/*").split(",")}
    wanted = {"text/event-stream"} if exchange.method == "GET" else set()
    if exchange.method == "POST":
        # Official SDKs answer 406 unless both types are named, as they may: the text demands both of the client
        # (Sending Messages).
        wanted = {"application/json", "text/event-stream"}
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return False
    # Which origins a server allows can't be seen, so any Origin at all may be why it refused.
    return "origin" not in headers and (wanted <= accept or "*/*" in accept)


def is_no_version(version: str) -> bool:
    """Return whether no revision was ever called so, nor will be for a long time."""
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", version):
        # A date of this century may be a revision to come, which a server may speak before the kit knows it.
        return not "2024" <= version < "2100"
    # Drafts had names such as DRAFT-2025-v2, and a server may have some of its own, so only plain words are certain.
    return version.isalpha() and "draft" not in version.lower()


def received(exchange: Exchange) -> Iterator[Event]:
    """Yield the JSON objects in the response."""
    return (event for event in exchange.received if isinstance(event.message, dict))


def _response(exchange: Exchange) -> Event:
    assert exchange.response is not None  # as `over_http` makes sure
    return exchange.response


def is_whole(exchange: Exchange) -> bool:
    """Return whether the response has ended in order: neither side has cut it off."""
    return exchange.end is not None and not exchange.end.facts.get("cut")


def _is_given_up(asked: RecordedRequest) -> bool:
    """Return whether the client no longer waits for a response; what is overdue is cancelled by the kit."""
    # An answer that still came shows that the cancellation was too late, and is judged like any other.
    return not asked.answers and (asked.cancelled is not None or asked.overdue is not None)


def _lives(connection: Connection, event: Event) -> bool:
    """Return whether an event came while neither side had ended the connection or its session."""
    close = connection.close
    closed = close is not None and connection.position(event) > connection.position(close)
    # The server may end its streams when the session expires (Sending Messages to the Server), so what ends after that
    # shows nothing.
    return not closed and not connection.is_after_session(event)


def _is_json(exchange: Exchange) -> bool:
    kind = _response(exchange).headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == "application/json"


# --- requests and their responses -------------------------------------------------------------------------------------


@stated_rule(
    revisions=STREAMABLE,
    older="basic/transports#streamable-http",
    sentence="The endpoint accepts POST.",
    moves=["call-tool", "list-all", "ping"],
    transports=["http"],
)
def endpoint_methods(history: History) -> Iterator[Verdict]:
    """Judge each POST of a request."""
    for _, exchange in over_http(history, "POST"):
        if is_request(exchange.message) and is_clean(exchange):
            # Any other status is about this request. Only these two say that the method is not supported (RFC 9110,
            # sections 15.5.6 and 15.6.2).
            yield judged(exchange.status not in (405, 501), _response(exchange), f"a POST got {exchange.status}")


@stated_rule(
    since="2025-03-26",
    sentence="A request from a foreign Origin is refused with 403.",
    moves=["foreign-origin"],
    transports=["http"],
)
def origin_checked(history: History) -> Iterator[Verdict]:
    """Judge each request with an Origin of another host, if the server is local: elsewhere it may trust any."""
    for connection, exchange in over_http(history):
        headers = exchange.request.headers
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        origin = urlsplit(headers.get("origin", "")).hostname or ""
        # `null`, and what is not a URL, has no host. Whether it counts as "invalid" the text leaves to the server.
        if not origin or not _is_local(host) or _is_local(origin) or exchange.status in ELSEWHERE:
            continue
        # The status is named since 2025-11-25.
        enough = exchange.status == 403 or (connection.revision < "2025-11-25" and (exchange.status or 0) >= 400)
        # server-everything, and FastMCP unless told otherwise, accept any Origin. DNS rebinding reaches local servers
        # just so, hence a fault.
        yield judged(enough, _response(exchange), f"a request from the origin {origin} got status {exchange.status}")


def _is_local(host: str) -> bool:
    return host == "localhost" or is_loopback(host)


@stated_rule(since="2025-03-26", moves=["unknown-notification", "stray-response"], transports=["http"])
def notification_accepted_202(history: History) -> Iterator[Verdict]:
    """Judge each POST of a notification that was not refused."""
    for _, exchange in _posted_notices(history):
        status = exchange.status or 0
        # Until the response has ended, a body may still come; and one that was cut off may have lost it.
        if 200 <= status < 300 and is_whole(exchange):
            if exchange.received:
                yield broken(exchange.received[0], f"a notification got status {status} with a body")
            else:
                yield judged(status == 202, _response(exchange), f"a notification got status {status}, not 202")


@stated_rule(
    since="2025-03-26", moves=["unknown-notification", "stray-response", "tell-in-unknown-version"], transports=["http"]
)
def notification_refused_with_error(history: History) -> Iterator[Verdict]:
    """Judge each POST of a notification that got an error."""
    for _, exchange in _posted_notices(history):
        status = exchange.status or 0
        # An error in the body of a 200 looks like acceptance to a client that reads the status alone, as it may: the
        # body is optional.
        error = next((event for event in received(exchange) if "error" in event.message), None)
        if status >= 400 or error is not None:
            yield judged(status >= 400, error or _response(exchange), f"an error came with status {status}")


def _posted_notices(history: History) -> Iterator[tuple[Connection, Exchange]]:
    for connection, exchange in over_http(history, "POST"):
        message = exchange.message
        # In the modern era clients send no responses (Sending Messages), so the text doesn't say what one gets.
        if is_notification(message) or (is_response(message) and not connection.modern):
            yield connection, exchange


@stated_rule(
    since="2025-03-26",
    sentence="A request is answered with one JSON object, or with an event stream.",
    moves=["call-tool", "list-all", "ping"],
    transports=["http"],
)
def answer_content_type(history: History) -> Iterator[Verdict]:
    """Judge each POST of a request that was neither refused by an HTTP status nor cancelled before."""
    for connection, exchange in over_http(history, "POST"):
        # The sentence is about answers. What a refusal has for a body, such as a proxy's page, is left open.
        if not is_request(exchange.message) or not 200 <= (exchange.status or 0) < 300:
            continue
        asked = next((each for each in connection.requests if each.event is exchange.sent[0]), None)
        # A cancelled request needs no response, so its POST may end without a body, and then without a type.
        if asked is not None and _is_given_up(asked):
            continue
        response = _response(exchange)
        if exchange.is_stream:
            yield held(response)
        elif not _is_json(exchange):
            kind = response.headers.get("content-type")
            yield broken(response, f"a request got status {exchange.status} with Content-Type {kind!r}")
        # A body that was cut off may have been one object.
        elif is_whole(exchange):
            one = len(exchange.received) == 1 and isinstance(exchange.received[0].message, dict)
            yield judged(one, (exchange.received or [response])[0], "the body is not one JSON object")


@http_rule(
    "MUST",
    "server",
    "basic#messages",
    "Each event of a stream that has data is one message.",
    older="basic#messages",
    revisions=STREAMABLE,
    moves=["call-tool", "list-all"],
)
def one_message_an_event(history: History) -> Iterator[Verdict]:
    """Judge each event of the usual type; an event without data gives a place to resume from."""
    for _, exchange in over_http(history, "POST", "GET"):
        for event in exchange.received if exchange.is_stream else ():
            # Clients ignore events of other types, as SSE demands, so a server may use them for itself.
            if event.facts.get("event", "message") == "message" and event.text != b"":
                found = event.message
                # A list is a batch, right or wrong by revision, which other rules judge. server-everything replays the
                # priming events of its streams as `{}`, which no client can read.
                kept = isinstance(found, list) or is_request(found) or is_notification(found) or is_response(found)
                yield judged(kept, event, "the data of an event are not a message")


# --- the streams of requests ------------------------------------------------------------------------------------------


def _streams(history: History, *, modern: bool | None = None) -> Iterator[tuple[Connection, Exchange, dict[str, Any]]]:
    """Yield the streams in answer to POSTed requests, with these."""
    for connection, exchange in over_http(history, "POST"):
        if is_request(exchange.message) and exchange.is_stream and modern in (None, connection.modern):
            yield connection, exchange, exchange.message


def _is_answer_to(event: Event, message: Any) -> bool:
    found = event.message
    # To Python 1, 1.0 and True are equal, but as ids they are three.
    return is_response(found) and found.get("id") == message["id"] and type(found["id"]) is type(message["id"])


@stated_rule(since="2025-11-25", moves=["call-tool", "break-and-resume"], transports=["http"])
def stream_primed(history: History) -> Iterator[Verdict]:
    """Judge each stream with event ids; without them there is nothing to resume from."""
    for connection, exchange, _ in _streams(history):
        # The event without data is new in 2025-11-25, and servers go by the version that the request's header names.
        if exchange.request.headers.get("mcp-protocol-version") != connection.revision:
            continue
        if any(event.facts.get("event_id") for event in exchange.received):
            # Only the first event counts: a client that is cut off before it has nothing to resume from, whatever ids
            # follow.
            first = exchange.received[0]
            primed = bool(first.facts.get("event_id")) and first.text == b""
            yield judged(primed, first, "the stream has event ids, but its first event has data, or no id")


@stated_rule(
    since="2025-11-25",
    sentence="Before the server closes a stream that has not ended, it sends `retry`.",
    moves=["call-tool", "calls-at-once"],
    transports=["http"],
)
def retry_before_close(history: History) -> Iterator[Verdict]:
    """Judge each stream that was closed early and gave its response when it was resumed."""
    for connection, exchange, message in _streams(history):
        ended = exchange.end is not None and exchange.end.facts.get("by") == "server" and is_whole(exchange)
        if ended and not any(_is_answer_to(event, message) for event in exchange.received):
            # A stream without response that no one resumed may have been ended for good, which `stream_has_response`
            # judges.
            later = [other for other in connection.exchanges.values() if _root(connection, other) is exchange]
            if any(_is_answer_to(event, message) for other in later for event in other.received):
                # The text wants `retry` before the close, not in the last event, so any event of the stream will do.
                said = any("retry" in event.facts for event in exchange.received)
                assert exchange.end is not None
                yield judged(said, exchange.end, "the stream was closed before the response, without `retry`")


def _root(connection: Connection, exchange: Exchange) -> Exchange | None:
    """Return the exchange that began a stream; None if that is not known."""
    seen = 0
    while exchange.resumes is not None or "last-event-id" in exchange.request.headers:
        found = connection.exchanges.get(exchange.resumes) if exchange.resumes is not None else None
        # A recording may begin in the middle of a stream, or name exchanges in a circle. No plan resumes a stream a
        # thousand times.
        if found is None or seen > 1000:
            return None
        exchange, seen = found, seen + 1
    return exchange


@stated_rule(since="2025-03-26", moves=["call-tool", "list-all"], transports=["http"])
def stream_has_response(history: History) -> Iterator[Verdict]:
    """Judge each stream that the server ended for good: it was not cancelled, and can't be resumed."""
    for connection, exchange, message in _streams(history):
        answer = next((event for event in exchange.received if _is_answer_to(event, message)), None)
        if answer is not None:
            yield held(answer)
        elif exchange.end is not None and is_whole(exchange):
            asked = next((each for each in connection.requests if each.event is exchange.sent[0]), None)
            # A cancelled request gets no response, and a server may end streams with the session (Sending Messages to
            # the Server). Of two requests with one id, which no client may send, one may go without.
            twice = connection.uses(message["id"]) > 1
            given_up = asked is None or twice or _is_given_up(asked) or not _lives(connection, exchange.end)
            # With event ids, the response may come on another connection: the text tells such clients to poll.
            resumable = any(event.facts.get("event_id") for event in exchange.received)
            if not given_up and not resumable:
                yield broken(exchange.end, "the stream ended without the response")


@stated_rule(since="2025-03-26", moves=["call-tool", "calls-at-once"], transports=["http"])
def stream_messages_should_relate(history: History) -> Iterator[Verdict]:
    """Judge each response and each progress notification on the stream of a request."""
    for _, exchange, message in _streams(history, modern=False):
        for event in received(exchange):
            # A tool may change a list, so that change belongs to its call. A ping changes nothing: what is announced on
            # its stream belongs to something else.
            if event.message.get("method") in CHANGES and message["method"] in QUIET:
                yield broken(event, f"{event.message['method']} came on the stream of {message['method']}")
            else:
                # Questions and log messages don't say which request they belong to; only an id or a token does.
                yield from _related(event, message)


CHANGES: Final = frozenset(
    f"notifications/{name}"
    for name in ("resources/updated", "resources/list_changed", "tools/list_changed", "prompts/list_changed")
)

QUIET: Final = frozenset({"ping", "tools/list", "prompts/list", "resources/list", "resources/templates/list"})
"""Requests that change nothing."""


@stated_rule(
    sentence="On the stream of a request come only notifications of that request.",
    moves=["call-tool", "calls-at-once", "listen"],
    transports=["http"],
)
def stream_messages_relate(history: History) -> Iterator[Verdict]:
    """Judge each response and each notification that says what it belongs to."""
    for _, exchange, message in _streams(history, modern=True):
        listens = message["method"] == "subscriptions/listen"
        for event in received(exchange):
            method = event.message.get("method")
            # Receiving Messages says that log messages flow only on the stream of the request that they relate to.
            if method == "notifications/message" and listens:
                yield broken(event, "a log message came on the stream of a subscription")
            # Changes have streams of their own in this era, so even the call that made the change doesn't excuse one
            # here.
            elif (method == "notifications/subscriptions/acknowledged" or method in CHANGES) and not listens:
                yield broken(event, f"{method} came on the stream of {message['method']}, not of a subscription")
            else:
                yield from _related(event, message)


def _related(event: Event, message: dict[str, Any]) -> Iterator[Verdict]:
    found = event.message
    if is_response(found) and "id" in found:
        # An error about a message that could not be read has no id, or null.
        if found["id"] is not None:
            yield judged(
                _is_answer_to(event, message), event, f"the response to another request, {found['id']!r}, came"
            )
    elif found.get("method") == "notifications/progress":
        params, given = found.get("params"), message.get("params")
        token = params.get("progressToken") if isinstance(params, dict) else None
        entries = given.get("_meta") if isinstance(given, dict) else None
        own = entries.get(meta.PROGRESS_TOKEN) if isinstance(entries, dict) else None
        yield judged(token == own, event, f"progress of another request came, with the token {token!r}")


@stated_rule(since="2025-03-26", moves=["call-tool", "list-all"], transports=["http"])
def stream_ends_after_response(history: History) -> Iterator[Verdict]:
    """Judge each stream with the response that has ended, or was left open."""
    for _, exchange, message in _streams(history):
        if exchange.end is None or not any(_is_answer_to(event, message) for event in exchange.received):
            continue
        # The kit hangs up half a second after the response; a recorded client that does so at once shows nothing.
        if exchange.end.facts.get("how") == "lingering":
            yield broken(exchange.end, "the stream was still open half a second after the response")
        elif exchange.end.facts.get("by") == "server":
            yield held(exchange.end)


@stated_rule(moves=["call-tool", "listen"], transports=["http"])
def stream_unbuffered_header(history: History) -> Iterator[Verdict]:
    """Judge each stream."""
    for _, exchange, _ in _streams(history):
        # nginx, for which the header is meant, reads its value without regard to case, so this does, too.
        value = _response(exchange).headers.get("x-accel-buffering")
        yield judged((value or "").strip().lower() == "no", _response(exchange), f"X-Accel-Buffering is {value!r}")


@stated_rule(since="2025-03-26", moves=["break-and-resume"], transports=["http"])
def disconnect_is_not_cancel(history: History) -> Iterator[Verdict]:
    """Judge each stream that the client broke off and resumed, once it has ended for good."""
    for connection, exchange, message in _streams(history, modern=False):
        if exchange.end is None or exchange.end.facts.get("by") != "client":
            continue
        asked = next((each for each in connection.requests if each.event is exchange.sent[0]), None)
        later = [each for each in connection.exchanges.values() if each is not exchange]
        later = [each for each in later if each.is_stream and _root(connection, each) is exchange]
        # Without a resumption it can't be seen whether the request went on; and the client may have cancelled it
        # besides.
        if asked is None or asked.cancelled is not None or not later:
            continue
        answer = next((event for each in later for event in each.received if _is_answer_to(event, message)), None)
        last = later[-1]
        if answer is not None:
            yield held(answer)
        elif (mark := lost(asked)) is not None:
            yield broken(mark, "the request whose stream was broken off never got its response")
        elif last.end is not None and last.end.facts.get("by") == "server" and is_whole(last):
            # A stream with ids can be resumed once more, and the response may be waiting there.
            resumable = any(event.facts.get("event_id") for event in last.received)
            if not resumable and _lives(connection, last.end):
                yield broken(last.end, "the request whose stream was broken off never got its response")


# --- the streams of sessions ------------------------------------------------------------------------------------------


@stated_rule(since="2025-03-26", moves=["another-connection", "second-stream", "break-and-resume"], transports=["http"])
def get_stream_or_405(history: History) -> Iterator[Verdict]:
    """Judge each GET that gives the server no other reason to refuse it."""
    for connection, exchange in over_http(history, "GET"):
        # An event id that the server no longer has may be refused with any status: the text names none.
        if connection.modern or not is_clean(exchange) or "last-event-id" in exchange.request.headers:
            continue
        if _in_session(connection, exchange) and exchange.status not in ELSEWHERE | {403}:
            # The Python SDK, version 1 of the TypeScript SDK and FastMCP answer 409 to the second GET of a session. The
            # text knows two answers only, and lets a client keep several streams (Multiple Connections), so that is a
            # fault.
            kept = exchange.status == 405 or (exchange.status == 200 and exchange.is_stream)
            yield judged(kept, _response(exchange), f"a GET got status {exchange.status}, and no event stream")


def _own_streams(history: History) -> Iterator[tuple[Connection, Exchange]]:
    """Yield the streams of sessions that resume no other."""
    for connection, exchange in over_http(history, "GET"):
        if not connection.modern and exchange.is_stream and "last-event-id" not in exchange.request.headers:
            yield connection, exchange


@stated_rule(since="2025-03-26", moves=["call-tool", "second-stream"], transports=["http"])
def get_stream_no_response(history: History) -> Iterator[Verdict]:
    """Judge each message on the stream of a session."""
    for _, exchange in _own_streams(history):
        for event in received(exchange):
            yield judged(not is_response(event.message), event, "a response came on the stream of the session")


@stated_rule(since="2025-03-26", moves=["call-tool", "calls-at-once", "second-stream"], transports=["http"])
def get_stream_unrelated(history: History) -> Iterator[Verdict]:
    """Judge each notification on the stream of a session; progress belongs to the request with its token."""
    for connection, exchange in _own_streams(history):
        for event in received(exchange):
            # A question doesn't say which call it serves, so only what has a token can be told apart.
            if not is_notification(event.message):
                continue
            asked = next((each for each in connection.requests if any(event is one for one in each.progress)), None)
            # If the client has broken off the request's own stream, the server may have no other way.
            own = None if asked is None else connection.exchanges.get(asked.event.exchange or 0)
            if own is None or own.end is None or own.end.facts.get("by") == "server":
                yield judged(asked is None, event, "progress of a request came on the stream of the session")


@stated_rule(
    since="2025-03-26",
    sentence="Each message is sent on one stream only.",
    moves=["second-stream", "calls-at-once"],
    transports=["http"],
)
def message_on_one_stream(history: History) -> Iterator[Verdict]:
    """Judge each message that identifies itself: requests, responses, and progress."""
    for connection in history:
        if connection.transport != "http" or connection.modern:
            continue
        first: dict[Any, Exchange] = {}
        for exchange in connection.exchanges.values():
            # A resumption carries on the same stream: what is replayed there was not sent on a second one. Where the
            # beginning isn't known, neither is that.
            if not exchange.is_stream or (root := _root(connection, exchange)) is None:
                continue
            for event in received(exchange):
                if (key := _identity(connection, event.message)) is not None:
                    yield judged(
                        first.setdefault(key, root) is root, event, "the message came on another stream before"
                    )


def _identity(connection: Connection, message: dict[str, Any]) -> Any:
    if is_request(message):
        return "request", type(message["id"]), message["id"]
    # An id or token that the client has used twice may rightly come on two streams.
    if is_response(message) and isinstance(message.get("id"), (int, str)) and connection.uses(message["id"]) == 1:
        return "response", type(message["id"]), message["id"]
    # Log messages and changes may rightly be repeated word for word, so only what has a name of its own counts.
    params = message.get("params")
    if message.get("method") == "notifications/progress" and isinstance(params, dict):
        token = params.get("progressToken")
        return ("progress", repr(token), repr(params.get("progress"))) if len(connection.givers(token)) == 1 else None
    return None


@stated_rule(since="2025-03-26", moves=["call-tool", "calls-at-once", "break-and-resume"], transports=["http"])
def event_ids_unique(history: History) -> Iterator[Verdict]:
    """Judge each message with an id; a client that resumes from an older place gets again what came after it."""
    for connection in history:
        if connection.transport != "http" or connection.modern:
            continue
        used: dict[str, tuple[Exchange, int]] = {}
        # Ids are opaque, so the order in which they first came is the only one that they have.
        places: dict[str, int] = {}
        for exchange in connection.exchanges.values():
            root = _root(connection, exchange)
            # Where the beginning of a stream isn't known, an id that came before may be a replay.
            if root is None:
                continue
            after = places.get(exchange.request.headers.get("last-event-id", ""), -1)
            here: set[str] = set()
            for event in exchange.received:
                event_id = event.facts.get("event_id")
                # An event that only primes has no message, and is but a place in the stream.
                if event_id and event.kind == "message":
                    before, place = used.get(event_id, (None, 0))
                    again = before is root and exchange is not root and place > after and event_id not in here
                    yield judged(before is None or again, event, f"the event id {event_id!r} was used before")
                    used.setdefault(event_id, (root, len(places)))
                    here.add(event_id)
                if event_id:
                    places.setdefault(event_id, len(places))


@stated_rule(since="2025-03-26", moves=["break-and-resume", "resume-foreign"], transports=["http"])
def replay_own_stream(history: History) -> Iterator[Verdict]:
    """Judge each event on a resumed stream, by its id, or by the request that it answers."""
    origins: dict[tuple[str, str], tuple[Connection, Exchange]] = {}
    for connection, exchange in over_http(history):
        root = _root(connection, exchange)
        for event in exchange.received if root is not None else ():
            # An id alone doesn't name an event: sessions may count alike, so the message must be the same, too.
            if event.facts.get("event_id") and event.message is not None:
                origins.setdefault((event.facts["event_id"], repr(event.message)), (connection, root or exchange))
    for connection, exchange in over_http(history, "GET"):
        if connection.modern or not exchange.is_stream or not exchange.request.headers.get("last-event-id"):
            continue
        root = _root(connection, exchange)
        for event in received(exchange):
            place = origins.get((str(event.facts.get("event_id")), repr(event.message)))
            if place is not None and place[0] is not connection:
                yield broken(event, "an event of another session was replayed")
            # The request tells more than ids do: a response may be foreign although its own stream was never seen.
            elif root is not None and is_request(root.message) and is_response(event.message):
                yield judged(_is_answer_to(event, root.message), event, "the response to another request was replayed")
            elif root is not None:
                # server-everything does this: a resumed stream gets the events of all streams of the session.
                foreign = place is not None and place[1] is not root
                yield judged(not foreign, event, "an event of another stream was replayed")


# --- sessions ---------------------------------------------------------------------------------------------------------


def _in_session(connection: Connection, exchange: Exchange) -> bool:
    """Return whether a request names the session, if there is one, while it lasts, and a revision that is spoken."""
    given = connection.session
    wanted = None if given is None else given.headers["mcp-session-id"]
    headers = exchange.request.headers
    # Outside of its session a request gets 400 or 404 for that, whatever else is right about it.
    if connection.hello is None or headers.get("mcp-session-id") != wanted:
        return False
    if connection.is_after_session(exchange.request):
        return False
    # A missing header is allowed to be missing: a server goes by the handshake, or assumes 2025-03-26 (Protocol Version
    # Header).
    return headers.get("mcp-protocol-version", connection.revision) == connection.revision


@stated_rule(since="2025-03-26", moves=["another-connection"], transports=["http"])
def session_id_visible_ascii(history: History) -> Iterator[Verdict]:
    """Judge each id."""
    for connection in history:
        if (given := connection.session) is not None:
            session = given.headers["mcp-session-id"]
            kept = bool(session) and all("\x21" <= character <= "\x7e" for character in session)
            yield judged(kept, given, f"the id of the session is {session!r}")


SHORTEST_ID: Final = 8
"""Characters of a session id that can't be guessed, at the least. Chosen: shorter ones have under 53 bits."""


@stated_rule(since="2025-03-26", moves=["another-connection"], transports=["http"])
def session_id_unpredictable(history: History) -> Iterator[Verdict]:
    """Judge each id: by its length, by those before, and by whether it counts up."""
    earlier: list[str] = []
    for connection in history:
        if (given := connection.session) is None:
            continue
        session = given.headers["mcp-session-id"]
        if session in earlier:
            yield broken(given, "two sessions have the same id")
        # Digits can be random, too; only near neighbours show a counter. A thousand leaves room for the sessions of
        # other clients.
        elif earlier and session.isdigit() and earlier[-1].isdigit() and abs(int(session) - int(earlier[-1])) < 1000:
            yield broken(given, f"the ids of sessions count: {earlier[-1]}, {session}")
        else:
            yield judged(len(session) >= SHORTEST_ID, given, f"the id {session!r} is short enough to be guessed")
        earlier.append(session)


@stated_rule(since="2025-03-26", moves=["without-session"], transports=["http"])
def session_id_required(history: History) -> Iterator[Verdict]:
    """Judge each request without the id that was refused: a server need not want it."""
    for connection, exchange in over_http(history, "POST"):
        if connection.modern or connection.session is None or not is_clean(exchange):
            continue
        message, headers = exchange.message, exchange.request.headers
        if not is_request(message) or message["method"] == "initialize" or "mcp-session-id" in headers:
            continue
        if headers.get("mcp-protocol-version", connection.revision) != connection.revision:
            continue
        status = exchange.status or 0
        if 400 <= status < 500 and status not in ELSEWHERE | {403}:
            yield judged(status == 400, _response(exchange), f"a request without the session id got {status}")


@stated_rule(since="2025-03-26", moves=["end-session"], transports=["http"])
def session_ended_404(history: History) -> Iterator[Verdict]:
    """Judge each request with the id of a session that was ended with DELETE."""
    for connection, exchange in over_http(history, "POST", "GET"):
        ended, given = connection.session_end, connection.session
        # Only an end that the client asked for and the server agreed to is certain: a session may also expire unseen.
        if ended is None or given is None or not is_clean(exchange) or exchange.status in ELSEWHERE | {403}:
            continue
        headers = exchange.request.headers
        same = headers.get("mcp-session-id") == given.headers["mcp-session-id"]
        spoken = headers.get("mcp-protocol-version", connection.revision) == connection.revision
        # A body that is malformed may be refused with 400 before the session is looked up.
        usual = exchange.method == "GET" or is_request(exchange.message) or is_notification(exchange.message)
        if same and spoken and usual and connection.position(exchange.request) > connection.position(ended):
            # server-everything answers 400. A client waits for 404 before it begins again, so to it the server just
            # fails.
            problem = f"a request in a session that had ended got status {exchange.status}"
            yield judged(exchange.status == 404, _response(exchange), problem)


@stated_rule(since="2025-06-18", moves=["unknown-version-header"], transports=["http"])
def version_header_refused(history: History) -> Iterator[Verdict]:
    """Judge each request with a version that no revision has, and nothing else to refuse."""
    for connection, exchange in over_http(history, "POST", "GET"):
        version = exchange.request.headers.get("mcp-protocol-version")
        if connection.modern or version is None or not is_no_version(version) or not is_clean(exchange):
            continue
        given = connection.session
        wanted = None if given is None else given.headers["mcp-session-id"]
        # A server may look for the session first, and refuse the request with 404 for that.
        if exchange.request.headers.get("mcp-session-id") != wanted or connection.is_after_session(exchange.request):
            continue
        # The handshake settles the revision, so there the header has no say.
        is_first = isinstance(exchange.message, dict) and exchange.message.get("method") == "initialize"
        # A server without streams of its own may say so first.
        if exchange.status in ELSEWHERE | {403} or is_first or (exchange.method == "GET" and exchange.status == 405):
            continue
        if exchange.method == "GET" or is_request(exchange.message) or is_notification(exchange.message):
            problem = f"the version {version!r} got status {exchange.status}"
            yield judged(exchange.status == 400, _response(exchange), problem)
