"""What a client sends over HTTP besides the body, and what it makes of the heads of the answers, and of refusals.

S: 2026-07-28 `basic/transports/streamable-http`; L: 2025-11-25 `basic/transports`, Streamable HTTP.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, Literal, TypeAlias

import attrs

from trio_mcp._log import logger
from trio_mcp.errors import HttpError, HttpTrouble, TransportError
from trio_mcp.http.headers import EVENTS, JSON, PROTOCOL_VERSION, Headers, shown, standard_headers
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
"""How much of the body of an error is worth reading, in bytes."""
MAX_TOOLS: Final = 10_000
"""Tools whose headers are remembered; beyond that the oldest are forgotten, and learned again from a refusal."""
POSTED: Final = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}"}
"""The headers of every POST."""


# --- what is sent -----------------------------------------------------------------------------------------------


def modern_revision_of(message: Incoming) -> str | None:
    """The modern revision that a request names in its ``_meta``, or None."""
    given = message.params.get("_meta") if type(message) is Request and message.params else None
    revision = given.get(meta.PROTOCOL_VERSION) if type(given) is dict else None
    return revision if revision in MODERN_REVISIONS else None


class RequestHeaders:
    """The headers of requests of the modern era, with what tools want repeated, as their lists say (S, Custom Headers).

    Attributes:
        learned: How many pages of tools have passed by.
    """

    def __init__(self) -> None:
        self._tools: dict[str, tuple[ParameterHeader, ...]] = {}
        self.learned = 0

    def of(self, request: Request, revision: str) -> dict[str, str]:
        """The headers of a POST, as far as they are known.

        Raises:
            ValueError: Something in the request can't be sent in a header.
        """
        headers = {**POSTED, PROTOCOL_VERSION: revision, **standard_headers(request)}
        if request.method == "tools/call" and request.params and self._tools:
            name = request.params.get("name")
            if isinstance(name, str) and name in self._tools:
                headers |= parameter_values(request.params.get("arguments"), self._tools[name])
        return headers

    def learn(self, result: dict[str, Any]) -> dict[str, Any]:
        """Take note of a page of tools, and leave out those whose annotations break a rule, with a warning in the log.

        Args:
            result: The result of a ``tools/list``; it is not changed.
        """
        self.learned += 1
        tools = result.get("tools")
        if not isinstance(tools, list):
            return result  # for the caller to complain about
        kept = [tool for tool in tools if self._keep(tool)]
        return result if len(kept) == len(tools) else {**result, "tools": kept}

    def _keep(self, tool: Any) -> bool:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str):
            return True
        self._tools.pop(name, None)
        try:
            found = parameter_headers(tool.get("inputSchema"))
        except ValueError as exc:
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
    return "failed" if status in (202, 204) else _ANSWERS.get(headers.media_type, "failed")


_ANSWERS: Final[dict[str, AnswerKind]] = {JSON: "json", EVENTS: "events"}


Trouble: TypeAlias = HttpTrouble | Literal["unreachable", "disconnected"]
"""What fails a request: a refusal, as `HttpError` has it, or a connection that could not be made (``"unreachable"``),
or broke (``"disconnected"``)."""


@attrs.frozen
class Failed:
    """A request that has come to nothing, for now.

    Attributes:
        error: What the call raises, unless there is an ``answer``.
        trouble: Says how to go on.
        answer: The JSON-RPC error that the body holds, with the id of the request; None if it holds none.
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
    """Say what an answer means that `answer_kind` calls failed, or the failed answer to a GET or DELETE.

    Args:
        status: Its HTTP status.
        headers: Its fields.
        body: Its body, up to `MAX_ERROR_BODY` bytes.
        target: The HTTP method and URL, for the message, without secrets.
        message: What was posted; None for a GET or DELETE.
        modern: It was a request of the modern era.
        in_session: A session id was sent.
        now: The time, in seconds since 1970, for a ``Retry-After`` that is a date.
    """
    decoded = decode(body) if body else None
    # Whatever its id says, it came as the answer to this very request; some servers put words there.
    refusal = decoded if isinstance(decoded, ErrorResponse) else None
    wait = retry_after(headers.get("Retry-After"), now)
    trouble = _trouble(status, refusal, message, modern, in_session)
    excerpt = body[:2000].decode(errors="replace")
    reason = _reason(status, headers)
    error = HttpError(target, status, reason, headers.as_dict(), excerpt, trouble, wait)
    if refusal is None or trouble == "session_lost" or not isinstance(message, Request):
        return Failed(error, trouble)
    return Failed(error, trouble, ErrorResponse(message.id, refusal.error))


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


def _trouble(
    status: int, refusal: ErrorResponse | None, message: Message | None, modern: bool, in_session: bool
) -> HttpTrouble:
    if status == 404 and in_session and not modern:
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


def _reason(status: int, headers: Headers) -> str:
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
