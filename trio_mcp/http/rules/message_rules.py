"""The rules for what a client posts: one ladder for both eras, first refusal wins.

S: 2026-07-28 `basic/transports/streamable-http`; L: 2025-11-25 `basic/transports`, Streamable HTTP.
"""

from __future__ import annotations

from typing import Any, Final

from trio_mcp.eras.server_negotiation import read_client_fields
from trio_mcp.errors import McpError
from trio_mcp.http.headers import (
    EVENTS,
    METHOD,
    PROTOCOL_VERSION,
    SESSION_ID,
    accepts,
    check_standard_headers,
    mismatch,
    shown,
)
from trio_mcp.http.param_headers import check_parameter_headers
from trio_mcp.http.rules.verdicts import Exchange, Kind, Ladder, Refusal, Rule, refuse
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
)
from trio_mcp.jsonrpc.peer import BATCH_REVISION
from trio_mcp.types import meta
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
from trio_mcp.types.methods import facts_of, method_spec
from trio_mcp.types.versions import LEGACY_REVISIONS, REVISIONS, Era

__all__ = ["ASSUMED_REVISION", "MESSAGE_RULES", "era_of_message", "kind_of", "session_of"]

ASSUMED_REVISION: Final = "2025-03-26"
"""What a client speaks that does not say (L, Protocol Version Header)."""


def kind_of(message: Any) -> Kind:
    """What a body was decoded to."""
    match message:
        case Request(method="initialize"):
            return "initialize"
        case Request():
            return "request"
        case Notification():
            return "notification"
        case Response() | ErrorResponse():
            return "answer"
        case Batch():
            return "batch"
        case _:
            return "garbage"


def era_of_message(exchange: Exchange) -> Era:
    """By which rules a message is judged: the modern ones if it claims to follow them, in ``_meta`` or in the header.

    A server without a modern revision does as legacy servers do, which know neither (S, Backward Compatibility).
    """
    if not exchange.settings.modern:
        return Era.LEGACY
    header = exchange.headers.get(PROTOCOL_VERSION)
    # A revision that nobody here knows is a later one.
    named = header is not None and header not in LEGACY_REVISIONS
    message = exchange.message
    claims = any(map(_claims, message.items)) if type(message) is Batch else _claims(message)
    return Era.MODERN if named or claims else Era.LEGACY


def session_of(exchange: Exchange) -> str | None:
    """The session that a request names, where sessions exist."""
    if exchange.era is Era.MODERN or not exchange.settings.has_sessions:
        return None
    return exchange.headers.get(SESSION_ID)


def _meta(message: Any) -> dict[str, Any]:
    params = message.params if type(message) is Request or type(message) is Notification else None
    given = params.get("_meta") if params else None
    return given if type(given) is dict else {}


def _claims(message: Any) -> bool:
    return meta.PROTOCOL_VERSION in _meta(message)


def _id(exchange: Exchange) -> RequestId | None:
    message = exchange.message
    return message.id if type(message) is Request else None


def _unsupported(exchange: Exchange, requested: str) -> Refusal:
    settings = exchange.settings
    if not settings.modern:
        # The modern code would keep a client from falling back to initialize.
        text = f"Unsupported protocol version {shown(requested)}; supported: {', '.join(settings.supported)}"
        return refuse(400, text, _id(exchange))
    data = {"supported": settings.supported, "requested": requested}
    error = ErrorData(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)
    return refuse(400, error, _id(exchange))


# --- both eras --------------------------------------------------------------------------------------------------


def _is_message(exchange: Exchange) -> Refusal | None:
    message = exchange.message
    if type(message) is not Malformed:
        return None
    # The id of a broken answer is of a request of ours: it must not come back as if it were theirs.
    answered = message.id if message.expects_answer else None
    return refuse(400, ErrorData(message.code, message.reason), answered)


# --- modern -----------------------------------------------------------------------------------------------------


def _one_message(exchange: Exchange) -> Refusal | None:
    what = {"batch": "a batch", "answer": "an answer"}[exchange.kind]
    return refuse(400, f"the body must be a single request or notification, not {what}")


def _revision_is_named(exchange: Exchange) -> Refusal | None:
    header = exchange.headers.get(PROTOCOL_VERSION)
    named = _meta(exchange.message).get(meta.PROTOCOL_VERSION)
    if type(named) is str:
        return None
    if header is not None and header not in REVISIONS and named is None:
        return _unsupported(exchange, header)  # what such a revision puts into _meta is not known here
    text = f"params._meta[{meta.PROTOCOL_VERSION!r}] is required and must be a string"
    return refuse(400, ErrorData(INVALID_PARAMS, text, {"supported": exchange.settings.supported}), _id(exchange))


def _version_agrees(exchange: Exchange) -> Refusal | None:
    header = exchange.headers.get(PROTOCOL_VERSION)
    named = _meta(exchange.message).get(meta.PROTOCOL_VERSION)
    if header is None:
        return refuse(400, mismatch(f"the header {PROTOCOL_VERSION} is missing"), _id(exchange))
    if exchange.headers.count(PROTOCOL_VERSION) > 1:
        return refuse(400, mismatch(f"the header {PROTOCOL_VERSION} is there more than once"), _id(exchange))
    if named != header and not (named is None and exchange.kind == "notification"):
        body = shown(named) if type(named) is str else "no string"
        text = f"the header {PROTOCOL_VERSION} says {shown(header)}, params._meta {body}"
        return refuse(400, mismatch(text), _id(exchange))
    return None


def _revision_is_served(exchange: Exchange) -> Refusal | None:
    header = exchange.headers.get(PROTOCOL_VERSION)
    assert header is not None
    if header not in exchange.settings.modern:
        return _unsupported(exchange, header)
    exchange.revision = header
    return None


def _client_is_described(exchange: Exchange) -> Refusal | None:
    try:
        read_client_fields(_meta(exchange.message))
    except McpError as exc:
        return refuse(400, ErrorData(exc.code, exc.message, exc.data), _id(exchange))
    return None


def _headers_agree(exchange: Exchange) -> Refusal | None:
    request, revision = exchange.message, exchange.revision
    assert isinstance(request, Request)
    assert revision is not None
    error = check_standard_headers(exchange.headers, request, revision)
    if error is None and request.method == "tools/call" and request.params:
        name = request.params.get("name")
        parameters = exchange.settings.tool_headers(name) if type(name) is str else ()
        error = check_parameter_headers(exchange.headers, request.params.get("arguments"), parameters)
    return None if error is None else refuse(400, error, request.id)


def _method_agrees(exchange: Exchange) -> Refusal | None:
    message, method = exchange.message, exchange.headers.get(METHOD)
    assert isinstance(message, Notification)
    # The revision asks for no such header here; but one that is there must not say something else.
    if method is None or method == message.method:
        return None
    return refuse(400, mismatch(f"the header {METHOD} says {shown(method)}, the body {shown(message.method)}"))


def _method_exists(exchange: Exchange) -> Refusal | None:
    request, revision = exchange.message, exchange.revision
    assert isinstance(request, Request)
    assert revision is not None
    # Only what other revisions have and this one has not; methods of one's own are for the session to know.
    if method_spec(revision, request.method) is not None:
        return None
    if not any(method_spec(other, request.method) is not None for other in REVISIONS):
        return None
    text = f"{request.method!r} is not a method of revision {revision}"
    return refuse(404, ErrorData(METHOD_NOT_FOUND, text), request.id)


def _stream_is_acceptable(exchange: Exchange) -> Refusal | None:
    request = exchange.message
    assert isinstance(request, Request)
    if not facts_of(request.method).lasting or accepts(exchange.headers, EVENTS):
        return None
    return refuse(406, f"the client must accept {EVENTS}: {request.method!r} is answered with a stream", request.id)


# --- legacy -----------------------------------------------------------------------------------------------------


def _handshake_is_served(exchange: Exchange) -> Refusal | None:
    settings, header = exchange.settings, exchange.headers.get(PROTOCOL_VERSION)
    if settings.legacy:
        return None
    if header is not None:
        return _unsupported(exchange, header)
    # Naming the versions may be the only diagnosis that a legacy client can show (`basic/versioning`).
    served = ", ".join(settings.modern)
    error = mismatch(f"the header {PROTOCOL_VERSION} is missing; this server has no handshake, it serves {served}")
    return refuse(400, ErrorData(error.code, error.message, {"supported": settings.supported}), _id(exchange))


def _version_is_valid(exchange: Exchange) -> Refusal | None:
    header = exchange.headers.get(PROTOCOL_VERSION)
    if header is None or header in exchange.settings.legacy:
        return None
    return _unsupported(exchange, header)


def _initialize_opens(exchange: Exchange) -> Refusal | None:
    if exchange.settings.has_sessions and exchange.headers.get(SESSION_ID) is not None:
        return refuse(400, f"initialize opens a new session and must not carry {SESSION_ID}", _id(exchange))
    return None


def _session_is_given(exchange: Exchange) -> Refusal | None:
    if not exchange.settings.has_sessions or exchange.headers.get(SESSION_ID) is not None:
        return None
    modern = exchange.settings.modern
    hint = f", or speak {modern[-1]} with {PROTOCOL_VERSION} and params._meta" if modern else ""
    return refuse(400, f"the header {SESSION_ID} is missing: send initialize first{hint}", _id(exchange))


def _session_is_known(exchange: Exchange) -> Refusal | None:
    session = session_of(exchange)
    if session is None:
        return None
    exchange.revision = exchange.session_revision(session)
    if exchange.revision is not None:
        return None
    return refuse(404, "the session is not known or has ended: send initialize, without a session id", _id(exchange))


def _revision_is_assumed(exchange: Exchange) -> Refusal | None:
    if exchange.revision is not None:
        return None  # the session's
    exchange.revision = exchange.headers.get(PROTOCOL_VERSION) or ASSUMED_REVISION
    if exchange.revision in exchange.settings.legacy:
        return None
    text = f"the header {PROTOCOL_VERSION} is missing, and {ASSUMED_REVISION} is not served"
    return refuse(400, text, _id(exchange), data={"supported": exchange.settings.supported})


def _batch_is_known(exchange: Exchange) -> Refusal | None:
    if exchange.revision == BATCH_REVISION:
        return None
    return refuse(400, f"batches are part of revision {BATCH_REVISION} only; this is {exchange.revision}")


_ANY_REQUEST: Final = frozenset[Kind]({"request", "initialize"})
_VERSIONED: Final = frozenset[Kind]({"request", "initialize", "notification"})
_IN_SESSION: Final = frozenset[Kind]({"request", "notification", "answer", "batch"})

MESSAGE_RULES: Final = Ladder(
    Rule("is-message", "JSON-RPC 2.0, 5.1", _is_message, kinds=frozenset({"garbage"})),
    # The modern era
    Rule("one-message", "S, Sending Messages, 4", _one_message, Era.MODERN, frozenset({"batch", "answer"})),
    Rule("revision-named", "2026-07-28 basic, _meta", _revision_is_named, Era.MODERN, _ANY_REQUEST),
    Rule("version-agrees", "S, Protocol Version Header", _version_agrees, Era.MODERN, _VERSIONED),
    Rule("revision-served", "S, Protocol Version Header", _revision_is_served, Era.MODERN, _VERSIONED),
    Rule("client-described", "2026-07-28 basic, _meta", _client_is_described, Era.MODERN, _ANY_REQUEST),
    Rule("headers-agree", "S, Server Validation", _headers_agree, Era.MODERN, _ANY_REQUEST),
    Rule("method-agrees", "S, Server Validation", _method_agrees, Era.MODERN, frozenset({"notification"})),
    Rule("method-exists", "S, Protocol Version Header", _method_exists, Era.MODERN, _ANY_REQUEST),
    Rule("stream-acceptable", "S, Receiving Messages", _stream_is_acceptable, Era.MODERN, frozenset({"request"})),
    # The legacy era
    Rule("handshake-served", "2026-07-28 basic/versioning", _handshake_is_served, Era.LEGACY),
    Rule("version-valid", "L, Protocol Version Header", _version_is_valid, Era.LEGACY),
    Rule("initialize-opens", "L, Session Management, 4", _initialize_opens, Era.LEGACY, frozenset({"initialize"})),
    Rule("session-given", "L, Session Management, 2", _session_is_given, Era.LEGACY, _IN_SESSION),
    Rule("session-known", "L, Session Management, 3", _session_is_known, Era.LEGACY, _IN_SESSION),
    Rule("revision-assumed", "L, Protocol Version Header", _revision_is_assumed, Era.LEGACY, _IN_SESSION),
    Rule("batch-known", "2025-03-26 basic", _batch_is_known, Era.LEGACY, frozenset({"batch"})),
)
"""What a message has to pass, in this order."""
