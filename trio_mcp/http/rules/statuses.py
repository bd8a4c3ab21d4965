"""The verdict on an HTTP request before it reaches a session: accepted, or refused with a status and an error.

`judge_head` decides by the head alone, so that the body of a refused request is never read; `judge_message` decides
by the body. Both check a list of rules, and the first rule that refuses decides.

In the section references, S is 2026-07-28 `basic/transports/streamable-http`, and L is 2025-11-25 `basic/transports`,
Streamable HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from trio_mcp._checks import check_count, validator
from trio_mcp.eras.server_negotiation import ClientDeclaration, ServerIdentity, check_method
from trio_mcp.errors import McpError
from trio_mcp.http.headers import (
    EVENTS,
    JSON,
    LAST_EVENT_ID,
    METHOD,
    PROTOCOL_VERSION,
    SESSION_ID,
    Headers,
    check_standard_headers,
    mismatch,
    not_accepted,
    shown,
)
from trio_mcp.http.param_headers import ParameterHeader, check_parameter_headers
from trio_mcp.http.rules.guard import HostGuard
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE, encode
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Incoming,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
)
from trio_mcp.jsonrpc.peer import BATCH_REVISION
from trio_mcp.types import meta
from trio_mcp.types.error_codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trio_mcp.types.methods import facts_of
from trio_mcp.types.versions import LEGACY_REVISIONS, REVISIONS, Era

__all__ = [
    "HEAD_RULES",
    "MESSAGE_RULES",
    "Accept",
    "FindSession",
    "Opening",
    "Refusal",
    "RuleSettings",
    "judge_head",
    "judge_message",
    "refuse",
    "status_of",
    "too_large",
]

ASSUMED_REVISION: Final = "2025-03-26"
"""The revision assumed for a legacy client without a version header or a session (L, Protocol Version Header)."""

Kind: TypeAlias = Literal["request", "initialize", "notification", "answer", "batch", "garbage"]
"""The kind of message in a decoded body; ``"garbage"`` if there is no valid message in the body."""

# A `Ladder` remembers which rules apply to each HTTP method. A peer may send any method, so all unknown methods share
# one entry instead of filling the memory.
OTHER: Final = "other"
"""In the rules for a head: any HTTP method that no revision uses."""

LASTING: Final = "lasting"
"""In the rules for a message: a request whose response is always a stream, namely `subscriptions/listen`."""

_KINDS: Final[Mapping[type, Kind]] = {
    Request: "request",
    Notification: "notification",
    Response: "answer",
    ErrorResponse: "answer",
    Batch: "batch",
}


# --- what is judged, and the verdicts ---------------------------------------------------------------------------


@attrs.frozen
class RuleSettings:
    """The settings of a server that the rules need.

    Attributes:
        identity: What the server declares about itself, above all the revisions it serves.
        guard: The check of ``Host`` and ``Origin``.
        stateless: Whether the legacy era, like the modern one, has no sessions: no GET, no DELETE, and every POST
            stands alone.
        json_only: Whether every response is one JSON text, except for lasting requests, which always get a stream.
        max_message_size: The longest body that is accepted, in bytes.
        tool_headers: Returns the arguments that a tool, given by name, wants as headers; empty for an unknown tool.
    """

    identity: ServerIdentity
    guard: HostGuard = attrs.Factory(lambda: HostGuard(None))
    stateless: bool = False
    json_only: bool = False
    max_message_size: int = attrs.field(default=DEFAULT_MAX_MESSAGE_SIZE, validator=validator(check_count))
    tool_headers: Callable[[str], tuple[ParameterHeader, ...]] = lambda name: ()

    has_sessions: bool = attrs.field(init=False)

    @has_sessions.default
    def _has_sessions(self) -> bool:
        return bool(self.identity.legacy) and not self.stateless


@attrs.define
class CheckedRequest:
    """One HTTP request as the rules see it.

    Attributes:
        settings: The server's settings.
        find_session: Returns the revision of a session by its id, or the refusal if there is no such session.
        method: The HTTP method.
        headers: The header fields.
        version: The revision that the version header names.
        message: The decoded body; None before the body has been read.
        kind: The kind of the message.
        meta: The ``_meta`` of the message.
        era: The era whose rules apply.
        session: The session id that was sent, if the server has sessions.
        revision: The revision in use, once a rule has determined it.
        client: What a modern request declares about its client, once a rule has read it.
    """

    settings: RuleSettings
    find_session: FindSession
    method: str
    headers: Headers
    version: str | None
    message: Any = None
    kind: Kind = "garbage"
    meta: dict[str, Any] = attrs.Factory(dict)
    era: Era = Era.LEGACY
    session: str | None = None
    revision: str | None = None
    client: ClientDeclaration | None = None

    @property
    def id(self) -> RequestId | None:
        """The id of the request, which a refusal repeats; None for any other message."""
        return self.message.id if type(self.message) is Request else None


@attrs.frozen
class Opening:
    """The verdict on a head that passed every rule.

    Attributes:
        kind: What to do next. ``"message"``: read the body, decode it and call `judge_message`. ``"stream"``: open the
            session's own stream. ``"end"``: end the session.
        session: The session's id (``"stream"`` and ``"end"`` only).
        revision: The session's revision (``"stream"`` and ``"end"`` only).
        last_event_id: The event after which to resume a stream (``"stream"`` only).
    """

    kind: Literal["message", "stream", "end"]
    session: str | None = None
    revision: str | None = None
    last_event_id: str | None = None


@attrs.frozen
class Accept:
    """The verdict on a message that passed every rule.

    Attributes:
        kind: The kind of the message.
        message: The message.
        era: The era whose rules it follows.
        revision: The revision that it uses; None for ``"initialize"``, which has yet to negotiate one.
        session: The id of its session; None in the modern era, for ``"initialize"`` and without sessions.
        client: What a modern request declares about its client.
        may_stream: Whether the response may be an event stream; otherwise it must be one JSON text.
        lasting: Whether the message is a request that lasts until either side ends it, namely `subscriptions/listen`.
        owes_answer: Whether the HTTP response carries the message's own response. If not, the HTTP response is an empty
            202, sent as soon as the message has been handed on.
    """

    kind: Kind
    message: Incoming
    era: Era
    revision: str | None
    session: str | None = None
    client: ClientDeclaration | None = None
    may_stream: bool = True
    owes_answer: bool = True
    lasting: bool = False


@attrs.frozen
class Refusal:
    """The verdict on a request that is refused.

    Attributes:
        status: The HTTP status.
        error: The body, a JSON-RPC error; the error has no id if the request has none.
        headers: The header fields of the response.
        rule: The name of the rule that refused.
    """

    status: int
    error: ErrorResponse
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    rule: str = attrs.field(default="", eq=False)

    @property
    def body(self) -> bytes:
        """The body of the response, as JSON text."""
        return encode(self.error)


def refuse(
    status: int,
    error: ErrorData | str,
    id: RequestId | None = None,
    *,
    data: Any = None,
    headers: tuple[tuple[str, str], ...] = (),
) -> Refusal:
    """Return a refusal; an ``error`` given as a string becomes an invalid-request error with ``data``."""
    if isinstance(error, str):
        error = ErrorData(INVALID_REQUEST, error, data)
    return Refusal(status, ErrorResponse(id, error), (("Content-Type", "application/json"), *headers))


FindSession: TypeAlias = Callable[[str, RequestId | None], str | Refusal]
"""A function that returns the revision of a session by its id, or a 404 for the request if there is no such session."""


# --- the machinery ----------------------------------------------------------------------------------------------


@attrs.frozen
class StatusRule:
    """One rule of a `Ladder`.

    Attributes:
        name: The rule's name in logs and tests.
        section: The section of the specification that the rule comes from.
        check: Returns a refusal, or None to let the request pass. It may set fields of the `CheckedRequest`.
        era: The era whose messages it checks; None for both.
        only: The HTTP methods of a head, or the kinds of a message, that it checks; None for all.
    """

    name: str
    section: str
    check: Callable[[CheckedRequest], Refusal | None]
    era: Era | None = None
    only: frozenset[str] | None = None


class Ladder:
    """A list of rules, checked in order; the first that refuses decides.

    Args:
        rules: The rules, in order.
    """

    def __init__(self, *rules: StatusRule) -> None:
        self.rules = rules
        # The rules are filtered once for each era and each method or kind, so that a request passes only through the
        # rules that apply to it.
        self._applying: dict[tuple[Era, str], list[StatusRule]] = {}

    def climb(self, exchange: CheckedRequest, what: str) -> Refusal | None:
        """Check a request against the rules that apply to it, one by one.

        Args:
            exchange: The request.
            what: The HTTP method or the kind of message, to which `StatusRule.only` is compared.
        """
        applying = self._applying.get((exchange.era, what))
        if applying is None:
            applying = [
                rule for rule in self.rules if rule.era in (None, exchange.era) and (not rule.only or what in rule.only)
            ]
            self._applying[exchange.era, what] = applying
        for rule in applying:
            if (refusal := rule.check(exchange)) is not None:
                return attrs.evolve(refusal, rule=rule.name)
        return None


def judge_head(method: str, headers: Headers, settings: RuleSettings, find_session: FindSession) -> Opening | Refusal:
    """Judge a request by its head.

    Args:
        method: The HTTP method.
        headers: The header fields.
        settings: The server's settings.
        find_session: Returns the revision of a legacy session by its id, or a 404 if there is no such session.
    """
    exchange = CheckedRequest(settings, find_session, method, headers, headers.get(PROTOCOL_VERSION))
    refusal = HEAD_RULES.climb(exchange, method if method in _METHODS else OTHER)
    if refusal is not None:
        return refusal
    if method == "POST":
        return Opening("message")
    session = headers.get(SESSION_ID)
    if method == "DELETE":
        return Opening("end", session, exchange.revision)
    return Opening("stream", session, exchange.revision, headers.get(LAST_EVENT_ID))


def judge_message(
    message: Incoming, headers: Headers, settings: RuleSettings, find_session: FindSession
) -> Accept | Refusal:
    """Judge the body of a POST whose head `judge_head` let pass.

    Even a response that is refused settles the server's request that it names. So the caller must also hand a
    `Malformed` that has an id and expects no response to the session.

    Args:
        message: The body as `codec.decode` has decoded it.
        headers: The header fields.
        settings: The server's settings.
        find_session: Returns the revision of a legacy session by its id, or a 404 if there is no such session.
    """
    version, kind = headers.get(PROTOCOL_VERSION), _KINDS.get(type(message), "garbage")
    if kind == "request" and message.method == "initialize":  # type: ignore[union-attr]
        kind = "initialize"
    exchange = CheckedRequest(settings, find_session, "POST", headers, version, message, kind, _meta(message))
    # A server without a modern revision judges every message by the legacy rules (S, Backward Compatibility): a modern
    # error code would keep a client from falling back to initialize. An unknown revision is presumably a future
    # revision, and so counts as modern.
    if settings.identity.modern and ((version is not None and version not in LEGACY_REVISIONS) or _claims(exchange)):
        exchange.era = Era.MODERN
    elif settings.has_sessions:
        exchange.session = headers.get(SESSION_ID)
    lasting = kind == "request" and facts_of(message.method).lasting  # type: ignore[union-attr]
    refusal = MESSAGE_RULES.climb(exchange, LASTING if lasting else kind)
    if refusal is not None:
        return refusal
    return Accept(
        kind,
        message,
        exchange.era,
        exchange.revision,
        exchange.session,
        exchange.client,
        may_stream=lasting or not settings.json_only,
        owes_answer=type(message) is Request or (type(message) is Batch and any(map(_owes_answer, message.items))),
        lasting=lasting,
    )


def _meta(message: Incoming) -> dict[str, Any]:
    params = message.params if type(message) is Request or type(message) is Notification else None
    given = params.get("_meta") if params else None
    return given if type(given) is dict else {}


def _claims(exchange: CheckedRequest) -> bool:
    """Return whether a message, or any message of a batch, claims to follow the modern rules."""
    if type(exchange.message) is Batch:
        return any(meta.PROTOCOL_VERSION in _meta(item) for item in exchange.message.items)
    return meta.PROTOCOL_VERSION in exchange.meta


def _owes_answer(item: Incoming) -> bool:
    return type(item) is Request or (type(item) is Malformed and item.expects_answer)


def too_large(settings: RuleSettings) -> Refusal:
    """Return the refusal of a body that exceeds the limit."""
    return refuse(413, f"the body is longer than max_message_size={settings.max_message_size} bytes")


# S, Protocol Version Header, and 2026-07-28 `basic/index`, _meta, require these statuses. Every other error code gets a
# 200.
_STATUS: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    HEADER_MISMATCH: 400,
    MISSING_REQUIRED_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


def status_of(answer: Response | ErrorResponse, era: Era) -> int:
    """Return the HTTP status for a response that is sent as one JSON text."""
    # Only in the modern era do some errors have a status of their own (S, Protocol Version Header; `basic/index`,
    # _meta). Invalid params that a handler reports get a 200: to a client that probes with a call, a 400 would mean a
    # legacy server.
    if era is Era.LEGACY or type(answer) is Response:
        return 200
    assert isinstance(answer, ErrorResponse)
    return _STATUS.get(answer.error.code, 200)


# --- the rules for the head -------------------------------------------------------------------------------------


# This is the first rule, as a protection against DNS rebinding (S, Security & Endpoint, 1).
def _host_is_allowed(exchange: CheckedRequest) -> Refusal | None:
    fault = exchange.settings.guard.check(exchange.headers)
    return None if fault is None else refuse(403, fault)


def _method_is_allowed(exchange: CheckedRequest) -> Refusal | None:
    sessions = exchange.settings.has_sessions
    version = exchange.version
    # The modern era has only POST, even at an endpoint that serves both eras. Without a version header the client is a
    # legacy one: modern clients name their revision in every request.
    allowed = ("GET", "POST", "DELETE") if sessions and (version is None or version in LEGACY_REVISIONS) else ("POST",)
    if exchange.method in allowed:
        return None
    where = "here" if version is None else f"in {shown(version)}"
    text = f"the method {shown(exchange.method)} is not allowed {where}; allowed: {', '.join(allowed)}"
    return refuse(405, text, headers=(("Allow", ", ".join(allowed)),))


def _is_json(exchange: CheckedRequest) -> Refusal | None:
    if exchange.headers.media_type != JSON:
        given = shown(exchange.headers.get("Content-Type") or "")
        return refuse(415, f"the body must be {JSON}, got the Content-Type {given}")
    # Nothing is decompressed: the decompressed body would need a limit of its own, against compression bombs.
    coding = exchange.headers.get("Content-Encoding") or "identity"
    if coding.lower() != "identity":
        return refuse(415, f"the body must not be compressed, got the Content-Encoding {shown(coding)}")
    return None


def _answer_is_acceptable(exchange: CheckedRequest) -> Refusal | None:
    # For a POST, a client must accept both types, because the server chooses; a GET opens a stream.
    wanted = [EVENTS]
    if exchange.method == "POST":
        wanted = [JSON] if exchange.settings.json_only else [JSON, EVENTS]
    missing = not_accepted(exchange.headers, *wanted)
    return refuse(406, f"the client must accept {' and '.join(missing)}") if missing else None


def _body_is_not_too_large(exchange: CheckedRequest) -> Refusal | None:
    length = exchange.headers.get("Content-Length")
    # The HTTP server refuses a malformed length. A length of 20 digits or more is too large in any case, and `int`
    # raises a ValueError for thousands of digits.
    if length is None or not (length.isascii() and length.isdigit()):
        return None
    fits = len(length) < 20 and int(length) <= exchange.settings.max_message_size
    return None if fits else too_large(exchange.settings)


# This rule is only for GET and DELETE, whose meaning depends on the session alone.
def _session_is_there(exchange: CheckedRequest) -> Refusal | None:
    # For a POST, the message decides whether a session is needed: initialize needs none, and in modern requests the
    # header is ignored.
    version, session = exchange.version, exchange.headers.get(SESSION_ID)
    if version is not None and version not in exchange.settings.identity.legacy:
        return refuse(400, f"Unsupported protocol version {shown(version)}")
    if session is None:
        return refuse(400, f"the header {SESSION_ID} is missing: send initialize first")
    return _enter(exchange, session)


def _enter(exchange: CheckedRequest, session: str) -> Refusal | None:
    found = exchange.find_session(session, exchange.id)
    if isinstance(found, Refusal):
        return found
    exchange.revision = found
    return None


_METHODS: Final = frozenset({"GET", "POST", "DELETE"})

HEAD_RULES: Final = Ladder(
    StatusRule("host-allowed", "S, Security & Endpoint, 1", _host_is_allowed),
    StatusRule(
        "method-allowed",
        "S, Earlier Streamable HTTP Revisions; RFC 9110, 15.5.6",
        _method_is_allowed,
        only=frozenset({"GET", "DELETE", OTHER}),  # every revision has POST
    ),
    StatusRule("is-json", "RFC 9110, 15.5.16", _is_json, only=frozenset({"POST"})),
    StatusRule(
        "answer-acceptable",
        "S, Sending Messages, 2; L, Listening for Messages, 2",
        _answer_is_acceptable,
        only=frozenset({"GET", "POST"}),
    ),
    StatusRule("body-size", "RFC 9110, 15.5.14", _body_is_not_too_large),
    StatusRule("session-there", "L, Session Management, 2 and 3", _session_is_there, only=frozenset({"GET", "DELETE"})),
)
"""The rules for a head, in order.

The host is checked first, so that a foreign web page learns nothing else about the server."""


def _unsupported(exchange: CheckedRequest, requested: str) -> Refusal:
    settings = exchange.settings
    if not settings.identity.modern:
        # The modern error code would keep a client from falling back to initialize (S, Backward Compatibility).
        text = f"Unsupported protocol version {shown(requested)}; supported: {', '.join(settings.identity.supported)}"
        return refuse(400, text, exchange.id)
    data = {"supported": settings.identity.supported, "requested": requested}
    return refuse(400, ErrorData(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data), exchange.id)


# --- the rules for a message of either era ----------------------------------------------------------------------


def _is_message(exchange: CheckedRequest) -> Refusal | None:
    message = exchange.message
    if type(message) is not Malformed:
        return None
    # The id of a malformed response is that of a request from the server: in an error for the client it would seem to
    # name one of the client's requests.
    return refuse(400, ErrorData(message.code, message.reason), message.id if message.expects_answer else None)


# --- the modern era ---------------------------------------------------------------------------------------------


def _one_message(exchange: CheckedRequest) -> Refusal | None:
    what = {"batch": "a batch", "answer": "a response"}[exchange.kind]
    return refuse(400, f"the body must be a single request or notification, not {what}")


def _revision_is_named(exchange: CheckedRequest) -> Refusal | None:
    header = exchange.version
    named = exchange.meta.get(meta.PROTOCOL_VERSION)
    if type(named) is str:
        return None
    if header is not None and header not in REVISIONS and named is None:
        return _unsupported(exchange, header)  # a later revision may name itself elsewhere than in _meta
    text = f"params._meta[{meta.PROTOCOL_VERSION!r}] is required and must be a string"
    return refuse(
        400, ErrorData(INVALID_PARAMS, text, {"supported": exchange.settings.identity.supported}), exchange.id
    )


def _version_agrees(exchange: CheckedRequest) -> Refusal | None:
    header = exchange.version
    named = exchange.meta.get(meta.PROTOCOL_VERSION)
    if header is None:
        return refuse(400, mismatch(f"the header {PROTOCOL_VERSION} is missing"), exchange.id)
    if exchange.headers.count(PROTOCOL_VERSION) > 1:
        return refuse(400, mismatch(f"the header {PROTOCOL_VERSION} was sent more than once"), exchange.id)
    # A notification need not have a `_meta`, so for a notification the header suffices.
    if named != header and not (named is None and exchange.kind == "notification"):
        body = shown(named) if type(named) is str else "missing or not a string"
        text = f"the header {PROTOCOL_VERSION} says {shown(header)}, but the revision in params._meta is {body}"
        return refuse(400, mismatch(text), exchange.id)
    return None


def _revision_is_served(exchange: CheckedRequest) -> Refusal | None:
    header = exchange.version or ""
    if header not in exchange.settings.identity.modern:
        return _unsupported(exchange, header)
    exchange.revision = header
    return None


def _client_is_described(exchange: CheckedRequest) -> Refusal | None:
    # `ServerIdentity` checks `_meta` for every transport; HTTP only adds the status.
    try:
        exchange.client = exchange.settings.identity.modern_client(exchange.meta)
    except McpError as exc:
        return refuse(400, ErrorData(exc.code, exc.message, exc.data), exchange.id)
    return None


def _headers_agree(exchange: CheckedRequest) -> Refusal | None:
    # Intermediaries may route by these headers without reading the body, so if headers and body differed, a request
    # could pass for a different one.
    request = exchange.message
    more = exchange.settings.identity.more_methods
    error = check_standard_headers(exchange.headers, request, more.get(exchange.revision or "") if more else None)
    if error is None and request.method == "tools/call" and request.params:
        name = request.params.get("name")
        if type(name) is str and (parameters := exchange.settings.tool_headers(name)):
            error = check_parameter_headers(exchange.headers, request.params.get("arguments"), parameters)
    return None if error is None else refuse(400, error, request.id)


def _method_agrees(exchange: CheckedRequest) -> Refusal | None:
    message, method = exchange.message, exchange.headers.get(METHOD)
    # A notification need not carry the header `Mcp-Method`, but if it does, an intermediary may route by it.
    if method is None or method == message.method:
        return None
    return refuse(400, mismatch(f"the header {METHOD} says {shown(method)}, but the body {shown(message.method)}"))


def _method_exists(exchange: CheckedRequest) -> Refusal | None:
    assert exchange.client is not None  # set by the rule client-described
    # Only a method that the specification defines but does not allow this client to call is refused here: any other may
    # be a custom method of the server, of which the rules know nothing.
    try:
        check_method(exchange.client, exchange.message.method, exchange.settings.identity)
    except McpError as exc:
        return refuse(404, ErrorData(exc.code, exc.message, exc.data), exchange.id)
    return None


def _stream_is_acceptable(exchange: CheckedRequest) -> Refusal | None:
    if not not_accepted(exchange.headers, EVENTS):
        return None
    text = f"the client must accept {EVENTS}: the response to {exchange.message.method!r} is a stream"
    return refuse(406, text, exchange.id)


# --- the legacy era ---------------------------------------------------------------------------------------------


def _handshake_is_served(exchange: CheckedRequest) -> Refusal | None:
    settings, header = exchange.settings, exchange.version
    if settings.identity.legacy:
        return None
    if header is not None:
        return _unsupported(exchange, header)
    # A legacy client can't act on this error, but it may show the message to a person, so the message names the
    # revisions served (`basic/versioning`).
    served = ", ".join(settings.identity.modern)
    error = mismatch(
        f"the header {PROTOCOL_VERSION} is missing; this server serves only {served} and does not support initialize"
    )
    return refuse(400, ErrorData(error.code, error.message, {"supported": settings.identity.supported}), exchange.id)


def _version_is_valid(exchange: CheckedRequest) -> Refusal | None:
    header = exchange.version
    if header is None or header in exchange.settings.identity.legacy:
        return None
    return _unsupported(exchange, header)


def _initialize_opens(exchange: CheckedRequest) -> Refusal | None:
    text = f"initialize opens a new session and must not carry {SESSION_ID}"
    return None if exchange.session is None else refuse(400, text, exchange.id)


def _session_is_given(exchange: CheckedRequest) -> Refusal | None:
    # A modern client that omits the header and `_meta` ends up here, too, so the message has a hint for it.
    if not exchange.settings.has_sessions or exchange.session is not None:
        return None
    modern = exchange.settings.identity.modern
    hint = f", or speak {[*modern][-1]} with {PROTOCOL_VERSION} and params._meta" if modern else ""
    return refuse(400, f"the header {SESSION_ID} is missing: send initialize first{hint}", exchange.id)


def _session_is_known(exchange: CheckedRequest) -> Refusal | None:
    return None if exchange.session is None else _enter(exchange, exchange.session)


def _revision_is_assumed(exchange: CheckedRequest) -> Refusal | None:
    # A stateless server has no sessions. 2025-03-26 had no version header yet, so a client that sends none is assumed
    # to use that revision.
    if exchange.revision is not None:
        return None  # the revision is known from the session
    exchange.revision = exchange.version or ASSUMED_REVISION
    if exchange.revision in exchange.settings.identity.legacy:
        return None
    text = f"the header {PROTOCOL_VERSION} is missing, so {ASSUMED_REVISION} is assumed, which is not served"
    return refuse(400, text, exchange.id, data={"supported": exchange.settings.identity.supported})


def _batch_is_known(exchange: CheckedRequest) -> Refusal | None:
    if exchange.revision == BATCH_REVISION:
        return None
    return refuse(400, f"batches are part of revision {BATCH_REVISION} only; this request uses {exchange.revision}")


# These sets name the kinds of message that rules in `MESSAGE_RULES` check. The rule one-message refuses a modern batch
# or response, and is-message refuses garbage, so that no later rule gets any of these.
_ANY_REQUEST: Final = frozenset({LASTING, "request", "initialize"})
_VERSIONED: Final = frozenset({LASTING, "request", "initialize", "notification"})
_IN_SESSION: Final = frozenset({LASTING, "request", "notification", "answer", "batch"})

MESSAGE_RULES: Final = Ladder(
    StatusRule("is-message", "JSON-RPC 2.0, 5.1", _is_message, only=frozenset({"garbage"})),
    # The rules from here to the next comment are for the modern era.
    StatusRule("one-message", "S, Sending Messages, 4", _one_message, Era.MODERN, frozenset({"batch", "answer"})),
    StatusRule("revision-named", "2026-07-28 basic, _meta", _revision_is_named, Era.MODERN, _ANY_REQUEST),
    StatusRule("version-agrees", "S, Protocol Version Header", _version_agrees, Era.MODERN, _VERSIONED),
    StatusRule("revision-served", "S, Protocol Version Header", _revision_is_served, Era.MODERN, _VERSIONED),
    StatusRule("client-described", "2026-07-28 basic, _meta", _client_is_described, Era.MODERN, _ANY_REQUEST),
    StatusRule("headers-agree", "S, Server Validation", _headers_agree, Era.MODERN, _ANY_REQUEST),
    StatusRule("method-agrees", "S, Server Validation", _method_agrees, Era.MODERN, frozenset({"notification"})),
    StatusRule("method-exists", "S, Protocol Version Header", _method_exists, Era.MODERN, _ANY_REQUEST),
    StatusRule("stream-acceptable", "S, Receiving Messages", _stream_is_acceptable, Era.MODERN, frozenset({LASTING})),
    # The rules from here on are for the legacy era.
    StatusRule("handshake-served", "2026-07-28 basic/versioning", _handshake_is_served, Era.LEGACY),
    StatusRule("version-valid", "L, Protocol Version Header", _version_is_valid, Era.LEGACY),
    StatusRule(
        "initialize-opens", "L, Session Management, 4", _initialize_opens, Era.LEGACY, frozenset({"initialize"})
    ),
    StatusRule("session-given", "L, Session Management, 2", _session_is_given, Era.LEGACY, _IN_SESSION),
    StatusRule("session-known", "L, Session Management, 3", _session_is_known, Era.LEGACY, _IN_SESSION),
    StatusRule("revision-assumed", "L, Protocol Version Header", _revision_is_assumed, Era.LEGACY, _IN_SESSION),
    StatusRule("batch-known", "2025-03-26 basic", _batch_is_known, Era.LEGACY, frozenset({"batch"})),
)
"""The rules for a message, in order.

A later rule relies on the checks of the earlier ones."""
