"""Makes the headers that a client sends over HTTP, and interprets the head of a response, or a refusal.

In references, S is 2026-07-28 `basic/transports/streamable-http`, and L is 2025-11-25 `basic/transports`, Streamable
HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, Final, Literal, TypeAlias

import attrs

from trio_mcp._log import logger
from trio_mcp.errors import HttpError, HttpTrouble, TransportError
from trio_mcp.http.headers import EVENTS, JSON, NAMED_BY, PROTOCOL_VERSION, Headers, shown, standard_headers
from trio_mcp.http.param_headers import ParameterHeader, parameter_headers, parameter_values
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
    "ADDED_NAMES",
    "MAX_ERROR_BODY",
    "POSTED",
    "AnswerKind",
    "Failed",
    "RequestHeaders",
    "Trouble",
    "answer_kind",
    "modern_revision_of",
    "read_failure",
]

MAX_ERROR_BODY: Final = 64 * 1024
"""The maximum number of bytes read of an error response's body (arbitrary): enough for a JSON-RPC error with its data,
but not for every HTML page."""
MAX_TOOLS: Final = 10_000
"""The maximum number of tools whose headers are remembered (arbitrary). Beyond this number, the headers of the oldest
tools are forgotten, and learned again if a call is refused."""
ADDED_NAMES: Final[ContextVar[Mapping[str, str]]] = ContextVar("ADDED_NAMES")
"""The parameter that the ``Mcp-Name`` header repeats, for each method that the client's extensions add.

This is a context variable, because links are opened by functions of the application, which get no arguments.
"""
POSTED: Final = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}"}
"""The headers of every POST."""


# --- what is sent -----------------------------------------------------------------------------------------------


def modern_revision_of(message: Incoming) -> str | None:
    """Return the modern revision that a request names in its ``_meta``, or None."""
    given = message.params.get("_meta") if type(message) is Request and message.params else None
    revision = given.get(meta.PROTOCOL_VERSION) if type(given) is dict else None
    return revision if revision in MODERN_REVISIONS else None


class RequestHeaders:
    """The headers of modern requests, including the arguments that tools want repeated in headers (S, Custom Headers).

    Attributes:
        learned: The number of pages of ``tools/list`` seen so far.
    """

    def __init__(self) -> None:
        self._tools: dict[str, tuple[ParameterHeader, ...]] = {}
        self.learned = 0
        added = ADDED_NAMES.get(None)
        self._named_by = {**NAMED_BY, **added} if added else NAMED_BY

    def of(self, request: Request, revision: str) -> dict[str, str]:
        """Return the headers of the POST for a request, as far as they are known.

        Raises:
            ValueError: If a value in the request can't be sent in a header.
        """
        # The headers that a tool wants are unknown until the tools have been listed. The server then refuses the call,
        # which makes the client list the tools and send the call again.
        headers = {**POSTED, PROTOCOL_VERSION: revision, **standard_headers(request, self._named_by)}
        if request.method == "tools/call" and request.params and self._tools:
            name = request.params.get("name")
            if isinstance(name, str) and name in self._tools:
                headers |= parameter_values(request.params.get("arguments"), self._tools[name])
        return headers

    def learn(self, result: dict[str, Any]) -> dict[str, Any]:
        """Remember the headers that a page of tools wants; return the page without tools with invalid annotations.

        A warning is logged for each tool that is left out.

        Args:
            result: The result of a ``tools/list``; it is not changed.
        """
        self.learned += 1
        tools = result.get("tools")
        if not isinstance(tools, list):
            return result  # the caller validates the result, and raises the error
        kept = [tool for tool in tools if self._keep(tool)]
        return result if len(kept) == len(tools) else {**result, "tools": kept}

    def _keep(self, tool: Any) -> bool:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str):
            return True
        # The entry is removed first, so that a tool seen again becomes the newest, and a tool that no longer wants
        # headers is forgotten.
        self._tools.pop(name, None)
        try:
            found = parameter_headers(tool.get("inputSchema"))
        except ValueError as exc:
            # S, Custom Headers: such a tool must not be offered, because no call to it could be valid.
            logger.warning("the tool %s is left out of the list of tools: %s", shown(name), exc)
            return False
        if found:
            self._tools[name] = found
            if len(self._tools) > MAX_TOOLS:
                del self._tools[next(iter(self._tools))]
        return True


# --- what comes back --------------------------------------------------------------------------------------------

AnswerKind: TypeAlias = Literal["json", "events", "accepted", "failed"]


def answer_kind(status: int, headers: Headers, *, awaits_answer: bool) -> AnswerKind:
    """Decide how to proceed after the head of the response to a POST has arrived.

    Args:
        status: The HTTP status of the response.
        headers: The header fields of the response.
        awaits_answer: Whether a request was posted, rather than a notification or a response.

    Returns:
        ``"json"``: read the body and decode it. ``"events"``: read events. ``"accepted"``: all is well, drain the body.
        ``"failed"``: read up to `MAX_ERROR_BODY` bytes and call `read_failure`.
    """
    if not 200 <= status < 300:
        return "failed"
    # For a notification or a response, the specification asks for status 202; some servers send 200 or 204, which mean
    # the same.
    if not awaits_answer:
        return "accepted"
    return "failed" if status in (202, 204) else _ANSWERS.get(headers.media_type, "failed")


_ANSWERS: Final[dict[str, AnswerKind]] = {JSON: "json", EVENTS: "events"}


Trouble: TypeAlias = HttpTrouble | Literal["unreachable", "disconnected"]
"""Why a request failed: the kind of refusal, as in `HttpError.trouble`, or a connection that could not be made
(``"unreachable"``) or broke (``"disconnected"``)."""


@attrs.frozen
class Failed:
    """The failure of a request, from which the client may still recover.

    Attributes:
        error: The exception that the call raises, unless there is an ``answer``.
        trouble: Why the request failed, which decides what to do next.
        answer: The JSON-RPC error in the body, with the id of the request; None if the body contains something else.
    """

    error: TransportError
    trouble: Trouble
    answer: ErrorResponse | None = None


def read_failure(
    status: int,
    headers: Headers,
    body: bytes,
    *,
    target: str,
    message: Message | None = None,
    modern: bool = False,
    in_session: bool = False,
    now: float,
) -> Failed:
    """Interpret a response to a POST for which `answer_kind` is ``"failed"``, or a failed response to a GET or DELETE.

    Args:
        status: The HTTP status of the response.
        headers: The header fields of the response.
        body: The body of the response, up to `MAX_ERROR_BODY` bytes.
        target: The HTTP method and URL, for the error message, without secrets.
        message: The message that was posted; None for a GET or DELETE.
        modern: Whether the message was a request of the modern era.
        in_session: Whether the message was sent in a session.
        now: The current time in seconds since 1970, for a ``Retry-After`` that is a date.
    """
    decoded = decode(body) if body else None
    # The id of the error does not matter, since the body is the response to this very request; some servers send a
    # fixed string as the id.
    refusal = decoded if isinstance(decoded, ErrorResponse) else None
    # Any status may come with a Retry-After, not only 429 and 503 (RFC 9110, section 10.2.3).
    wait = retry_after(headers.get("Retry-After"), now)
    trouble = _trouble(status, refusal, message, modern, in_session)
    excerpt = body[:2000].decode(errors="replace")
    error = HttpError(target, status, _reason(status, headers), headers.as_dict(), excerpt, trouble, wait)
    # L, Session Management, 4: a POST in a lost session was not carried out. A GET that is refused says nothing about
    # the request whose stream it was to resume.
    error.sent = trouble != "session_lost" or message is None
    # The link recovers from a lost session by itself, so the error in the body must not become the response to the
    # call.
    if refusal is None or trouble == "session_lost" or not isinstance(message, Request):
        return Failed(error, trouble)
    return Failed(error, trouble, ErrorResponse(message.id, refusal.error))


# The error codes that only the modern era has.
_MODERN_CODES: Final = frozenset({HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})
# The HTTP statuses with a meaning (RFC 9110, section 15; RFC 6585, section 4) that does not depend on what was sent.
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
"""The statuses with which a server of 2024-11-05 refuses a POST to its event stream (S, HTTP+SSE Transport)."""


def _trouble(
    status: int, refusal: ErrorResponse | None, message: Message | None, modern: bool, in_session: bool
) -> HttpTrouble:
    if status == 404 and in_session and not modern:
        return "session_lost"  # L, Session Management, 4
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    # A server that does not support the modern era blames the client, with a 4xx status.
    if modern and 400 <= status < 500:
        assert isinstance(message, Request)
        if not _is_modern(status, refusal, message):
            return "not_modern"  # S, Backward Compatibility
        code = refusal.error.code if refusal is not None else None
        # S, Client Behavior: list the tools again, because the arguments to be repeated in headers have changed.
        return "header_mismatch" if code == HEADER_MISMATCH and message.method == "tools/call" else "refused"
    # A server that responds with an error code of the modern era has understood the request, so it is not a server of
    # 2024-11-05.
    if isinstance(message, Request) and message.method == "initialize" and status in _OLD_TRANSPORT:
        recognised = refusal is not None and refusal.error.code in _MODERN_CODES
        return "refused" if recognised else "not_streamable"
    return "refused"


def _is_modern(status: int, refusal: ErrorResponse | None, request: Request) -> bool:
    """Return whether a refusal shows that the server supports a modern revision."""
    if refusal is None:
        return False
    # Every modern server has server/discover, so a server that does not have that method is not modern.
    unknown_method = status == 404 and refusal.error.code == METHOD_NOT_FOUND
    return refusal.error.code in _MODERN_CODES or (unknown_method and request.method != "server/discover")


def _reason(status: int, headers: Headers) -> str:
    if 200 <= status < 300:
        if status in (202, 204):
            return "without a response to the request"
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
