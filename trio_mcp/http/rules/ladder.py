"""What a server does with a HTTP request, before any of it reaches a session: accept it, or a status and an error.

`judge_head` decides by the head alone, so that a body nobody wants is not read; `judge_message` by what was in it. Both
hold the request against a list of rules, of which the first that refuses decides.
S: 2026-07-28 `basic/transports/streamable-http`; L: 2025-11-25 `basic/transports`, Streamable HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trio_mcp.http.headers import (
    EVENTS,
    JSON,
    LAST_EVENT_ID,
    PROTOCOL_VERSION,
    SESSION_ID,
    Headers,
    accepts,
    shown,
)
from trio_mcp.http.rules.message_rules import MESSAGE_RULES, era_of_message, kind_of, session_of
from trio_mcp.http.rules.verdicts import Accept, Exchange, HttpSettings, Ladder, Opening, Refusal, Rule, refuse
from trio_mcp.jsonrpc.messages import ErrorResponse, Incoming, Request, Response
from trio_mcp.types.error_codes import (
    HEADER_MISMATCH,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trio_mcp.types.methods import facts_of
from trio_mcp.types.versions import LEGACY_REVISIONS, Era

__all__ = [
    "HEAD_RULES",
    "MESSAGE_RULES",
    "Accept",
    "HttpSettings",
    "Opening",
    "Refusal",
    "judge_head",
    "judge_message",
    "status_of",
    "too_large",
]


def judge_head(
    method: str, headers: Headers, settings: HttpSettings, session_revision: Callable[[str], str | None]
) -> Opening | Refusal:
    """Judge a request by its head.

    Args:
        method: The HTTP method.
        headers: The fields.
        settings: What the server has decided about its endpoint.
        session_revision: Gives the revision of a legacy session by its id, None for one that is not there.
    """
    exchange = Exchange(settings, session_revision, method, headers)
    refusal = HEAD_RULES.climb(exchange)
    if refusal is not None:
        return refusal
    if method == "POST":
        return Opening("message")
    session = headers.get(SESSION_ID)
    if method == "DELETE":
        return Opening("end", session, exchange.revision)
    return Opening("stream", session, exchange.revision, headers.get(LAST_EVENT_ID))


def judge_message(
    message: Incoming, headers: Headers, settings: HttpSettings, session_revision: Callable[[str], str | None]
) -> Accept | Refusal:
    """Judge what was posted, after `judge_head` has let it pass.

    A refused answer of the client's still settles a request of the server's: hand a `Malformed` that has an id and
    expects no answer to the session as well.

    Args:
        message: What `codec.decode` made of the body.
        headers: The fields.
        settings: What the server has decided about its endpoint.
        session_revision: Gives the revision of a legacy session by its id, None for one that is not there.
    """
    exchange = Exchange(settings, session_revision, "POST", headers, message, kind_of(message))
    exchange.era = era_of_message(exchange)
    refusal = MESSAGE_RULES.climb(exchange)
    if refusal is not None:
        return refusal
    streamed = type(message) is Request and facts_of(message.method).lasting
    may_stream = streamed or not settings.json_only
    return Accept(exchange.kind, message, exchange.era, exchange.revision, session_of(exchange), may_stream)


def too_large(settings: HttpSettings) -> Refusal:
    """The refusal of a body that turns out to be too large while it is read."""
    return refuse(413, f"the body is longer than max_message_size={settings.max_message_size} bytes")


_STATUS: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    HEADER_MISMATCH: 400,
    MISSING_REQUIRED_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


def status_of(answer: Response | ErrorResponse, era: Era) -> int:
    """The HTTP status that a session's answer goes out with, as one JSON text.

    In the modern era some errors have a status of their own (S, Protocol Version Header; `basic/index`, _meta). Invalid
    parameters that a handler has found are not among them: a client that probes with a call would take 400 for the
    answer of a legacy server.
    """
    if era is Era.LEGACY or type(answer) is Response:
        return 200
    assert isinstance(answer, ErrorResponse)
    return _STATUS.get(answer.error.code, 200)


# --- the rules for the head -------------------------------------------------------------------------------------


def _host_is_allowed(exchange: Exchange) -> Refusal | None:
    fault = exchange.settings.guard.check(exchange.headers)
    return None if fault is None else refuse(403, fault)


def _method_is_allowed(exchange: Exchange) -> Refusal | None:
    sessions = exchange.settings.has_sessions
    version = exchange.headers.get(PROTOCOL_VERSION)
    # The modern era has POST alone, whatever else the endpoint serves.
    allowed = ("GET", "POST", "DELETE") if sessions and (version is None or version in LEGACY_REVISIONS) else ("POST",)
    if exchange.method in allowed:
        return None
    where = "here" if version is None else f"in {shown(version)}"
    text = f"the method {shown(exchange.method)} is not allowed {where}, only {', '.join(allowed)}"
    return refuse(405, text, headers=(("Allow", ", ".join(allowed)),))


def _is_json(exchange: Exchange) -> Refusal | None:
    if exchange.method != "POST":
        return None
    given = exchange.headers.get("Content-Type") or ""
    if given.partition(";")[0].strip().lower() != JSON:
        return refuse(415, f"the body must be {JSON}, got the Content-Type {shown(given)}")
    coding = exchange.headers.get("Content-Encoding") or "identity"
    if coding.lower() != "identity":
        return refuse(415, f"the body must not be compressed, got the Content-Encoding {shown(coding)}")
    return None


def _answer_is_acceptable(exchange: Exchange) -> Refusal | None:
    wanted = {"POST": [JSON, EVENTS], "GET": [EVENTS]}.get(exchange.method, [])
    if exchange.method == "POST" and exchange.settings.json_only:
        wanted = [JSON]
    missing = [kind for kind in wanted if not accepts(exchange.headers, kind)]
    return refuse(406, f"the client must accept {' and '.join(missing)}") if missing else None


def _body_is_not_too_large(exchange: Exchange) -> Refusal | None:
    length = exchange.headers.get("Content-Length")
    # A length that is no number is for the HTTP server to refuse; one of thousands of digits is certainly too large.
    if length is None or not (length.isascii() and length.isdigit()):
        return None
    fits = len(length) < 20 and int(length) <= exchange.settings.max_message_size
    return None if fits else too_large(exchange.settings)


def _session_is_there(exchange: Exchange) -> Refusal | None:
    if exchange.method == "POST":
        return None  # decided by the message: initialize has none, and modern requests ignore it
    version, session = exchange.headers.get(PROTOCOL_VERSION), exchange.headers.get(SESSION_ID)
    if version is not None and version not in exchange.settings.legacy:
        return refuse(400, f"Unsupported protocol version {shown(version)}")
    if session is None:
        return refuse(400, f"the header {SESSION_ID} is missing: send initialize first")
    exchange.revision = exchange.session_revision(session)
    if exchange.revision is not None:
        return None
    return refuse(404, "the session is not known or has ended: send initialize, without a session id")


HEAD_RULES: Final = Ladder(
    Rule("host-allowed", "S, Security & Endpoint, 1", _host_is_allowed),
    Rule("method-allowed", "S, Earlier Streamable HTTP Revisions; RFC 9110, 15.5.6", _method_is_allowed),
    Rule("is-json", "RFC 9110, 15.5.16", _is_json),
    Rule("answer-acceptable", "S, Sending Messages, 2; L, Listening for Messages, 2", _answer_is_acceptable),
    Rule("body-size", "RFC 9110, 15.5.14", _body_is_not_too_large),
    Rule("session-there", "L, Session Management, 2 and 3", _session_is_there),
)
"""What a head has to pass, in this order."""
