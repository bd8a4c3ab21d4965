"""What a client sends over HTTP besides the body, and what it makes of the answers.

S: 2026-07-28 `basic/transports/streamable-http`; L: 2025-11-25 `basic/transports`, Streamable HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urljoin, urlsplit

import attrs

from trio_mcp.errors import HttpError, HttpTrouble, RemoteProtocolError
from trio_mcp.http.headers import (
    EVENTS,
    JSON,
    LAST_EVENT_ID,
    MAX_URL,
    PROTOCOL_VERSION,
    SESSION_ID,
    Headers,
    shown,
    standard_headers,
)
from trio_mcp.http.param_headers import ParameterHeader, parameter_values
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.messages import ErrorResponse, Incoming, Message, Request
from trio_mcp.retrying import retry_after
from trio_mcp.types import meta
from trio_mcp.types.error_codes import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trio_mcp.types.versions import MODERN_REVISIONS

__all__ = [
    "MAX_ERROR_BODY",
    "AnswerKind",
    "Failed",
    "answer_kind",
    "endpoint_url",
    "modern_revision_of",
    "post_headers",
    "read_failure",
    "stream_headers",
]

MAX_ERROR_BODY: Final = 64 * 1024
"""How much of the body of an error is worth reading, in bytes."""

_EVENT_ID = re.compile(r"(?=.{1,4096}\Z)[\x21-\x7e]+(?: +[\x21-\x7e]+)*")


# --- what is sent -----------------------------------------------------------------------------------------------


def modern_revision_of(message: Incoming) -> str | None:
    """The modern revision that a request names in its ``_meta``, or None."""
    given = message.params.get("_meta") if type(message) is Request and message.params else None
    revision = given.get(meta.PROTOCOL_VERSION) if type(given) is dict else None
    return revision if revision in MODERN_REVISIONS else None


def post_headers(
    message: Message,
    *,
    revision: str | None = None,
    session: str | None = None,
    parameters: Iterable[ParameterHeader] = (),
) -> dict[str, str]:
    """The headers of a POST.

    Args:
        message: What is posted.
        revision: The revision that has been negotiated; a modern request says its own.
        session: The id of the legacy session, if the server gave one.
        parameters: What the tool of a modern ``tools/call`` wants repeated, see `parameter_headers`.

    Raises:
        ValueError: Something in the message can't be sent in a header.
    """
    headers = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}"}
    own = modern_revision_of(message)
    if own is not None:
        assert isinstance(message, Request)
        headers |= {PROTOCOL_VERSION: own, **standard_headers(message, own)}
        if message.method == "tools/call" and message.params:
            headers |= parameter_values(message.params.get("arguments"), parameters)
        return headers
    if type(message) is Request and message.method == "initialize":
        return headers  # nothing has been negotiated, and a new session must not name an old one
    return headers | _context(revision, session)


def stream_headers(
    *, revision: str | None = None, session: str | None = None, last_event_id: str = ""
) -> dict[str, str]:
    """The headers of a GET, or, but for ``Accept``, of a DELETE (legacy era).

    Args:
        revision: The revision that has been negotiated.
        session: The id of the session, if the server gave one.
        last_event_id: Where to resume a stream.

    Raises:
        ValueError: The event id can't be sent in a header.
    """
    headers = {"Accept": EVENTS, **_context(revision, session)}
    if not last_event_id:
        return headers
    if not _EVENT_ID.fullmatch(last_event_id):
        raise ValueError(f"the event id {shown(last_event_id)} can't be sent back: it is too long or not plain ASCII")
    return {**headers, LAST_EVENT_ID: last_event_id}


def _context(revision: str | None, session: str | None) -> dict[str, str]:
    headers = {PROTOCOL_VERSION: revision, SESSION_ID: session}
    return {name: value for name, value in headers.items() if value is not None}


# --- what comes back --------------------------------------------------------------------------------------------

AnswerKind: TypeAlias = Literal["json", "events", "accepted", "failed"]


def answer_kind(status: int, headers: Headers, *, awaits_answer: bool) -> AnswerKind:
    """Say by its head how to go on with the answer to a POST.

    Args:
        status: Its HTTP status.
        headers: Its fields.
        awaits_answer: A request was posted; else a notification or an answer.

    Returns:
        ``"json"``: read the body and decode it. ``"events"``: read events. ``"accepted"``: all is well, drain the body.
        ``"failed"``: read up to `MAX_ERROR_BODY` bytes and go on with `read_failure`.
    """
    if not 200 <= status < 300:
        return "failed"
    if not awaits_answer:
        return "accepted"
    kind = _media_type(headers)
    if status not in (202, 204) and kind in _ANSWERS:
        return _ANSWERS[kind]
    return "failed"


_ANSWERS: Final[dict[str, AnswerKind]] = {JSON: "json", EVENTS: "events"}


@attrs.frozen
class Failed:
    """What is to be made of an answer that carries no result.

    Attributes:
        error: What the call raises, unless there is an ``answer``; its ``trouble`` says how to go on.
        answer: The JSON-RPC error that the body holds, with the id of the request; None if it holds none.
    """

    error: HttpError
    answer: ErrorResponse | None = None


def read_failure(
    status: int,
    headers: Headers,
    body: bytes,
    *,
    target: str,
    message: Message | None = None,
    session: str | None = None,
    now: float,
) -> Failed:
    """Say what an answer means that `answer_kind` calls failed, or the failed answer to a GET or DELETE.

    Args:
        status: Its HTTP status.
        headers: Its fields.
        body: Its body, up to `MAX_ERROR_BODY` bytes.
        target: The HTTP method and URL, for the message, without secrets.
        message: What was posted; None for a GET or DELETE.
        session: The session id that was sent.
        now: The time, in seconds since 1970, for a ``Retry-After`` that is a date.
    """
    decoded = decode(body) if body else None
    # Whatever its id says, it came as the answer to this very request; some servers put words there.
    refusal = decoded if isinstance(decoded, ErrorResponse) else None
    wait = retry_after(headers.get("Retry-After"), now)
    trouble = _trouble(status, refusal, message, session)
    excerpt = body[:2000].decode(errors="replace")
    reason = _reason(status, headers, message)
    error = HttpError(target, status, reason, headers.as_dict(), excerpt, trouble, wait)
    if refusal is None or trouble == "session_lost" or not isinstance(message, Request):
        return Failed(error)
    return Failed(error, ErrorResponse(message.id, refusal.error))


_MODERN_CODES: Final = frozenset({HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})
_BY_STATUS: Final[dict[int, HttpTrouble]] = {
    401: "unauthorized",
    403: "forbidden",
    413: "too_large",
    429: "busy",
    502: "gateway",
    503: "busy",
    504: "gateway",
}
_OLD_TRANSPORT: Final = frozenset({400, 404, 405})
"""How a server of 2024-11-05 answers a POST to its event stream (S, HTTP+SSE Transport)."""


def _trouble(status: int, refusal: ErrorResponse | None, message: Message | None, session: str | None) -> HttpTrouble:
    modern = message is not None and modern_revision_of(message) is not None
    if status == 404 and session is not None and not modern:
        return "session_lost"  # L, Session Management, 4
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if modern and 400 <= status < 500:
        assert isinstance(message, Request)
        if not _is_modern(status, refusal, message):
            return "not_modern"  # S, Backward Compatibility
        code = refusal.error.code if refusal is not None else None
        # S, Client Behavior: list the tools again, as what they want repeated has changed.
        return "header_mismatch" if code == HEADER_MISMATCH and message.method == "tools/call" else "refused"
    if isinstance(message, Request) and message.method == "initialize" and status in _OLD_TRANSPORT:
        recognised = refusal is not None and refusal.error.code in _MODERN_CODES
        return "refused" if recognised else "not_streamable"
    return "refused"


def _is_modern(status: int, refusal: ErrorResponse | None, request: Request) -> bool:
    """Whether a refusal shows that the server speaks a modern revision."""
    if refusal is None:
        return False
    # Every modern server has server/discover, so one that does not know it is none.
    unknown_method = status == 404 and refusal.error.code == METHOD_NOT_FOUND
    return refusal.error.code in _MODERN_CODES or (unknown_method and request.method != "server/discover")


def _reason(status: int, headers: Headers, message: Message | None) -> str:
    if 200 <= status < 300:
        if status in (202, 204):
            return "without an answer to the request"
        kind = headers.get("Content-Type")
        if kind is None:
            return "without a Content-Type"
        return f"with the Content-Type {shown(kind)}, which is neither JSON nor events"
    location = headers.get("Location")
    if 300 <= status < 400 and location is not None:
        return f"with a redirection to {shown(location)}, which is not followed"
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "an unknown status"


def _media_type(headers: Headers) -> str:
    return (headers.get("Content-Type") or "").partition(";")[0].strip().lower()


# --- HTTP+SSE, 2024-11-05 ---------------------------------------------------------------------------------------


def endpoint_url(stream_url: str, data: bytes) -> str:
    """Read the ``endpoint`` event: where to post messages (2024-11-05 `basic/transports`, HTTP with SSE).

    Raises:
        RemoteProtocolError: It is no URL, or leads to another origin, which would get the credentials of this one.
    """
    try:
        if not 0 < len(data) <= MAX_URL:
            raise ValueError
        url = urljoin(stream_url, data.decode())
        here, there = urlsplit(stream_url), urlsplit(url)
        same = _origin(here) == _origin(there)
    except ValueError:
        raise RemoteProtocolError("the server's endpoint event holds no URL, or one that is too long") from None
    if not same or any(character <= " " or character == "\x7f" for character in url):
        raise RemoteProtocolError(f"the server's endpoint event leads elsewhere, to {shown(url)}; it is not followed")
    return url


def _origin(parts: Any) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
